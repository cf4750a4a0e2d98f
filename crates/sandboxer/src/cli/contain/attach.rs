//! The runtime of a sandbox: the one that runs, if it is what was asked for, or a new one.

use sandboxer_core::Error;
use sandboxer_core::config::{Isolation, RunSettings};
use sandboxer_core::service::Sandbox;
use sandboxer_extensions::local::{Attached, Bind, Called, Network, Refusal, Runtimes, Spec, Started};

use super::args::Asked;
use super::{spec, told};
use crate::cli::error::{CliError, Kind};
use crate::cli::exit;
use crate::cli::session::Session;

/// The runtimes of this state directory.
pub fn runtimes(session: &Session) -> Result<Runtimes, CliError> {
    let program = std::env::current_exe().map_err(|e| Error::io("find", "this program", e))?;
    Ok(Runtimes::new(session.manager.home(), &program))
}

/// A client of the sandbox's runtime, which is started where it does not run; `sockets` are shown inside. `None` where only files are to be isolated, and nothing runs.
pub fn attach(
    session: &Session,
    sandbox: &Sandbox,
    run: &RunSettings,
    asked: &Asked,
    called: Option<Called>,
    sockets: Vec<Bind>,
) -> Result<Option<Attached>, CliError> {
    let ours = |error: Error| CliError::from(error).exiting(exit::RUN_FAILED);
    let runtimes = runtimes(session)?;
    if let Some(found) = runtimes.find(sandbox.id.as_str()).map_err(ours)? {
        return check(asked, &found.ready().spec).map(|()| Some(found));
    }
    let wanted = asked.over(run)?;
    if wanted.isolation == Isolation::Files {
        return Ok(None);
    }
    let spec = spec::of(sandbox, session.manager.home(), run, wanted, sockets);
    match runtimes.start_with(called, &spec).map_err(ours)? {
        // Somebody else may have started it just now.
        Started::Attached(found) => check(asked, &found.ready().spec).map(|()| Some(*found)),
        Started::Refused(refusal) => Err(not_contained(&refusal, spec.isolation)),
    }
}

/// Whether a runtime that is there is what was asked for. It cannot be changed while it runs.
fn check(asked: &Asked, runs: &Spec) -> Result<(), CliError> {
    let differs: Vec<&str> = differences(asked, runs);
    if differs.is_empty() {
        return Ok(());
    }
    let message = format!(
        "a command is running in this sandbox with {}; another one joins it and cannot have its own {}",
        told::held(runs),
        differs.join(", ")
    );
    Err(CliError::new(Kind::Refused, message)
        .hint("to join it, leave that out; `sandbox ps ID` shows what runs")
        .hint("or wait until it has ended"))
}

fn differences(asked: &Asked, runs: &Spec) -> Vec<&'static str> {
    let network = match (&asked.network, &runs.network) {
        (Some(Network::Allow(asked)), Network::Allow(runs)) => {
            asked.iter().any(|host| !runs.contains(host)) || runs.iter().any(|host| !asked.contains(host))
        }
        (asked, runs) => asked.as_ref().is_some_and(|asked| asked != runs),
    };
    let (limits, held) = (&asked.limits, &runs.limits);
    let all = [
        ("isolation", asked.isolation.is_some_and(|asked| asked != runs.isolation)),
        ("network", network),
        ("memory", limits.memory.is_some() && limits.memory != held.memory),
        ("number of processes", limits.pids.is_some() && limits.pids != held.pids),
        ("processors", limits.cpus.is_some() && limits.cpus != held.cpus),
    ];
    all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

fn not_contained(refusal: &Refusal, isolation: Isolation) -> CliError {
    let message = format!("the command cannot be contained here: {refusal}");
    let told =
        CliError::new(Kind::Unavailable, message).hint("`sandbox doctor` says what this machine allows");
    let told = match isolation {
        Isolation::Strict => told.hint("to take what there is: --isolation standard"),
        Isolation::Standard | Isolation::Files => told,
    };
    told.hint("to isolate files only, with everything else open to the command: --isolation files")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_extensions::local::Limits;

    use super::*;

    fn running() -> Spec {
        Spec {
            network: Network::Allow(vec!["a.example".into(), "b.example".into()]),
            limits: Limits { memory: Some(2 << 30), ..Limits::default() },
            ..Spec::default()
        }
    }

    #[test]
    fn what_was_not_asked_for_does_not_differ() {
        check(&Asked::default(), &running()).unwrap();
        let same = Asked {
            isolation: Some(Isolation::Standard),
            network: Some(Network::Allow(vec!["b.example".into(), "a.example".into()])),
            limits: Limits {
                memory: Some(2 << 30),
                timeout: Some(std::time::Duration::from_secs(1)),
                ..Limits::default()
            },
            ..Asked::default()
        };
        check(&same, &running()).unwrap();
    }

    #[test]
    fn what_differs_is_refused_by_name() {
        let asked = Asked {
            isolation: Some(Isolation::Strict),
            network: Some(Network::None),
            limits: Limits { memory: Some(1 << 30), cpus: Some(1.0), ..Limits::default() },
            ..Asked::default()
        };
        let error = check(&asked, &running()).unwrap_err();
        assert_eq!(error.exit, 5);
        assert!(error.message.contains("isolation, network, memory, processors"), "{}", error.message);
        assert!(error.message.contains("standard isolation"), "{}", error.message);
    }
}
