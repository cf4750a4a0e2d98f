//! The one table, and the same rows as JSON. A row is judged by one figure (a ratio, or megabytes) against its goal; a
//! missed goal is marked and its number printed as it is.

use serde::Serialize;

use crate::failure::Failure;
use crate::measure::{Sides, ratio};

/// One line of the table. The field names are those of the JSON file, which scripts read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What is compared; stable, so that runs can be compared by it.
    pub row: String,
    /// The figure that is judged: ours ÷ theirs; ours itself for the units `MB`, `µs`, `MB per s` and `per second`. None where it was not measured.
    pub ratio: Option<f64>,
    /// The figure must not be above this, or below it where `at_least` says so. None where there is no goal.
    pub goal: Option<f64>,
    /// Whether more is better. Left out of the JSON where it is not so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Unit of `ours` and `theirs`.
    pub unit: &'static str,
    /// Our absolute figure: a median, or a peak for `MB`.
    pub ours: Option<f64>,
    /// The other side's median.
    pub theirs: Option<f64>,
    /// How many rounds were counted.
    pub rounds: usize,
    /// What else there is to know; starts with `skipped:` or `failed:` where there is no number.
    pub note: String,
}

impl Row {
    /// A comparison of wall times.
    pub fn timed(row: &str, goal: Option<f64>, sides: &Sides) -> Self {
        let (ours, theirs) = sides.medians();
        let (low, high) = sides.spread();
        Self {
            row: row.to_owned(),
            ratio: Some(ratio(ours, theirs)),
            goal,
            at_least: false,
            unit: "ms",
            ours: Some(ours),
            theirs: Some(theirs),
            rounds: sides.ours.len(),
            note: format!("{}–{} by run", judged(low, "ms"), judged(high, "ms")),
        }
    }

    /// A peak of memory.
    pub fn memory(row: &str, goal: f64, bytes: u64, rounds: usize) -> Self {
        let megabytes = bytes as f64 / 1e6;
        Self {
            row: row.to_owned(),
            ratio: Some(megabytes),
            goal: Some(goal),
            at_least: false,
            unit: "MB",
            ours: Some(megabytes),
            theirs: None,
            rounds,
            note: String::new(),
        }
    }

    /// A comparison of sizes on disk.
    pub fn disk(row: &str, goal: f64, ours: u64, theirs: u64) -> Self {
        let (ours, theirs) = (ours as f64 / 1e6, theirs as f64 / 1e6);
        Self {
            row: row.to_owned(),
            ratio: Some(ratio(ours, theirs)),
            goal: Some(goal),
            at_least: false,
            unit: "MB on disk",
            ours: Some(ours),
            theirs: Some(theirs),
            rounds: 1,
            note: String::new(),
        }
    }

    /// A comparison of how much gets through in a second, where both sides moved as many bytes. More is better.
    pub fn throughput(row: &str, goal: f64, bytes: u64, sides: &Sides) -> Self {
        let (ours, theirs) = sides.medians();
        let (low, high) = sides.spread();
        let rate = |ms: f64| ratio(bytes as f64 / 1e3, ms);
        Self {
            row: row.to_owned(),
            ratio: Some(ratio(theirs, ours)),
            goal: Some(goal),
            at_least: true,
            unit: "MB/s",
            ours: Some(rate(ours)),
            theirs: Some(rate(theirs)),
            rounds: sides.ours.len(),
            note: format!("{}–{} by run", judged(ratio(1.0, high), "MB/s"), judged(ratio(1.0, low), "MB/s")),
        }
    }

    /// How long one call takes, beside the least that it could: each sample is of so many calls. Judged by itself.
    pub fn latency(row: &str, goal: f64, calls: usize, sides: &Sides) -> Self {
        let micros = |ms: f64| ms * 1e3 / calls as f64;
        let (ours, theirs) = sides.medians();
        let unit = "µs";
        let (ours, theirs) = (micros(ours), micros(theirs));
        Self {
            ratio: Some(ours),
            unit,
            ours: Some(ours),
            theirs: Some(theirs),
            note: format!("{:.2} times the other", ratio(ours, theirs)),
            ..Self::timed(row, Some(goal), sides)
        }
    }

    /// How much longer one call takes than the other, where each sample is of so many. Judged by that.
    pub fn added(row: &str, goal: f64, calls: usize, sides: &Sides) -> Self {
        let compared = Self::latency(row, goal, calls, sides);
        let added = compared.ours.zip(compared.theirs).map(|(ours, theirs)| ours - theirs);
        Self { ratio: added, ..compared }
    }

    /// A comparison of how long one call takes, where each sample is of so many.
    pub fn each(row: &str, goal: f64, calls: usize, sides: &Sides) -> Self {
        let compared = Self::timed(row, Some(goal), sides);
        let micros = |ms: f64| ms * 1e3 / calls as f64;
        Self {
            unit: "µs each",
            ours: compared.ours.map(micros),
            theirs: compared.theirs.map(micros),
            ..compared
        }
    }

    /// A comparison of transactions in a second, where each sample is of so many. More is better.
    pub fn transactions(row: &str, goal: Option<f64>, count: usize, sides: &Sides) -> Self {
        let bytes = count as u64 * 1_000_000;
        Self { goal, unit: "a second", ..Self::throughput(row, goal.unwrap_or_default(), bytes, sides) }
    }

    /// How much gets through in a second, beside the most that could. Judged by itself.
    pub fn rate(row: &str, goal: f64, bytes: u64, sides: &Sides) -> Self {
        let compared = Self::throughput(row, goal, bytes, sides);
        let note = format!("{:.2} of the other", compared.ratio.unwrap_or_default());
        Self { ratio: compared.ours, unit: "MB per s", note, ..compared }
    }

    /// How often something is done in a second, beside the most that could be: each sample is of so many times. Judged by itself.
    pub fn pace(row: &str, goal: Option<f64>, count: usize, sides: &Sides) -> Self {
        let bytes = count as u64 * 1_000_000;
        Self { goal, unit: "per second", ..Self::rate(row, goal.unwrap_or_default(), bytes, sides) }
    }

    /// A row without a number.
    pub fn without(row: &str, goal: Option<f64>, unit: &'static str, why: &Failure) -> Self {
        // A table's row is one line, whatever a failing command said.
        let note = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let at_least = false;
        Self {
            row: row.to_owned(),
            ratio: None,
            goal,
            at_least,
            unit,
            ours: None,
            theirs: None,
            rounds: 0,
            note,
        }
    }

    /// The same row with more to know.
    pub fn noting(mut self, more: &str) -> Self {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(more);
        self
    }

    /// Whether it should have a number and has none.
    pub fn has_failed(&self) -> bool {
        self.ratio.is_none() && self.note.starts_with("failed:")
    }

    /// Its figures in one line, for those who wait.
    pub fn summary(&self) -> String {
        let [_, figure, goal, verdict, ours, theirs, notes] = self.cells();
        format!("  {figure} (goal {goal}) {verdict} {ours} vs {theirs}; {notes}")
    }

    fn verdict(&self) -> &'static str {
        match (self.ratio, self.goal) {
            (None, _) => "–",
            (Some(_), None) => "",
            (Some(figure), Some(goal)) if self.at_least && figure >= goal => "ok",
            (Some(figure), Some(goal)) if !self.at_least && figure <= goal => "ok",
            _ => "MISS",
        }
    }

    fn sign(&self) -> &'static str {
        if self.at_least { "≥" } else { "≤" }
    }

    fn cells(&self) -> [String; 7] {
        let absolute = |value: Option<f64>| value.map_or("–".to_owned(), |v| absolute(v, self.unit));
        [
            self.row.clone(),
            self.ratio.map_or("–".to_owned(), |r| judged(r, self.unit)),
            self.goal.map_or("none".to_owned(), |g| format!("{} {}", self.sign(), judged(g, self.unit))),
            self.verdict().to_owned(),
            absolute(self.ours),
            absolute(self.theirs),
            if self.note.is_empty() { format!("{} runs", self.rounds) } else { self.describe() },
        ]
    }

    fn describe(&self) -> String {
        if self.rounds == 0 { self.note.clone() } else { format!("{} runs; {}", self.rounds, self.note) }
    }
}

fn judged(figure: f64, unit: &str) -> String {
    match unit {
        "MB" => format!("{figure:.1} MB"),
        "µs" => format!("{figure:.1} µs"),
        "MB per s" => format!("{figure:.0} MB/s"),
        "per second" => format!("{figure:.0} a second"),
        // A goal of a hundredth is not judged by hundredths.
        _ if figure < 0.095 => format!("{figure:.4}"),
        _ => format!("{figure:.2}"),
    }
}

fn absolute(value: f64, unit: &str) -> String {
    match unit {
        "ms" if value >= 10_000.0 => format!("{:.1} s", value / 1_000.0),
        "ms" if value >= 100.0 => format!("{value:.0} ms"),
        "ms" => format!("{value:.2} ms"),
        "µs" => format!("{value:.2} µs"),
        "MB per s" => format!("{value:.0} MB/s"),
        "a second" | "per second" => format!("{value:.0} a second"),
        _ => format!("{value:.1} {unit}"),
    }
}

/// The table as Markdown with aligned columns, so that a terminal and a page both show it well.
pub fn table(rows: &[Row]) -> String {
    let head = ["row", "ratio", "goal", "", "ours", "theirs", "runs and notes"].map(str::to_owned);
    let lines: Vec<[String; 7]> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = String::new();
    for (index, cells) in lines.iter().enumerate() {
        text.push_str(&line(cells, &widths));
        if index == 0 {
            text.push_str(&line(&widths.map(|w| "-".repeat(w)), &widths));
        }
    }
    text
}

fn line(cells: &[String; 7], widths: &[usize; 7]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::measure::Sample;

    fn sides(ours: u64, theirs: u64) -> Sides {
        let three = |ms| vec![Sample::in_process(Duration::from_millis(ms)); 3];
        Sides { ours: three(ours), theirs: three(theirs) }
    }

    #[test]
    fn a_row_is_judged_against_its_goal() {
        assert_eq!(Row::timed("r", Some(0.5), &sides(50, 100)).verdict(), "ok");
        assert_eq!(Row::timed("r", Some(0.5), &sides(51, 100)).verdict(), "MISS");
        assert_eq!(Row::timed("r", None, &sides(900, 100)).verdict(), "");
        assert_eq!(Row::memory("m", 24.0, 24_100_000, 1).verdict(), "MISS");
        assert_eq!(Row::without("r", Some(1.0), "ms", &Failure::Interrupted).verdict(), "–");
    }

    #[test]
    fn the_table_is_aligned_markdown_with_real_numbers() {
        let skipped = Failure::Skipped("needs root".to_owned());
        let rows = [
            Row::timed("create", Some(0.45), &sides(1_234, 1_000)),
            Row::memory("memory", 24.0, 12_340_000, 5),
            Row::without("reflink", Some(0.55), "ms", &skipped).noting("x"),
        ];
        let expected = "\
| row     | ratio   | goal      |      | ours    | theirs  | runs and notes           |
| ------- | ------- | --------- | ---- | ------- | ------- | ------------------------ |
| create  | 1.23    | ≤ 0.45    | MISS | 1234 ms | 1000 ms | 3 runs; 1.23–1.23 by run |
| memory  | 12.3 MB | ≤ 24.0 MB | ok   | 12.3 MB | –       | 5 runs                   |
| reflink | –       | ≤ 0.55    | –    | –       | –       | skipped: needs root; x   |
";
        assert_eq!(table(&rows), expected);
        assert_eq!(
            rows[0].summary(),
            "  1.23 (goal ≤ 0.45) MISS 1234 ms vs 1000 ms; 3 runs; 1.23–1.23 by run"
        );
    }

    #[test]
    fn a_small_ratio_has_the_digits_that_its_goal_asks_for() {
        let row = Row::timed("r", Some(0.01), &sides(7, 1_000));
        assert!(row.summary().starts_with("  0.0070 (goal ≤ 0.0100) ok"), "{}", row.summary());
        assert_eq!(row.note, "0.0070–0.0070 by run");
    }

    #[test]
    fn a_throughput_has_to_reach_its_goal() {
        // Half a gigabyte in a second against a quarter of that time.
        let row = Row::throughput("r", 0.25, 500_000_000, &sides(1_000, 250));
        assert_eq!(
            row.summary(),
            "  0.25 (goal ≥ 0.25) ok 500.0 MB/s vs 2000.0 MB/s; 3 runs; 0.25–0.25 by run"
        );
        assert_eq!(Row::throughput("r", 0.26, 500_000_000, &sides(1_000, 250)).verdict(), "MISS");
        assert_eq!(serde_json::to_value(&row).unwrap()["at_least"], true);
    }

    #[test]
    fn calls_and_rates_are_judged_by_themselves() {
        let row = Row::latency("r", 150.0, 1_000, &sides(100, 20));
        assert_eq!(
            row.summary(),
            "  100.0 µs (goal ≤ 150.0 µs) ok 100.00 µs vs 20.00 µs; 3 runs; 5.00 times the other"
        );
        let row = Row::rate("r", 400.0, 500_000_000, &sides(1_000, 250));
        assert_eq!(
            row.summary(),
            "  500 MB/s (goal ≥ 400 MB/s) ok 500 MB/s vs 2000 MB/s; 3 runs; 0.25 of the other"
        );
        assert_eq!(Row::rate("r", 501.0, 500_000_000, &sides(1_000, 250)).verdict(), "MISS");
        let row = Row::pace("r", Some(500.0), 400, &sides(1_000, 250));
        assert_eq!(
            row.summary(),
            "  400 a second (goal ≥ 500 a second) MISS 400 a second vs 1600 a second; 3 runs; 0.25 of the other"
        );
    }

    #[test]
    fn calls_and_transactions_are_compared() {
        let row = Row::each("r", 2.0, 1_000, &sides(150, 100));
        assert_eq!(
            row.summary(),
            "  1.50 (goal ≤ 2.00) ok 150.0 µs each vs 100.0 µs each; 3 runs; 1.50–1.50 by run"
        );
        let row = Row::transactions("r", Some(1.0), 500, &sides(500, 1_000));
        assert_eq!(
            row.summary(),
            "  2.00 (goal ≥ 1.00) ok 1000 a second vs 500 a second; 3 runs; 2.00–2.00 by run"
        );
        assert_eq!(Row::transactions("r", None, 500, &sides(1_000, 500)).verdict(), "");
    }

    #[test]
    fn only_a_failed_row_counts_as_failed() {
        let without = |why: Failure| Row::without("r", None, "ms", &why);
        let broken = without(Failure::new("broken:\n  {}\n"));
        assert!(broken.has_failed() && broken.note == "failed: broken: {}");
        assert!(!without(Failure::Skipped("no root".to_owned())).has_failed());
        assert!(!Row::timed("r", None, &sides(1, 1)).has_failed());
    }

    #[test]
    fn json_has_the_fields_that_scripts_read() {
        let json = serde_json::to_value(Row::timed("create", Some(0.45), &sides(40, 100))).unwrap();
        let expected = serde_json::json!({
            "row": "create", "ratio": 0.4, "goal": 0.45, "unit": "ms",
            "ours": 40.0, "theirs": 100.0, "rounds": 3, "note": "0.40–0.40 by run",
        });
        assert_eq!(json, expected);
    }
}
