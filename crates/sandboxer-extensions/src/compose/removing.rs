//! What there is of ours on a host, and how it goes.

use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::environment::Found;
use sandboxer_core::model::SandboxId;
use sandboxer_core::{Error, Result};

use super::controller::controller;
use super::{Made, OnHost, scripts};

const REMOVING: Duration = Duration::from_secs(600);
/// Each of these that is installed is asked. It has to answer if the stack may have been made with it: the engine is noted in the stack's directory.
const ENGINES: [&str; 2] = ["docker", "podman"];

/// Removes everything that carries a sandbox's labels, and its directory; `Ok` means that it has looked.
pub(super) fn remove(on: &OnHost, sandbox: &SandboxId, made: Option<&Made>) -> Result<()> {
    let (base, controller, engines) = match made {
        // Where it is, and what it was made with, need not be asked for.
        Some(made) => (made.base.clone(), made.controller.clone(), vec![made.engine.program().to_owned()]),
        None => unknown(on)?,
    };
    let mut arguments = vec![base.as_str(), controller.as_str(), checked(sandbox)?];
    arguments.extend(engines.iter().map(String::as_str));
    let station = on.station.undisturbed();
    let answer = station.ask(&scripts::remove(), &arguments, &[], REMOVING)?;
    if answer.code == 0 { Ok(()) } else { Err(station.failed("remove the stack on", &answer)) }
}

/// Where something of ours would be, and the engines that may have made it.
fn unknown(on: &OnHost) -> Result<(String, String, Vec<String>)> {
    let greeting = on.station.undisturbed().greet()?;
    let engines = ENGINES.map(str::to_owned).into();
    Ok((on.station.base(&greeting)?, controller(&on.context.home)?, engines))
}

/// It becomes part of paths.
pub(super) fn checked(sandbox: &SandboxId) -> Result<&str> {
    let id = sandbox.as_str();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.is_empty() && !id.starts_with('-') && id.chars().all(is_word) {
        return Ok(id);
    }
    Err(Error::usage(format!("{id:?} cannot be part of a path")))
}

/// Everything of this controller's on the host.
pub(super) fn inventory(on: &OnHost, sandbox: Option<&SandboxId>) -> Result<Vec<Found>> {
    let greeting = on.station.greet()?;
    let (base, controller) = (on.station.base(&greeting)?, controller(&on.context.home)?);
    let sandbox = sandbox.map(checked).transpose()?.unwrap_or_default();
    let mut arguments = vec![base.as_str(), controller.as_str(), sandbox];
    arguments.extend(ENGINES);
    let said = on.station.text("list what is on", &scripts::inventory(), &arguments)?;
    Ok(said.lines().filter_map(found).collect())
}

/// One line of the inventory. What is not understood is not ours.
fn found(line: &str) -> Option<Found> {
    let mut fields = line.split('\t');
    let (kind, sandbox, name) = (fields.next()?, fields.next()?, fields.next()?);
    let (state, made_at) = (fields.next()?, fields.next()?);
    let sandbox: String = serde_json::from_str(sandbox).ok()?;
    // What is on its way out keeps its name up to the dot.
    let sandbox = sandbox.split('.').next()?;
    if !sandbox.starts_with("sbx_") {
        return None;
    }
    Some(Found {
        sandbox_id: SandboxId::from_string(sandbox),
        what: format!("{kind} {name}"),
        running: kind == "container" && matches!(state, "running" | "paused" | "restarting"),
        made_at: instant(made_at),
    })
}

/// Engines have three ways to write an instant, and `find` has a fourth.
fn instant(text: &str) -> Option<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at);
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return Timestamp::from_second(seconds as i64).ok();
    }
    let mut words = text.split(' ');
    let (date, time, offset) = (words.next()?, words.next()?, words.next()?);
    let time = time.split('.').next()?;
    let (hours, minutes) = offset.split_at_checked(3)?;
    format!("{date}T{time}{hours}:{minutes}").parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn instants_are_read_however_they_are_written() {
        let at: Timestamp = "2026-11-17T08:22:55Z".parse().unwrap();
        for text in [
            "2026-11-17T08:22:55Z",
            "2026-11-17 08:22:55 +0000 UTC",
            "2026-11-17 09:22:55.123456789 +0100 CET",
            "1794903775.5000000000",
        ] {
            assert_eq!(instant(text), Some(at), "{text}");
        }
        assert_eq!(instant("yesterday"), None);
    }

    #[test]
    fn lines_of_an_inventory_are_told_apart() {
        let line = "container\t\"sbx_1\"\tsandboxer-sbx_1_web_1\trunning\t2026-11-17 08:22:55 +0000 UTC";
        let one = found(line).unwrap();
        assert!(one.running && one.what == "container sandboxer-sbx_1_web_1");
        let gone =
            found("directory\t\"sbx_1.gone\"\t/root/.sandboxer/c/sbx_1.gone\t-\t1794903775.0").unwrap();
        assert_eq!((gone.sandbox_id.as_str(), gone.running), ("sbx_1", false));
        assert!(found("directory\t\"other\"\t/x\t-\t0").is_none() && found("nonsense").is_none());
    }

    #[test]
    fn ids_that_lead_elsewhere_are_refused() {
        for odd in ["", "..", "a/b", "-rf", "a b", "a\n"] {
            checked(&SandboxId::from_string(odd)).unwrap_err();
        }
        assert_eq!(checked(&SandboxId::from_string("sbx_01J")).unwrap(), "sbx_01J");
    }
}
