//! Statements, transactions and the difference of a PostgreSQL database, through the proxy and directly.

use super::server::{Held, Served};
use super::{Scale, grouped};
use crate::failure::{Failure, Result};
use crate::measure::{Sample, Sides, interleave};
use crate::report::Row;
use crate::rows::Bench;

const SELECT_GOAL: f64 = 2.0;
const TRANSACTIONS_GOAL: f64 = 1.0;
/// Ten times as fast.
const DIFF_GOAL: f64 = 0.1;
/// How many rows a table has for each unit of pgbench's scale.
const ACCOUNTS: usize = 100_000;
/// One value for all rows of a table in the order of the primary key: it tells that two sides differ, if not where.
const HASH: &str = "select md5(string_agg(md5(a::text), '' order by aid)) from pgbench_accounts a";

type Started = Result<Served>;

/// SELECTs by primary key, in both protocols.
pub fn selects(bench: &Bench, scale: &Scale, started: &Started) -> Result<Vec<Row>> {
    ["simple", "prepared"].into_iter().map(|protocol| select(bench, scale, started, protocol)).collect()
}

fn select(bench: &Bench, scale: &Scale, started: &Started, protocol: &str) -> Result<Row> {
    let name = format!("PostgreSQL SELECT by primary key through the proxy vs direct, {protocol}");
    bench.row(&name, Some(SELECT_GOAL), || {
        let served = running(started)?;
        let (held, direct, count) = (served.hold()?, served.url(), scale.selects.to_string());
        let options = ["-S", "-c", "1", "-M", protocol, "-t", &count];
        let ours = || served.pgbench(&held.url, &options, scale.selects);
        let theirs = || served.pgbench(&direct, &options, scale.selects);
        let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
        served.release(&held)?;
        Ok(Row::each(&name, SELECT_GOAL, scale.selects, &sides))
    })
}

/// Transactions like those of TPC-B, with one client and, for information, with eight.
pub fn transactions(bench: &Bench, scale: &Scale, started: &Started) -> Result<Vec<Row>> {
    let rows = [(1, "one client", Some(TRANSACTIONS_GOAL)), (8, "eight clients", None)].into_iter();
    rows.map(|(clients, who, goal)| {
        let name = format!("PostgreSQL TPC-B transactions of {who} through the proxy vs direct");
        bench.row(&name, goal, || {
            let without = |why| Row { at_least: true, ..Row::without(&name, goal, "a second", &why) };
            let sides = in_turn(bench, scale, started, clients);
            Ok(sides.map_or_else(without, |sides| Row::transactions(&name, goal, scale.transactions, &sides)))
        })
    })
    .collect()
}

/// Never at once: the sandbox locks the rows that it has changed. Each round has a sandbox of its own.
fn in_turn(bench: &Bench, scale: &Scale, started: &Started, clients: usize) -> Result<Sides> {
    let served = running(started)?;
    let (each, clients) = ((scale.transactions / clients).to_string(), clients.to_string());
    let options = ["-c", &clients, "-M", "simple", "-t", &each];
    let ours = || {
        served.tidy()?;
        let held = served.hold()?;
        let sample = served.pgbench(&held.url, &options, scale.transactions);
        served.release(&held).and(sample)
    };
    let theirs = || {
        served.tidy()?;
        served.pgbench(&served.url(), &options, scale.transactions)
    };
    interleave(bench.rounds, &bench.interrupt, ours, theirs)
}

/// The difference of rows that are far apart, against a hash of all rows on both sides.
pub fn diff(bench: &Bench, scale: &Scale, started: &Started) -> Result<Row> {
    let rows = scale.pgbench * ACCOUNTS;
    let (changed, all) = (grouped(scale.changed), grouped(rows));
    let name = format!("PostgreSQL diff of {changed} rows among {all} vs a hash of both sides");
    bench.row(&name, Some(DIFF_GOAL), || {
        let served = running(started)?;
        served.tidy()?;
        let held = served.hold()?;
        let every = rows / scale.changed;
        let change = format!("update pgbench_accounts set abalance = abalance + 1 where aid % {every} = 0");
        served.psql(&held.url, &change)?;
        let ours = || served.diff(&held, scale.changed);
        let sides = interleave(bench.rounds, &bench.interrupt, ours, || hash(served, &held))?;
        served.release(&held)?;
        Ok(Row::timed(&name, Some(DIFF_GOAL), &sides))
    })
}

/// Both hashes, one after the other; they must differ.
fn hash(served: &Served, held: &Held) -> Result<Sample> {
    let (inside, ours) = served.psql(&held.url, HASH)?;
    let (outside, theirs) = served.psql(&served.url(), HASH)?;
    if ours == theirs {
        return Err(Failure::new("the hash of both sides is the same where rows differ"));
    }
    Ok(Sample::in_process(inside.wall + outside.wall))
}

/// The server, or once more why there is none.
fn running(started: &Started) -> Result<&Served> {
    started.as_ref().map_err(Failure::again)
}
