//! What the server says of itself: one JSON document a line. Never a token, only its id.

use jiff::Timestamp;
use serde::Serialize;

/// One line of the log.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// When.
    pub at: Timestamp,
    /// What: `listening`, `stopping`, `refused`, `failed`, `tended`.
    pub what: &'static str,
    /// One sentence.
    pub message: String,
    /// Of a request: the method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Of a request: the path, without the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Of a request: the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Of a request: who asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Of a request: from where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

impl Line {
    /// A line on the server itself.
    pub fn new(what: &'static str, message: impl Into<String>) -> Self {
        Self {
            at: Timestamp::now(),
            what,
            message: message.into(),
            method: None,
            path: None,
            status: None,
            principal: None,
            peer: None,
        }
    }
}
