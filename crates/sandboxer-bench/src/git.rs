//! The table `git`: create, diff and commit of a sandbox of a repository, against a worktree of git's own.

use clap::Args;

use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::options::{Options, beginning, is_wanted};
use crate::place::Place;
use crate::rows::git::{self, Checkout, History};

/// Create, diff and commit in a repository of 50,000 files and 2,000 commits, against git worktree, diff and commit.
#[derive(Args)]
pub struct GitArguments {
    #[command(flatten)]
    options: Options,
    /// Only the groups of rows whose names begin with this: git-create, git-diff, git-commit. May be given several times.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<String>,
    /// The strategy under test, for trying out the benchmark itself.
    #[arg(long, value_name = "NAME", default_value = git::STRATEGY, hide = true)]
    strategy: String,
}

fn group(word: &str) -> Result<String, String> {
    beginning(git::GROUPS.into_iter(), word)
}

/// Measures every row and prints the table; false where a row failed.
pub fn measure(arguments: &GitArguments, interrupt: &Interrupt) -> Result<bool> {
    let options = &arguments.options;
    let history = if options.quick { History::QUICK } else { History::FULL };
    let bench = options.bench(history.spec, interrupt)?;
    let place = Place::ext4(&options.disk, history.room(), history.inodes())?;
    let checkout = Checkout::new(&bench, &arguments.strategy, history, place)?;
    let rows = git::rows(&checkout, |group| is_wanted(&arguments.only, group))?;
    drop(checkout);
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
        git: GitArguments,
    }

    #[test]
    fn groups_are_chosen_by_the_beginning_of_their_names() {
        let wanted = |words: &[&str]| {
            let line = Line::try_parse_from([&["git"], words].concat()).unwrap();
            git::GROUPS.into_iter().filter(|group| is_wanted(&line.git.only, group)).collect::<Vec<_>>()
        };
        assert_eq!(wanted(&[]), git::GROUPS);
        assert_eq!(wanted(&["--only", "git-d", "--only", "git-commit"]), ["git-diff", "git-commit"]);
        assert!(Line::try_parse_from(["git", "--only", "files"]).is_err());
    }

    #[test]
    fn the_strategy_under_test_is_git_worktree() {
        assert_eq!(Line::try_parse_from(["git"]).unwrap().git.strategy, "git_worktree");
    }
}
