//! Workspaces between here and there.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandboxer_core::environment::Mount;
use sandboxer_core::{Error, Result};
use sandboxer_remote::{Fault, Mirror, trouble};

use super::{Made, OnHost, scripts};

/// How long it is before a copy goes on whose connection broke, time after time.
const PAUSES: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3)];
const LOOK: Duration = Duration::from_millis(50);

/// Makes the copies as the workspaces are.
pub(super) fn send(on: &OnHost, made: &Made, mounts: &[Mount]) -> Result<()> {
    on.context.progress.begin("copying the workspaces", None);
    let sent = each(mounts).try_for_each(|mount| send_one(on, made, mount));
    on.context.progress.end();
    sent
}

/// What has arrived before a connection broke is not sent again.
fn send_one(on: &OnHost, made: &Made, mount: &Mount) -> Result<()> {
    let copy = Copy::new(made, mount);
    let mirror = copy.mirror(on, made, mount);
    let mut sent = mirror.send();
    for pause in PAUSES {
        match sent {
            Err(error) if may_come_back(&error) => wait(on, pause)?,
            sent => return sent.map(drop),
        }
        on.context.progress.begin("copying what is left of the workspaces", None);
        sent = mirror.send();
    }
    sent.map(drop)
}

/// A host that had answered may answer again.
fn may_come_back(error: &Error) -> bool {
    trouble(error).is_some_and(|trouble| matches!(trouble.fault, Fault::Lost | Fault::Unreachable))
}

fn wait(on: &OnHost, pause: Duration) -> Result<()> {
    let until = Instant::now() + pause;
    while Instant::now() < until {
        on.context.cancel.check()?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Makes the workspaces as the copies are. `false` where there are none.
pub(super) fn fetch(on: &OnHost, made: &Made, mounts: &[Mount]) -> Result<bool> {
    let workspaces = format!("{}/workspaces", made.directory);
    if on.station.ask(scripts::IS_THERE, &[&workspaces], &[], super::station::LOOKING)?.code != 0 {
        return Ok(false);
    }
    on.context.progress.begin("bringing back what has changed", None);
    let mut left_out = Vec::new();
    let fetched = each(mounts).try_for_each(|mount| {
        left_out.extend(Copy::new(made, mount).mirror(on, made, mount).fetch()?.refused);
        Ok(())
    });
    on.context.progress.end();
    if !left_out.is_empty() {
        on.context.progress.left_out(&left_out);
    }
    fetched.map(|()| true)
}

/// What is only read is not copied: it is what a checkout borrows from its repository.
fn each(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    mounts.iter().filter(|mount| !mount.read_only)
}

/// Where one copy is, and what is remembered of it.
struct Copy {
    remote: String,
    lists: String,
    record: PathBuf,
}

impl Copy {
    fn new(made: &Made, mount: &Mount) -> Self {
        let name = &mount.workspace;
        Self {
            remote: format!("{}/workspaces/{name}", made.directory),
            lists: format!("{}/lists/{name}", made.directory),
            record: made.records.join(format!("{name}.list")),
        }
    }

    fn mirror<'a>(&'a self, on: &'a OnHost, made: &Made, mount: &'a Mount) -> Mirror<'a> {
        Mirror {
            shell: on.station.shell(),
            local: &mount.from,
            remote: &self.remote,
            lists: &self.lists,
            record: &self.record,
            compress: made.compress,
            progress: &*on.context.progress,
            cancel: &on.context.cancel,
        }
    }
}
