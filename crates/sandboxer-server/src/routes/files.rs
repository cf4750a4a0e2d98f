//! Files of a sandbox, as bytes.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use sandboxer_core::access::TokenScope;
use sandboxer_core::model::{DiffKind, RelPath};
use sandboxer_core::service::SandboxManager;
use sandboxer_documents::{Kind, PathText};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::answer;
use super::input::{Asked, Named, rel_path, require_type, whole};
use crate::app::{App, Who};
use crate::problem::Problem;

/// How much of a file is on its way at once.
const PIECE: usize = 64 << 10;
/// How many of those may wait for the client.
const PIECES: usize = 8;

/// Where.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileQuery {
    workspace: Option<String>,
}

/// What a write did.
#[derive(Serialize, JsonSchema)]
pub struct WrittenDocument {
    sandbox_id: String,
    #[serde(flatten)]
    path: PathText,
    /// `created` or `modified`.
    kind: DiffKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_size: Option<u64>,
    new_size: u64,
}

pub async fn read(
    State(app): State<Arc<App>>,
    who: Who,
    uri: Uri,
    Asked(query): Asked<FileQuery>,
) -> Result<Response, Problem> {
    who.require(TokenScope::Read, "read")?;
    let (named, path) = address(&uri)?;
    let (pieces, mut coming) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    let (begun, beginning) = oneshot::channel();
    let reader = app.clone();
    let place = app.reading().await?;
    let mut sink = Pieces {
        pieces,
        begun: Some(begun),
        buffer: Vec::with_capacity(PIECE),
        patience: app.limits.body_time,
        ends: Instant::now() + app.limits.answer_time,
        runtime: Handle::current(),
    };
    // Reads on while the client takes it; a client that goes away ends it with the next piece. A thread waits with each of them: never all threads.
    tokio::spawn(async move {
        let read = move |manager: &SandboxManager| {
            let found = named.find(manager, query.workspace.as_deref());
            let done = found.and_then(|target| Ok(manager.read_to(&target, &path, &mut sink)?));
            sink.finish(done);
            Ok(())
        };
        let _place = place;
        reader.look(&who, read).await
    });
    match beginning.await {
        Ok(Ok(())) => {
            let body = Body::from_stream(stream::poll_fn(move |context| coming.poll_recv(context)));
            Ok(([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response())
        }
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Kind::Error,
            "the server failed at this request; its log says more",
        )),
    }
}

/// Hands what is read to the client piece by piece. The answer begins with the first: until then it may still be a problem.
struct Pieces {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    begun: Option<oneshot::Sender<Result<(), Problem>>>,
    buffer: Vec<u8>,
    /// How long the client may take for one piece.
    patience: Duration,
    /// When it has to have taken all of it.
    ends: Instant,
    runtime: Handle,
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(Ok(()));
        }
        let piece = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE)));
        // The timer wants to be made where the runtime is.
        let patience = self.patience.min(self.ends.saturating_duration_since(Instant::now()));
        let sent = async { tokio::time::timeout(patience, self.pieces.send(Ok(piece))).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn finish(mut self, done: Result<u64, Problem>) {
        match (done, self.begun.take()) {
            (Err(problem), Some(begun)) => drop(begun.send(Err(problem))),
            // It has begun: all that is left is to break it off, so that nobody takes it for whole.
            (Err(_), None) => {
                let broken = self.pieces.send(Err(io::ErrorKind::UnexpectedEof.into()));
                drop(self.runtime.block_on(async { tokio::time::timeout(self.patience, broken).await }));
            }
            (Ok(_), begun) => {
                self.begun = begun;
                let _ = self.send();
            }
        }
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub async fn write(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(query): Asked<FileQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    who.require(TokenScope::Work, "write")?;
    require_type(&parts.headers, "application/octet-stream")?;
    let (named, path) = address(&parts.uri)?;
    // Whether there is anything to write to, before anybody sends it.
    let (wanted, workspace) = (named.id.clone(), query.workspace.clone());
    let known = Named { id: wanted, name: String::new() };
    app.look(&who, move |manager| known.find(manager, workspace.as_deref()).map(drop)).await?;
    let place = app.taking_in().await?;
    let content = whole(&app, body, app.limits.file).await?;
    app.work(&who, move |manager| {
        let _place = place;
        let target = named.find(manager, query.workspace.as_deref())?;
        let change = manager.write(&target, &path, &content)?;
        let status = if change.kind == DiffKind::Created { StatusCode::CREATED } else { StatusCode::OK };
        let document = WrittenDocument {
            sandbox_id: target.sandbox.id.to_string(),
            path: PathText::of(&change.path),
            kind: change.kind,
            old_size: change.old_size,
            new_size: change.new_size,
        };
        answer(status, &document)
    })
    .await
}

/// The sandbox and the path in an address. Names of files need not be text, so this is not left to the router.
fn address(uri: &Uri) -> Result<(Named, RelPath), Problem> {
    let odd = || Problem::usage("the address is not /v1/sandboxes/ID/files/PATH");
    let rest = uri.path().strip_prefix("/v1/sandboxes/").ok_or_else(odd)?;
    let (id, path) = rest.split_once("/files/").ok_or_else(odd)?;
    let id = String::from_utf8(decoded(id)?).map_err(|_| odd())?;
    Ok((Named { id, name: String::new() }, rel_path(&decoded(path)?)?))
}

/// Percent-encoding undone.
fn decoded(text: &str) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        (rest, bytes) = match (first, tail) {
            (b'%', [high, low, behind @ ..]) => {
                let digits = [high.to_ascii_uppercase(), low.to_ascii_uppercase()];
                let odd = |_| Problem::usage("the address has a % in it that no two hex digits follow");
                bytes.extend(data_encoding::HEXUPPER.decode(&digits).map_err(odd)?);
                (behind, bytes)
            }
            (b'%', _) => return Err(Problem::usage("the address ends in the middle of a %")),
            (plain, behind) => {
                bytes.push(*plain);
                (behind, bytes)
            }
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn path_of(text: &str) -> Option<Vec<u8>> {
        let uri: Uri = format!("/v1/sandboxes/try/files/{text}").parse().unwrap();
        address(&uri).ok().map(|(_, path)| path.as_bytes().to_vec())
    }

    #[test]
    fn addresses_name_files_to_the_byte() {
        assert_eq!(path_of("src/a%20b.rs").unwrap(), b"src/a b.rs");
        assert_eq!(path_of("bad%ff").unwrap(), b"bad\xff");
        assert_eq!(path_of("a%2Fb").unwrap(), b"a/b");
        assert_eq!(path_of("x/files/y").unwrap(), b"x/files/y");
    }

    #[test]
    fn no_address_leads_outside() {
        for trick in [
            "..",
            "../etc/passwd",
            "a/../../b",
            "%2e%2e/x",
            "a/%2e%2e/%2e%2e/x",
            "/etc/passwd",
            "%2fetc",
            "a%00b",
            "",
            "a%",
            "a%2",
            "a%zz",
            "./a",
            "a//b",
        ] {
            assert_eq!(path_of(trick), None, "{trick:?}");
        }
    }
}
