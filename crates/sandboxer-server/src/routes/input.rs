//! What comes in with a request: who asks, the names in its address, its query, its body. Whatever is odd about it is told as a problem.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sandboxer_core::model::RelPath;
use sandboxer_core::service::{SandboxManager, Target};
use sandboxer_documents::Kind;
use serde::de::DeserializeOwned;

use crate::app::{App, Who};
use crate::problem::Problem;

impl FromRequestParts<Arc<App>> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        // The gate has put it there; without it nobody asks.
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or(Self::Nobody))
    }
}

/// The names in an address: the sandbox, and what is behind it.
pub struct Named {
    /// The sandbox, as it was asked for.
    pub id: String,
    /// The checkpoint, where there is one.
    pub name: String,
}

impl FromRequestParts<Arc<App>> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let odd = |_| Problem::usage("the address has a name in it that is no text");
        let params = RawPathParams::from_request_parts(parts, app).await.map_err(odd)?;
        let find = |wanted: &str| {
            params
                .iter()
                .find(|(key, _)| *key == wanted)
                .map(|(_, value)| value.to_owned())
                .unwrap_or_default()
        };
        Ok(Self { id: find("id"), name: find("name") })
    }
}

impl Named {
    /// The live sandbox, or one workspace of it.
    pub fn find(&self, manager: &SandboxManager, workspace: Option<&str>) -> Result<Target, Problem> {
        Ok(manager.find(&self.selector(workspace))?)
    }

    /// What a person would have typed.
    pub fn selector(&self, workspace: Option<&str>) -> String {
        workspace.map_or_else(|| self.id.clone(), |workspace| format!("{}:{workspace}", self.id))
    }
}

/// A query. What it does not know it refuses.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        query
            .map(|query| Self(query.0))
            .map_err(|refusal| Problem::usage(format!("the query: {}", causes(&refusal))))
    }
}

/// An error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut cause = error.source().or(Some(error));
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

/// A JSON document. An empty body is an empty document.
pub struct Document<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Document<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = whole(app, body, app.limits.document).await?;
        if !bytes.is_empty() {
            require_type(&parts.headers, "application/json")?;
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // A list of the right length would be taken for the fields in their order.
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(Problem::usage("the body is no JSON object"));
        }
        serde_json::from_slice(text).map(Self).map_err(|error| Problem::usage(format!("the body: {error}")))
    }
}

/// Refuses a body of another type: a form of somebody else's page can send some, and never this one.
pub fn require_type(headers: &HeaderMap, wanted: &str) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let bare = given.split(';').next().unwrap_or_default().trim();
    if bare.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    let message =
        format!("the body has to be {wanted} and say so, not {:?}", bare.escape_default().to_string());
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Kind::Usage, message)
        .hint(format!("send `Content-Type: {wanted}`")))
}

/// All of a body, in time and within bounds.
pub async fn whole(app: &App, body: Body, most: usize) -> Result<Bytes, Problem> {
    let read = tokio::time::timeout(app.limits.body_time, Limited::new(body, most).collect()).await;
    match read {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body is longer than {most} bytes");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Kind::Usage, message))
        }
        Ok(Err(error)) => Err(Problem::usage(format!("the body ended early: {error}"))),
        Err(_) => {
            let message = format!("the body did not come within {:?}", app.limits.body_time);
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, Kind::Usage, message))
        }
    }
}

/// Paths inside a workspace.
pub fn rel_paths(paths: &[String]) -> Result<Vec<RelPath>, Problem> {
    paths.iter().map(|path| rel_path(path.as_bytes())).collect()
}

/// A path inside a workspace.
pub fn rel_path(path: &[u8]) -> Result<RelPath, Problem> {
    Ok(RelPath::from_bytes(path).map_err(sandboxer_core::Error::from)?)
}
