//! The whole of it: begin to listen, answer, look after things, end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::app::{App, Limits, Stage};
use crate::backend::Backend;
use crate::connection;
use crate::feed;
use crate::listen::{Listen, Listening, inherited};
use crate::lock::ServeLock;
use crate::log::Line;
use crate::routes;

/// How often is looked whose time is up.
const SECOND: Duration = Duration::from_secs(1);
/// How often the house is kept.
const MINUTE: Duration = Duration::from_secs(60);
/// How long work that was told to stop has for it, at the end.
const LAST_MOMENTS: Duration = Duration::from_secs(5);
/// How many threads may wait for disks, locks and programs at once.
const WAITING_THREADS: usize = 128;

/// How to serve.
pub struct Options {
    /// Where to listen, besides what was handed over.
    pub listen: Vec<Listen>,
    /// How many sockets were handed over by whoever started the process.
    pub handed_over: usize,
    /// Names besides the addresses that clients may call the server.
    pub hosts: Vec<String>,
    /// Whether tokens may travel unencrypted between machines.
    pub plain_http: bool,
    /// How long running work has to finish at the end.
    pub grace: Duration,
    /// Stops what the use cases are at.
    pub cancel: CancelFlag,
}

/// Serves until a signal says otherwise. The lock is the caller's proof that nobody else does.
pub fn serve(backend: Arc<dyn Backend>, options: Options, _lock: ServeLock) -> Result<()> {
    allow_files();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime =
        runtime.enable_all().max_blocking_threads(WAITING_THREADS).thread_name("sandbox-serve").build();
    let runtime = runtime.map_err(|error| Error::io("start threads for", "the server", error))?;
    let done = runtime.block_on(run(backend, &options));
    // Work that is still at it was told to stop; what it leaves is what a killed command leaves.
    runtime.shutdown_timeout(LAST_MOMENTS);
    done
}

/// As many open files as may be: each client is one.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn run(backend: Arc<dyn Backend>, options: &Options) -> Result<()> {
    let mut signals = Signals::watch()?;
    let listening = open(options)?;
    let (progress, stage) = watch::channel(Stage::Serving);
    let app = Arc::new(App::new(backend, Limits::default(), hosts(&listening, &options.hosts), stage));
    let names: Vec<String> = listening.iter().map(Listening::name).collect();
    app.backend.log(&Line::new("listening", format!("listening on {}", names.join(", "))));
    tokio::spawn(feed::run(app.clone()));
    tokio::spawn(keep_house(app.clone()));
    let router = routes::router(app.clone());
    let accepting: Vec<_> = listening
        .into_iter()
        .map(|listening| tokio::spawn(connection::accept(app.clone(), router.clone(), listening)))
        .collect();
    let name = signals.next().await;
    app.backend.log(&Line::new(
        "stopping",
        format!("{name}: no new work; what runs has {:?} to finish", options.grace),
    ));
    let _ = progress.send(Stage::Stopping);
    let mut ended = std::pin::pin!(async {
        for accepting in accepting {
            let _ = accepting.await;
        }
        // Work whose client has left, or was told to come back, is work all the same.
        app.idle().await;
    });
    let in_time = tokio::select! {
        () = ended.as_mut() => true,
        () = tokio::time::sleep(options.grace) => false,
        _ = signals.next() => false,
    };
    options.cancel.cancel();
    let _ = progress.send(Stage::Over);
    if !in_time {
        // Commands are told to end, and made to.
        let _ = tokio::time::timeout(LAST_MOMENTS, ended).await;
    }
    let told = if in_time { "all work is finished" } else { "some work is left to recovery" };
    app.backend.log(&Line::new("stopped", told));
    Ok(())
}

fn open(options: &Options) -> Result<Vec<Listening>> {
    let mut listening = inherited(options.handed_over)?;
    for listen in &options.listen {
        listening.push(listen.open(options.plain_http)?);
    }
    Ok(listening)
}

/// What clients may call this server: what it listens on, and what they were told.
fn hosts(listening: &[Listening], named: &[String]) -> Vec<String> {
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    own.into_iter().chain(listening.iter().filter_map(Listening::host)).chain(named.iter().cloned()).collect()
}

async fn keep_house(app: Arc<App>) {
    let mut tended: Option<Instant> = None;
    loop {
        let keeper = app.clone();
        let due = tended.is_none_or(|at| at.elapsed() >= MINUTE);
        // One after the other: what takes longer than a second is not begun a second time meanwhile.
        let work = move || if due { keeper.backend.tend() } else { keeper.backend.expire() };
        let _ = tokio::task::spawn_blocking(work).await;
        if due {
            tended = Some(Instant::now());
        }
        tokio::select! {
            () = tokio::time::sleep(SECOND) => {}
            () = app.stopped() => return,
        }
    }
}

/// What ends a server.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn watch() -> Result<Self> {
        let failed = |error| Error::io("watch signals for", "the server", error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "terminated",
        }
    }
}
