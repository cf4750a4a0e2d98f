//! What every request passes: is it meant for this server, does a page of somebody else's send it, and who asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use sandboxer_documents::Kind;

use crate::app::{App, Who};
use crate::connection::Peer;
use crate::log::Line;
use crate::problem::{Problem, Refusal};
use crate::routes::input::whole;

/// More of an address is not looked at.
const LONGEST_ADDRESS: usize = 8 << 10;

/// All headers together; what reads them may take more in at once than it is told to.
const LONGEST_HEADERS: usize = 32 << 10;

/// A body that is taken whatever becomes of the request.
const SMALL: u64 = 64 << 10;
/// How long somebody who is refused may send it.
const MOMENT: Duration = Duration::from_secs(1);

/// What can be asked without a token.
const OPEN: [&str; 1] = ["/health"];

/// Lets a request in, and tells of it what there is to tell.
pub async fn pass(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let admitted = admit(&app, &peer, &request).and_then(|shown| recognise(&app, shown));
    let (name, response) = match admitted {
        Ok(who) => {
            let name = who.name().to_owned();
            request.extensions_mut().insert(who);
            let response = match gathered(&app, request).await {
                Ok(request) => next.run(request).await,
                Err(problem) => problem.into_response(),
            };
            (name, response)
        }
        Err(problem) => {
            discard(request.into_body()).await;
            ("nobody".to_owned(), problem.into_response())
        }
    };
    let status = response.status();
    app.metrics.count(&method, &route, status, began.elapsed());
    if let Some(Refusal(message)) = response.extensions().get::<Refusal>().filter(|_| is_told(status)) {
        app.backend.log(&Line {
            method: Some(method.to_string()),
            path: Some(path),
            status: Some(status.as_u16()),
            principal: Some(name),
            peer: Some(peer.to_string()),
            ..Line::new(if status.is_server_error() { "failed" } else { "refused" }, message.clone())
        });
    }
    response
}

/// The same request with all of a small body. Whatever it is answered with, nobody is cut off who is still sending it.
async fn gathered(app: &App, request: Request) -> Result<Request, Problem> {
    let small = request.body().size_hint().exact().is_some_and(|length| (1..=SMALL).contains(&length));
    if !small {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let bytes = whole(app, body, SMALL as usize).await?;
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// Takes what a client that is refused still sends, for a moment: it would rather be told why than be cut off.
async fn discard(body: Body) {
    let taken = Limited::new(body, SMALL as usize).collect();
    let _ = tokio::time::timeout(MOMENT, taken).await;
}

/// Refusals and failures. A name that is mistyped is between the client and its user.
fn is_told(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// How somebody shows who they are.
enum Shown {
    /// By where they come from.
    Who(Who),
    /// By a token.
    Token(String),
}

fn admit(app: &App, peer: &Peer, request: &Request) -> Result<Shown, Problem> {
    if request.uri().path_and_query().is_some_and(|address| address.as_str().len() > LONGEST_ADDRESS) {
        let message = format!("the address is longer than {LONGEST_ADDRESS} bytes");
        return Err(Problem::new(StatusCode::URI_TOO_LONG, Kind::Usage, message));
    }
    let length: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if length > LONGEST_HEADERS {
        let message = format!("the headers are longer than {LONGEST_HEADERS} bytes");
        return Err(Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Kind::Usage, message));
    }
    check_host(app, peer, request)?;
    check_origin(app, request.headers())?;
    shown(peer, request)
}

/// A page whose name was made to lead here would send its own name: on a Unix socket there is no such page.
fn check_host(app: &App, peer: &Peer, request: &Request) -> Result<(), Problem> {
    let Peer::Remote(_, reached) = peer else { return Ok(()) };
    let hosts: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let named = match (&hosts[..], authority) {
        ([host], None) => host.to_str().ok(),
        ([host], Some(authority)) if host.as_bytes() == authority.as_bytes() => Some(authority),
        _ => None,
    };
    match named {
        Some(host) if app.hosts.iter().any(|known| is_host(known, host)) => Ok(()),
        // An address is no name that could have been made to lead here.
        Some(host) if reached.is_some_and(|own| is_host(&own.to_string(), host)) => Ok(()),
        Some(host) => {
            Err(Problem::refused(format!("this server is not {:?}", host.escape_default().to_string()))
                .hint("name it by the address that it listens on, or start it with --allow-host NAME"))
        }
        None => Err(Problem::refused("a request has to have one Host header")),
    }
}

/// Whether `host` is that name, with whatever port.
fn is_host(known: &str, host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(address, _)| address),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    bare.eq_ignore_ascii_case(known)
}

/// Only browsers send an origin, and no page but our own has any business here.
fn check_origin(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    let own = |origin: &str| {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| app.hosts.iter().any(|known| is_host(known, host)))
    };
    let foreign = headers.get_all(header::ORIGIN).iter().find(|origin| !origin.to_str().is_ok_and(own));
    match foreign {
        Some(_) => Err(Problem::refused("a page of somebody else's may not use this server (Origin)")),
        None => Ok(()),
    }
}

fn shown(peer: &Peer, request: &Request) -> Result<Shown, Problem> {
    let mut all = request.headers().get_all(header::AUTHORIZATION).iter();
    let (shown, more) = (all.next(), all.next());
    if more.is_some() {
        return Err(unauthorized("there is more than one Authorization header"));
    }
    let Some(shown) = shown else {
        if !peer.is_remote() {
            return Ok(Shown::Who(Who::Local));
        }
        if OPEN.contains(&request.uri().path()) {
            return Ok(Shown::Who(Who::Nobody));
        }
        return Err(unauthorized(match peer {
            Peer::Contained => "from inside of a namespace every request needs a token",
            _ => "over TCP every request needs a token",
        }));
    };
    let token = shown.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    let odd = || unauthorized("the Authorization header is not `Bearer TOKEN`");
    token.map(|token| Shown::Token(token.trim().to_owned())).ok_or_else(odd)
}

fn recognise(app: &App, shown: Shown) -> Result<Who, Problem> {
    let token = match shown {
        Shown::Who(who) => return Ok(who),
        Shown::Token(token) => token,
    };
    let found = app.glance(&Who::Nobody, |manager| Ok(manager.authenticate(&token)?))?;
    found.map(|caller| Who::Caller(Arc::new(caller))).map_err(|refusal| unauthorized(refusal.to_string()))
}

fn unauthorized(message: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, Kind::Refused, message)
        .hint("send `Authorization: Bearer TOKEN`; `sandbox token create` on the server makes one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_with_or_without_a_port() {
        for host in ["localhost", "localhost:8080", "LOCALHOST:1"] {
            assert!(is_host("localhost", host), "{host}");
        }
        assert!(is_host("::1", "[::1]:80") && is_host("::1", "[::1]"));
        for host in ["localhost.evil.example", "evil.example:80", "", "evil@localhost", "localhost:80:80x"] {
            assert!(!is_host("localhost", host), "{host}");
        }
    }
}
