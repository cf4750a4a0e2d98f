//! Errors as RFC 9457 has them: the one place where a kind of failure becomes a status.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sandboxer_core::Error;
use sandboxer_documents::{Kind, Told};
use schemars::JsonSchema;
use serde::Serialize;

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was not answered with what it asked for.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    told: Box<Told>,
}

/// Why a request was not answered with what it asked for.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemDocument<'a> {
    /// `urn:sandboxer:` and the kind.
    #[serde(rename = "type")]
    type_uri: String,
    /// The status in words.
    title: &'a str,
    /// The status.
    status: u16,
    /// What failed, on what.
    detail: &'a str,
    #[serde(flatten)]
    told: &'a Told,
}

/// What a refusal was about, for the log.
#[derive(Clone, Debug)]
pub struct Refusal(pub String);

impl Problem {
    /// A problem of that status, whatever its kind is otherwise answered with.
    pub fn new(status: StatusCode, kind: Kind, message: impl Into<String>) -> Self {
        Self { status, told: Box::new(Told::new(kind, message)) }
    }

    /// The request makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Told::new(Kind::Usage, message).into()
    }

    /// Somebody may not.
    pub fn refused(message: impl Into<String>) -> Self {
        Told::new(Kind::Refused, message).into()
    }

    /// The same with one more hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.told.hints.push(hint.into());
        self
    }

    /// The same, its hints naming what was asked for.
    pub fn aimed_at(mut self, selector: &str) -> Self {
        self.told = Box::new(self.told.aimed_at(selector));
        self
    }
}

impl From<Told> for Problem {
    fn from(told: Told) -> Self {
        Self { status: status_of(told.kind), told: Box::new(told) }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Told::from(error).into()
    }
}

fn status_of(kind: Kind) -> StatusCode {
    match kind {
        Kind::Usage => StatusCode::BAD_REQUEST,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Refused => StatusCode::FORBIDDEN,
        Kind::Unsupported | Kind::Unavailable => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Busy | Kind::Interrupted => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Plugin => StatusCode::BAD_GATEWAY,
        Kind::Error | Kind::Config | Kind::Corrupt | Kind::NewerState | Kind::Unfinished => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        let document = ProblemDocument {
            type_uri: format!("urn:sandboxer:{}", word(self.told.kind)),
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: &self.told.message,
            told: &self.told,
        };
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(Refusal(self.told.message.clone()));
        response
    }
}

fn word(kind: Kind) -> String {
    serde_json::to_value(kind).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}
