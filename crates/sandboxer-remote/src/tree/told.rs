//! What the host tells of its tree.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use sandboxer_core::{Error, Result};

use super::Mirror;
use super::entry::{Entry, Name, inside};
use super::place::Place;
use super::record::{Known, Record};
use super::walk::Tree;
use crate::shell::Call;

/// How much a host may tell: the records of some millions of entries.
const MOST: usize = 1 << 30;
/// How long it may take to look at its tree.
const LONG: Duration = Duration::from_secs(3600);

/// What differs there from the host's list.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The list that it was compared with; `None` where there is none that we know, and everything is told.
    pub base: Option<String>,
    /// Whether a send was begun and not completed.
    pub cut: bool,
    /// What nobody could read until it was opened up.
    pub opened: Vec<Name>,
    /// What is new or changed.
    pub present: Known,
    /// What is gone.
    pub gone: HashSet<Name>,
}

impl Told {
    fn parse(bytes: &[u8], base: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_suffix(b"\0\0").or_else(|| bytes.strip_suffix(b"\0"))?;
        let mut told = Self::default();
        let mut present = true;
        for record in bytes.split(|byte| *byte == 0) {
            match record {
                b"" => present = false,
                b"+" => told.cut = true,
                [b'!', path @ ..] => told.opened.push(inside(path)?),
                [b'#', ..] if present => {}
                [b'#', word @ ..] => told.base = Some(String::from_utf8(word.to_vec()).ok()?),
                [b'~', rest @ ..] => told.take(Entry::parse(rest)?, present, base)?,
                rest => told.take(Entry::parse(rest)?, present, base)?,
            }
        }
        (!present).then_some(())?;
        let Self { present, gone, .. } = &mut told;
        gone.retain(|path| !present.contains_key(path));
        Some(told)
    }

    /// Only what is in the tree counts, whatever else is told of.
    fn take(&mut self, entry: Entry, present: bool, start: &[u8]) -> Option<()> {
        let within = start.is_empty()
            || entry.path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        within.then_some(())?;
        if present {
            self.present.insert(entry.path.clone(), entry);
        } else {
            self.gone.insert(entry.path);
        }
        Some(())
    }
}

/// The tree there, and the calls that are made about it.
pub(super) struct There<'a> {
    pub mirror: &'a Mirror<'a>,
    pub base: &'a str,
    pub start: String,
    prefix: Name,
}

impl<'a> There<'a> {
    pub fn new(mirror: &'a Mirror<'a>, place: &Place) -> Result<Self> {
        for path in [mirror.remote, mirror.lists] {
            if !path.starts_with('/') || path.contains('\0') || path.ends_with('/') {
                return Err(Error::usage(format!(
                    "{path:?} is no absolute path of a directory on {}",
                    mirror.shell.name()
                )));
            }
        }
        let whole = || Self { mirror, base: mirror.remote, start: ".".to_owned(), prefix: Name::new() };
        let split = mirror.remote.rsplit_once('/').filter(|_| place.single.is_some());
        let single = split.map(|(base, name)| {
            let base = if base.is_empty() { "/" } else { base };
            Self { mirror, base, start: format!("./{name}"), prefix: name.as_bytes().to_vec() }
        });
        Ok(single.unwrap_or_else(whole))
    }

    /// The name of a single file there; its name here may be another.
    pub fn single(&self) -> &[u8] {
        &self.prefix
    }

    /// What differs from the last list.
    pub fn compare(&self, script: &str, generation: &str, known: &str) -> Result<Told> {
        let said = self.call(script, &[generation, known], &[])?;
        let broken = || {
            Error::refused(format!(
                "{} tells of {} what makes no sense",
                self.mirror.shell.name(),
                self.mirror.remote
            ))
        };
        Told::parse(&said, &self.prefix).ok_or_else(broken)
    }

    /// Runs a script with the three arguments that all have, and these.
    pub fn call(&self, script: &str, more: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        let arguments = self.arguments(more);
        let cancel = Some(self.mirror.cancel);
        let call =
            Call { script, arguments: &arguments, input, deadline: LONG, output: MOST, cancel, heard: None };
        let answer = self.mirror.shell.run(&call)?;
        if answer.code == 0 { Ok(answer.stdout) } else { Err(self.failed(&answer.complaint())) }
    }

    pub fn arguments<'b>(&'b self, more: &[&'b str]) -> Vec<&'b OsStr> {
        let three = [self.base, self.start.as_str(), self.mirror.lists];
        three.into_iter().chain(more.iter().copied()).map(OsStr::new).collect()
    }

    pub fn failed(&self, why: &str) -> Error {
        let place = format!("{} on {}", self.mirror.remote, self.mirror.shell.name());
        Error::io("compare or write", place, io::Error::other(why.to_owned()))
    }
}

/// What is here, and what differs there: both look at once.
pub(super) fn look_at_both(
    place: &Place,
    there: &There<'_>,
    script: &str,
    generation: &str,
    record: &mut Record,
) -> Result<(Tree, Told)> {
    let known = record.generations();
    let (here, told) = std::thread::scope(|scope| {
        let told = scope.spawn(|| there.compare(script, generation, &known));
        let here = place.walk(there.single(), there.mirror.cancel);
        let here = here.and_then(|here| record.read().map(|()| here));
        (here, told.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    Ok((here?, told?))
}

/// Names as scripts take them: each ended by a NUL, none like an option.
pub(super) fn names<'a>(paths: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut names = Vec::new();
    for path in paths {
        names.extend_from_slice(if path.is_empty() { b"." } else { b"./" });
        names.extend_from_slice(path);
        names.push(0);
    }
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_told_is_new_changed_or_gone() {
        let said = b"!./shut\0+\0#new\0f 644 1 1 1 1 ./changed//\0~f 644 1 1 1 1 ./racy//\0\0#old\0f 600 1 1 1 1 ./changed//\0f 1 1 1 1 1 ./gone//\0\0";
        let told = Told::parse(said, b"").unwrap();
        assert_eq!((told.base.as_deref(), told.cut, told.present.len()), (Some("old"), true, 2));
        assert_eq!(told.opened, [b"shut".to_vec()]);
        assert_eq!(told.gone, HashSet::from([b"gone".to_vec()]));
        let nothing = Told::parse(b"#new\0\0\0", b"").unwrap();
        assert!(nothing.base.is_none() && nothing.present.is_empty() && nothing.gone.is_empty());
    }

    #[test]
    fn what_was_cut_or_makes_no_sense_is_nothing() {
        let said = b"#new\0f 644 1 1 1 1 ./changed//\0\0#old\0\0";
        for end in 0..said.len() {
            assert!(Told::parse(&said[..end], b"").is_none() || end == said.len() - 1, "{end}");
        }
        for broken in [&b"#new\0f 644 1 1 1 1 ./../x//\0\0\0"[..], b"#new\0f 644 1 1 1 1 ./y//\0\0\0"] {
            assert!(Told::parse(broken, b"x").is_none());
        }
    }
}
