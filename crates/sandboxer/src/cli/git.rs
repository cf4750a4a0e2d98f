//! What git adds to sandboxes: flags on what a sandbox of a checkout begins with, where it stands in its repository, and
//! what a commit is called there.

use std::collections::BTreeMap;
use std::path::Path;

use sandboxer_core::model::Revision;
use sandboxer_core::service::{Sandbox, TargetCommit};
use sandboxer_documents::git::{about, revisions};
use sandboxer_strategies::git_worktree::About;
use serde_json::Value;

use super::output::{self, Ui, count, shell_word};

/// No more digits than this are shown of a commit's name; JSON has them all.
const SHOWN: usize = 10;

/// Where flags that are for git checkouts stand in a command's help.
pub const HEADING: &str = "Git checkouts";

/// What a command that runs in a sandbox of a checkout can reach where only files are isolated.
pub const NOT_CONTAINED: &str = "not protected with --isolation files: the sandbox reads the objects of your repository as alternates, and a command that reaches outside of the sandbox's directory can write to that repository as any program of yours can";

/// What a sandbox of a git checkout begins with.
#[derive(clap::Args)]
pub struct CheckoutArgs {
    /// Begin from this commit, branch or tag instead of what is checked out
    #[arg(long, value_name = "REF", help_heading = HEADING)]
    pub from: Option<String>,
    /// Leave uncommitted changes and untracked files behind
    #[arg(long, help_heading = HEADING)]
    pub clean: bool,
    /// Leave ignored files behind
    #[arg(long, help_heading = HEADING)]
    pub no_ignored: bool,
}

impl CheckoutArgs {
    /// As properties of a resource.
    pub fn properties(&self) -> BTreeMap<String, Value> {
        let from = self.from.as_ref().map(|from| ("from".to_owned(), Value::from(from.as_str())));
        let clean = self.clean.then(|| ("clean".to_owned(), Value::from(true)));
        let ignored = self.no_ignored.then(|| ("ignored".to_owned(), Value::from(false)));
        from.into_iter().chain(clean).chain(ignored).collect()
    }
}

/// What there is to tell, as names and values.
pub fn lines(about: &About) -> Vec<(&'static str, String)> {
    let commit = |oid: &Option<String>| oid.as_deref().map_or("no commit yet".to_owned(), short);
    let head = match (&about.branch, &about.head) {
        (Some(branch), head) => format!("{} at {}", output::name(branch), commit(head)),
        (None, Some(_)) => format!("no branch, at {}", commit(&about.head)),
        (None, None) => "cannot be told: what is in the sandbox's .git is no repository".to_owned(),
    };
    let target = about.target.as_deref().map_or("the detached HEAD".to_owned(), output::name);
    vec![
        ("branch", head),
        ("base", format!("{}, commits go to {target}", commit(&about.base))),
        ("git", output::name(&about.repository)),
    ]
}

/// The beginning of a commit's name.
pub fn short(commit: &str) -> String {
    output::name(commit.get(..SHOWN).unwrap_or(commit))
}

/// What a commit is called in each repository: ` as 37d59f63aa on main, keeping 2 commits`; empty where there is none.
pub fn named(commit: &TargetCommit) -> String {
    named_with("", commit).unwrap_or_default()
}

/// The same for one that is only a branch: ` as 37d59f63aa on branch review`.
pub fn named_on_branch(commit: &TargetCommit) -> Option<String> {
    named_with("branch ", commit)
}

fn named_with(what: &str, commit: &TargetCommit) -> Option<String> {
    let several = commit.workspaces.len() > 1;
    let one = |(workspace, revision): (&String, &Revision)| {
        let of = if several { format!(" of {}", output::name(workspace)) } else { String::new() };
        format!("{} on {what}{}{of}{}", short(&revision.commit), place(revision), kept(revision))
    };
    let all: Vec<String> = revisions(commit).map(one).collect();
    (!all.is_empty()).then(|| format!(" as {}", all.join(" and ")))
}

fn place(revision: &Revision) -> String {
    revision.branch.as_deref().map_or("the detached HEAD".to_owned(), output::name)
}

fn kept(revision: &Revision) -> String {
    match revision.kept {
        0 => String::new(),
        n => format!(", keeping {}", count(n, "commit")),
    }
}

/// How to look at what was left on `branch`, and to take it.
pub fn tell_review(ui: &Ui, sandbox: &Sandbox, commit: &TargetCommit, branch: &str) {
    let branch = shell_word(branch);
    let with_revision = revisions(commit).map(|(name, _)| name);
    let named = |name: &String| sandbox.workspaces.iter().find(|workspace| workspace.name == *name);
    for workspace in with_revision.filter_map(named) {
        let Some(path) = workspace.resource.path() else { continue };
        let git = git_in(path);
        let about = about(workspace);
        let from =
            about.and_then(|about| about.target.map(|t| shell_word(&t)).or(about.base.as_deref().map(short)));
        if let Some(from) = from {
            ui.next("review it:", &format!("{git} diff {from}...{branch}"));
        }
        ui.next("take it:", &format!("{git} merge {branch}"));
    }
}

/// Git as it is typed here for the checkout at `path`.
fn git_in(path: &Path) -> String {
    let here = std::env::current_dir().is_ok_and(|here| here.starts_with(path));
    if here { "git".to_owned() } else { format!("git -C {}", shell_word(&path.display().to_string())) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::CommitResult;
    use sandboxer_core::model::OpId;
    use serde_json::json;

    use super::*;

    fn commit(revisions: &[(&str, Option<Revision>)]) -> TargetCommit {
        let result = |revision: &Option<Revision>| CommitResult {
            revision: revision.clone(),
            ..CommitResult::default()
        };
        TargetCommit {
            op_id: OpId::from_string("op_1"),
            digest: String::new(),
            workspaces: revisions.iter().map(|(name, r)| ((*name).to_owned(), result(r))).collect(),
            unsent: None,
        }
    }

    fn revision(branch: Option<&str>, kept: usize) -> Option<Revision> {
        Some(Revision { commit: "0123456789abcdef".into(), branch: branch.map(str::to_owned), kept })
    }

    #[test]
    fn flags_become_properties_only_where_they_were_typed() {
        let none = CheckoutArgs { from: None, clean: false, no_ignored: false };
        assert!(none.properties().is_empty());
        let all = CheckoutArgs { from: Some("v1".into()), clean: true, no_ignored: true };
        assert_eq!(json!(all.properties()), json!({"from": "v1", "clean": true, "ignored": false}));
    }

    #[test]
    fn a_commit_goes_by_its_name_and_branch() {
        assert_eq!(named(&commit(&[("a", None)])), "");
        assert_eq!(named(&commit(&[("a", revision(Some("main"), 0))])), " as 0123456789 on main");
        assert_eq!(
            named(&commit(&[("a", revision(None, 1))])),
            " as 0123456789 on the detached HEAD, keeping 1 commit"
        );
        let two =
            commit(&[("a", revision(Some("main"), 0)), ("b", None), ("c", revision(Some("x\u{202e}"), 2))]);
        assert_eq!(
            named(&two),
            " as 0123456789 on main of a and 0123456789 on x\\u{202e} of c, keeping 2 commits"
        );
    }

    #[test]
    fn what_cannot_be_told_is_told_as_such() {
        let about =
            About { branch: None, head: None, base: None, target: None, repository: "/r/.git".into() };
        let told: Vec<String> = lines(&about).into_iter().map(|(_, value)| value).collect();
        assert!(told[0].starts_with("cannot be told"), "{told:?}");
        assert_eq!(told[1], "no commit yet, commits go to the detached HEAD");
    }

    #[test]
    fn git_is_told_where_to_look_from_elsewhere() {
        assert_eq!(git_in(Path::new("/")), "git");
        assert_eq!(git_in(Path::new("/no such")), "git -C '/no such'");
    }
}
