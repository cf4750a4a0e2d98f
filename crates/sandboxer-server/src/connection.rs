//! Connections: accepted, held to limits, and ended when the server ends.

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tower::ServiceExt;

use crate::app::App;
use crate::listen::Listening;
use crate::log::Line;
use crate::metrics::Gauge;

/// For sending all headers of a request, and between two requests.
const HEADER_TIME: Duration = Duration::from_secs(30);
/// For all headers of a request together.
const HEADER_BYTES: usize = 32 << 10;
/// How many headers a request may have.
const HEADERS: usize = 100;
/// How many connections there may be at once.
const CONNECTIONS: usize = 10_000;
/// After a failed accept, such as for want of descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// The other end.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A process of this user, or root's, on this machine as the server sees it.
    Local,
    /// The same, but in a pid namespace of its own: what runs in a sandbox reaches the socket as its owner, and is not who is meant.
    Contained,
    /// Somebody on the network, and the address of ours that they have reached.
    Remote(SocketAddr, Option<IpAddr>),
}

impl Peer {
    /// Whether it has to show who it is.
    pub fn is_remote(&self) -> bool {
        !matches!(self, Self::Local)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("unix"),
            Self::Contained => f.write_str("unix, from inside of a namespace"),
            Self::Remote(address, _) => address.fmt(f),
        }
    }
}

/// Accepts connections until the server ends; returns when the last of them has.
pub async fn accept(app: Arc<App>, router: Router, listening: Listening) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let (ended, mut all_ended) = tokio::sync::mpsc::channel::<Infallible>(1);
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = next(&app, &listening) => accepted,
            () = app.stopped() => break,
        };
        let Some((stream, peer)) = accepted else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        let (app, router, ended) = (app.clone(), router.clone(), ended.clone());
        tokio::spawn(async move {
            let _held = (place, ended);
            let _open = Gauge::up(&app.metrics.connections);
            serve(&app, router, stream, peer).await;
        });
    }
    drop((listening, ended));
    let _ = all_ended.recv().await;
}

/// Either kind of connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn next(app: &App, listening: &Listening) -> Option<(Box<dyn Stream>, Peer)> {
    match listening {
        Listening::Unix(listener, _) => {
            let (stream, _) = listener.accept().await.ok()?;
            // The file's mode lets no one else in; a descriptor that was handed on has no mode.
            let peer = stream.peer_cred().ok()?;
            let (uid, own) = (peer.uid(), rustix::process::geteuid().as_raw());
            if uid != 0 && uid != own {
                app.backend.log(&Line::new(
                    "refused",
                    format!("a process of user {uid} connected to the socket of another user"),
                ));
                return None;
            }
            // Nothing in a namespace of an ordinary user is the machine's root, and its processes are not for them to look at.
            let beside = (uid == 0 && own != 0) || peer.pid().is_some_and(is_beside);
            Some((Box::new(stream), if beside { Peer::Local } else { Peer::Contained }))
        }
        Listening::Tcp(listener) => {
            let (stream, address) = listener.accept().await.ok()?;
            let _ = stream.set_nodelay(true);
            // Whoever vanishes without a word is found out, if late.
            let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
            let reached = stream.local_addr().ok().map(|own| own.ip().to_canonical());
            Some((Box::new(stream), Peer::Remote(address, reached)))
        }
    }
}

/// Whether a process is in the pid namespace of the server. One that is gone already is not.
fn is_beside(pid: i32) -> bool {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace("self");
    own.is_some() && namespace(&pid.to_string()) == own
}

async fn serve(app: &App, router: Router, stream: Box<dyn Stream>, peer: Peer) {
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        router.clone().oneshot(request.map(Body::new))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    // What goes wrong on a connection is between the client and its network.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = app.stopped() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
