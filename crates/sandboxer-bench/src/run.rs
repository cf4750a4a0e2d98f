//! The table `run`: a command in a runtime against the same command in somebody else's container, or in none.

use clap::Args;

use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::options::{Options, beginning, is_wanted};
use crate::place::Place;
use crate::rows::run::{self, Scale, Yard};
use crate::tree::TreeSpec;

/// Commands in a runtime, against bwrap, nsenter and no container at all: start, exec, compile, memory, proxy.
#[derive(Args)]
pub struct RunArguments {
    #[command(flatten)]
    options: Options,
    /// Only the groups of rows whose names begin with this: run-start, run-exec, run-compile, run-memory, run-proxy. May be
    /// given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<String>,
}

fn group(word: &str) -> Result<String, String> {
    beginning(run::GROUPS.into_iter(), word)
}

/// Measures every row and prints the table; false where a row failed.
pub fn measure(arguments: &RunArguments, interrupt: &Interrupt) -> Result<bool> {
    let options = &arguments.options;
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let bench = options.bench(TreeSpec::tiny(run::FILES), interrupt)?;
    let yard = Yard::new(&bench, Place::ext4(&options.disk, run::ROOM, run::INODES)?)?;
    let rows = run::rows(&yard, &scale, |group| is_wanted(&arguments.only, group))?;
    drop(yard);
    options.publish(&rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArguments,
    }

    #[test]
    fn groups_are_chosen_by_the_beginning_of_their_names() {
        let wanted = |words: &[&str]| {
            let line = Line::try_parse_from([&["run"], words].concat()).unwrap();
            run::GROUPS.into_iter().filter(|group| is_wanted(&line.run.only, group)).collect::<Vec<_>>()
        };
        assert_eq!(wanted(&[]), run::GROUPS);
        assert_eq!(wanted(&["--only", "run-p", "--only", "run-exec"]), ["run-exec", "run-proxy"]);
        assert!(Line::try_parse_from(["run", "--only", "runs"]).is_err());
    }
}
