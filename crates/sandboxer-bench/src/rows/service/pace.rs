//! How many gets are answered in a second, asked by `wrk` on the same machine, against as many in this process one after the other.

use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use super::Scale;
use super::scene::{Server, State};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, interleave};
use crate::report::Row;
use crate::rows::Bench;
use crate::rows::environments::scene::timed;

/// Requests a second.
const GOAL: f64 = 15_000.0;
/// What is one sample, on either side.
const REQUESTS: usize = 10_000;

/// The figure.
pub fn row(bench: &Bench, scale: &Scale) -> Result<Row> {
    let name = "gets a second, asked by wrk";
    bench.row(name, Some(GOAL), || {
        let state = State::with(scale.few)?;
        let server = Server::start(&bench.binary, &state)?;
        let manager = state.manager()?;
        let ours = || wrk(&server, &state.id, scale.seconds);
        let theirs = || {
            timed(|| {
                (0..REQUESTS).try_for_each(|_| {
                    manager.find_any(&state.id).during("get", &state.home()).map(|it| drop(black_box(it)))
                })
            })
        };
        let sides = interleave(bench.rounds.div_ceil(2), &bench.interrupt, ours, theirs)?;
        let row = Row::pace(name, Some(GOAL), REQUESTS, &sides);
        Ok(row.noting("over TCP, with a token, 32 connections; wrk has its share of the processors"))
    })
}

/// How long that many requests took, at the pace that `wrk` has seen. One that failed fails the row.
fn wrk(server: &Server, id: &str, seconds: u64) -> Result<Sample> {
    let mut command = Command::new("wrk");
    command.args(["-t1", "-c32", &format!("-d{seconds}s"), "-H", &server.authorization()]);
    command.arg(format!("http://{}/v1/sandboxes/{id}", server.address));
    let output =
        command.output().map_err(|error| Failure::Skipped(format!("wrk cannot be started: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(Failure::new(format!("wrk saw errors: {}", text.trim())));
    }
    let pace = text.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    let pace: f64 = pace
        .and_then(|figure| figure.trim().parse().ok())
        .ok_or_else(|| Failure::new(format!("wrk says no pace: {}", text.trim())))?;
    Ok(Sample::in_process(Duration::from_secs_f64(REQUESTS as f64 / pace)))
}
