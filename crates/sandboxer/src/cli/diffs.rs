//! A difference for people: one line an entry, a table like `git diff --stat`, or a patch.
//!
//! A patch that goes to a file or a pipe is exact, byte for byte, so that it applies. On a screen its content passes
//! through the same escapes as names do: what a program wrote into a file is no more to be trusted than what it named it.

use sandboxer_core::model::{DiffEntry, DiffKind, Node, NodeType, Row};
use sandboxer_core::service::{TargetDiff, Workspace, WorkspaceDiff};
use sandboxer_documents::{Summary, octal, patch};
use sandboxer_fs::patch::line_stat;

use super::error::CliError;
use super::output::{self, Ui, style};
use super::rows;

/// The letter of a kind, painted for stdout.
pub fn mark(ui: &Ui, kind: DiffKind) -> String {
    ui.paint(colour_of(kind), letter(kind))
}

/// The letter of a kind, as version control has it.
fn letter(kind: DiffKind) -> char {
    match kind {
        DiffKind::Created => 'A',
        DiffKind::Modified => 'M',
        DiffKind::Deleted => 'D',
        DiffKind::Renamed => 'R',
        DiffKind::Metadata => 'm',
        DiffKind::Type => 'T',
    }
}

fn colour_of(kind: DiffKind) -> anstyle::Style {
    match kind {
        DiffKind::Created => style::GOOD,
        DiffKind::Deleted => style::BAD,
        _ => style::WARN,
    }
}

/// How many of each kind, over all workspaces.
pub fn summary(diff: &TargetDiff) -> Summary {
    Summary::of(diff.workspaces.iter().flat_map(|w| &w.entries))
}

/// One line an entry, workspace by workspace.
pub fn show_entries(ui: &mut Ui, diff: &TargetDiff) -> Result<(), CliError> {
    for workspace in &diff.workspaces {
        show_heading(ui, diff, workspace)?;
        show_lines(ui, &workspace.entries)?;
        workspace.notices.iter().for_each(|notice| ui.note(output::sentence(notice)));
    }
    Ok(())
}

/// One line an entry, rows by their tables.
pub fn show_lines(ui: &mut Ui, entries: &[DiffEntry]) -> Result<(), CliError> {
    for entry in entries.iter().filter(|entry| entry.row.is_none()) {
        ui.line(entry_line(ui, entry))?;
    }
    rows::show(ui, entries)
}

fn show_heading(ui: &mut Ui, diff: &TargetDiff, of: &WorkspaceDiff) -> Result<(), CliError> {
    if diff.workspaces.len() < 2 || of.entries.is_empty() {
        return Ok(());
    }
    let workspace = &of.workspace;
    let title = format!("{} ({})", output::name(&workspace.name), output::name(&workspace.resource.location));
    ui.line(ui.paint(style::HEAD, title))
}

/// The same lines without colour, for where stdout is not ours.
pub fn lines(diff: &TargetDiff) -> impl Iterator<Item = String> {
    diff.workspaces.iter().flat_map(|w| &w.entries).map(|entry| line_of(entry, |_, text| text))
}

fn entry_line(ui: &Ui, entry: &DiffEntry) -> String {
    line_of(entry, |style, text| ui.paint(style, text))
}

/// One entry as one line, with whatever `paint` does for colour.
pub fn line_of(entry: &DiffEntry, paint: impl Fn(anstyle::Style, String) -> String) -> String {
    let letter = paint(colour_of(entry.kind), letter(entry.kind).to_string());
    let mut line = format!("{letter} {}", places(entry));
    let changed = changed_metadata(entry);
    if !changed.is_empty() {
        line.push_str(&format!("  {}", changed.join(", ")));
    }
    for mark in marks(entry) {
        line.push_str(&format!("  {}", paint(style::WARN, format!("({mark})"))));
    }
    line
}

/// Where it is and where it came from; a directory ends with a slash.
fn places(entry: &DiffEntry) -> String {
    let node = entry.new.as_ref().or(entry.old.as_ref());
    let slash = if node.is_some_and(|n| n.node_type == NodeType::Directory) { "/" } else { "" };
    let path = output::name(entry.path.as_bytes());
    match &entry.from {
        Some(from) => format!("{}{slash} → {path}{slash}", output::name(from.as_bytes())),
        None => format!("{path}{slash}"),
    }
}

/// What differs besides the content, where both sides are there.
pub fn changed_metadata(entry: &DiffEntry) -> Vec<String> {
    let (Some(old), Some(new)) = (&entry.old, &entry.new) else { return Vec::new() };
    let mut changed = Vec::new();
    if entry.kind == DiffKind::Type {
        changed.push(format!("{} → {}", type_name(old), type_name(new)));
    } else if old.mode != new.mode {
        changed.push(format!("mode {} → {}", octal(old.mode), octal(new.mode)));
    }
    if (old.uid, old.gid) != (new.uid, new.gid) {
        changed.push(format!("owner {}:{} → {}:{}", old.uid, old.gid, new.uid, new.gid));
    }
    if old.xattrs != new.xattrs {
        changed.push("extended attributes".to_owned());
    }
    changed
}

fn type_name(node: &Node) -> String {
    format!("{:?}", node.node_type).to_lowercase()
}

fn marks(entry: &DiffEntry) -> Vec<String> {
    let mut marks = Vec::new();
    if entry.moved {
        marks.push("changed in the original too: a commit would conflict".to_owned());
    }
    if let Some(reason) = &entry.refused {
        marks.push(format!("cannot be committed: {}", output::sentence(reason)));
    }
    marks.extend(entry.flags.iter().map(|flag| format!("look: {}", output::sentence(flag))));
    marks
}

/// One line a file with its insertions and deletions, and a total, as git has it.
pub fn show_stat(ui: &mut Ui, diff: &TargetDiff) -> Result<(), CliError> {
    let mut total = Stat::default();
    for workspace in &diff.workspaces {
        show_heading(ui, diff, workspace)?;
        let rows = stat_rows(workspace)?;
        show_stat_rows(ui, &rows)?;
        rows.iter().for_each(|row| total.add(row));
    }
    if total.files > 0 {
        ui.line(total.text())?;
    }
    Ok(())
}

struct StatRow {
    place: String,
    counts: Counts,
}

enum Counts {
    Lines(u64, u64),
    Binary(u64, u64),
}

#[derive(Default)]
struct Stat {
    files: usize,
    insertions: u64,
    deletions: u64,
}

impl Stat {
    fn add(&mut self, row: &StatRow) {
        self.files += 1;
        if let Counts::Lines(insertions, deletions) = row.counts {
            self.insertions += insertions;
            self.deletions += deletions;
        }
    }

    fn text(&self) -> String {
        let mut text = format!(" {} changed", output::count(self.files, "file"));
        if self.insertions > 0 {
            text.push_str(&format!(", {}(+)", output::count(self.insertions as usize, "insertion")));
        }
        if self.deletions > 0 {
            text.push_str(&format!(", {}(-)", output::count(self.deletions as usize, "deletion")));
        }
        text
    }
}

fn stat_rows(of: &WorkspaceDiff) -> Result<Vec<StatRow>, CliError> {
    let row = |entry| Ok(StatRow { place: places(entry), counts: counts(&of.workspace, entry)? });
    of.entries.iter().filter(|entry| !is_mere_directory(entry)).map(row).collect()
}

/// A directory that came or went: its files say so, and it has no lines of its own.
fn is_mere_directory(entry: &DiffEntry) -> bool {
    let node = entry.new.as_ref().or(entry.old.as_ref());
    let came_or_went = matches!(entry.kind, DiffKind::Created | DiffKind::Deleted);
    came_or_went && node.is_some_and(|n| n.node_type == NodeType::Directory)
}

fn counts(workspace: &Workspace, entry: &DiffEntry) -> Result<Counts, CliError> {
    if entry.binary || patch::is_huge(entry) {
        let size = |node: &Option<Node>| node.as_ref().map_or(0, |n| n.size);
        return Ok(Counts::Binary(size(&entry.old), size(&entry.new)));
    }
    if let Some(row) = &entry.row {
        let side = |row: &Option<Row>| row.as_ref().map(patch::row_as_file).unwrap_or_default();
        let (insertions, deletions) = line_stat(&side(&row.old), &side(&row.new));
        return Ok(Counts::Lines(insertions, deletions));
    }
    if entry.kind == DiffKind::Metadata || entry.text.is_some() || entry.refused.is_some() {
        return Ok(Counts::Lines(0, 0));
    }
    let sides = patch::load(workspace, entry)?;
    let (insertions, deletions) = line_stat(&sides.old.unwrap_or_default(), &sides.new.unwrap_or_default());
    Ok(Counts::Lines(insertions, deletions))
}

/// How wide the row of plus and minus signs may get.
const BAR: u64 = 40;

fn show_stat_rows(ui: &mut Ui, rows: &[StatRow]) -> Result<(), CliError> {
    let width = rows.iter().map(|row| row.place.chars().count()).max().unwrap_or(0);
    let most = rows.iter().map(|row| row.lines()).max().unwrap_or(0);
    for row in rows {
        let padding = width - row.place.chars().count();
        ui.line(format_args!(" {}{:padding$} | {}", row.place, "", row.figures(ui, most)))?;
    }
    Ok(())
}

impl StatRow {
    fn lines(&self) -> u64 {
        match self.counts {
            Counts::Lines(insertions, deletions) => insertions + deletions,
            Counts::Binary(..) => 0,
        }
    }

    fn figures(&self, ui: &Ui, most: u64) -> String {
        match self.counts {
            Counts::Binary(old, new) => format!("Bin {old} -> {new} bytes"),
            Counts::Lines(0, 0) => "0".to_owned(),
            Counts::Lines(insertions, deletions) => {
                let plus = ui.paint(style::GOOD, "+".repeat(scaled(insertions, most)));
                let minus = ui.paint(style::BAD, "-".repeat(scaled(deletions, most)));
                format!("{} {plus}{minus}", insertions + deletions)
            }
        }
    }
}

/// A count as a length of the bar; what is there at all stays visible.
fn scaled(count: u64, most: u64) -> usize {
    let length = if most <= BAR { count } else { (count * BAR).div_ceil(most) };
    length as usize
}

/// The patch of a difference of one workspace; what is not in it is said.
pub fn show_patch(ui: &mut Ui, of: &WorkspaceDiff) -> Result<(), CliError> {
    for entry in &of.entries {
        if let Some(reason) = patch::left_out(entry) {
            ui.warn(format_args!("{} is not in the patch: {reason}", output::name(entry.path.as_bytes())));
            continue;
        }
        show_rendered(ui, &patch::render(&of.workspace, entry)?)?;
    }
    Ok(())
}

/// A patch: exact where it goes to a file or a pipe, escaped and coloured on a screen.
pub fn show_rendered(ui: &mut Ui, rendered: &[u8]) -> Result<(), CliError> {
    if ui.is_raw() {
        return ui.bytes(rendered);
    }
    for (style, line) in patch_lines(rendered) {
        ui.line(ui.paint(style, line))?;
    }
    Ok(())
}

/// The lines of a patch for the screen, each with its style; nothing in them is live.
pub fn patch_lines(rendered: &[u8]) -> impl Iterator<Item = (anstyle::Style, String)> {
    let mut in_hunk = false;
    rendered.split_inclusive(|b| *b == b'\n').map(move |line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        (line_style(line, &mut in_hunk), output::content(line))
    })
}

/// A deleted line `-- x` looks like a header; only its place tells them apart.
fn line_style(line: &[u8], in_hunk: &mut bool) -> anstyle::Style {
    if line.starts_with(b"diff --git ") {
        *in_hunk = false;
    }
    if line.starts_with(b"@@ ") {
        *in_hunk = true;
        return style::HINT;
    }
    match line.first() {
        _ if !*in_hunk => style::HEAD,
        Some(b'+') => style::GOOD,
        Some(b'-') => style::BAD,
        _ => anstyle::Style::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::RelPath;

    use super::*;
    use crate::cli::output::ColorWhen;

    fn plain() -> Ui {
        Ui::new(false, false, ColorWhen::Never)
    }

    fn entry(path: &[u8], kind: DiffKind) -> DiffEntry {
        DiffEntry::new(RelPath::from_bytes(path).unwrap(), kind)
    }

    fn node(mode: u32) -> Node {
        let node_type = NodeType::File;
        Node { node_type, mode, uid: 0, gid: 0, size: 1, digest: None, target: None, xattrs: None }
    }

    #[test]
    fn a_line_says_how_and_where() {
        assert_eq!(entry_line(&plain(), &entry(b"a\nb", DiffKind::Created)), "A a\\nb");
        let mut renamed = entry(b"new", DiffKind::Renamed);
        renamed.from = Some(RelPath::parse("old").unwrap());
        assert_eq!(entry_line(&plain(), &renamed), "R old → new");
        renamed.new = Some(Node { node_type: NodeType::Directory, ..node(0o755) });
        assert_eq!(entry_line(&plain(), &renamed), "R old/ → new/");
    }

    #[test]
    fn metadata_is_spelled_out() {
        let mut changed = entry(b"run.sh", DiffKind::Metadata);
        changed.old = Some(node(0o644));
        changed.new = Some(Node { uid: 7, xattrs: Some("x".into()), ..node(0o755) });
        let expected = "m run.sh  mode 0644 → 0755, owner 0:0 → 7:0, extended attributes";
        assert_eq!(entry_line(&plain(), &changed), expected);
        changed.kind = DiffKind::Type;
        changed.new = Some(Node { node_type: NodeType::Symlink, ..node(0o777) });
        assert_eq!(entry_line(&plain(), &changed), "T run.sh  file → symlink");
    }

    #[test]
    fn marks_say_what_to_look_at() {
        let mut odd = entry(b"x", DiffKind::Created);
        odd.moved = true;
        odd.refused = Some("a device".into());
        odd.flags = vec!["setuid".into()];
        let expected = "A x  (changed in the original too: a commit would conflict)  (cannot be committed: a device)  (look: setuid)";
        assert_eq!(entry_line(&plain(), &odd), expected);
    }

    #[test]
    fn bars_never_hide_a_change() {
        assert_eq!(scaled(3, 10), 3);
        assert_eq!(scaled(1, 100_000), 1);
        assert_eq!(scaled(0, 100_000), 0);
        assert_eq!(scaled(100_000, 100_000), BAR as usize);
        let row = StatRow { place: "x".into(), counts: Counts::Lines(2, 1) };
        assert_eq!(row.figures(&plain(), 3), "3 ++-");
        let binary = StatRow { place: "x".into(), counts: Counts::Binary(0, 9) };
        assert_eq!(binary.figures(&plain(), 3), "Bin 0 -> 9 bytes");
        let total = Stat { files: 2, insertions: 1, deletions: 0 };
        assert_eq!(total.text(), " 2 files changed, 1 insertion(+)");
    }

    #[test]
    fn deleted_lines_that_look_like_headers_are_deletions() {
        let mut in_hunk = false;
        assert_eq!(line_style(b"--- a/x", &mut in_hunk), style::HEAD);
        assert_eq!(line_style(b"@@ -1 +1 @@", &mut in_hunk), style::HINT);
        assert_eq!(line_style(b"--- x", &mut in_hunk), style::BAD);
        assert_eq!(line_style(b"+x", &mut in_hunk), style::GOOD);
        assert_eq!(line_style(b"diff --git a/y b/y", &mut in_hunk), style::HEAD);
    }
}
