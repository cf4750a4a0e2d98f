//! One sandbox over HTTP, against the same document made in this process.

use std::hint::black_box;

use sandboxer_documents::SandboxDocument;

use super::Scale;
use super::scene::{Server, State};
use crate::failure::{During, Failure, Result};
use crate::measure::interleave;
use crate::report::Row;
use crate::rows::Bench;
use crate::rows::environments::scene::timed;

/// Microseconds that HTTP may add.
const GOAL: f64 = 300.0;

/// The comparison.
pub fn row(bench: &Bench, scale: &Scale) -> Result<Row> {
    let name = "what HTTP adds to get";
    bench.row(name, Some(GOAL), || {
        let state = State::with(scale.few)?;
        let server = Server::start(&bench.binary, &state)?;
        let (mut client, manager) = (server.connect()?, state.manager()?);
        let path = format!("/v1/sandboxes/{}", state.id);
        let here = || -> Result<Vec<u8>> {
            let target = manager.find_any(&state.id).during("get", &state.home())?;
            serde_json::to_vec(&SandboxDocument::of(&target.sandbox))
                .map_err(|error| Failure::new(format!("cannot write a document: {error}")))
        };
        if client.get(&path)? != here()? {
            return Err(Failure::new("both sides are not the same document"));
        }
        let ours =
            || timed(|| (0..scale.calls).try_for_each(|_| client.get(&path).map(|it| drop(black_box(it)))));
        let theirs = || timed(|| (0..scale.calls).try_for_each(|_| here().map(|it| drop(black_box(it)))));
        let sides = interleave(bench.rounds * 4, &bench.interrupt, ours, theirs)?;
        Ok(Row::added(name, GOAL, scale.calls, &sides).noting("over TCP, with a token, one client"))
    })
}
