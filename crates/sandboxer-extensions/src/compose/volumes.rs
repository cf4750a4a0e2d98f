//! Named volumes: what a checkpoint covers besides the workspaces.
//!
//! They go through the engine (`cp` of a container that has them), so that nobody has to be root there, and are kept on this machine: a stack is made
//! again on whatever host.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use sandboxer_core::{Error, Result};

use super::look::{Container, containers};
use super::{Made, OnHost, scripts};

/// Keeps each volume in a file of `into`.
pub(super) fn keep(on: &OnHost, made: &Made, sandbox: &str, into: &Path) -> Result<bool> {
    let places = places(made, &containers(&on.station, made, sandbox)?);
    if places.is_empty() {
        return Ok(false);
    }
    std::fs::create_dir_all(into).map_err(|error| Error::io("make", into, error))?;
    on.context.progress.begin("keeping the volumes", Some(places.len() as u64));
    for (volume, (container, at)) in &places {
        keep_one(on, made, &into.join(short(made, volume)), container, at)?;
        on.context.progress.advance(1, 0);
    }
    on.context.progress.end();
    Ok(true)
}

fn keep_one(on: &OnHost, made: &Made, file: &Path, container: &str, at: &str) -> Result<()> {
    let told = |error| Error::io("write", file, error);
    let mut to = File::create(file).map_err(told)?;
    let mut running = on.station.start(scripts::KEEP, &[made.engine.as_str(), container, at])?;
    if let Some(mut from) = running.stdout.take() {
        io::copy(&mut from, &mut to).map_err(told)?;
    }
    running.finish_unless(Some(&on.context.cancel))?;
    to.sync_all().map_err(told)
}

/// Fills the volumes of a stack that is made and does not run yet with what is kept in `from`.
pub(super) fn fill(on: &OnHost, made: &Made, sandbox: &str, from: &Path) -> Result<()> {
    for (volume, (container, at)) in places(made, &containers(&on.station, made, sandbox)?) {
        let file = from.join(short(made, &volume));
        match File::open(&file) {
            Ok(kept) => fill_one(on, made, kept, &container, &at)?,
            // It was not there when that was kept.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", file, error)),
        }
    }
    Ok(())
}

fn fill_one(on: &OnHost, made: &Made, mut kept: File, container: &str, at: &str) -> Result<()> {
    let mut running = on.station.start(scripts::FILL, &[made.engine.as_str(), container, at])?;
    if let Some(mut to) = running.stdin.take() {
        // Where the script ends early, it says why; where our own file cannot be read, we do.
        match io::copy(&mut kept, &mut to) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Err(Error::io("read", "what was kept of a volume", error));
            }
            _ => {}
        }
    }
    running.finish_unless(Some(&on.context.cancel))
}

/// For each named volume, a container that has it, and where.
fn places(made: &Made, containers: &[Container]) -> BTreeMap<String, (String, String)> {
    let mounted = |container: &Container| {
        let id = container.id.clone();
        let mounts = container.mounts.clone().unwrap_or_default().into_iter();
        mounts.filter(|mount| mount.kind == "volume").map(move |mount| (mount.name, (id.clone(), mount.at)))
    };
    let all = containers.iter().flat_map(mounted);
    all.filter(|(name, _)| made.volumes.contains(name)).collect()
}

/// What a volume is called in the stack: a stack that is made again has another project, or host, and the same volumes.
fn short<'a>(made: &Made, volume: &'a str) -> &'a str {
    volume.strip_prefix(&format!("{}_", made.project)).unwrap_or(volume)
}
