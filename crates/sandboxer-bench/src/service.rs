//! The table `service`: what it costs that a use case is asked for over HTTP.

use clap::Args;

use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::options::{Options, beginning, is_wanted};
use crate::rows::service::{self, Scale};
use crate::tree::TreeSpec;

/// The service, against the same use cases called in this process: get, list, followers of events, requests a second.
#[derive(Args)]
pub struct ServiceArguments {
    #[command(flatten)]
    options: Options,
    /// Only the groups of rows whose names begin with this: service-get, service-list, service-followers, service-pace. May be given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<String>,
}

fn group(word: &str) -> Result<String, String> {
    beginning(service::GROUPS.into_iter(), word)
}

/// Measures every row and prints the table; false where a row failed.
pub fn measure(arguments: &ServiceArguments, interrupt: &Interrupt) -> Result<bool> {
    let options = &arguments.options;
    let bench = options.bench(TreeSpec::tiny(1), interrupt)?;
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let wanted = |group: &str| is_wanted(&arguments.only, group);
    let rows = service::rows(&bench, &scale, wanted)?;
    options.publish(&rows)
}
