//! The rows of the strategy `git_worktree`: a sandbox of a checkout against what a person would type instead, which is a
//! `git worktree` with `git status`, `git diff`, `git commit` and `git merge` in it. All of them work in one [`Checkout`] on an
//! ext4 of its own, whose repository is made once and whose branch every round finds where it was at the start.

mod changes;
mod checkout;
mod commit;
mod create;
mod diff;
mod history;

use crate::failure::Result;
use crate::report::Row;

pub use checkout::Checkout;
pub use history::History;

/// The strategy under test.
pub const STRATEGY: &str = "git_worktree";

/// The names that select a part of these rows.
pub const GROUPS: [&str; 3] = ["git-create", "git-diff", "git-commit"];

/// The rows of the groups that are `wanted`, in the order of the table.
pub fn rows(checkout: &Checkout<'_>, wanted: impl Fn(&str) -> bool) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for group in GROUPS.into_iter().filter(|group| wanted(group)) {
        rows.extend(match group {
            "git-create" => vec![create::row(checkout)?],
            "git-diff" => diff::rows(checkout)?,
            _ => vec![commit::row(checkout)?],
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
