//! From here to there.

use std::io::{ErrorKind, Write};
use std::process::ChildStdin;

use flate2::Compression;
use flate2::write::GzEncoder;
use sandboxer_core::{Error, Result};

use super::entry::{Entry, Kind, UNKNOWN};
use super::place::Place;
use super::plan::{self, Plan};
use super::pour::{Pour, Poured};
use super::record::{self, Known, Record};
use super::stream::Patient;
use super::told::{There, Told, look_at_both, names};
use super::walk::Tree;
use super::{Mirror, Moved, new_generation, scripts};
use crate::shell::Answer;

/// Less than one in so many is few.
const FEW: usize = 4;

pub(super) fn send(mirror: &Mirror<'_>) -> Result<Moved> {
    let place = Place::open(mirror.local)?;
    let there = There::new(mirror, &place)?;
    let mut record = Record::load(mirror.record)?;
    let sending = Sending { mirror, there: &there, place: &place, generation: new_generation()? };
    if record.is_empty() {
        let moved = sending.first()?;
        if let Some(moved) = moved {
            return Ok(moved);
        }
    }
    let (Tree { entries, .. }, told) =
        look_at_both(&place, &there, scripts::COMPARE_OR_MAKE, &sending.generation, &mut record)?;
    let base: Known = record.settle(told.base.as_deref())?.unwrap_or_default();
    let plan = plan::of(sending.some(&entries)?, &base, &told);
    let settled = told.base.is_some() && !told.cut && told.present.is_empty() && told.gone.is_empty();
    if settled && plan.is_empty() {
        record::forget_fetching(mirror.record)?;
        return Ok(Moved { refused: plan.refused, ..Moved::default() });
    }
    let answer = sending.carry(scripts::TAKE, entries, &plan)?;
    sending.moved(answer, plan)
}

struct Sending<'a> {
    mirror: &'a Mirror<'a>,
    there: &'a There<'a>,
    place: &'a Place,
    generation: String,
}

/// What came of a stream: how many bytes of content it had, and what the host answered.
struct Carried {
    bytes: u64,
    answer: Answer,
}

impl Sending<'_> {
    /// Where nothing was ever sent, most likely nothing is there: it need not be asked. `None` where something is.
    fn first(&self) -> Result<Option<Moved>> {
        let Tree { entries, .. } = self.place.walk(self.there.single(), self.mirror.cancel)?;
        let plan = plan::of(self.some(&entries)?, &Known::new(), &Told::default());
        let carried = self.carry(scripts::TAKE_FIRST, entries, &plan)?;
        if carried.answer.code == scripts::SOMETHING_THERE {
            return Ok(None);
        }
        self.moved(carried, plan).map(Some)
    }

    fn some<'e>(&self, entries: &'e [Entry]) -> Result<&'e [Entry]> {
        let local = self.mirror.local;
        if entries.is_empty() {
            Err(Error::not_found("file", local.display().to_string()))
        } else {
            Ok(entries)
        }
    }

    /// It arrived, and both sides know.
    fn moved(&self, Carried { bytes, answer }: Carried, plan: Plan) -> Result<Moved> {
        if answer.code != 0 {
            return Err(self.there.failed(&answer.complaint()));
        }
        record::publish(self.mirror.record)?;
        Ok(Moved { entries: plan.differ, removed: plan.gone.len() as u64, bytes, refused: plan.refused })
    }

    /// What the host has to know before the stream, and the arguments that tell where each part of it ends.
    fn begin(&self, entries: &[Entry], plan: &Plan) -> (Vec<u8>, [String; 3]) {
        let sections = [
            names(plan.closed.iter().map(Vec::as_slice)),
            names(plan.gone.iter().map(Vec::as_slice)),
            names(self.few(entries, plan)),
        ];
        let [closed, gone, _] = sections.each_ref().map(|section| section.len().to_string());
        let input = sections.concat();
        let length = input.len().to_string();
        (input, [length, closed, gone])
    }

    /// What is going to be written, where that is so little that the host need not list everything again.
    fn few<'a>(&self, entries: &'a [Entry], plan: &'a Plan) -> Vec<&'a [u8]> {
        let goes =
            entries.iter().zip(&plan.goes).filter(|(_, goes)| **goes).map(|(entry, _)| entry.path.as_slice());
        let goes: Vec<&[u8]> = goes.collect();
        if goes.len() + plan.gone.len() < entries.len() / FEW { goes } else { Vec::new() }
    }

    /// The stream, our list of what it brings, and the host's answer.
    fn carry(&self, script: &str, entries: Vec<Entry>, plan: &Plan) -> Result<Carried> {
        let packed = if self.mirror.compress { "gzip" } else { "plain" };
        let (input, [length, closed, gone]) = self.begin(&entries, plan);
        let arguments = self.there.arguments(&[&self.generation, &length, &closed, &gone, packed]);
        let mut running = self.mirror.shell.start(script, &arguments)?;
        let count = plan.goes.iter().filter(|goes| **goes).count() as u64;
        self.mirror.progress.begin("send", Some(count));
        let poured = running.stdin.take().map_or(Ok(0), |stdin| self.pour(stdin, &input, entries, plan));
        let answer = running.answer_unless(Some(self.mirror.cancel));
        self.mirror.progress.end();
        match poured {
            Ok(bytes) => Ok(Carried { bytes, answer: answer? }),
            // Who stopped listening knows better why than we do.
            Err(Error::Io { source, step, path }) if source.kind() == ErrorKind::BrokenPipe => {
                match answer? {
                    Answer { code: 0, .. } => Err(Error::Io { source, step, path }),
                    answer => Ok(Carried { bytes: 0, answer }),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The host puts its list in place when it has heard the end of the stream: ours is written before.
    fn pour(&self, stdin: ChildStdin, input: &[u8], mut entries: Vec<Entry>, plan: &Plan) -> Result<u64> {
        let pour = Pour::new(self.place, self.mirror);
        let mut out = Patient::writer(stdin, self.mirror.cancel)?;
        out.write_all(input).map_err(|e| pour.failed(e))?;
        let Poured { out: open, bytes, unsettled } = match self.mirror.compress {
            false => pour.all(out, &entries, &plan.goes)?,
            true => self.packed(pour, out, &entries, plan)?,
        };
        for at in unsettled {
            entries[at].ctime = UNKNOWN;
        }
        let kept = entries.iter().filter(|entry| entry.kind != Kind::Other);
        record::prepare(self.mirror.record, &self.generation, kept)?;
        drop(open);
        Ok(bytes)
    }

    fn packed<'o>(
        &self,
        pour: Pour<'_>,
        out: Patient<'o, ChildStdin>,
        entries: &[Entry],
        plan: &Plan,
    ) -> Result<Poured<Patient<'o, ChildStdin>>> {
        let packer = GzEncoder::new(out, Compression::fast());
        let Poured { out: packer, bytes, unsettled } = pour.all(packer, entries, &plan.goes)?;
        let out = packer.finish().map_err(|e| Error::io("send to", self.mirror.shell.name(), e))?;
        Ok(Poured { out, bytes, unsettled })
    }
}
