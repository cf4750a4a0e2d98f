//! An error of the library or of our own, told once: as text or as the JSON document, on stderr, and as the exit code.
//!
//! What is said is `sandboxer_documents`' affair; here is how it looks on a screen.

use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::path::Path;

use sandboxer_core::Error;
use sandboxer_core::environment::Candidate;
use sandboxer_documents::words::system_text;
use sandboxer_documents::{Candidates, Told};

use super::output::{self, Ui, style};
use super::{conflicts, exit, rules};

pub use sandboxer_documents::Kind;

/// A failure, ready to be told.
#[derive(Debug)]
pub struct CliError {
    told: Box<Told>,
    /// The exit code.
    pub exit: u8,
    /// The reader of our output has gone: nobody is there to be told.
    silent: bool,
}

impl Deref for CliError {
    type Target = Told;

    fn deref(&self) -> &Told {
        &self.told
    }
}

impl DerefMut for CliError {
    fn deref_mut(&mut self) -> &mut Told {
        &mut self.told
    }
}

impl From<Told> for CliError {
    fn from(told: Told) -> Self {
        Self { exit: exit::of(told.kind), told: Box::new(told), silent: false }
    }
}

impl From<CliError> for Told {
    fn from(error: CliError) -> Self {
        *error.told
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        Told::from(error).into()
    }
}

impl CliError {
    /// An error of that kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Told::new(kind, message).into()
    }

    /// A request that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// The output could not be written. A closed pipe is no error: the reader has seen enough.
    pub fn output(error: io::Error) -> Self {
        let silent = error.kind() == io::ErrorKind::BrokenPipe;
        let failure = Self::new(Kind::Error, format!("cannot write the output: {}", system_text(&error)));
        Self { silent, exit: if silent { exit::OK } else { exit::ERROR }, ..failure }
    }

    /// The same error with one more hint.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { told: Box::new(self.told.hint(hint)), ..self }
    }

    /// The same error with another exit code.
    pub fn exiting(mut self, code: u8) -> Self {
        self.exit = if self.silent { self.exit } else { code };
        self
    }

    /// The same error on that path.
    pub fn on(self, path: &Path) -> Self {
        Self { told: Box::new(self.told.on(path)), ..self }
    }

    /// The same error, its hints naming what the user typed for `ID`.
    pub fn aimed_at(self, selector: &str) -> Self {
        Self { told: Box::new(self.told.aimed_at(selector)), ..self }
    }

    /// The same error, its hints naming the plan that the user typed.
    pub fn aimed_at_plan(self, plan: &str) -> Self {
        Self { told: Box::new(self.told.aimed_at_plan(plan)), ..self }
    }

    /// Tells it on stderr, as text or as the JSON document.
    pub fn report(&self, ui: &Ui) {
        if self.silent {
            return;
        }
        let text = if ui.json { self.document() } else { self.text(ui) };
        let _ = io::stderr().write_all(text.as_bytes());
    }

    fn document(&self) -> String {
        serde_json::to_string_pretty(&self.told.document()).unwrap_or_default() + "\n"
    }

    fn text(&self, ui: &Ui) -> String {
        let head = ui.paint_err(style::BAD, "error:");
        let mut text = format!("{head} {}\n", output::sentence(&self.message));
        for line in self.details.iter().flat_map(|detail| conflicts::lines(detail, ui)) {
            text.push_str(&format!("{line}\n"));
        }
        for line in rules::lines(&self.rules, ui) {
            text.push_str(&format!("{line}\n"));
        }
        for line in self.route.iter().flat_map(|route| route_lines(route)) {
            text.push_str(&format!("{line}\n"));
        }
        for hint in &self.hints {
            text.push_str(&format!(
                "{} {}\n",
                ui.paint_err(style::HINT, "hint:"),
                output::sentence(&ui.aimed(hint))
            ));
        }
        text
    }
}

fn route_lines(route: &Candidates) -> impl Iterator<Item = String> {
    let each = route.candidates.iter().map(|candidate| {
        let Candidate { extension_id, host, reason, .. } = candidate;
        format!("  {extension_id} on {host}: {}", output::sentence(reason))
    });
    each.chain((route.left_out > 0).then(|| format!("  and {} more", route.left_out)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::RelPath;

    use super::*;

    fn exit_of(error: Error) -> u8 {
        CliError::from(error).exit
    }

    #[test]
    fn every_kind_has_its_exit_code() {
        assert_eq!(exit_of(Error::Conflict { conflicts: vec![] }), 3);
        assert_eq!(exit_of(Error::not_found("sandbox", "x")), 4);
        assert_eq!(exit_of(Error::refused("x")), 5);
        assert_eq!(exit_of(Error::Uncommittable { entries: vec![] }), 5);
        assert_eq!(exit_of(Error::RulesFailed { failures: vec![], digest: None }), 5);
        assert_eq!(exit_of(Error::DigestMismatch { expected: "a".into(), found: "b".into() }), 5);
        let unavailable = Error::Unavailable { strategy: "s".into(), path: "/".into(), reason: "r".into() };
        assert_eq!(exit_of(unavailable), 6);
        assert_eq!(exit_of(Error::usage("x")), 2);
        assert_eq!(exit_of(RelPath::parse("..").unwrap_err().into()), 2);
        assert_eq!(exit_of(Error::Cancelled), 130);
        assert_eq!(exit_of(Error::Busy { path: "/x".into(), holder: None }), 1);
        assert_eq!(exit_of(Error::corrupt("/x", "r")), 1);
    }

    #[test]
    fn a_closed_pipe_is_silent_success() {
        let told = CliError::output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((told.exit, told.silent), (0, true));
        assert_eq!(told.exiting(125).exit, 0);
    }
}
