//! The table `compose`: stacks of services on another machine, and trees of files on their way there.

use clap::Args;

use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::options::{Options, beginning, is_wanted};
use crate::rows::compose::{self, Program, Scale};

/// Stacks of services on a host over SSH, against docker-compose or docker compose by hand; trees of files, against tar over ssh. Needs root, sshd, socat, dockerd, docker-compose.
#[derive(Args)]
pub struct ComposeArguments {
    #[command(flatten)]
    options: Options,
    /// Only the groups of rows whose names begin with this: compose-create, compose-crowd, compose-destroy, compose-transfer. May be given
    /// several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<String>,
    /// The compose command that either side uses.
    #[arg(long, value_name = "COMMAND", value_enum, default_value_t = Program::Alone)]
    compose: Program,
}

fn group(word: &str) -> Result<String, String> {
    beginning(compose::GROUPS.into_iter(), word)
}

/// Measures every row and prints the table; false where a row failed.
pub fn measure(arguments: &ComposeArguments, interrupt: &Interrupt) -> Result<bool> {
    let options = &arguments.options;
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let bench = options.bench(scale.tree, interrupt)?;
    let wanted = |group: &str| is_wanted(&arguments.only, group);
    let rows = compose::rows(&bench, &options.disk, arguments.compose, &scale, wanted)?;
    options.publish(&rows)
}
