//! What is said of a contained command: what holds it, before; what it used and was refused, afterwards.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandboxer_documents::reached::Event;
use sandboxer_extensions::local::{End, Limits, Network, Ready, Report, Spec, Told};
use serde::Serialize;

use super::{Done, Ended};
use crate::cli::output::{self, Ui, count, size};

/// So many of a list are named.
const NAMED: usize = 3;

/// What a runtime is, in half a sentence.
pub fn held(spec: &Spec) -> String {
    format!("{} isolation and {}", spec.isolation.as_str(), network(&spec.network))
}

fn network(network: &Network) -> String {
    match network {
        Network::None => "no network".to_owned(),
        Network::Host => "the host's network".to_owned(),
        Network::Allow(hosts) => format!("network to {} only", output::sentence(&hosts.join(", "))),
    }
}

/// One line before the command: what holds it, and what isolates its files.
pub fn before(ui: &Ui, ready: &Ready, strategy: Option<&str>) {
    let Spec { isolation, network: reached, limits, .. } = &ready.spec;
    let by = strategy.map(|strategy| format!(" by {strategy}")).unwrap_or_default();
    ui.note(format_args!("contained: {} isolation{by}, {}", isolation.as_str(), network(reached)));
    if ready.confined.landlock.is_none() {
        ui.note("this kernel has no Landlock: mounts alone keep the command from writing elsewhere");
    }
    if *limits != Limits::default() {
        ui.note(format_args!("limits: {}", output::sentence(&ready.enforced.describe(limits))));
    }
}

/// Variables that a command may complain of missing.
pub fn secrets(ui: &Ui, dropped: &[String]) {
    if dropped.is_empty() {
        return;
    }
    let (are, them) = if dropped.len() == 1 {
        ("looks like a secret and was", "it")
    } else {
        ("look like secrets and were", "them")
    };
    let variables = count(dropped.len(), "variable");
    ui.note(format_args!(
        "{variables} {are} not passed on ({}); name {them} with --env",
        some(dropped, dropped.len())
    ));
}

/// The first of a list, and whether there are more.
fn some(names: &[String], all: usize) -> String {
    let mut shown: Vec<String> = names.iter().take(NAMED).map(output::name).collect();
    if all > shown.len() {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}

/// What there is to tell after the command. `events` are those of this command, if hosts were refused.
pub fn after(ended: &Ended, limits: &Limits, events: &[Event]) -> Vec<String> {
    let alone = ended.report.is_none();
    let mut lines: Vec<String> = end(ended.end, limits, alone).into_iter().collect();
    if let Some(report) = &ended.report {
        lines.extend(refused(report, events));
        lines.extend(bounded(report, limits));
        lines.push(used(report));
    }
    lines
}

/// How it ended; `alone` where other commands went on.
fn end(end: End, limits: &Limits, alone: bool) -> Option<String> {
    match end {
        End::Exited(_) => None,
        End::Killed(signal) => Some(format!("the command was ended by signal {signal}")),
        End::TimedOut => {
            let after = limits.timeout.map(|time| format!(" after {}", span(time))).unwrap_or_default();
            let what = if alone { "other commands in the sandbox go on" } else { "everything inside was ended" };
            Some(format!("ended{after}: {what}"))
        }
        End::DiskLow => Some(
            "ended: the disk is nearly full, and what is left is `run.disk_reserve`; everything inside was ended"
                .to_owned(),
        ),
        End::Lost => Some("the runtime is gone, and everything inside with it".to_owned()),
    }
}

fn refused(report: &Report, events: &[Event]) -> Vec<String> {
    let mut lines = Vec::new();
    let Report { writes_refused, hosts_refused, home_files, .. } = report;
    if writes_refused.count > 0 {
        let paths = some(&writes_refused.first, writes_refused.count);
        lines.push(format!("{} outside refused: {paths}", count(writes_refused.count, "write")));
    }
    if hosts_refused.count > 0 {
        let hosts = some(&hosts_refused.first, hosts_refused.count);
        lines.push(format!("{} refused: {hosts}{}", count(hosts_refused.count, "host"), advice(events)));
    }
    if home_files.count > 0 {
        let files = some(&home_files.first, home_files.count);
        let are = if home_files.count == 1 { "is" } else { "are" };
        let files_written = count(home_files.count, "file");
        lines.push(format!("{files_written} written in the home directory {are} gone ({files})"));
    }
    lines
}

/// The flag that would have allowed what was refused.
fn advice(events: &[Event]) -> String {
    let mut entries: Vec<&str> = events.iter().filter_map(Event::entry).collect();
    entries.sort_unstable();
    entries.dedup();
    if entries.is_empty() {
        return String::new();
    }
    format!("; to allow: --allow-host {}", output::shell_word(&entries.join(",")))
}

fn bounded(report: &Report, limits: &Limits) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(kills) = report.oom_kills.filter(|kills| *kills > 0) {
        let limit = limits.memory.map(|bytes| format!(" (--memory {})", size(bytes))).unwrap_or_default();
        lines.push(format!("out of memory{limit}: {} ended", processes(kills)));
    }
    if let Some(refused) = report.pids_refused.filter(|refused| *refused > 0) {
        let limit = limits.pids.map(|count| format!(" (--pids {count})")).unwrap_or_default();
        lines.push(format!("too many processes{limit}: {} refused", processes(refused)));
    }
    lines
}

fn processes(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "process")
}

fn used(report: &Report) -> String {
    let mut parts = vec![seconds(report.wall)];
    parts.extend(report.cpu.map(|cpu| format!("{} of processors", seconds(cpu))));
    parts.extend(report.memory_peak.map(size));
    format!("used {}", parts.join(", "))
}

/// As people read it: `40 ms`, `1.2 s`, `3m20s`.
pub fn seconds(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        1000..60_000 => format!("{:.1} s", time.as_secs_f64()),
        _ => span(Duration::from_secs(time.as_secs())),
    }
}

/// As people type it: `10m`, `1h30m`, `250ms`.
fn span(time: Duration) -> String {
    let total = time.as_secs();
    let parts = [
        (total / 86_400, "d"),
        (total / 3600 % 24, "h"),
        (total / 60 % 60, "m"),
        (total % 60, "s"),
        (u64::from(time.subsec_millis()), "ms"),
    ];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Now, as events have it.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// What programs are told of how a command was contained, and what came of it.
#[derive(Serialize)]
pub struct ContainedDocument {
    isolation: &'static str,
    network: Network,
    ended: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Resources>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Refused>,
}

#[derive(Serialize)]
struct Resources {
    wall_ms: u128,
    cpu_ms: Option<u128>,
    memory_peak: Option<u64>,
}

/// The first hundred of each.
#[derive(Serialize)]
struct Refused {
    writes: Vec<String>,
    hosts: Vec<String>,
}

impl ContainedDocument {
    /// Of a command that has ended.
    pub fn new(done: &Done) -> Self {
        let report = done.ended.report.as_deref();
        Self {
            isolation: done.isolation,
            network: done.network.clone(),
            ended: done.ended.word(),
            resources: report.map(|report| Resources {
                wall_ms: report.wall.as_millis(),
                cpu_ms: report.cpu.map(|cpu| cpu.as_millis()),
                memory_peak: report.memory_peak,
            }),
            refused: report.map(|report| Refused {
                writes: names(&report.writes_refused),
                hosts: names(&report.hosts_refused),
            }),
        }
    }
}

fn names(told: &Told) -> Vec<String> {
    told.first.clone()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(names: &[&str], count: usize) -> Told {
        serde_json::from_value(serde_json::json!({"count": count, "first": names})).unwrap()
    }

    fn ended(end: End, report: Report) -> Ended {
        Ended { end, we_were_told_to_end: false, report: Some(Box::new(report)) }
    }

    #[test]
    fn a_quiet_command_leaves_one_line() {
        let report = Report {
            wall: Duration::from_millis(1240),
            cpu: Some(Duration::from_millis(800)),
            memory_peak: Some(45 << 20),
            oom_kills: Some(0),
            ..Report::default()
        };
        let lines = after(&ended(End::Exited(1), report), &Limits::default(), &[]);
        assert_eq!(lines, ["used 1.2 s, 800 ms of processors, 45.0 MiB"]);
        assert_eq!(seconds(Duration::from_millis(200_400)), "3m20s");
    }

    #[test]
    fn what_was_refused_is_told_with_what_to_type() {
        let event = |entry: &str| Event {
            at_ms: 0,
            kind: "network".into(),
            what: serde_json::json!({"host": "h", "port": 1, "allowed": false, "reason": "r", "entry": entry}),
        };
        let report = Report {
            writes_refused: told(&["/etc/a\x1b[2J", "/b", "/c", "/d"], 120),
            hosts_refused: told(&["b.example:443"], 1),
            home_files: told(&[".cache/x"], 1),
            oom_kills: Some(1),
            pids_refused: Some(2),
            ..Report::default()
        };
        let limits = Limits { memory: Some(1 << 30), pids: Some(8), ..Limits::default() };
        let lines = after(
            &ended(End::Killed(9), report),
            &limits,
            &[event("b.example:443"), event("a.example:443"), event("b.example:443")],
        );
        assert_eq!(
            lines[..6],
            [
                "the command was ended by signal 9",
                "120 writes outside refused: /etc/a\\x1b[2J, /b, /c, …",
                "1 host refused: b.example:443; to allow: --allow-host a.example:443,b.example:443",
                "1 file written in the home directory is gone (.cache/x)",
                "out of memory (--memory 1.0 GiB): 1 process ended",
                "too many processes (--pids 8): 2 processes refused",
            ]
        );
    }

    #[test]
    fn a_time_out_says_after_how_long() {
        let limits = Limits { timeout: Some(Duration::from_secs(5400)), ..Limits::default() };
        let lines = after(&ended(End::TimedOut, Report::default()), &limits, &[]);
        assert_eq!(lines[0], "ended after 1h30m: everything inside was ended");
        assert_eq!((span(Duration::from_millis(250)), span(Duration::ZERO)), ("250ms".into(), "0s".into()));
    }
}
