//! The steps of `git_worktree.feature`: a checkout, what git does and says in it and in its sandbox, and what a commit makes of
//! both.

use std::fs;

use sandboxer_core::model::CommitRequest;
use sandboxer_core::policy::CommitRules;
use sandboxer_testkit::features::Steps;
use sandboxer_testkit::git::GitRepo;
use sandboxer_testkit::manifest::{Facets, Manifest};

use super::Files;

pub fn register(steps: &mut Steps<Files>) {
    steps.given("the directory is a git checkout with these files committed", is_a_checkout);
    steps.given("the repository is looked at", is_looked_at);
    steps.then("the repository and its files are as they were", is_as_it_was);
    steps.given("in the sandbox git does {string}", git_does);
    steps.then("git in the sandbox says {string} to {string}", git_says);
    steps.then("git in the original says {string} to {string}", git_says_outside);
    steps.when("the sandbox is committed with the message {string}", commit);
    steps.when("the sandbox is committed to the branch {string}", commit_to);
}

/// A command as it is written in a step.
fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}

fn is_a_checkout(world: &mut Files) {
    GitRepo::new(world.original()).commit_all("first");
    world.type_name = "git-checkout";
}

fn is_looked_at(world: &mut Files) {
    world.before = Manifest::capture(&world.original());
}

fn is_as_it_was(world: &mut Files) {
    world.before.assert_same(&Manifest::capture(&world.original()), Facets::UNTOUCHED, "the checkout");
    assert!(!fs::exists(world.original().join(".git/index.lock")).unwrap());
}

fn git_does(world: &mut Files, command: String) {
    GitRepo::at(world.in_sandbox("")).git(&words(&command));
}

fn git_says(world: &mut Files, answer: String, command: String) {
    assert_eq!(GitRepo::at(world.in_sandbox("")).git(&words(&command)), answer);
}

fn git_says_outside(world: &mut Files, answer: String, command: String) {
    assert_eq!(GitRepo::at(world.original()).git(&words(&command)), answer);
}

fn commit(world: &mut Files, message: String) {
    commit_as(world, CommitRequest { message: Some(message), ..CommitRequest::default() });
}

fn commit_to(world: &mut Files, branch: String) {
    commit_as(world, CommitRequest { branch: Some(branch), ..CommitRequest::default() });
}

fn commit_as(world: &mut Files, request: CommitRequest) {
    let target = super::overlay::target(world);
    let committed = world.manager.commit(target, &request, &CommitRules::default()).unwrap();
    let revision = committed.workspaces[0].1.revision.as_ref().unwrap();
    assert_eq!(revision.branch, request.branch.or(Some("main".to_owned())));
}
