//! Hosts that are other machines. `doctor` connects to none of them: it names the command that does.

use sandboxer_core::environment::Host;
use serde::Serialize;

use crate::cli::error::CliError;
use crate::cli::output::{self, Ui};
use crate::cli::session::App;

#[derive(Serialize)]
pub struct RemoteHost {
    host: String,
    address: String,
    /// The command that says what the host can do.
    check: String,
}

impl RemoteHost {
    fn new(host: Host) -> Self {
        let check = format!("sandbox hosts check {}", host.id);
        Self { host: host.id, address: host.address, check }
    }
}

/// The remote hosts of the catalogue; none of an unreadable one, which has a finding of its own.
pub fn remote_hosts(app: &App) -> Vec<RemoteHost> {
    app.remote_hosts().unwrap_or_default().into_iter().map(RemoteHost::new).collect()
}

pub fn show(ui: &mut Ui, remote: &RemoteHost) -> Result<(), CliError> {
    let (host, address) = (output::name(&remote.host), output::name(&remote.address));
    ui.line(format_args!("--  {host:<16} {address}: not connected to; check it with `{}`", remote.check))
}
