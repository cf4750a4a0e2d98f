//! The table `plugins`: what it costs that a strategy is somebody else's process.

use clap::Args;

use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::options::{Options, beginning, is_wanted};
use crate::place::Place;
use crate::rows::plugins::{self, Scale};
use crate::tree::TreeSpec;

/// Strategies in processes of their own, against a bare pipe: resolution by name, small reads, a large one, memory.
#[derive(Args)]
pub struct PluginsArguments {
    #[command(flatten)]
    options: Options,
    /// Only the groups of rows whose names begin with this: plugin-resolve, plugin-read, plugin-stream, plugin-memory. May be given
    /// several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<String>,
}

fn group(word: &str) -> Result<String, String> {
    beginning(plugins::GROUPS.into_iter(), word)
}

/// Measures every row and prints the table; false where a row failed.
pub fn measure(arguments: &PluginsArguments, interrupt: &Interrupt) -> Result<bool> {
    let options = &arguments.options;
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let bench = options.bench(TreeSpec::tiny(1), interrupt)?;
    let place = Place::tmpfs(scale.room())?;
    let rows = plugins::rows(&bench, &place, &scale, |group| is_wanted(&arguments.only, group))?;
    drop(place);
    options.publish(&rows)
}
