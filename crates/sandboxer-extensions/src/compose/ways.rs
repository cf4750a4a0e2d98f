//! Ways into a stack, and holding it still.

mod entering;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sandboxer_core::contract::Quiet;
use sandboxer_core::environment::{Endpoint, Handle, Way};
use sandboxer_core::{Error, Result, resolve};

use super::look::Container;
use super::station::Station;
use super::{Engine, Made, OnHost, made, scripts};

/// The arguments of a program of this machine that goes that way.
pub(super) fn line(on: &OnHost, made: &Made, way: &Way<'_>) -> Result<Option<Vec<OsString>>> {
    Ok(match *way {
        Way::Exec { part, directory, terminal, command } => {
            command.iter().try_for_each(text)?;
            let mut words = words([made.engine.program(), "exec", if terminal { "-it" } else { "-i" }]);
            if let Some(directory) = directory {
                words.extend([OsString::from("--workdir"), inside(made, part, directory)?.into()]);
            }
            words.push(container(made, part)?.into());
            words.extend(command.iter().cloned());
            entering::enter(&noted(made), &on.context.cancel)?;
            Some(on.station.line(words, terminal))
        }
        Way::Logs { part, follow, tail } => {
            let id = part.map(|part| container(made, Some(part))).transpose()?;
            let options = follow.then(|| "--follow".to_owned()).into_iter();
            let options = options.chain(tail.map(|lines| format!("--tail={lines}"))).collect::<Vec<_>>();
            let words = match made.engine == Engine::Podman {
                true => podman_logs(made, &options, id),
                false => compose_logs(made, &options, part),
            };
            Some(on.station.line(words, false))
        }
        Way::Forward { endpoint, port } => {
            let line = on.station.tunnel(port, &endpoint.host, endpoint.port);
            line.as_ref().map_or(Ok(()), |_| tunnelled(endpoint))?;
            line
        }
    })
}

fn compose_logs(made: &Made, options: &[String], service: Option<&str>) -> Vec<OsString> {
    let stack = format!("{}/stack.yaml", made.directory);
    let mut words: Vec<OsString> = made.compose.iter().map(OsString::from).collect();
    words.extend(self::words(["-p", &made.project, "-f", &stack, "logs", "--no-color"]));
    words.extend(options.iter().map(OsString::from));
    words.extend(service.map(OsString::from));
    words
}

fn podman_logs(made: &Made, options: &[String], container: Option<&str>) -> Vec<OsString> {
    let sandbox = Path::new(&made.directory).file_name().unwrap_or_default().to_string_lossy();
    let all = format!("--filter label=sandboxer.stack={}/{sandbox}", made.controller);
    let filter = if container.is_some() { "" } else { &all };
    let mut words = words(["sh", "-c", scripts::PODMAN_LOGS, "sh", &made.project, filter]);
    words.extend(options.iter().map(OsString::from));
    words.extend(container.map(OsString::from));
    words
}

/// By ssh, nothing goes through a tunnel but connections.
fn tunnelled(endpoint: &Endpoint) -> Result<()> {
    let Some(name) = endpoint.name.strip_suffix("/udp") else { return Ok(()) };
    Err(Error::Usage {
        message: format!("{name} speaks UDP, which cannot be led here"),
        hint: Some(
            "ask it from a service: `sandbox exec ID --service NAME -- CMD`; or publish a TCP port beside it"
                .to_owned(),
        ),
    })
}

/// Engines put what is no text into other words, and say nothing.
fn text(word: &OsString) -> Result<()> {
    match word.to_str() {
        Some(_) => Ok(()),
        None => Err(Error::Usage {
            message: format!("{word:?} is not UTF-8, and no engine hands that on as it is"),
            hint: Some("let a shell in the service make it: printf '\\377'".to_owned()),
        }),
    }
}

/// A directory of the workspace, as a service has it.
fn inside(made: &Made, service: Option<&str>, directory: &Path) -> Result<PathBuf> {
    let name = service.or(made.first.as_deref()).unwrap_or_default();
    made.workspace_at.get(name).map(|at| Path::new(at).join(directory)).ok_or_else(|| Error::Usage {
        message: format!("service {name:?} does not have the workspace"),
        hint: Some("leave the directory out, or name a service that mounts the repository".to_owned()),
    })
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).into()
}

/// The container of a service; of the first where none is named.
fn container<'a>(made: &'a Made, service: Option<&str>) -> Result<&'a str> {
    let Some(name) = service.or(made.first.as_deref()) else {
        return Err(Error::Usage {
            message: "the stack has several services".to_owned(),
            hint: Some(format!("name one: --service {}", names(made).join(" or "))),
        });
    };
    made.services.get(name).map(String::as_str).ok_or_else(|| Error::NotFound {
        what: "service",
        name: name.to_owned(),
        similar: resolve::nearest(name, made.services.keys()),
    })
}

fn names(made: &Made) -> Vec<&str> {
    made.services.keys().map(String::as_str).collect()
}

/// A pause goes on there when whoever asked for it is killed here. Who lets go then waits until it is over, or it would be paused after it was let go of.
/// Where there is no lock to be had, it goes without. `$5` the sandbox's directory.
const ONE_BY_ONE: &str = r#"
if [ -d "$5" ] && command -v flock >/dev/null; then exec 9>>"$5/still"; flock -w 20 9 || :; fi
"#;

/// Stands still until it is dropped.
struct Held {
    station: Station,
    made: Made,
    sandbox: String,
}

/// Holds every container still; `None` where none runs.
pub(super) fn hold_still(on: &OnHost, handle: &Handle) -> Result<Option<Quiet>> {
    let made = made(handle)?;
    entering::keep_out(&noted(&made), &on.context.cancel)?;
    let held = Held { station: on.station.undisturbed(), made, sandbox: handle.sandbox_id.to_string() };
    match held.ask("pause") {
        Ok(0) => {
            let _ = std::fs::remove_file(noted(&held.made));
            std::mem::forget(held);
            Ok(None)
        }
        Ok(_) => Ok(Some(Box::new(held))),
        // It has released what it had paused. What stood still before is not ours to let go of.
        Err(error) => {
            std::mem::forget(held);
            Err(error)
        }
    }
}

/// Lets everything go on that an earlier hold has left standing still.
pub(super) fn let_go(on: &OnHost, handle: &Handle) -> Result<()> {
    let held = Held {
        station: on.station.undisturbed(),
        made: made(handle)?,
        sandbox: handle.sandbox_id.to_string(),
    };
    // Who is not in the way of anybody need not ask the host.
    let let_go = if noted(&held.made).exists() { held.release() } else { Ok(()) };
    // Who has just not been reached is not tried again by dropping it.
    std::mem::forget(held);
    let_go
}

/// Lets a container go on that was left standing still.
pub(super) fn release(station: &Station, made: &Made, container: &Container) -> Result<()> {
    station
        .must("resume a container on", r#""$1" unpause "$2""#, &[made.engine.program(), &container.id])
        .map(drop)
}

/// A file of this machine that is there for as long as something may stand still.
fn noted(made: &Made) -> PathBuf {
    made.records.join("held")
}

impl Held {
    fn release(&self) -> Result<()> {
        self.ask("unpause")?;
        // Where it stays, the next one asks again.
        let _ = std::fs::remove_file(noted(&self.made));
        Ok(())
    }

    fn ask(&self, what: &str) -> Result<usize> {
        let Made { engine, controller, directory, pause, .. } = &self.made;
        let arguments = [engine.program(), controller, &self.sandbox, what, directory];
        let script = format!("{ONE_BY_ONE}{}", scripts::hold_still(*pause));
        let said = self.station.text("hold the services still on", &script, &arguments)?;
        match said.trim() {
            "" if what == "unpause" => Ok(0),
            said => said.parse().map_err(|_| {
                let reason = format!("it said {said:?}, and not how many stand still");
                Error::io("hold the services still on", &self.station.host.id, std::io::Error::other(reason))
            }),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A drop cannot fail. One more try, for an engine that was busy.
        if noted(&self.made).exists() && self.release().is_err() {
            let _ = self.release();
        }
    }
}
