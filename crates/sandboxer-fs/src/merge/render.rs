//! Regions as a text with conflict markers, and as a report for a person.

use std::ops::Range;

use sandboxer_core::model::ConflictHunk;

use super::lines::Lines;
use super::regions::{Kind, Region};
use super::{Labels, Merged, Texts};

/// As many lines of a side are reported; the text has them all.
const MAX_REPORTED_LINES: usize = 200;
/// What stands between the sides of a conflict.
const SEPARATOR: &str = "=======";

/// The line that opens a conflict, without its end.
pub(super) fn opening(labels: &Labels<'_>) -> String {
    format!("<<<<<<< {}", labels.ours)
}

/// The line that closes a conflict, without its end.
pub(super) fn closing(labels: &Labels<'_>) -> String {
    format!(">>>>>>> {}", labels.theirs)
}

/// Writes our text with each region replaced by what becomes of it.
pub(super) fn merged(texts: &Texts<'_>, regions: &[Region], labels: &Labels<'_>) -> Merged {
    let mut merged = Merged::default();
    merged.content.reserve(texts.ours.all().len().max(texts.theirs.all().len()));
    let mut ours_at = 0;
    for region in regions {
        merged.content.extend_from_slice(texts.ours.slice(&(ours_at..region.ours.start)));
        match region.kind {
            Kind::Ours | Kind::Same => merged.content.extend_from_slice(texts.ours.slice(&region.ours)),
            Kind::Theirs => merged.content.extend_from_slice(texts.theirs.slice(&region.theirs)),
            Kind::Conflict => {
                write_conflict(texts, region, labels, &mut merged.content);
                merged.conflicts.push(report(texts, region));
            }
        }
        ours_at = region.ours.end;
    }
    merged.content.extend_from_slice(texts.ours.slice(&(ours_at..texts.ours.count())));
    merged
}

fn write_conflict(texts: &Texts<'_>, region: &Region, labels: &Labels<'_>, content: &mut Vec<u8>) {
    let line_end = line_end_at(texts, region);
    let mut marker = |text: &str, then: &[u8]| {
        content.extend_from_slice(text.as_bytes());
        content.extend_from_slice(line_end);
        content.extend_from_slice(then);
        if then.last().is_some_and(|byte| *byte != b'\n') {
            content.extend_from_slice(line_end);
        }
    };
    marker(&opening(labels), texts.ours.slice(&region.ours));
    marker(SEPARATOR, texts.theirs.slice(&region.theirs));
    marker(&closing(labels), b"");
}

/// How markers end: in CRLF if the base begins so and no side has another end before the conflict. Git's rule.
fn line_end_at(texts: &Texts<'_>, region: &Region) -> &'static [u8] {
    let ours = ends_in_crlf(&texts.ours, region.ours.start.saturating_sub(1));
    let theirs = ends_in_crlf(&texts.theirs, region.theirs.start.saturating_sub(1));
    let is_crlf = ours != Some(false) && theirs != Some(false) && ends_in_crlf(&texts.base, 0) == Some(true);
    if is_crlf { b"\r\n" } else { b"\n" }
}

/// Whether a line ends in CRLF, or for a last line without an end the one before it; `None` if there is no end to look at.
fn ends_in_crlf(lines: &Lines<'_>, at: usize) -> Option<bool> {
    let line = (at < lines.count()).then(|| lines.line(at))?;
    if line.ends_with(b"\n") {
        return Some(line.ends_with(b"\r\n"));
    }
    at.checked_sub(1).map(|before| lines.line(before).ends_with(b"\r\n"))
}

fn report(texts: &Texts<'_>, region: &Region) -> ConflictHunk {
    ConflictHunk {
        ours_start: region.ours.start + 1,
        ours: reported(&texts.ours, &region.ours),
        base: reported(&texts.base, &region.base),
        theirs_start: region.theirs.start + 1,
        theirs: reported(&texts.theirs, &region.theirs),
    }
}

fn reported(lines: &Lines<'_>, range: &Range<usize>) -> Vec<String> {
    let shown = |at: usize| {
        let line = lines.line(at);
        String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line)).into_owned()
    };
    let mut report: Vec<String> = range.clone().take(MAX_REPORTED_LINES).map(shown).collect();
    if range.len() > MAX_REPORTED_LINES {
        report.push(format!("… {} more", range.len() - MAX_REPORTED_LINES));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sides_are_cut_in_the_report() {
        let text: String = (0..450).map(|n| format!("{n}\n")).collect();
        let lines = Lines::new(text.as_bytes());
        assert_eq!(reported(&lines, &(0..200)).len(), 200);
        let cut = reported(&lines, &(10..450));
        assert_eq!((cut.len(), cut[0].as_str(), cut[200].as_str()), (201, "10", "… 240 more"));
    }

    #[test]
    fn the_end_of_a_line_is_looked_for_where_there_is_one() {
        let of = |text: &'static [u8], at| ends_in_crlf(&Lines::new(text), at);
        assert_eq!(of(b"a\r\nb\n", 0), Some(true));
        assert_eq!(of(b"a\r\nb\n", 1), Some(false));
        assert_eq!(of(b"a\r\nb", 1), Some(true));
        assert_eq!(of(b"a", 0), None);
        assert_eq!(of(b"", 0), None);
    }

    #[test]
    fn markers_get_a_carriage_return_if_the_base_has_it_and_nobody_goes_without() {
        let conflict = Region { kind: Kind::Conflict, base: 0..1, ours: 0..1, theirs: 0..1 };
        let end = |ours, theirs, base| line_end_at(&Texts::new(base, ours, theirs), &conflict);
        assert_eq!(end(b"a\r\n", b"b\r\n", b"c\r\n"), b"\r\n");
        assert_eq!(end(b"a\r\n", b"b\n", b"c\r\n"), b"\n");
        assert_eq!(end(b"a\r\n", b"b\r\n", b"c\n"), b"\n");
        assert_eq!(end(b"a", b"b", b"c\r\n"), b"\r\n");
        assert_eq!(end(b"a\r\n", b"b\r\n", b""), b"\n");
    }
}
