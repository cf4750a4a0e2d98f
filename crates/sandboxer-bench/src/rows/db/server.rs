//! A PostgreSQL server of the benchmark's own with pgbench's tables, and sandboxes of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sandboxer_testkit::servers::Postgres;
use serde::Deserialize;

use super::Scale;
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, run};
use crate::place::{Place, tool};
use crate::rows::Bench;
use crate::sandbox::{SandboxCommand, Tidy};

/// What the state of the sandboxes and the output of clients take at most.
const ROOM: u64 = 64 << 20;

/// A server with a database, and the command that makes sandboxes of it. Sandboxes go before the server does.
pub struct Served {
    sandbox: Tidy,
    place: Place,
    database: String,
    server: Postgres,
}

/// A sandbox of the database.
pub struct Held {
    /// Its id.
    pub id: String,
    /// Where clients connect to it.
    pub url: String,
}

#[derive(Deserialize)]
struct Created {
    sandbox_id: String,
}

#[derive(Deserialize)]
struct Connection {
    url: String,
}

impl Served {
    /// Starts a server that flushes its commits, as servers do unless they are told otherwise, and fills a database.
    pub fn start(bench: &Bench, scale: &Scale) -> Result<Self> {
        let settings = [("fsync", "on")];
        let server = Postgres::with_settings(&settings)
            .ok_or_else(|| Failure::Skipped("no PostgreSQL server here".to_owned()))?;
        let place = Place::tmpfs(ROOM)?;
        let sandbox = Tidy(SandboxCommand::new(&bench.binary, place.root()));
        let database = server.database();
        let served = Self { sandbox, place, database, server };
        served.fill(scale)?;
        Ok(served)
    }

    fn fill(&self, scale: &Scale) -> Result<()> {
        crate::say(&format!("writing pgbench's tables of scale {}", scale.pgbench));
        if !self.server.program("pgbench").exists() {
            return Err(Failure::Skipped("no pgbench here (Debian package postgresql-contrib)".to_owned()));
        }
        let size = scale.pgbench.to_string();
        tool(self.client("pgbench").args(["-i", "-q", "-s", &size]).arg(self.url()))
    }

    /// The server's own URL, by its port on loopback: a sandbox has such a one, too.
    pub fn url(&self) -> String {
        self.server.url(&self.database)
    }

    /// A program of the server's, which knows the password.
    fn client(&self, program: &str) -> Command {
        let mut client = Command::new(self.server.program(program));
        client.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent");
        client.env("PGPASSWORD", self.server.password());
        client
    }

    /// Makes a sandbox; not timed.
    pub fn hold(&self) -> Result<Held> {
        let mut create = self.sandbox.command(&["create", "--json", &self.url()]);
        let created: Created = self.answer(create.env("PGPASSWORD", self.server.password()))?;
        let connection: Connection =
            self.answer(&mut self.sandbox.command(&["path", "--json", &created.sandbox_id]))?;
        Ok(Held { id: created.sandbox_id, url: connection.url })
    }

    /// Removes a sandbox; not timed.
    pub fn release(&self, held: &Held) -> Result<()> {
        tool(&mut self.sandbox.command(&["destroy", "--discard", &held.id]))
    }

    /// Times `sandbox diff`, which must find so many rows.
    pub fn diff(&self, held: &Held, expected: usize) -> Result<Sample> {
        self.sandbox.diff_of(&held.id, expected)
    }

    fn answer<T: for<'a> Deserialize<'a>>(&self, command: &mut Command) -> Result<T> {
        let output = self.output();
        run(command, &output, &[0])?;
        serde_json::from_str(&text(&output)?).during("understand the JSON in", &output)
    }

    /// Times a script, as psql runs it at this URL; what it prints.
    pub fn psql(&self, url: &str, script: &str) -> Result<(Sample, String)> {
        let (output, mut psql) = (self.output(), self.client("psql"));
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", script, url]);
        let sample = run(&mut psql, &output, &[0])?;
        Ok((sample, text(&output)?))
    }

    /// Times so many transactions of pgbench at this URL, by its own clock, which leaves out connecting.
    pub fn pgbench(&self, url: &str, options: &[&str], transactions: usize) -> Result<Sample> {
        let (output, mut pgbench) = (self.output(), self.client("pgbench"));
        let sample = run(pgbench.arg("-n").args(options).arg(url), &output, &[0])?;
        let rate = rate_in(&text(&output)?).filter(|rate| *rate > 0.0);
        let rate = rate.ok_or_else(|| Failure::new(format!("pgbench {options:?} gave no rate")))?;
        Ok(Sample { wall: Duration::from_secs_f64(transactions as f64 / rate), ..sample })
    }

    /// Takes away what the last sample left behind, so that the next one finds what every one finds.
    pub fn tidy(&self) -> Result<()> {
        let script = "vacuum pgbench_branches, pgbench_tellers, pgbench_accounts, pgbench_history";
        self.psql(&self.url(), script)?;
        self.psql(&self.url(), "checkpoint").map(drop)
    }

    fn output(&self) -> PathBuf {
        self.place.root().join("answer")
    }
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).during("read", path)
}

/// The transactions in a second that pgbench tells at the end, without the time that connecting took.
fn rate_in(said: &str) -> Option<f64> {
    let line = said.lines().rev().find_map(|line| line.strip_prefix("tps = "))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_without_connecting_is_the_last_that_is_told() {
        let old = "tps = 90.5 (including connections establishing)\ntps = 99.25 (excluding connections establishing)\n";
        assert_eq!(rate_in(old), Some(99.25));
        assert_eq!(rate_in("tps = 435.9 (without initial connection time)\n"), Some(435.9));
        assert_eq!(rate_in("latency average = 2.294 ms\n"), None);
    }
}
