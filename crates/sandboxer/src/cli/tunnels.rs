//! Programs that lead into an environment and are neither commands of the user's nor ours: logs, tunnels.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use sandboxer_core::environment::Way;
use sandboxer_core::service::Sandbox;

use super::error::{CliError, Kind};
use super::session::Session;
use super::{Outcome, exit, output};

/// The arguments of such a program.
pub fn line(
    session: &Session,
    sandbox: &Sandbox,
    way: &Way<'_>,
    what: &str,
) -> Result<Vec<OsString>, CliError> {
    session.manager.line(sandbox, way)?.ok_or_else(|| {
        let message = format!("sandbox {} has no {what}", output::name(&sandbox.name));
        CliError::new(Kind::Unavailable, message)
            .hint("stacks have: `sandbox create --profile profile.compose-e2e`")
    })
}

/// Becomes it: whoever ends us ends it, and its exit code is ours.
pub fn become_it(session: Session, line: &[OsString], stdin: Stdio) -> Outcome {
    let Some((program, arguments)) = line.split_first() else { return Ok(exit::OK) };
    // Nothing of ours is open any more.
    session.signals.forget();
    drop(session);
    let mut command = Command::new(program);
    // What shows a server who we are is nobody else's.
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"SANDBOXER_"))
    {
        command.env_remove(name);
    }
    let error = command.args(arguments).stdin(stdin).exec();
    let shown = output::name(program.as_encoded_bytes());
    Err(CliError::new(Kind::Error, format!("cannot run {shown}: {error}")))
}
