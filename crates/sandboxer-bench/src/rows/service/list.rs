//! A page of a hundred sandboxes out of many, against one out of a hundred.

use std::hint::black_box;

use super::Scale;
use super::scene::{Client, Server, State};
use crate::failure::{Failure, Result};
use crate::measure::interleave;
use crate::report::Row;
use crate::rows::environments::scene::timed;
use crate::rows::{Bench, count};

const GOAL: f64 = 3.0;
const PATH: &str = "/v1/sandboxes?limit=100";
/// Fewer than of a get: each answer is a hundred times as long.
const SHARE: usize = 10;

/// The comparison.
pub fn row(bench: &Bench, scale: &Scale) -> Result<Row> {
    let name = format!("a page of 100 of {} sandboxes vs of {}", count(scale.many), count(scale.few));
    bench.row(&name, Some(GOAL), || {
        let (many, few) = (State::with(scale.many)?, State::with(scale.few)?);
        let servers = (Server::start(&bench.binary, &many)?, Server::start(&bench.binary, &few)?);
        let (mut of_many, mut of_few) = (servers.0.connect()?, servers.1.connect()?);
        let calls = (scale.calls / SHARE).max(1);
        let ours = || timed(|| pages(&mut of_many, calls));
        let theirs = || timed(|| pages(&mut of_few, calls));
        let sides = interleave(bench.rounds * 4, &bench.interrupt, ours, theirs)?;
        Ok(Row::each(&name, GOAL, calls, &sides))
    })
}

fn pages(client: &mut Client, calls: usize) -> Result<()> {
    for _ in 0..calls {
        let body = client.get(PATH)?;
        let text = String::from_utf8_lossy(&body);
        if black_box(text.matches("\"sandbox_id\"").count()) != 100 {
            return Err(Failure::new("a page has not a hundred sandboxes in it"));
        }
    }
    Ok(())
}
