//! Named volumes: what a checkpoint covers besides the workspaces.
//!
//! They go through the engine (`cp` of a container that has them), so that nobody has to be root there, and are kept on this machine: a stack is made
//! again on whatever host. The container is one of ours that never runs: what a finished service alone has mounted is there although its container may
//! have been tidied away, and nothing that a service says of its own files (read-only, for one) is in the way. In it a volume is mounted below a
//! directory of its own, which is what is copied: engines give the directory that they copy to neither owner nor mode, and what is below it both.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use sandboxer_core::{Error, Result};

use super::station::{LOOKING, Station};
use super::{Engine, Made, OnHost, scripts};

/// As much as is read before it is written.
const BUFFER: usize = 256 << 10;
/// The script's word for a volume that is not there.
const GONE: i32 = 42;

/// Makes the container that has the volumes, in place of one that a lost connection has left; says which volume is not there, and ends with 42 then. What is
/// made goes by its labels, whatever happens. `$1` engine, `$2` controller, `$3` sandbox, then the volumes.
const HOLD: &str = r#"
set -eu
e=$1 controller=$2 sandbox=$3
shift 3
there=$("$e" volume ls --quiet $(mine "$e" "$controller" "$sandbox"))
for volume in "$@"; do
  shift
  # An engine makes a volume that is not there, and says nothing.
  printf '%s\n' "$there" | grep -qxF -e "$volume" || { echo "$volume"; exit 42; }
  set -- "$@" --volume "$volume:/kept/$volume/volume"
done
name=sandboxer-volumes-$sandbox image=sandboxer-volumes:$sandbox
make() { "$e" create --name "$name" --network none $(label_options "$controller" "$sandbox") "$@" "$image" /nothing >/dev/null; }
# Another one by that name would leave this one without any, and nobody would find it.
"$e" image inspect --format . "$image" >/dev/null 2>&1 || import_empty "$e" "$image" "$controller" "$sandbox"
# podman copies by containers that run.
[ "$e" != podman ] || exit 0
make "$@" 2>/dev/null || { "$e" rm --force "$name" >/dev/null 2>&1 || :; make "$@"; }
"#;

/// Removes that container, and its image, unless somebody has it: by force it would lose its name, and stay. The volumes stay. `$1` engine, `$2` sandbox.
const LET_GO: &str = r#"
[ "$1" = podman ] || "$1" rm --force "sandboxer-volumes-$2" >/dev/null
"$1" rmi "sandboxer-volumes:$2" >/dev/null
"#;

/// Keeps each volume in a file of `into`.
pub(super) fn keep(on: &OnHost, made: &Made, sandbox: &str, into: &Path) -> Result<bool> {
    if made.volumes.is_empty() {
        return Ok(false);
    }
    let holder = Holder::make(on, made, sandbox, &made.volumes)?;
    std::fs::create_dir_all(into).map_err(|error| Error::io("make", into, error))?;
    on.context.progress.begin("keeping the volumes", Some(made.volumes.len() as u64));
    let kept = made.volumes.iter().try_for_each(|volume| {
        holder.keep(on, volume, &into.join(short(made, volume)))?;
        on.context.progress.advance(1, 0);
        Ok(())
    });
    on.context.progress.end();
    kept.map(|()| true)
}

/// Fills the volumes of a stack that is made and does not run yet with what is kept in `from`.
pub(super) fn fill(on: &OnHost, made: &Made, sandbox: &str, from: &Path) -> Result<()> {
    // What was not there when that was kept begins as the stack says.
    let kept = |volume: &&String| from.join(short(made, volume)).exists();
    let volumes: Vec<String> = made.volumes.iter().filter(kept).cloned().collect();
    if volumes.is_empty() {
        return Ok(());
    }
    let holder = Holder::make(on, made, sandbox, &volumes)?;
    volumes.iter().try_for_each(|volume| holder.fill(on, volume, &from.join(short(made, volume))))
}

/// What a volume is called in the stack: a stack that is made again has another project, or host, and the same volumes.
fn short<'a>(made: &Made, volume: &'a str) -> &'a str {
    volume.strip_prefix(&format!("{}_", made.project)).unwrap_or(volume)
}

/// The container that has the volumes; gone when this is dropped.
struct Holder<'a> {
    station: Station,
    engine: Engine,
    controller: &'a str,
    sandbox: &'a str,
}

impl<'a> Holder<'a> {
    fn make(on: &OnHost, made: &'a Made, sandbox: &'a str, volumes: &[String]) -> Result<Self> {
        let mut arguments = vec![made.engine.program(), &made.controller, sandbox];
        arguments.extend(volumes.iter().map(String::as_str));
        let station = on.station.undisturbed();
        let holder = Self { station, engine: made.engine, controller: &made.controller, sandbox };
        let answer = on.station.ask(&format!("{}{HOLD}", scripts::MINE), &arguments, &[], LOOKING)?;
        match answer.code {
            0 => Ok(holder),
            GONE => Err(gone(made, sandbox, String::from_utf8_lossy(&answer.stdout).trim())),
            _ => Err(on.station.failed("reach the volumes on", &answer)),
        }
    }

    fn arguments<'b>(&'b self, volume: &'b str) -> [&'b str; 4] {
        [self.engine.program(), self.controller, self.sandbox, volume]
    }

    fn keep(&self, on: &OnHost, volume: &str, file: &Path) -> Result<()> {
        let told = |error| Error::io("write", file, error);
        let mut to = File::create(file).map_err(told)?;
        let mut running = on.station.start(&scripts::keep_volume(), &self.arguments(volume))?;
        if let Some(from) = running.output(&on.context.cancel) {
            let copied = io::copy(&mut BufReader::with_capacity(BUFFER, from), &mut to);
            on.context.cancel.check()?;
            copied.map_err(told)?;
        }
        running.finish_unless(Some(&on.context.cancel))?;
        to.sync_all().map_err(told)
    }

    fn fill(&self, on: &OnHost, volume: &str, file: &Path) -> Result<()> {
        let told = |error| Error::io("read", file, error);
        let kept = File::open(file).map_err(told)?;
        let mut running = on.station.start(&scripts::fill_volume(), &self.arguments(volume))?;
        if let Some(mut to) = running.input(&on.context.cancel)? {
            let copied = io::copy(&mut BufReader::with_capacity(BUFFER, kept), &mut to);
            on.context.cancel.check()?;
            // Where the script ends early, it says why; where our own file cannot be read, we do.
            if let Err(error) = copied.map(drop).or_else(unless_it_ended) {
                return Err(told(error));
            }
        }
        running.finish_unless(Some(&on.context.cancel))
    }
}

fn unless_it_ended(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        // What stays has the sandbox's labels, and goes with it.
        let _ = self.station.ask(LET_GO, &[self.engine.program(), self.sandbox], &[], LOOKING);
    }
}

/// A checkpoint without it would look like one with an empty volume.
fn gone(made: &Made, sandbox: &str, volume: &str) -> Error {
    Error::Refused {
        reason: format!("volume {} of the stack is not there any more", short(made, volume)),
        hint: Some(format!(
            "`sandbox recreate {sandbox}` makes the stack again, with empty volumes; `--from CHECKPOINT` with those of a checkpoint"
        )),
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::OnceLock;
    use std::time::Duration;

    use sandboxer_core::environment::{ExtensionContext, Host};
    use serde_json::json;

    use super::*;

    /// An engine that has one volume, and never comes to the end of a copy.
    const STUCK: &str = "#!/bin/sh\ncase $1 in volume) echo p_goods ;; import) cat >/dev/null ;; cp) exec sleep 1000 ;; esac\n";

    pub(in super::super) fn stuck_engine() -> &'static str {
        static PROGRAM: OnceLock<(tempfile::TempDir, String)> = OnceLock::new();
        let (_, program) = PROGRAM.get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            let program = directory.path().join("engine");
            std::fs::write(&program, STUCK).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            (directory, program.to_str().unwrap().to_owned())
        });
        program
    }

    fn on_this_machine(at: &Path) -> (OnHost, Made) {
        let context = ExtensionContext::quiet(at);
        let station = Station::new(&Host::local(), &context).unwrap();
        let made = json!({
            "base": "/b", "directory": "/b/c/s", "controller": "c", "project": "p", "engine": "docker", "compose": [],
            "services": {}, "first": null, "ports": [], "workspace_at": {}, "volumes": ["p_goods"], "records": at,
            "compress": false, "notes": [],
        });
        let on = OnHost { station, options: BTreeMap::new(), context, started: std::sync::Mutex::default() };
        let made = Made { engine: Engine::Stuck, ..serde_json::from_value(made).unwrap() };
        (on, made)
    }

    #[test]
    fn who_asks_to_stop_does_not_wait_for_a_volume() {
        let at = tempfile::tempdir().unwrap();
        let (on, made) = on_this_machine(at.path());
        let kept = at.path().join("kept");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                on.context.cancel.cancel();
            });
            assert!(matches!(keep(&on, &made, "sbx_1", &kept), Err(Error::Cancelled)));
        });
        let (on, made) = on_this_machine(at.path());
        // More than fits into what lies between us and the engine.
        std::fs::write(kept.join("goods"), vec![0x1f; 4 << 20]).unwrap();
        on.context.cancel.cancel();
        let holder = Holder {
            station: on.station.undisturbed(),
            engine: made.engine,
            controller: "home",
            sandbox: "sbx_1",
        };
        assert!(matches!(holder.fill(&on, "p_goods", &kept.join("goods")), Err(Error::Cancelled)));
    }

    #[test]
    fn a_volume_that_is_gone_is_named() {
        let at = tempfile::tempdir().unwrap();
        let (on, mut made) = on_this_machine(at.path());
        made.volumes.insert(0, "p_others".to_owned());
        let error = keep(&on, &made, "sbx_1", &at.path().join("kept")).unwrap_err().to_string();
        assert_eq!(error, "refused: volume others of the stack is not there any more");
        // Nothing was kept of it, so nothing is to be filled.
        fill(&on, &made, "sbx_1", &at.path().join("nothing")).unwrap();
    }
}
