//! The meters as comma-separated values (RFC 4180), one line for each row.
//!
//! A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, and names come from whoever asks for a sandbox: such
//! cells begin with an apostrophe. Each currency has a column of its own.

use sandboxer_core::service::{UsageBy, UsageReport, UsageRow};

/// The whole document, header first.
pub fn of(report: &UsageReport) -> String {
    let currencies: Vec<&String> = report.total.cost.keys().collect();
    let mut text = line(header(report.by, &currencies));
    for row in &report.rows {
        text += &line(cells(report.by, row, &currencies));
    }
    text
}

fn header(by: UsageBy, currencies: &[&String]) -> Vec<String> {
    let key: &[&str] = match by {
        UsageBy::Consumer => &["consumer"],
        UsageBy::Project => &["project"],
        UsageBy::Profile => &["profile"],
        UsageBy::Extension => &["extension"],
        UsageBy::Sandbox => &["sandbox", "name"],
    };
    let measures = ["sandboxes", "live", "wall_seconds", "cpu_seconds", "memory_peak", "disk"];
    let fixed = key.iter().chain(&measures).map(|name| (*name).to_owned());
    fixed.chain(currencies.iter().map(|currency| text_cell(&format!("cost_{currency}")))).collect()
}

fn cells(by: UsageBy, row: &UsageRow, currencies: &[&String]) -> Vec<String> {
    let used = &row.used;
    let bytes = |bytes: Option<u64>| bytes.map(|n| n.to_string()).unwrap_or_default();
    let mut cells = vec![text_cell(&row.key)];
    if by == UsageBy::Sandbox {
        cells.push(text_cell(row.name.as_deref().unwrap_or_default()));
    }
    cells.extend([used.sandboxes.to_string(), used.live.to_string()]);
    cells.extend([used.wall_seconds, used.cpu_seconds].map(|seconds| format!("{seconds:.3}")));
    cells.extend([bytes(used.memory_peak), bytes(used.disk)]);
    let cost = |currency: &&String| used.cost.get(*currency).map(|amount| format!("{amount:.6}"));
    cells.extend(currencies.iter().map(|currency| cost(currency).unwrap_or_default()));
    cells
}

fn line(cells: Vec<String>) -> String {
    cells.join(",") + "\r\n"
}

/// Text as a cell: harmless, and quoted where it has to be.
fn text_cell(text: &str) -> String {
    // A tab or a line end before the sign is passed over by some.
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\r', '\n']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use sandboxer_core::service::Used;

    use super::*;

    #[test]
    fn cells_are_quoted_and_are_no_formulas() {
        let table = [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""),
            ("\t=1", "'\t=1"),
            ("", ""),
        ];
        for (text, cell) in table {
            assert_eq!(text_cell(text), cell);
        }
    }

    #[test]
    fn each_currency_has_a_column() {
        let row = |key: &str, cost: &[(&str, f64)]| {
            let cost: BTreeMap<String, f64> = cost.iter().map(|(c, n)| ((*c).to_owned(), *n)).collect();
            let used = Used { wall_seconds: 1.5, cost, disk: Some(7), ..Used::default() };
            UsageRow { key: key.into(), name: Some("n".into()), used, limits: Vec::new() }
        };
        let rows = vec![row("a", &[("EUR", 1.25)]), row("b", &[("USD", 3.0)])];
        let cost = BTreeMap::from([("EUR".to_owned(), 1.25), ("USD".to_owned(), 3.0)]);
        let report = UsageReport {
            by: UsageBy::Sandbox,
            since: None,
            until: "2026-11-01T00:00:00Z".parse().unwrap(),
            rows,
            total: Used { cost, ..Used::default() },
        };
        assert_eq!(
            of(&report),
            "sandbox,name,sandboxes,live,wall_seconds,cpu_seconds,memory_peak,disk,cost_EUR,cost_USD\r\n\
             a,n,0,0,1.500,0.000,,7,1.250000,\r\n\
             b,n,0,0,1.500,0.000,,7,,3.000000\r\n"
        );
    }
}
