//! The memory of a server that many idle clients follow.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Scale;
use super::scene::{Server, State};
use crate::failure::{Failure, Result};
use crate::report::Row;
use crate::rows::{Bench, count};

/// Megabytes.
const GOAL: f64 = 100.0;

/// The figure.
pub fn row(bench: &Bench, scale: &Scale) -> Result<Row> {
    let name = format!("memory of a server with {} idle followers", count(scale.followers));
    bench.row(&name, Some(GOAL), || {
        allow_files(scale.followers as u64 + 200);
        let state = State::with(scale.few)?;
        let server = Server::start(&bench.binary, &state)?;
        let alone = server.resident()?;
        let mut followers = Vec::with_capacity(scale.followers);
        for _ in 0..scale.followers {
            let mut client = server.connect()?;
            match client.ask("/v1/events", "text/event-stream")? {
                (200, _) => followers.push(client),
                (other, _) => return Err(Failure::new(format!("a follower was answered with {other}"))),
            }
        }
        let crowded = server.resident()?;
        let each = (crowded.saturating_sub(alone)) / scale.followers as u64 / 1024;
        Ok(Row::memory(&name, GOAL, crowded, 1).noting(&format!("{each} KiB each")))
    })
}

/// As many open files as there are clients, as far as that is allowed.
fn allow_files(wanted: u64) {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(wanted);
    let current = Some(now.current.unwrap_or(wanted).max(wanted).min(most));
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: now.maximum });
}
