//! What a check found out, step by step.

use std::time::{Duration, Instant};

use sandboxer_core::contract::{CancelFlag, Capabilities};
use sandboxer_core::verification::{CheckResult, PluginProblem};
use serde::{Serialize, Serializer};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As it has to be.
    Ok,
    /// Not as it has to be.
    Failed,
    /// A step that it builds on did not end well.
    NotTried,
    /// The strategy does not say that it can, or the resource has no room for it.
    NotOffered,
}

/// One thing that a strategy has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What was tried.
    pub name: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// What was seen, beside what was expected where that differs; one line.
    pub detail: String,
    /// How long it took.
    #[serde(rename = "ms", serialize_with = "milliseconds")]
    pub took: Duration,
}

fn milliseconds<S: Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(took.as_millis() as u64)
}

/// What a check found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Every step, in order.
    pub steps: Vec<Step>,
    /// The capabilities that are declared, and that no step has tried.
    pub declared_untried: Vec<&'static str>,
}

impl Report {
    /// How many steps ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.steps.iter().filter(|step| step.outcome == outcome).count()
    }

    /// The names of the steps that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        self.steps.iter().filter(|step| step.outcome == Outcome::Failed).map(|step| step.name).collect()
    }

    /// The result to keep of a full check.
    pub fn result(&self) -> CheckResult {
        let failed = self.steps.iter().filter(|step| step.outcome == Outcome::Failed);
        let problem = |step: &Step| PluginProblem::FailedStep {
            step: step.name.to_owned(),
            detail: step.detail.clone(),
        };
        match failed.map(problem).collect::<Vec<_>>() {
            problems if problems.is_empty() => CheckResult::Ok,
            problems => CheckResult::Broken { problems },
        }
    }

    pub(super) fn outcome(&self, name: &str) -> Option<Outcome> {
        self.steps.iter().find(|step| step.name == name).map(|step| step.outcome)
    }
}

/// What a step saw if it went well, or what it expected and saw instead.
pub(super) type Verdict = Result<String, String>;

/// A report while it is being written.
pub(super) struct Sheet {
    report: Report,
    cancel: CancelFlag,
}

impl Sheet {
    pub fn new(cancel: &CancelFlag) -> Self {
        Self { report: Report::default(), cancel: cancel.clone() }
    }

    /// Why a step that builds on `needs` makes no sense.
    pub fn obstacle(&self, needs: &[&'static str]) -> Option<String> {
        if self.cancel.is_cancelled() {
            return Some("interrupted".to_owned());
        }
        let stands =
            |name: &&&str| !matches!(self.report.outcome(name), Some(Outcome::Failed | Outcome::NotTried));
        needs.iter().find(|name| !stands(name)).map(|name| format!("`{name}` did not end well"))
    }

    /// Whether a step was tried and went well.
    pub fn is_ok(&self, name: &str) -> bool {
        self.report.outcome(name) == Some(Outcome::Ok)
    }

    /// Adds a step that began at `began`.
    pub fn add(&mut self, name: &'static str, began: Instant, verdict: Verdict) {
        match verdict {
            Err(_) if self.cancel.is_cancelled() => self.not_tried(name, "interrupted".to_owned()),
            verdict => self.add_always(name, began, verdict),
        }
    }

    /// The same of a step that no interruption keeps from being done.
    pub fn add_always(&mut self, name: &'static str, began: Instant, verdict: Verdict) {
        match verdict {
            Ok(seen) => self.push(name, Outcome::Ok, seen, began.elapsed()),
            Err(wrong) => self.push(name, Outcome::Failed, wrong, began.elapsed()),
        }
    }

    /// Adds a step that makes no sense any more.
    pub fn not_tried(&mut self, name: &'static str, why: String) {
        self.push(name, Outcome::NotTried, why, Duration::ZERO);
    }

    /// Adds a step that is not for this strategy or resource.
    pub fn not_offered(&mut self, name: &'static str, why: &str) {
        self.push(name, Outcome::NotOffered, why.to_owned(), Duration::ZERO);
    }

    fn push(&mut self, name: &'static str, outcome: Outcome, detail: String, took: Duration) {
        self.report.steps.push(Step { name, outcome, detail, took });
    }

    /// The report as it is.
    pub fn end(self) -> Report {
        self.report
    }

    /// The report as it is, of a strategy that declares `can`.
    pub fn finish(mut self, can: &Capabilities) -> Report {
        self.report.declared_untried = super::claims::untried(can, &self.report);
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_builds_on_a_failure_is_not_tried() {
        let mut sheet = Sheet::new(&CancelFlag::default());
        sheet.add("create", Instant::now(), Ok("made".to_owned()));
        sheet.not_offered("links", "no files");
        assert_eq!(sheet.obstacle(&["create", "links"]), None, "what is not offered is in nobody's way");
        sheet.add("write", Instant::now(), Err("lost".to_owned()));
        let why = sheet.obstacle(&["create", "write"]);
        assert_eq!(why.as_deref(), Some("`write` did not end well"));
        sheet.not_tried("diff", why.unwrap_or_default());
        assert!(sheet.obstacle(&["diff"]).is_some());
        let report = sheet.finish(&Capabilities::default());
        assert_eq!((report.count(Outcome::Ok), report.failed()), (1, vec!["write"]));
    }

    #[test]
    fn whoever_interrupts_has_found_no_fault() {
        let cancel = CancelFlag::default();
        let mut sheet = Sheet::new(&cancel);
        cancel.cancel();
        sheet.add("create", Instant::now(), Err("interrupted".to_owned()));
        assert_eq!(sheet.obstacle(&[]).as_deref(), Some("interrupted"));
        assert!(sheet.finish(&Capabilities::default()).failed().is_empty());
    }

    #[test]
    fn a_step_in_json() {
        let mut sheet = Sheet::new(&CancelFlag::default());
        sheet.not_offered("ranges", "not declared");
        let json = serde_json::json!(sheet.finish(&Capabilities::default()));
        let expected = serde_json::json!({"name": "ranges", "outcome": "not_offered", "detail": "not declared", "ms": 0});
        assert_eq!(json["steps"][0], expected);
    }
}
