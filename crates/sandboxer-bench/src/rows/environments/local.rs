//! Sandboxes of `profile.local` made and removed through the library, in one process, with everything as durable as it ever is, against what
//! the disk allows: as many times two transactions of plain SQLite, an insert and an update, each flushed. So many wait for the disk at
//! least: a sandbox that is there has to be there after a power cut, and one whose removal has begun must not seem whole.
//!
//! A sandbox has at least one workspace. It is a copy of a directory with one file, which flushes what it writes of its own; so that one can
//! tell whose time it is, the same is measured once more by the strategy that makes nothing.

use std::path::Path;

use sandboxer::SandboxManager;
use sandboxer::wiring::{Setup, open};
use sandboxer_core::service::{CreateRequest, Target, Uncommitted};
use sandboxer_sqlite::{Connection, Mode, Value};

use super::Scale;
use super::scene::{project, request, timed};
use crate::failure::{During, Failure, Result};
use crate::measure::interleave;
use crate::place::Place;
use crate::report::Row;
use crate::rows::Bench;

/// Sandboxes a second.
const GOAL: f64 = 500.0;
/// One manager serves them all.
const THREADS: usize = 2;
/// The state, the copies and the other side's database.
const ROOM: u64 = 256 << 20;
/// What the other side writes at a time.
const TEXT: usize = 200;

/// The comparison on the disk at `disk`, with a copy and without one.
pub fn rows(bench: &Bench, disk: &Path, scale: &Scale) -> Result<Vec<Row>> {
    let what = "create and destroy of sandboxes of profile.local";
    let copied = format!("{what} vs two plain SQLite transactions, disk");
    let bare = format!("{what} that copy nothing vs two plain SQLite transactions, disk");
    Ok(vec![
        row(bench, disk, scale, &copied, "filesystem_copy", Some(GOAL))?,
        row(bench, disk, scale, &bare, "none", None)?,
    ])
}

fn row(
    bench: &Bench,
    disk: &Path,
    scale: &Scale,
    name: &str,
    strategy: &str,
    goal: Option<f64>,
) -> Result<Row> {
    bench.row(name, goal, || {
        let place = Place::disk(disk, ROOM)?;
        let request = request(&project(place.root())?, strategy, "profile.local")?;
        let manager = manager(bench, &place.root().join("state"))?;
        let plain = plain(&place.root().join("plain.db"))?;
        let ours = || {
            place.settle()?;
            timed(|| live_and_die(&manager, &request, scale.made))
        };
        let theirs = || {
            place.settle()?;
            timed(|| (0..scale.made).try_for_each(|_| insert_and_update(&plain)))
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
        let note = format!("{THREADS} threads; {strategy} of a directory with one file");
        Ok(Row::pace(name, goal, scale.made, &sides).noting(&note))
    })
}

/// With the program that runtimes are started from: whether one runs is then looked for as ever.
fn manager(bench: &Bench, home: &Path) -> Result<SandboxManager> {
    let setup = Setup { program: Some(bench.binary.clone()), ..Setup::quiet(home) };
    open(setup).during("open", home)
}

/// Makes and removes so many, one after the other in each thread.
fn live_and_die(manager: &SandboxManager, request: &CreateRequest, count: usize) -> Result<()> {
    let some = |thread: usize| (thread..count).step_by(THREADS).try_for_each(|_| one(manager, request));
    std::thread::scope(|scope| {
        let some = &some;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || some(thread))).collect();
        let ended = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(Failure::new("a panic"))));
        ended.collect()
    })
}

fn one(manager: &SandboxManager, request: &CreateRequest) -> Result<()> {
    let made = manager.get_or_create_sandbox(request).during("create a sandbox in", manager.home())?.sandbox;
    let target = Target { workspaces: made.workspaces.clone(), sandbox: made };
    // As the command does it without flags: it looks for work that nobody has committed.
    manager.destroy(&target, Uncommitted::Park).during("destroy a sandbox in", manager.home()).map(drop)
}

fn plain(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path, Mode::Create).during("create", path)?;
    let schema = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                  CREATE TABLE plain (id INTEGER PRIMARY KEY, state TEXT)";
    connection.execute_batch(schema).during("make a table in", path)?;
    Ok(connection)
}

/// Two statements without a transaction around them are two transactions.
fn insert_and_update(connection: &Connection) -> Result<()> {
    let write = |sql: &str, letter: u8| {
        let done = connection.execute(sql, &[Value::Text(vec![letter; TEXT])]);
        done.during("write to", connection.path()).map(drop)
    };
    write("INSERT INTO plain (state) VALUES (?1)", b'i')?;
    write("UPDATE plain SET state = ?1 WHERE id = last_insert_rowid()", b'u')
}
