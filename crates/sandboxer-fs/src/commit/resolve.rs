//! What is committed where the request is not simply "all of it, as it is": chosen hunks, and a way out of conflicts.
//!
//! Nothing here touches the original. A difference gets a [`Plan`]: other content than the copy's, and leave to
//! replace what the original has now. What cannot be planned stays a conflict.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::model::{
    CommitRequest, Conflict, DiffEntry, DiffKind, HunkSelection, Node, NodeType, Notice, OnConflict, RelPath,
};
use sandboxer_core::{Error, Result};

use super::check::{Present, Verdict, check_each, present};
use super::prepare::Prepare;
use crate::base::Bases;
use crate::content::read_all;
use crate::diff::{
    Candidate, Comparison, Delta, Differences, Links, OTHER_ATTRIBUTES, Over, Seen, describe_all,
    describe_content, node_of,
};
use crate::manifest::Entry;
use crate::merge::{self, Labels};
use crate::patch;
use crate::root::{Root, stamp_of_fd};
use crate::stamp::Stamp;

/// What stands after the markers that a merge leaves in a sandbox.
pub const LABELS: Labels<'static> = Labels { ours: "original", theirs: "sandbox" };

/// Larger files are not compared line by line.
pub(crate) const LARGEST: u64 = 64 << 20;

/// The differences that a request selects, each with its plan as far as hunks go.
pub fn select(job: &Prepare<'_>, all: Differences) -> Result<(Vec<Delta>, Links)> {
    let request = job.request;
    if request.hunks.is_empty() {
        return Ok(all.selected(&request.paths));
    }
    let mut paths = request.paths.clone();
    paths.extend(request.hunks.iter().map(|h| h.path.clone()));
    let (mut deltas, links) = all.selected(&paths);
    let chosen = selections(request)?;
    for (path, patch) in &chosen {
        // Deltas are sorted by path.
        let Ok(at) = deltas.binary_search_by(|d| d.entry.path.cmp(path)) else {
            return Err(Error::not_found("changed file", path.to_string()));
        };
        plan_hunks(job, &mut deltas[at], patch)?;
    }
    Ok((deltas, links))
}

fn selections(request: &CommitRequest) -> Result<BTreeMap<&RelPath, &[u8]>> {
    let mut chosen = BTreeMap::new();
    for HunkSelection { path, patch } in &request.hunks {
        let whole = request.paths.iter().any(|p| path.is_within(p));
        if whole || chosen.insert(path, patch.as_slice()).is_some() {
            return Err(Error::usage(format!("{path} is selected twice")));
        }
    }
    Ok(chosen)
}

/// Makes the chosen hunks what is committed of a file.
fn plan_hunks(job: &Prepare<'_>, delta: &mut Delta, patch: &[u8]) -> Result<()> {
    let path = delta.entry.path.clone();
    let is_file = |node: &Option<Node>| node.as_ref().is_some_and(|n| n.node_type == NodeType::File);
    let text = is_file(&delta.entry.old) && is_file(&delta.entry.new) && !delta.entry.binary;
    let large = delta.now.as_ref().is_some_and(|s| s.stamp.size > LARGEST);
    if delta.entry.kind != DiffKind::Modified || !text || large {
        return Err(Error::Usage {
            message: format!("{path} has no hunks to choose from: only a text file that was modified has"),
            hint: Some("commit it whole by its path, or leave it out".to_owned()),
        });
    }
    let known = delta.base.as_ref().and_then(|base| base.hash);
    let is_base = |seen: &Seen| !delta.entry.moved && (known.is_none() || seen.hash == known);
    let base = read_file(job.comparison.original, &path)?.filter(|(_, seen)| is_base(seen));
    let Some((base, _)) = base else {
        // The rest of the file would then look as if it took back what the original has now.
        let reason =
            "changed in the original too, so it can only be committed whole (with `--on-conflict merge`)";
        return Err(Error::Conflict { conflicts: vec![Conflict::new(path, reason)] });
    };
    let content = patch::apply_exactly(&base, patch).map_err(|e| Error::Usage {
        message: format!("a hunk of {path} does not apply: {e}"),
        hint: Some("look again at what differs: `sandbox diff --patch`".to_owned()),
    })?;
    let copy = read_file(job.comparison.copy, &path)?.map(|(bytes, _)| bytes);
    // All hunks of a file are the file.
    if leave_metadata(delta) || copy.as_ref() != Some(&content) {
        delta.plan.content = Some(content);
    }
    Ok(())
}

/// Hunks are lines: what the sandbox changed of the mode, the owner or the attributes stays pending. Whether there is any.
fn leave_metadata(delta: &mut Delta) -> bool {
    let (Some(seen), Some(base)) = (&mut delta.now, &delta.base) else { return false };
    let Some(copy) = base.copy.or(base.base) else { return false };
    let metadata = |stamp: &Stamp| (stamp.mode, stamp.uid, stamp.gid);
    let changed = metadata(&seen.stamp) != metadata(&copy) || seen.xattrs != base.xattrs;
    (seen.stamp.mode, seen.stamp.uid, seen.stamp.gid) = metadata(&copy);
    seen.xattrs = base.xattrs.clone();
    changed
}

/// The content of a file and what it is; `None` where there is no such file.
pub(crate) fn read_file(root: &Root, path: &RelPath) -> Result<Option<(Vec<u8>, Seen)>> {
    let Some(parent) = root.find_parent(path)? else { return Ok(None) };
    let Some(fd) = crate::space::open_regular(&parent, path)? else { return Ok(None) };
    let failed = |e: std::io::Error| Error::io("read", root.shown(path), e);
    let seen = describe_content(&fd, &mut Vec::new()).map_err(|e| failed(e.into()))?;
    rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(0)).map_err(|e| failed(e.into()))?;
    let bytes = read_all(fd.try_clone().map_err(failed)?, seen.stamp.size).map_err(failed)?;
    let steady = stamp_of_fd(&fd).is_ok_and(|now| seen.stamp.untouched(&now));
    if steady {
        return Ok(Some((bytes, seen)));
    }
    Err(Error::Busy { path: root.shown(path), holder: Some("it changes while it is read".to_owned()) })
}

/// What became of the conflicts.
pub struct Resolved {
    /// What is to be committed.
    pub deltas: Vec<Delta>,
    /// What was left out.
    pub notices: Vec<Notice>,
    /// Merges with markers, for the sandbox.
    pub marked: Vec<Marked>,
    /// What is still in conflict.
    pub conflicts: Vec<Conflict>,
}

/// A merge that needs a person.
pub struct Marked {
    /// Where.
    pub path: RelPath,
    /// The text with markers; without, where it merged cleanly beside others that did not.
    pub content: Vec<u8>,
    /// What the copy was, when it was read.
    pub copy: Seen,
    /// What the copy is to be besides its content: mode and attributes are merged as well.
    pub merged: Seen,
    /// The base from now on: the original's present version.
    pub base: Entry,
}

/// Deals with what has moved in the original, as the request says.
pub fn resolve(job: &Prepare<'_>, deltas: Vec<Delta>) -> Result<Resolved> {
    let mut resolved = Resolved { deltas, notices: Vec::new(), marked: Vec::new(), conflicts: Vec::new() };
    if job.request.on_conflict == OnConflict::Ours {
        leave_out(job, &mut resolved)?;
        return Ok(resolved);
    }
    if job.request.on_conflict == OnConflict::Theirs {
        bring_directories(job, &mut resolved.deltas)?;
    }
    let verdicts = check_each(job.comparison.original, &resolved.deltas)?;
    let mut objections = objections(job, &resolved.deltas)?;
    for (at, verdict) in verdicts.into_iter().enumerate() {
        let delta = &mut resolved.deltas[at];
        // Before anybody is asked about it: what is written after the answer is noticed.
        let now = present(job.comparison.original, delta)?;
        let objection = objections.as_mut().and_then(|all| all[at].take());
        let is_safe = objections.is_some() && objection.is_none() && !was_dressed(delta, &now, &verdict);
        if job.request.on_conflict == OnConflict::Fail {
            let unknown = |(path, reason)| (!is_safe).then(|| Conflict::new(path, reason));
            let known = objection.or_else(|| verdict.as_ref().err().cloned().and_then(unknown));
            if let Some(conflict) = known {
                resolved.conflicts.push(conflict);
                continue;
            }
        }
        let Err((path, reason)) = verdict else { continue };
        if job.request.on_conflict == OnConflict::Theirs || (is_safe && was_put_back(job, delta, &now)?) {
            go_over(delta, now);
            continue;
        }
        if let Outcome::Stuck(conflict, marked) = merge_one(job, delta, path, reason)? {
            resolved.conflicts.push(*conflict);
            resolved.marked.extend(marked.map(|m| *m));
        }
    }
    if job.request.on_conflict == OnConflict::Mark {
        resolved.marked.extend(resolved.deltas.iter().filter_map(clean_merge));
    }
    Ok(resolved)
}

/// What the original's history finds in the way of each; `None` where it has no history.
fn objections(job: &Prepare<'_>, deltas: &[Delta]) -> Result<Option<Vec<Option<Conflict>>>> {
    let Some(history) = job.history else { return Ok(None) };
    let entries: Vec<DiffEntry> = deltas.iter().map(|delta| delta.entry.clone()).collect();
    history.in_the_way(&entries).map(Some)
}

/// Adds the directories that the deltas are in and the original has no more: the sandbox's version needs them.
fn bring_directories(job: &Prepare<'_>, deltas: &mut Vec<Delta>) -> Result<()> {
    let Comparison { original, copy, .. } = job.comparison;
    let stays = deltas.iter().filter(|delta| delta.now.is_some());
    let above: BTreeSet<RelPath> =
        stays.flat_map(|delta| std::iter::successors(delta.entry.path.parent(), RelPath::parent)).collect();
    let mut missing = Vec::new();
    for path in above {
        // Deltas are sorted by path.
        let is_known = deltas.binary_search_by(|delta| delta.entry.path.cmp(&path)).is_ok();
        if is_known || original.stamp(&path)?.is_some_and(|found| found.is_dir()) {
            continue;
        }
        let now = copy.stamp(&path)?.filter(Stamp::is_dir);
        missing.extend(now.map(|now| Candidate { path, base: None, now: Some(now) }));
    }
    for mut delta in describe_all(&job.comparison, missing, &Links::default())? {
        // An undo has the base again.
        delta.base = job.comparison.base.find(&delta.entry.path)?;
        deltas.push(delta);
    }
    deltas.sort_by(|a, b| a.entry.path.cmp(&b.entry.path));
    Ok(())
}

/// Takes the sandbox's version. What differs from the base in its mode alone differs in more from what the original has become.
fn go_over(delta: &mut Delta, now: Present) {
    let is_dir = |stamp: Option<Stamp>| stamp.is_some_and(|s| s.is_dir());
    let both_directories = is_dir(now.at) && is_dir(delta.now.as_ref().map(|seen| seen.stamp));
    delta.plan.whole = delta.entry.kind == DiffKind::Metadata && !both_directories;
    delta.plan.over = Some(now);
}

/// Leaves out what is in conflict; and then what cannot be there without it.
fn leave_out(job: &Prepare<'_>, resolved: &mut Resolved) -> Result<()> {
    loop {
        let verdicts = check_each(job.comparison.original, &resolved.deltas)?;
        let mut objections = objections(job, &resolved.deltas)?;
        let mut objection = |at: usize| objections.as_mut().and_then(|all| all[at].take()).map(|c| c.reason);
        let reasons: Vec<Option<String>> = verdicts
            .into_iter()
            .enumerate()
            .map(|(at, verdict)| objection(at).or(verdict.err().map(|(_, reason)| reason)))
            .collect();
        if reasons.iter().all(Option::is_none) {
            return Ok(());
        }
        let deltas = std::mem::take(&mut resolved.deltas);
        for (delta, reason) in deltas.into_iter().zip(reasons) {
            match reason {
                None => resolved.deltas.push(delta),
                Some(reason) => {
                    let message = format!("left out and still pending: {reason}");
                    resolved.notices.push(Notice { path: delta.entry.path, message });
                }
            }
        }
    }
}

/// Beside files with markers, those that merged cleanly go into the sandbox too: a plain commit does, once the markers are
/// resolved.
pub fn clean_merge(delta: &Delta) -> Option<Marked> {
    let content = delta.plan.content.clone().filter(|_| delta.plan.settles)?;
    let (copy, base) = (delta.plan.copy.clone()?, delta.base.clone()?);
    let merged = delta.now.clone()?;
    Some(Marked { path: delta.entry.path.clone(), content, copy, merged, base })
}

enum Outcome {
    Planned,
    Stuck(Box<Conflict>, Option<Box<Marked>>),
}

fn merge_one(job: &Prepare<'_>, delta: &mut Delta, path: RelPath, reason: String) -> Result<Outcome> {
    let now = present(job.comparison.original, delta)?;
    let stuck =
        |why: &str| Outcome::Stuck(Box::new(Conflict::new(path.clone(), format!("{reason}; {why}"))), None);
    if delta.plan.content.is_some() {
        // The original moved after the hunks were looked up: a merge of the whole file would commit what nobody chose.
        return Ok(stuck("only a file that is committed whole can be merged"));
    }
    match delta.entry.kind {
        DiffKind::Created if now.at.is_none() => Ok(stuck("there is nothing to merge it with")),
        DiffKind::Deleted if now.at.is_none() => {
            delta.plan.over = Some(now);
            Ok(Outcome::Planned)
        }
        DiffKind::Modified | DiffKind::Created | DiffKind::Metadata => {
            let sizes = now.at.iter().chain(delta.now.as_ref().map(|s| &s.stamp)).map(|s| s.size);
            if delta.entry.binary || sizes.max().is_some_and(|size| size > LARGEST) {
                return Ok(stuck("binary and very large files cannot be merged"));
            }
            let ours_is_file = now.at.is_some_and(|s| s.is_file());
            if !ours_is_file || !delta.now.as_ref().is_some_and(|s| s.stamp.is_file()) {
                return Ok(stuck("only text files can be merged"));
            }
            merge_file(job, delta, now, reason)
        }
        _ => Ok(stuck("that cannot be merged")),
    }
}

fn merge_file(job: &Prepare<'_>, delta: &mut Delta, now: Present, reason: String) -> Result<Outcome> {
    let path = delta.entry.path.clone();
    let conflict = |why: &str| Conflict::new(path.clone(), format!("{reason}; {why}"));
    let stuck = |why: &str| Ok(Outcome::Stuck(Box::new(conflict(why)), None));
    let Some((ours, ours_seen)) = read_file(job.comparison.original, &path)? else {
        return stuck("it is gone");
    };
    let Some((theirs, copy)) = read_file(job.comparison.copy, &path)? else { return stuck("it is gone") };
    let base = match (&delta.base, delta.entry.kind) {
        (None, _) => Vec::new(),
        // Where the sandbox changed the mode alone, its content is the base's.
        (Some(_), DiffKind::Metadata) => theirs.clone(),
        (Some(entry), _) => match known_base(job, &path, entry)? {
            Some(base) => base,
            None => return stuck("its base is not kept, so it cannot be merged"),
        },
    };
    if [&base, &ours, &theirs].iter().any(|text| patch::is_binary(text)) {
        return stuck("binary files cannot be merged");
    }
    if let Err(why) = merge_metadata(delta, &ours_seen) {
        return stuck(why);
    }
    let merged = merge::merge(&base, &ours, &theirs, &LABELS);
    rebase(delta, ours_seen, now);
    if !merged.conflicts.is_empty() {
        let told = Conflict { hunks: merged.conflicts, ..conflict("both sides changed the same lines") };
        let base = delta.base.clone().unwrap_or_default();
        let seen = delta.now.clone().unwrap_or_else(|| copy.clone());
        let marked = Marked { path: path.clone(), content: merged.content, copy, merged: seen, base };
        return Ok(Outcome::Stuck(Box::new(told), Some(Box::new(marked))));
    }
    delta.plan.content = Some(merged.content);
    delta.plan.settles = true;
    delta.plan.copy = Some(copy);
    Ok(Outcome::Planned)
}

/// Whether the original was given a mode, an owner or attributes that no history keeps. Whether files are programs, it does keep.
fn was_dressed(delta: &Delta, now: &Present, verdict: &Verdict) -> bool {
    const KEPT: u32 = 0o111;
    if matches!(verdict, Err((_, reason)) if reason == OTHER_ATTRIBUTES) {
        return true;
    }
    let base = delta.base.as_ref().and_then(|base| base.base).filter(Stamp::is_known);
    // Where nobody knows what it was, what the sandbox has tells.
    let before = base.or(delta.now.as_ref().map(|seen| seen.stamp));
    let (Some(before), Some(now)) = (before.filter(Stamp::is_file), now.at.filter(Stamp::is_file)) else {
        return false;
    };
    before.mode & !KEPT != now.mode & !KEPT || !before.same_owner(&now)
}

/// Whether the original is again what it was, as its history knows: then nobody's work is in the way. Directories are not looked through.
fn was_put_back(job: &Prepare<'_>, delta: &Delta, now: &Present) -> Result<bool> {
    let is_dir = |stamp: Option<Stamp>| stamp.is_some_and(|s| s.is_dir());
    let directories = is_dir(now.at) || is_dir(now.from) || is_dir(delta.now.as_ref().map(|seen| seen.stamp));
    let Some(history) = job.history.filter(|_| !directories && delta.plan.content.is_none()) else {
        return Ok(false);
    };
    for path in delta.entry.from.iter().chain([&delta.entry.path]) {
        if history.has_moved(path)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn known_base(job: &Prepare<'_>, path: &RelPath, entry: &Entry) -> Result<Option<Vec<u8>>> {
    match (Bases { home: job.files.home() }).find(path, entry)? {
        Some(base) => Ok(Some(base)),
        None => job.history.map_or(Ok(None), |history| history.base(path)),
    }
}

/// Mode and owner are merged as well: whoever changed them wins, unless both did.
fn merge_metadata(delta: &mut Delta, ours: &Seen) -> Result<(), &'static str> {
    let Some(seen) = &mut delta.now else { return Ok(()) };
    // An overlay has no copy to begin with: what it shows is the base itself.
    let (base, copy) = delta.base.as_ref().map_or((None, None), |b| (b.base, b.copy.or(b.base)));
    let (Some(base), Some(copy)) = (base.filter(Stamp::is_known), copy) else {
        // New on both sides, or nobody knows what it was: the content may merge, the rest has to agree.
        return if seen.stamp.mode == ours.stamp.mode {
            Ok(())
        } else {
            Err("both sides gave it another mode")
        };
    };
    let (we_did, they_did) = (base.mode != ours.stamp.mode, copy.mode != seen.stamp.mode);
    if we_did && they_did && ours.stamp.mode != seen.stamp.mode {
        return Err("both sides gave it another mode");
    }
    if delta
        .base
        .as_ref()
        .is_some_and(|b| b.xattrs != ours.xattrs && b.xattrs != seen.xattrs && ours.xattrs != seen.xattrs)
    {
        return Err("both sides gave it other attributes");
    }
    if we_did {
        seen.stamp.mode = ours.stamp.mode;
    }
    if delta.base.as_ref().is_some_and(|b| b.xattrs != ours.xattrs) {
        seen.xattrs = ours.xattrs.clone();
    }
    Ok(())
}

/// From here on the difference is one against the original's present version.
fn rebase(delta: &mut Delta, ours: Seen, now: Present) {
    delta.plan.over = Some(Over { at: Some(ours.stamp), from: now.from });
    delta.entry.old = Some(node_of(&ours));
    match (delta.entry.kind, &mut delta.now) {
        (DiffKind::Created, _) => delta.entry.kind = DiffKind::Modified,
        // Only the mode is committed; the content that stays is the original's.
        (DiffKind::Metadata, Some(seen)) => {
            (seen.hash, seen.stamp.size) = (ours.hash, ours.stamp.size);
            delta.entry.new = Some(node_of(seen));
        }
        _ => {}
    }
    let Stamp { mode, size, .. } = ours.stamp;
    let never = delta.now.as_ref().map(|s| Stamp { ino: 0, ctime: 0, mode, size, ..s.stamp });
    delta.base = Some(Entry {
        name: delta.entry.path.name().to_vec(),
        base: Some(ours.stamp),
        copy: never,
        hash: ours.hash,
        xattrs: ours.xattrs,
        ..Entry::default()
    });
}
