//! A clone of a SQLite database, against `cp --reflink` and against SQLite's own backup.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandboxer_sqlite::{Connection, Mode, Way, clone, copy_content};

use super::{Scale, timed};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, Sides, interleave, run};
use crate::place::Place;
use crate::report::Row;
use crate::rows::Bench;
use crate::sandbox::{SandboxCommand, Tidy};

const GOAL: f64 = 1.2;
/// The content of one row.
const BLOB: u64 = 1_000;

/// All of them.
pub fn rows(bench: &Bench, scale: &Scale) -> Result<Vec<Row>> {
    let mut rows = reflinks(bench, scale)?.to_vec();
    rows.extend(backups(bench, scale)?);
    Ok(rows)
}

/// On an XFS: the library against `cp`, and for information the whole command, which keeps a base and a state beside the clone.
fn reflinks(bench: &Bench, scale: &Scale) -> Result<[Row; 2]> {
    let megabytes = scale.clone / 1_000_000;
    let site = Place::xfs(scale.clone * 3 / 2 + (128 << 20)).and_then(|place| Site::new(place, scale));
    let name = format!("SQLite clone of {megabytes} MB vs cp --reflink=always, xfs");
    let by_library = bench.row(&name, Some(GOAL), || {
        let site = made(&site)?;
        let sides =
            interleave(bench.rounds, &bench.interrupt, || site.cloned(&[Way::Reflink]), || site.copied())?;
        Ok(Row::timed(&name, Some(GOAL), &sides))
    })?;
    let name = format!("sandbox create of a SQLite database of {megabytes} MB vs cp --reflink=always, xfs");
    let by_command = bench.row(&name, None, || {
        let site = made(&site)?;
        let sandbox = Tidy(SandboxCommand::new(&bench.binary, site.place.root()));
        let ours = || {
            site.place.settle()?;
            let create = ["create", "--json", "--strategy", "database_snapshot"];
            let sample = run(sandbox.command(&create).arg(&site.original), &site.beside("output"), &[0])?;
            sandbox.destroy_all().map(|()| sample)
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, || site.copied())?;
        Ok(Row::timed(&name, None, &sides))
    })?;
    Ok([by_library, by_command])
}

/// On a tmpfs, which has no reflinks: where the file can be held still, and where a reader's transaction needs the WAL.
fn backups(bench: &Bench, scale: &Scale) -> Result<[Row; 2]> {
    let megabytes = scale.clone / 1_000_000;
    let site = Place::tmpfs(scale.clone * 5 / 2 + (128 << 20)).and_then(|place| Site::new(place, scale));
    let compare = |site: &Site, ways: &[Way]| -> Result<Sides> {
        interleave(bench.rounds, &bench.interrupt, || site.cloned(ways), || site.backed_up())
    };
    let name = format!("SQLite clone of {megabytes} MB vs the backup API, tmpfs");
    let still = bench.row(&name, Some(GOAL), || {
        Ok(Row::timed(&name, Some(GOAL), &compare(made(&site)?, &[Way::Copy, Way::Backup])?))
    })?;
    let name = format!("SQLite clone of {megabytes} MB with a reader in the WAL vs the backup API, tmpfs");
    let read = bench.row(&name, Some(GOAL), || {
        let site = made(&site)?;
        let _reader = site.reader()?;
        Ok(Row::timed(&name, Some(GOAL), &compare(site, &[Way::Backup])?))
    })?;
    Ok([still, read])
}

/// A place with a database to clone.
struct Site {
    place: Place,
    original: PathBuf,
}

/// Two connections that keep content in the WAL: one reads the state before it.
struct Reader {
    _reading: Connection,
    _wrote: Connection,
}

impl Site {
    fn new(place: Place, scale: &Scale) -> Result<Self> {
        crate::say(&format!("writing a database of {} MB on {}", scale.clone / 1_000_000, place.name));
        let original = place.root().join("original.db");
        let connection = Connection::open(&original, Mode::Create).during("create", &original)?;
        let rows = scale.clone / (BLOB + BLOB / 16);
        let script = format!(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
             CREATE TABLE blobs (id INTEGER PRIMARY KEY, content BLOB);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO blobs SELECT i, randomblob({BLOB}) FROM n"
        );
        connection.execute_batch(&script).during("fill", &original)?;
        drop(connection);
        Ok(Self { place, original })
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.place.root().join(name)
    }

    /// Times the library's clone, which must be made in one of these ways.
    fn cloned(&self, ways: &[Way]) -> Result<Sample> {
        let to = self.fresh("clone.db")?;
        let (sample, made) = timed(|| clone(&self.original, &to).during("clone", &self.original))?;
        if ways.contains(&made) {
            return Ok(sample);
        }
        Err(Failure::new(format!("the clone was made by {made:?} and not by any of {ways:?}")))
    }

    /// Times `cp`.
    fn copied(&self) -> Result<Sample> {
        let to = self.fresh("copy.db")?;
        run(
            Command::new("cp").arg("--reflink=always").arg(&self.original).arg(&to),
            &self.beside("output"),
            &[0],
        )
    }

    /// Times SQLite's backup.
    fn backed_up(&self) -> Result<Sample> {
        let to = self.fresh("backup.db")?;
        let (sample, ()) = timed(|| backup(&self.original, &to))?;
        Ok(sample)
    }

    /// A path where nothing is, after everything is written out.
    fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.beside(name);
        for old in ["clone.db", "copy.db", "backup.db"].map(|name| self.beside(name)) {
            if old.exists() {
                fs::remove_file(&old).during("remove", &old)?;
            }
        }
        self.place.settle()?;
        Ok(path)
    }

    fn reader(&self) -> Result<Reader> {
        let open = || Connection::open(&self.original, Mode::ReadWrite).during("open", &self.original);
        let (reading, wrote) = (open()?, open()?);
        wrote.execute_batch("PRAGMA journal_mode = WAL").during("set the journal of", &self.original)?;
        reading.begin_read().during("read", &self.original)?;
        wrote.execute_batch("DELETE FROM blobs WHERE id = 1").during("write to", &self.original)?;
        Ok(Reader { _reading: reading, _wrote: wrote })
    }
}

fn backup(from: &Path, to: &Path) -> Result<()> {
    let source = Connection::open(from, Mode::ReadWrite).during("open", from)?;
    let target = Connection::open(to, Mode::Create).during("create", to)?;
    copy_content(&source, &target).during("back up to", to)
}

/// The site, or once more why there is none.
fn made(site: &Result<Site>) -> Result<&Site> {
    site.as_ref().map_err(Failure::again)
}
