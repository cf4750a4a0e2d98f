//! From here to there.

use std::io::{ErrorKind, Write};
use std::process::ChildStdin;

use sandboxer_core::{Error, Result};

use super::entry::{Entry, Kind, UNKNOWN};
use super::place::Place;
use super::plan::{self, Plan};
use super::pour::Pour;
use super::record::{self, Known, Record};
use super::stream::Patient;
use super::told::{There, look_at_both, names};
use super::walk::Tree;
use super::{Mirror, Moved, new_generation, scripts};

/// Less than one in so many is few.
const FEW: usize = 4;

pub(super) fn send(mirror: &Mirror<'_>) -> Result<Moved> {
    let place = Place::open(mirror.local)?;
    let there = There::new(mirror, &place)?;
    let mut record = Record::load(mirror.record)?;
    let generation = new_generation()?;
    let (Tree { entries, .. }, told) =
        look_at_both(&place, &there, scripts::COMPARE_OR_MAKE, &generation, &mut record)?;
    if entries.is_empty() {
        return Err(Error::not_found("file", mirror.local.display().to_string()));
    }
    let base: Known = record.settle(told.base.as_deref())?.unwrap_or_default();
    let plan = plan::of(&entries, &base, &told);
    let settled = told.base.is_some() && !told.cut && told.present.is_empty() && told.gone.is_empty();
    if settled && plan.is_empty() {
        return Ok(Moved { refused: plan.refused, ..Moved::default() });
    }
    Sending { mirror, there, place, generation }.carry(entries, plan)
}

struct Sending<'a> {
    mirror: &'a Mirror<'a>,
    there: There<'a>,
    place: Place,
    generation: String,
}

impl Sending<'_> {
    fn carry(self, mut entries: Vec<Entry>, plan: Plan) -> Result<Moved> {
        let bytes = self.pour(&mut entries, &plan)?;
        let kept = entries.iter().filter(|entry| entry.kind != Kind::Other);
        record::prepare(self.mirror.record, &self.generation, kept)?;
        self.there.call(scripts::COMMIT, &[&self.generation], &[])?;
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

    /// The stream. Where it breaks, the last words of the host say why.
    fn pour(&self, entries: &mut [Entry], plan: &Plan) -> Result<u64> {
        let packed = if self.mirror.compress { "gzip" } else { "plain" };
        let (input, [length, closed, gone]) = self.begin(entries, plan);
        let arguments = self.there.arguments(&[packed, &length, &closed, &gone]);
        let mut running = self.mirror.shell.start(scripts::EXTRACT, &arguments)?;
        let count = plan.goes.iter().filter(|goes| **goes).count() as u64;
        self.mirror.progress.begin("send", Some(count));
        let poured = running.stdin.take().map_or(Ok((0, Vec::new())), |stdin| {
            self.pour_into(Patient::writer(stdin, self.mirror.cancel)?, &input, entries, plan)
        });
        let finished = running.finish_unless(Some(self.mirror.cancel));
        self.mirror.progress.end();
        // Who stopped listening knows better why than we do.
        let broken =
            matches!(&poured, Err(Error::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe);
        if poured.is_ok() || broken {
            finished?;
        }
        let (bytes, unsettled) = poured?;
        for at in unsettled {
            entries[at].ctime = UNKNOWN;
        }
        Ok(bytes)
    }

    fn pour_into(
        &self,
        mut out: Patient<'_, ChildStdin>,
        input: &[u8],
        entries: &[Entry],
        plan: &Plan,
    ) -> Result<(u64, Vec<usize>)> {
        let pour = Pour::new(&self.place, self.mirror);
        out.write_all(input).map_err(|e| pour.failed(e))?;
        if !self.mirror.compress {
            return pour.all(out, entries, &plan.goes, |_| Ok(()));
        }
        let packer = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
        pour.all(packer, entries, &plan.goes, |packer| packer.finish().map(drop))
    }
}
