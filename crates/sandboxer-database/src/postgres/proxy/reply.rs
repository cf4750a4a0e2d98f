//! What the proxy says to clients itself.

use super::super::statement::Refusal;
use super::super::wire;

/// An error or a notice of ours.
#[derive(Clone, Debug)]
pub struct Said {
    /// The SQLSTATE.
    pub code: String,
    /// In one sentence.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Said {
    /// Without a hint.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint: None }
    }

    /// Nothing else is done in a transaction that failed.
    pub fn failed_transaction() -> Self {
        Self::new("25P02", "current transaction is aborted, commands ignored until end of transaction block")
    }

    fn put(&self, out: &mut Vec<u8>, tag: u8, severity: &str) {
        wire::put(out, tag, |body| {
            for (field, text) in
                [(b'S', severity), (b'V', severity), (b'C', &self.code), (b'M', &self.message)]
            {
                body.push(field);
                wire::put_text(body, text);
            }
            if let Some(hint) = &self.hint {
                body.push(b'H');
                wire::put_text(body, hint);
            }
            body.push(0);
        });
    }

    /// As an error, after which the connection goes on.
    pub fn error(&self, out: &mut Vec<u8>) {
        self.put(out, b'E', "ERROR");
    }

    /// As an error that ends the connection.
    pub fn fatal(&self, out: &mut Vec<u8>) {
        self.put(out, b'E', "FATAL");
    }

    /// As a warning.
    pub fn warning(&self, out: &mut Vec<u8>) {
        self.put(out, b'N', "WARNING");
    }
}

impl From<&Refusal> for Said {
    fn from(refusal: &Refusal) -> Self {
        Self {
            code: refusal.code.to_owned(),
            message: refusal.message.clone(),
            hint: refusal.hint.map(str::to_owned),
        }
    }
}

/// A statement is done.
pub fn complete(out: &mut Vec<u8>, tag: &str) {
    wire::put(out, b'C', |body| wire::put_text(body, tag));
}

/// Ready for what comes next: `I`, `T` or `E`.
pub fn ready(out: &mut Vec<u8>, status: u8) {
    wire::put(out, b'Z', |body| body.push(status));
}

/// A message that is only its tag.
pub fn bare(out: &mut Vec<u8>, tag: u8) {
    wire::put(out, tag, |_| {});
}

/// A setting that clients are told.
pub fn parameter(out: &mut Vec<u8>, name: &str, value: &str) {
    wire::put(out, b'S', |body| {
        wire::put_text(body, name);
        wire::put_text(body, value);
    });
}
