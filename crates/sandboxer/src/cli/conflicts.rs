//! Conflicts, for people and for programs: which paths, why, where in them, and what to type next.
//!
//! Lines of files are shown like those of a patch: `-` is what the original has, `+` what the sandbox has. They come from
//! programs that nobody vouches for, so each is escaped, and no line can pass for one of ours.

use sandboxer_core::Error;
use sandboxer_core::model::{ConflictHunk, OnConflict};
use sandboxer_documents::Detail;
use sandboxer_documents::conflicts::{self, Attempt};

use super::error::CliError;
use super::output::{self, Ui, count, style};

/// No more places than this are shown of one file; JSON has them all.
const SHOWN_HUNKS: usize = 5;
/// No more lines than this are shown of one side.
const SHOWN_LINES: usize = 10;
/// What to do where the original has changed too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// Refuse, and write nothing
    Fail,
    /// Merge text three ways; refuse where both sides changed the same lines
    Merge,
    /// Keep the original's version; the sandbox's stays pending
    #[value(alias = "skip")]
    Ours,
    /// Take the sandbox's version
    #[value(alias = "accept")]
    Theirs,
}

/// The flags on conflicts.
#[derive(clap::Args, Default)]
pub struct ConflictArgs {
    /// What to do where the original has changed too [default: fail]
    #[arg(long, value_name = "WAY", value_enum)]
    on_conflict: Option<Way>,
    /// With --on-conflict merge: where that fails, put both versions into the sandbox's files, between markers
    #[arg(long)]
    write_conflicts: bool,
}

impl ConflictArgs {
    /// The way that was typed.
    pub fn read(&self) -> Result<OnConflict, CliError> {
        match (self.on_conflict.unwrap_or(Way::Fail), self.write_conflicts) {
            (Way::Merge, true) => Ok(OnConflict::Mark),
            (_, true) => Err(CliError::usage("--write-conflicts is for merges that fail")
                .hint("say both: --on-conflict merge --write-conflicts")),
            (Way::Fail, false) => Ok(OnConflict::Fail),
            (Way::Merge, false) => Ok(OnConflict::Merge),
            (Way::Ours, false) => Ok(OnConflict::Ours),
            (Way::Theirs, false) => Ok(OnConflict::Theirs),
        }
    }
}

/// A failure of a commit or an undo; the hints on conflicts fit what was tried.
pub fn explain(error: Error, attempt: &Attempt<'_>) -> CliError {
    conflicts::explain(error, attempt).into()
}

/// A path of an error for stderr: where, why, and where in it.
pub fn lines(detail: &Detail, ui: &Ui) -> Vec<String> {
    let mut lines = vec![format!("  {}: {}", output::path(&detail.path), output::sentence(&detail.reason))];
    lines.extend(detail.hunks.iter().take(SHOWN_HUNKS).flat_map(|hunk| hunk_lines(ui, hunk)));
    if detail.hunks.len() > SHOWN_HUNKS {
        lines.push(format!("    and {}", count(detail.hunks.len() - SHOWN_HUNKS, "more place")));
    }
    lines
}

fn hunk_lines(ui: &Ui, hunk: &ConflictHunk) -> Vec<String> {
    let (ours, theirs) =
        (place("original", hunk.ours_start, &hunk.ours), place("sandbox", hunk.theirs_start, &hunk.theirs));
    let mut lines = vec![format!("    {}", ui.paint_err(style::HINT, format!("@@ {ours}, {theirs} @@")))];
    lines.extend(side_lines(ui, style::BAD, '-', &hunk.ours));
    lines.extend(side_lines(ui, style::GOOD, '+', &hunk.theirs));
    lines
}

/// Where one side's lines are: `original lines 2-4`.
fn place(side: &str, start: usize, lines: &[String]) -> String {
    match lines.len() {
        0 => format!("{side} before line {start}"),
        1 => format!("{side} line {start}"),
        n => format!("{side} lines {start}-{}", start + n - 1),
    }
}

fn side_lines(ui: &Ui, style: anstyle::Style, sign: char, lines: &[String]) -> Vec<String> {
    let line = |text: &String| {
        format!("    {}", ui.paint_err(style, format!("{sign}{}", output::content(text.as_bytes()))))
    };
    let mut shown: Vec<String> = lines.iter().take(SHOWN_LINES).map(line).collect();
    if lines.len() > SHOWN_LINES {
        shown.push(format!("    … {}", count(lines.len() - SHOWN_LINES, "more line")));
    }
    shown
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::{Conflict, RelPath};

    use super::*;
    use crate::cli::output::ColorWhen;

    fn conflict(path: &str, reason: &str) -> Conflict {
        Conflict::new(RelPath::parse(path).unwrap(), reason)
    }

    fn merged(path: &str, ours: &[&str], theirs: &[&str]) -> Conflict {
        let text = |lines: &[&str]| lines.iter().map(|l| (*l).to_owned()).collect();
        let hunk = ConflictHunk {
            ours_start: 2,
            ours: text(ours),
            theirs_start: 3,
            theirs: text(theirs),
            ..Default::default()
        };
        Conflict { hunks: vec![hunk], ..conflict(path, "both") }
    }

    fn shown(conflict: &Conflict) -> Vec<String> {
        lines(&Detail::of(conflict), &Ui::new(false, false, ColorWhen::Never))
    }

    #[test]
    fn both_sides_of_a_place_are_shown_with_their_lines() {
        let told = shown(&merged("a", &["x\x1b[2J", "y"], &[]));
        let expected =
            ["  a: both", "    @@ original lines 2-3, sandbox before line 3 @@", "    -x\\x1b[2J", "    -y"];
        assert_eq!(told, expected);
    }

    #[test]
    fn long_sides_and_many_places_are_cut() {
        let many = vec!["l"; 14];
        let mut long = merged("a", &many, &["t"]);
        let told = shown(&long);
        assert_eq!((told.len(), told[12].as_str()), (14, "    … 4 more lines"));
        long.hunks = vec![long.hunks[0].clone(); 7];
        assert_eq!(shown(&long).last().unwrap(), "    and 2 more places");
    }

    #[test]
    fn the_flags_go_together_or_not_at_all() {
        let read = |way, write_conflicts| ConflictArgs { on_conflict: way, write_conflicts }.read();
        assert_eq!(read(None, false).unwrap(), OnConflict::Fail);
        assert_eq!(read(Some(Way::Merge), true).unwrap(), OnConflict::Mark);
        assert_eq!(read(Some(Way::Ours), false).unwrap(), OnConflict::Ours);
        assert_eq!(read(None, true).unwrap_err().exit, 2);
        assert_eq!(read(Some(Way::Theirs), true).unwrap_err().exit, 2);
    }
}
