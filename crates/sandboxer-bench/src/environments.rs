//! The table `environments`: what it costs that an environment is asked for by a profile.

use clap::Args;

use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::options::{Options, beginning, is_wanted};
use crate::rows::environments::{self, Scale};
use crate::tree::TreeSpec;

/// Environments, against making the same by hand: containers, sandboxes of this machine, reconciling, routing.
#[derive(Args)]
pub struct EnvironmentsArguments {
    #[command(flatten)]
    options: Options,
    /// Only the groups of rows whose names begin with this: environment-container, environment-local, environment-reconcile,
    /// environment-route. May be given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<String>,
}

fn group(word: &str) -> Result<String, String> {
    beginning(environments::GROUPS.into_iter(), word)
}

/// Measures every row and prints the table; false where a row failed.
pub fn measure(arguments: &EnvironmentsArguments, interrupt: &Interrupt) -> Result<bool> {
    let options = &arguments.options;
    let bench = options.bench(TreeSpec::tiny(1), interrupt)?;
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let wanted = |group: &str| is_wanted(&arguments.only, group);
    let rows = environments::rows(&bench, &options.disk, &scale, wanted)?;
    options.publish(&rows)
}
