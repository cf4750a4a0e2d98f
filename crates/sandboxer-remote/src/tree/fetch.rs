//! From there to here.

use std::collections::HashSet;
use std::io::{BufReader, ErrorKind, Write};
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use flate2::read::GzDecoder;
use sandboxer_core::{Error, Result};
use sandboxer_fs::copy;

use super::check::{self, Meeting};
use super::cut::Cut;
use super::entry::{Entry, Kind, Name, order, shown};
use super::place::Place;
use super::record::{self, Known, Record};
use super::room::Reserve;
use super::stream::Patient;
use super::told::{There, Told, look_at_both, names};
use super::write::{Writer, remove_leftovers};
use super::{Mirror, Moved, new_generation, scripts};
use crate::shell::LAST_MOMENTS;

const BUFFER: usize = 256 << 10;
/// How long whoever sent nonsense may take to say why.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// `reserve` tells how much of the disk stays free.
pub(super) fn fetch(mirror: &Mirror<'_>, reserve: Reserve) -> Result<Moved> {
    let place = Place::open(mirror.local)?;
    let there = There::new(mirror, &place)?;
    let mut record = Record::load(mirror.record)?;
    let generation = new_generation()?;
    let (here, mut told) = look_at_both(&place, &there, scripts::COMPARE, &generation, &mut record)?;
    let base = known_base(mirror, record, &told, &here.entries)?;
    remove_leftovers(&place, &here.leftovers)?;
    let cut = Cut::load(mirror.record, &told, &here.entries)?;
    cut.tell(&mut told, &base, &here.entries);
    if told.base.is_some() && told.present.is_empty() && told.gone.is_empty() {
        cut.forget(mirror.record)?;
        return Ok(Moved::default());
    }
    check_single(&there, &told)?;
    let meeting = Meeting::new(&here.entries, &base, &told, place.single.is_some(), &cut.names);
    let conflicts = meeting.conflicts();
    if !conflicts.is_empty() {
        return Err(check::error(&conflicts, mirror.shell.name()));
    }
    drop(meeting);
    let ours = cut.and(told.present.keys().chain(&told.gone), Known::new());
    ours.note(mirror.record)?;
    let meeting = Meeting::new(&here.entries, &base, &told, place.single.is_some(), &ours.names);
    let fetching = Fetching { mirror, there: &there, meeting: &meeting, here: &here.entries };
    let mut writer = Writer::new(mirror, &place, &meeting, reserve);
    let carried = fetching.carry(&mut writer);
    let done = carried.and_then(|moved| fetching.remember(&writer, &generation).map(|()| moved));
    if done.is_err() {
        // Where this fails too, the first error says more.
        let _ = cut.and(fetching.touched(&writer), fetching.came(&writer)).note(mirror.record);
    }
    done
}

/// What both sides were when they were equal. Where nobody knows, only an empty tree has nothing to lose.
fn known_base(mirror: &Mirror<'_>, record: Record, told: &Told, here: &[Entry]) -> Result<Known> {
    let host = mirror.shell.name();
    let unsent = |why: &str| Error::Refused {
        reason: format!(
            "{} on {host} cannot be compared with {}: {why}",
            mirror.remote,
            mirror.local.display()
        ),
        hint: Some("send it first".to_owned()),
    };
    if told.cut {
        return Err(unsent("it was sent in part"));
    }
    match record.settle(told.base.as_deref())? {
        Some(base) => Ok(base),
        None if here.iter().all(|entry| entry.path.is_empty()) => Ok(Known::new()),
        None => Err(unsent("it was never sent from here")),
    }
}

/// One file stays one file.
fn check_single(there: &There<'_>, told: &Told) -> Result<()> {
    let name = there.single();
    let odd = told
        .present
        .values()
        .find(|entry| !name.is_empty() && (entry.path != name || entry.kind != Kind::File));
    match odd {
        Some(entry) => Err(Error::refused(format!(
            "{} on {} is no regular file any more: {}",
            there.mirror.remote,
            there.mirror.shell.name(),
            shown(&entry.path)
        ))),
        None => Ok(()),
    }
}

struct Fetching<'a> {
    mirror: &'a Mirror<'a>,
    there: &'a There<'a>,
    meeting: &'a Meeting<'a>,
    here: &'a [Entry],
}

impl Fetching<'_> {
    fn carry(&self, writer: &mut Writer<'_>) -> Result<Moved> {
        let wanted = self.wanted();
        let goes: Vec<&Entry> = self.here.iter().filter(|entry| self.goes(entry)).collect();
        let changed: Vec<Name> = wanted.iter().chain(&goes).map(|entry| entry.path.clone()).collect();
        writer.open_up(&changed)?;
        writer.remove(&goes)?;
        self.mirror.progress.begin("fetch", Some(wanted.len() as u64));
        let written = self.write(writer, &wanted);
        self.mirror.progress.end();
        // Whatever came of it, directories are given back what they had.
        let dressed = writer.dress(&changed);
        written.and(dressed)?;
        let removed = goes.iter().filter(|entry| self.meeting.is_doomed(&entry.path)).count() as u64;
        let mut refused = std::mem::take(&mut writer.refused);
        refused.extend(self.refused());
        refused.sort();
        Ok(Moved { entries: wanted.len() as u64, removed, bytes: writer.bytes, refused })
    }

    /// What is not brought here, or not as it was.
    fn refused(&self) -> impl Iterator<Item = String> {
        let host = self.mirror.shell.name();
        let told = self.meeting.told;
        let left = told.present.values().filter(|entry| !entry.is_carried()).map(|entry| {
            let why =
                if entry.is_leftover() { "a name that is kept for us" } else { "a device, socket or pipe" };
            format!("{}: {why}", shown(&entry.path))
        });
        let opened = told.opened.iter();
        left.chain(
            opened.map(move |path| {
                format!("{}: its mode, by which nobody could read it on {host}", shown(path))
            }),
        )
    }

    /// What comes, in the order in which a tree is walked.
    fn wanted(&self) -> Vec<&Entry> {
        let present = self.meeting.told.present.values();
        let mut wanted: Vec<&Entry> = present.filter(|entry| entry.is_carried()).collect();
        wanted.sort_unstable_by(|a, b| order(&a.path, &b.path));
        wanted
    }

    /// Whether what is here has to go before anything comes. What is no directory is replaced by a rename.
    fn goes(&self, here: &Entry) -> bool {
        let replaced = self.meeting.wanted(&here.path).is_some_and(|wanted| {
            wanted.kind != here.kind && (wanted.kind == Kind::Directory || here.kind == Kind::Directory)
        });
        !here.path.is_empty() && (replaced || self.meeting.is_doomed(&here.path))
    }

    fn write(&self, writer: &mut Writer<'_>, wanted: &[&Entry]) -> Result<()> {
        for entry in wanted {
            self.mirror.cancel.check()?;
            writer.expect_room(0)?;
            match entry.kind {
                Kind::Directory => writer.directory(entry)?,
                Kind::Link => writer.link(entry)?,
                _ => {}
            }
        }
        let files: Vec<&[u8]> = wanted
            .iter()
            .filter(|entry| entry.kind == Kind::File)
            .map(|entry| entry.path.as_slice())
            .collect();
        if files.is_empty() { Ok(()) } else { self.stream(writer, &files) }
    }

    fn stream(&self, writer: &mut Writer<'_>, files: &[&[u8]]) -> Result<()> {
        let asked: HashSet<Name> = files.iter().map(|path| path.to_vec()).collect();
        let names = names(files.iter().copied());
        let packed = if self.mirror.compress { "gzip" } else { "plain" };
        let length = names.len().to_string();
        let mut running =
            self.mirror.shell.start(scripts::PACK, &self.there.arguments(&[packed, &length]))?;
        let (stdin, stdout) = (running.stdin.take(), running.stdout.take());
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask(stdin, &names, self.mirror));
            let read = stdout.map_or(Ok(None), |stdout| self.unpack(writer, stdout, asked));
            // Where what it sent is no good, it must not wait for us to hear the rest, nor we for it to ask why.
            let patience = if read.is_ok() { LAST_MOMENTS } else { LAST_WORDS };
            let judged = running.finish_within(patience, Some(self.mirror.cancel));
            let _ = asking.join();
            self.judge(read, judged)
        })
    }

    fn unpack(
        &self,
        writer: &mut Writer<'_>,
        from: ChildStdout,
        asked: HashSet<Name>,
    ) -> Result<Option<Name>> {
        let from = BufReader::with_capacity(BUFFER, Patient::reader(from, self.mirror.cancel));
        if self.mirror.compress {
            writer.files(GzDecoder::new(from), asked)
        } else {
            writer.files(from, asked)
        }
    }

    /// Where a stream ends too early, or has not all, the host's last words say why.
    fn judge(&self, read: Result<Option<Name>>, judged: Result<()>) -> Result<()> {
        let host = self.mirror.shell.name();
        let missing = |path: Name| Error::refused(format!("{host} did not send {}", shown(&path)));
        match read {
            Ok(None) => judged,
            Ok(Some(path)) => judged.and(Err(missing(path))),
            Err(Error::Io { source, step, path }) if source.kind() == ErrorKind::UnexpectedEof => {
                judged.and(Err(Error::Io { source, step, path }))
            }
            Err(error) => Err(error),
        }
    }

    /// Both sides are equal, and both note it.
    fn remember(&self, writer: &Writer<'_>, generation: &str) -> Result<()> {
        let list = self.list(writer)?;
        flush(writer.place)?;
        record::prepare(self.mirror.record, generation, list.values())?;
        self.there.call(scripts::ACCEPT, &[generation], &[])?;
        record::publish(self.mirror.record)
    }

    /// What may not be here as it was before. What was not reached yet is whosever it was.
    fn touched<'b>(&'b self, writer: &'b Writer<'_>) -> impl Iterator<Item = &'b Name> {
        let told = self.meeting.told;
        told.present.keys().chain(&told.gone).filter(|path| {
            let is_dressed = self.meeting.wanted(path).is_some_and(|wanted| wanted.kind == Kind::Directory);
            let may_be_gone = self.meeting.here.get(path.as_slice()).is_some_and(|here| self.goes(here));
            is_dressed || may_be_gone || writer.written.contains_key(*path)
        })
    }

    /// What has come, as it is now. A directory is nobody's work.
    fn came(&self, writer: &Writer<'_>) -> Known {
        let entries = writer.written.keys().filter_map(|path| writer.settled(path).ok().flatten());
        let entries = entries.filter(|entry| entry.kind != Kind::Directory);
        entries.map(|entry| (entry.path.clone(), entry)).collect()
    }

    /// Our list: as it was, but for what came and what went.
    fn list(&self, writer: &Writer<'_>) -> Result<Known> {
        let mut list: Known = self.meeting.base.clone();
        list.retain(|path, _| !self.meeting.is_doomed(path));
        let mut latest = 0;
        for path in self.meeting.told.present.keys().filter(|path| !self.meeting.is_doomed(path)) {
            let now = writer.settled(path)?;
            latest = latest.max(now.as_ref().map_or(0, |entry| entry.ctime));
            match now {
                Some(entry) => drop(list.insert(path.clone(), entry)),
                None => drop(list.remove(path)),
            }
        }
        copy::wait_past(latest);
        Ok(list)
    }
}

/// What came has to be on the disk before either side remembers that it came: after a loss of power it would be taken for work done here.
fn flush(place: &Place) -> Result<()> {
    rustix::fs::syncfs(&place.root).map_err(|e| Error::io("flush", place.root.path(), e))
}

fn ask(stdin: Option<ChildStdin>, names: &[u8], mirror: &Mirror<'_>) -> Result<()> {
    let Some(stdin) = stdin else { return Ok(()) };
    let mut out = Patient::writer(stdin, mirror.cancel)?;
    out.write_all(names).map_err(|e| Error::io("ask", mirror.shell.name(), e))
}
