//! Whether commands can be contained here: one is, in a directory that is thrown away, and what held it is told.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandboxer_core::Error;
use sandboxer_extensions::local::{
    Bind, Command, End, Isolation, Limits, Ready, Runtimes, Signals, Spec, Started,
};

use super::{Check, check};
use crate::cli::contain::spec;

/// Enough for a command that does nothing; the limits are there to see what holds them.
const LIMITS: Limits = Limits {
    memory: Some(1 << 30),
    pids: Some(1024),
    cpus: Some(1.0),
    timeout: Some(Duration::from_secs(20)),
};

const NAME: &str = "doctor";

/// What of containment works here. Nothing is left behind.
pub fn checks() -> Vec<Check> {
    let standard = contained(Isolation::Standard, LIMITS).or_else(|refused| {
        // A limit that is refused is no reason to say that nothing works.
        contained(Isolation::Standard, Limits::default()).map_err(|_| refused)
    });
    let ready = match standard {
        Ok(ready) => ready,
        Err(why) => return vec![check("containment", Err(format!("{why}; --isolation files remains")))],
    };
    let strict = contained(Isolation::Strict, Limits::default());
    vec![
        check("containment", Ok("a command ran in namespaces of its own, filtered by seccomp".to_owned())),
        check("landlock", landlock(&ready)),
        check("limits", limits(&ready)),
        check("strict isolation", strict.map(|_| strict_with(&ready))),
    ]
}

/// Strict isolation takes no limit that something inside can get round.
fn strict_with(ready: &Ready) -> String {
    if ready.enforced.weak().is_empty() { "works" } else { "works, but not together with limits" }.to_owned()
}

fn landlock(ready: &Ready) -> Result<String, String> {
    let version = ready.confined.landlock.map(|version| format!("version {version} is in force"));
    version.ok_or_else(|| "not in this kernel; read-only mounts alone keep writes in".to_owned())
}

fn limits(ready: &Ready) -> Result<String, String> {
    let told = ready.enforced.describe(&ready.spec.limits);
    let reason = ready.enforced.reason.as_ref().map(|reason| format!("; {reason}")).unwrap_or_default();
    match ready.enforced.weak().is_empty() && ready.spec.limits != Limits::default() {
        true => Ok(told),
        false => Err(format!("{told}{reason}")),
    }
}

/// Contains a command that does nothing, and tells what held it.
fn contained(isolation: Isolation, limits: Limits) -> Result<Ready, String> {
    let place = Throwaway::make().map_err(|e| format!("cannot make a directory to try it in: {e}"))?;
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let runtimes = Runtimes::new(&place.state(), &program);
    let workspace = Bind { from: place.workspace(), at: place.workspace() };
    let spec = Spec {
        sandbox: NAME.to_owned(),
        isolation,
        limits,
        workspaces: vec![workspace],
        home: spec::home(),
        hidden: vec![place.state()],
        state: vec![place.state()],
        ..Spec::default()
    };
    let ready = try_it(&runtimes, &spec);
    // Only when it is gone is its directory nobody's.
    let ended = runtimes.end(NAME).map_err(|e| said(&e));
    ready.and_then(|ready| ended.map(|()| ready))
}

fn try_it(runtimes: &Runtimes, spec: &Spec) -> Result<Ready, String> {
    let attached = match runtimes.start(spec).map_err(|e| said(&e))? {
        Started::Attached(attached) => attached,
        Started::Refused(refusal) => return Err(refusal.to_string()),
    };
    let ready = attached.ready().clone();
    let null = File::options().read(true).write(true).open("/dev/null").map_err(|e| e.to_string())?;
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let command = Command {
        argv: &["true".into()],
        environment: vec![("PATH".into(), path)],
        directory: spec.workspaces[0].at.clone(),
        streams: [null.as_fd(), null.as_fd(), null.as_fd()],
        timeout: None,
    };
    let mut nobody = Nobody::new().map_err(|e| e.to_string())?;
    let outcome = attached.run(&command).and_then(|running| running.wait(&mut nobody));
    match outcome.map_err(|e| said(&e))?.end {
        End::Exited(0) => Ok(ready),
        other => Err(format!("a command that does nothing ended otherwise: {other:?}")),
    }
}

fn said(error: &Error) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}

/// A directory that is gone afterwards.
struct Throwaway(PathBuf);

impl Throwaway {
    fn make() -> io::Result<Self> {
        let path =
            std::env::temp_dir().canonicalize()?.join(format!("sandboxer-doctor-{}", std::process::id()));
        let place = Self(path);
        for path in [&place.0, &place.state(), &place.workspace()] {
            std::fs::DirBuilder::new().mode(0o700).create(path)?;
        }
        Ok(place)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn workspace(&self) -> PathBuf {
        self.0.join("workspace")
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Path::new(&self.0));
    }
}

/// No signal is for a command that does nothing.
struct Nobody {
    quiet: UnixStream,
    _other: UnixStream,
}

impl Nobody {
    fn new() -> io::Result<Self> {
        let (quiet, _other) = UnixStream::pair()?;
        Ok(Self { quiet, _other })
    }
}

impl Signals for Nobody {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.quiet.as_fd()
    }

    fn pending(&mut self) -> Vec<i32> {
        Vec::new()
    }
}
