use sandboxer_core::environment::ExtensionContext;
use sandboxer_extensions::compose::{Finding, check};
use serde::Serialize;

use super::hosts::selected_hosts;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, style};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Try whether a host has what stacks need
///
/// The connection, programs, a directory, the engine, the firewall; and whether a stack without a network reaches its host, tried from inside of one.
/// Exit code 1 means that something is missing; what to type is said beside it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox hosts check                       Every host that makes stacks
  sandbox hosts check build-1
  sandbox hosts check build-1 --json")]
pub struct Args {
    /// Only this one
    #[arg(value_name = "ID")]
    id: Option<String>,
}

#[derive(Serialize)]
struct Document {
    hosts: Vec<Checked>,
}

#[derive(Serialize)]
struct Checked {
    id: String,
    address: String,
    fine: bool,
    findings: Vec<Finding>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let hosts = selected_hosts(app, args.id.as_deref())?;
    let mut all = Vec::new();
    for host in &hosts {
        let context = ExtensionContext::quiet(&app.places.home);
        let findings = check(host, &context)?;
        let fine = findings.iter().all(|finding| finding.fine != Some(false));
        all.push(Checked { id: host.id.clone(), address: host.address.clone(), fine, findings });
    }
    let fine = all.iter().all(|checked| checked.fine);
    match app.ui.json {
        true => app.ui.document(&Document { hosts: all })?,
        false => all.iter().try_for_each(|checked| tell(&mut app.ui, checked))?,
    }
    Ok(if fine { exit::OK } else { exit::ERROR })
}

fn tell(ui: &mut Ui, checked: &Checked) -> Result<(), CliError> {
    ui.line(
        ui.paint(style::HEAD, format!("{} ({})", output::name(&checked.id), output::name(&checked.address))),
    )?;
    for finding in &checked.findings {
        let word = match finding.fine {
            Some(true) => "ok",
            Some(false) => "FAILS",
            None => "?",
        };
        ui.line(format_args!("  {word:<5}  {:<10}  {}", finding.what, output::sentence(&finding.told)))?;
        if let Some(hint) = &finding.hint {
            ui.line(format_args!("  {:<17}  {}", "", output::sentence(hint)))?;
        }
    }
    Ok(())
}
