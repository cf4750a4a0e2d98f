//! The choice as a patch: what `sandbox diff --patch` printed, with some of it left out.
//!
//! Each file of the patch must be in the difference, and do there what the patch says. Hunks must apply and be part of
//! what the sandbox did: a patch selects, it does not edit. What has no hunks to choose from is taken as a whole, and
//! must be in the patch as a whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sandboxer_core::Error;
use sandboxer_core::model::{DiffEntry, DiffKind, RelPath};
use sandboxer_core::service::Target;
use sandboxer_documents::patch::{is_huge, load as load_sides};
use sandboxer_fs::patch::{self, FilePatch, FilePatchKind, PatchError};

use super::ask::Load;
use super::offer::has_hunks;
use super::{Chosen, FileHunks, Purpose, Texts, single};
use crate::cli::error::{CliError, Kind};
use crate::cli::output;
use crate::cli::session::{App, Session};

/// A patch larger than this was not made for choosing hunks.
const MAX_BYTES: u64 = 256 << 20;

/// What the patch in `file` chooses.
pub fn choose(
    app: &App,
    session: &Session,
    target: &Target,
    file: &Path,
    purpose: Purpose,
) -> Result<Chosen, CliError> {
    let shown =
        if is_stdin(file) { "stdin".to_owned() } else { output::name(file.to_string_lossy().as_bytes()) };
    let files =
        patch::parse_files(&read(app, file)?).map_err(|e| CliError::usage(format!("{shown}: {e}")))?;
    if files.is_empty() {
        let hint = "`sandbox diff ID --patch` prints one to choose from";
        return Err(CliError::usage(format!("there is no patch in {shown}")).hint(hint));
    }
    let diff = session.manager.diff(target, &[])?;
    let of = single(&diff, purpose)?;
    let load = |entry: &DiffEntry| Ok(load_sides(&of.workspace, entry)?);
    PatchSelector::new(&of.entries, purpose, &load).run(files)
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn read(app: &App, file: &Path) -> Result<Vec<u8>, CliError> {
    if is_stdin(file) {
        if io::IsTerminal::is_terminal(&io::stdin()) {
            app.ui.note("type the patch, then Ctrl-D");
        }
        return read_bounded(io::stdin().lock(), Path::new("standard input"));
    }
    let open = File::open(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::not_found("patch", file.to_string_lossy().into_owned()),
        _ => Error::io("open", file, error),
    })?;
    read_bounded(open, file)
}

fn read_bounded(from: impl Read, shown: &Path) -> Result<Vec<u8>, CliError> {
    let mut text = Vec::new();
    let read = from.take(MAX_BYTES + 1).read_to_end(&mut text);
    read.map_err(|error| Error::io("read", shown, error))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(
            CliError::usage(format!("the patch is larger than {}", output::size(MAX_BYTES))).on(shown)
        );
    }
    Ok(text)
}

/// Finds the files of a patch in a difference.
struct PatchSelector<'a> {
    entries: &'a [DiffEntry],
    by_path: BTreeMap<&'a RelPath, &'a DiffEntry>,
    by_origin: BTreeMap<&'a RelPath, &'a DiffEntry>,
    purpose: Purpose,
    load: Load<'a>,
    chosen: Chosen,
}

impl<'a> PatchSelector<'a> {
    fn new(entries: &'a [DiffEntry], purpose: Purpose, load: Load<'a>) -> Self {
        let by_path = entries.iter().map(|entry| (&entry.path, entry)).collect();
        let by_origin = entries.iter().filter_map(|entry| Some((entry.from.as_ref()?, entry))).collect();
        Self { entries, by_path, by_origin, purpose, load, chosen: Chosen::default() }
    }

    fn run(mut self, files: Vec<FilePatch>) -> Result<Chosen, CliError> {
        let mut parts: BTreeMap<RelPath, Vec<FilePatch>> = BTreeMap::new();
        for file in files {
            parts.entry(file.path.clone()).or_default().push(file);
        }
        for (path, files) in &parts {
            self.choose(path, files, &parts)?;
        }
        Ok(self.chosen)
    }

    fn choose(
        &mut self,
        path: &RelPath,
        files: &[FilePatch],
        all: &BTreeMap<RelPath, Vec<FilePatch>>,
    ) -> Result<(), CliError> {
        if let (None, Some(entry), [FilePatch { kind: FilePatchKind::Deleted, .. }]) =
            (self.by_path.get(path), self.by_origin.get(path), files)
        {
            return self.check_both_ends(entry, all);
        }
        let entry = *self.by_path.get(path).ok_or_else(|| not_in_difference(path))?;
        match files {
            [file] if file.kind == FilePatchKind::Modified && entry.kind == DiffKind::Modified => {
                self.choose_hunks(entry, file)
            }
            [file] if entry.kind == DiffKind::Renamed && file.kind == FilePatchKind::Created => {
                self.check_both_ends(entry, all)?;
                self.choose_whole(entry, file)
            }
            [file] => self.choose_whole(entry, file),
            [_, _] if entry.kind == DiffKind::Type => {
                self.chosen.take_whole(entry, self.entries);
                Ok(())
            }
            _ => Err(on(path, "is in the patch more than once")),
        }
    }

    /// A rename that the patch shows as a deletion and a creation: one without the other is no rename.
    fn check_both_ends(
        &self,
        entry: &DiffEntry,
        all: &BTreeMap<RelPath, Vec<FilePatch>>,
    ) -> Result<(), CliError> {
        let from = entry.from.as_ref().unwrap_or(&entry.path);
        if all.contains_key(from) && all.contains_key(&entry.path) {
            return Ok(());
        }
        let from = output::name(from.as_bytes());
        Err(on(&entry.path, &format!("was renamed from {from}: the patch must have both or neither")))
    }

    fn choose_hunks(&mut self, entry: &DiffEntry, file: &FilePatch) -> Result<(), CliError> {
        if entry.moved {
            return Err(moved(entry, self.purpose));
        }
        let sides = if has_hunks(entry) { Texts::of((self.load)(entry)?) } else { None };
        let Some(sides) = sides else { return self.choose_whole(entry, file) };
        let broken = |error: PatchError| on(&entry.path, &format!("does not fit: {error}"));
        let result = self.purpose.apply(&sides, &file.hunks).map_err(broken)?;
        self.purpose.check_part_of(&sides, &file.hunks).map_err(|error| made_up(&entry.path, &error))?;
        let everything = if self.purpose == Purpose::Commit { &sides.new } else { &sides.old };
        if file.mode_changed && result == *everything {
            self.chosen.take_whole(entry, self.entries);
        } else {
            self.chosen.files.push(FileHunks { path: entry.path.clone(), hunks: file.hunks.clone(), sides });
        }
        Ok(())
    }

    fn choose_whole(&mut self, entry: &DiffEntry, file: &FilePatch) -> Result<(), CliError> {
        if !is_about(file.kind, entry.kind) {
            let message = format!("is {} in the sandbox, and the patch says otherwise", told(entry.kind));
            return Err(on(&entry.path, &message));
        }
        if !self.is_complete(entry, file)? {
            let message = format!("is {} as a whole, and the patch has only part of it", told(entry.kind));
            return Err(on(&entry.path, &message).hint(
                "leave its part of the patch as `sandbox diff ID --patch` prints it, or drop all of it",
            ));
        }
        self.chosen.take_whole(entry, self.entries);
        Ok(())
    }

    /// Whether the patch, where it has text, has all of it.
    fn is_complete(&self, entry: &DiffEntry, file: &FilePatch) -> Result<bool, CliError> {
        let is_text = matches!(
            file.kind,
            FilePatchKind::Created
                | FilePatchKind::Deleted
                | FilePatchKind::Renamed
                | FilePatchKind::Modified
        );
        if !is_text || entry.moved || entry.binary || entry.text.is_some() || is_huge(entry) {
            return Ok(true);
        }
        let sides = (self.load)(entry)?;
        let created = file.kind == FilePatchKind::Created;
        let old = if created { Vec::new() } else { sides.old.unwrap_or_default() };
        let made = patch::apply_exactly(&old, &file.hunks);
        Ok(made.is_ok_and(|made| made == sides.new.unwrap_or_default()))
    }
}

/// Whether a patch of that kind is what a change of that kind looks like.
fn is_about(patch: FilePatchKind, entry: DiffKind) -> bool {
    match entry {
        DiffKind::Created => matches!(patch, FilePatchKind::Created | FilePatchKind::Binary),
        DiffKind::Deleted => matches!(patch, FilePatchKind::Deleted | FilePatchKind::Binary),
        DiffKind::Renamed => !matches!(patch, FilePatchKind::Deleted | FilePatchKind::ModeOnly),
        DiffKind::Modified => matches!(patch, FilePatchKind::Modified | FilePatchKind::Binary),
        DiffKind::Metadata => patch == FilePatchKind::ModeOnly,
        DiffKind::Type => true,
    }
}

fn told(kind: DiffKind) -> &'static str {
    match kind {
        DiffKind::Created => "created",
        DiffKind::Deleted => "deleted",
        DiffKind::Renamed => "renamed",
        DiffKind::Modified => "modified",
        DiffKind::Metadata => "changed in its metadata alone",
        DiffKind::Type => "of another type",
    }
}

fn on(path: &RelPath, message: &str) -> CliError {
    CliError::usage(format!("{} {message}", output::name(path.as_bytes()))).on(path.as_path())
}

fn moved(entry: &DiffEntry, purpose: Purpose) -> CliError {
    let name = output::name(entry.path.as_bytes());
    let message = format!("{name} has changed in the original too: its hunks cannot be told from the base");
    let hint = format!("give the path instead: `sandbox {} ID PATH`", purpose.command());
    CliError::new(Kind::Conflict, message).on(entry.path.as_path()).hint(hint)
}

fn not_in_difference(path: &RelPath) -> CliError {
    let message = format!("{} is in the patch, but not in the difference", output::name(path.as_bytes()));
    CliError::new(Kind::NotFound, message).on(path.as_path()).hint("`sandbox diff ID` shows what there is")
}

fn made_up(path: &RelPath, error: &PatchError) -> CliError {
    let message =
        format!("{}: {error}: it has lines that the sandbox did not change", output::name(path.as_bytes()));
    CliError::new(Kind::Refused, message)
        .on(path.as_path())
        .hint("a patch selects; to edit, write into the sandbox first, or use --patch and its `e`")
}

#[cfg(test)]
#[path = "patch_file_tests.rs"]
mod tests;
