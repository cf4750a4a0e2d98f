//! What is done with a sandbox, and what is to be seen afterwards.

use std::collections::BTreeMap;
use std::fs;

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, RelPath};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{Consumer, CreateRequest, Input, Target, Uncommitted};
use sandboxer_testkit::features::Steps;
use sandboxer_testkit::manifest::{Facets, Manifest};
use serde_json::{Value, json};

use super::{Extending, full_text, workspaces_below};

pub fn register(steps: &mut Steps<Extending>) {
    steps.given("a sandbox was asked for with the strategy {string}", asked_with);
    steps.when("a sandbox is asked for with the strategy {string}", asked_with);
    steps.when("a sandbox is asked for", asked);
    steps.when("a sandbox is asked for of a resource that chooses {string}", asked_of);
    steps.when(
        "a sandbox is asked for with the strategy {string} of a resource that chooses {string}",
        asked_with_of,
    );
    steps.when("a sandbox of {string} is asked for", asked_at);
    steps.then("it is made by {string} because of {string}", made_by);
    steps.then("it fails with {string}", fails);
    steps.then("it fails with {string} and {string}", fails_twice);
    steps.then("nothing was made", nothing);
    steps.then("nothing is left of it", nothing);
    steps.then("the strategy {string} works as ever", works_as_ever);
    steps.then("there is no trace", no_trace);
    steps.then("there is a trace", trace);
    steps.then("the plugin {string} has noted {string}", has_noted);
    steps.when("{string} in it is written to be {string}", write);
    steps.when("{string} in it is read", read);
    steps.then("{string} in it reads {string}", reads);
    steps.then("there is no {string} in it", is_not_there);
    steps.when("its differences are asked for", ask_differences);
    steps.then("it differs in {string}", differs);
    steps.then("it differs in {string} and {string}", differs_twice);
    steps.then("nothing differs", nothing_differs);
    steps.when("a checkpoint {string} is taken", checkpoint);
    steps.when("the checkpoint {string} is restored", restore);
    steps.when("it is committed", commit);
    steps.when("{string} alone is committed", commit_alone);
    steps.when("it is rolled back", roll_back);
    steps.when("it is destroyed", destroy);
    steps.when("the program is started again", start_again);
    steps.when("the program is started again without {string}", start_without);
    steps.then("the original is as it was", as_it_was);
    steps.then("the original has {string} in {string}", original_has);
    steps.then("it is a conflict on {string}", is_a_conflict);
    steps.then("the log has a {string} {string}", log_has);
}

fn ask(world: &mut Extending, location: &str, strategy: Option<String>, own: Option<String>) {
    let properties: BTreeMap<String, Value> =
        own.map(|name| ("strategy".to_owned(), json!(name))).into_iter().collect();
    let request = CreateRequest {
        inputs: vec![Input { name: None, location: location.to_owned(), properties }],
        strategy,
        no_fallback: false,
        plan: None,
        name: None,
        ttl: None,
        consumer: Consumer { actor_type: "agt".to_owned(), project: "features".to_owned() },
        disposable: false,
        environment: None,
    };
    let result = world.manager().get_or_create_sandbox(&request);
    world.target = world.remember(result).map(|created| {
        let workspaces = created.sandbox.workspaces.clone();
        Target { sandbox: created.sandbox, workspaces }
    });
}

fn ask_for_directory(world: &mut Extending, strategy: Option<String>, own: Option<String>) {
    let location = world.original().to_str().unwrap().to_owned();
    ask(world, &location, strategy, own);
}

fn asked_with(world: &mut Extending, strategy: String) {
    ask_for_directory(world, Some(strategy), None);
}

fn asked(world: &mut Extending) {
    ask_for_directory(world, None, None);
}

fn asked_of(world: &mut Extending, own: String) {
    ask_for_directory(world, None, Some(own));
}

fn asked_with_of(world: &mut Extending, strategy: String, own: String) {
    ask_for_directory(world, Some(strategy), Some(own));
}

fn asked_at(world: &mut Extending, location: String) {
    ask(world, &location, None, None);
}

fn made_by(world: &mut Extending, strategy: String, rule: String) {
    let workspace = &world.target().workspaces[0];
    assert_eq!(workspace.sandbox_ref.strategy_name, strategy);
    assert!(workspace.reason.contains(&rule), "{}", workspace.reason);
}

fn fails(world: &mut Extending, words: String) {
    let error = world.error.as_ref().unwrap_or_else(|| panic!("it did not fail"));
    assert!(full_text(error).contains(&words), "{words:?} is not in {}", full_text(error));
}

fn fails_twice(world: &mut Extending, words: String, others: String) {
    fails(world, words);
    fails(world, others);
}

fn nothing(world: &mut Extending) {
    assert!(world.manager().list(false).unwrap().is_empty());
    assert!(workspaces_below(world.dir.path()).is_empty(), "{:?}", workspaces_below(world.dir.path()));
}

fn works_as_ever(world: &mut Extending, strategy: String) {
    let before = world.target.take();
    asked_with(world, strategy);
    write(world, "readme.md".to_owned(), "as ever".to_owned());
    differs(world, "readme.md".to_owned());
    destroy(world);
    world.target = before;
}

fn no_trace(world: &mut Extending) {
    assert!(!world.at("trace").exists() && !world.at("home/plugins").exists());
}

fn trace(world: &mut Extending) {
    assert!(world.target.is_some() && world.at("trace").exists(), "{world:?}");
}

fn has_noted(world: &mut Extending, plugin: String, words: String) {
    let noted =
        fs::read_to_string(world.noted_by(&plugin)).unwrap_or_else(|error| panic!("{error}: {world:?}"));
    assert!(noted.contains(&words), "{noted}");
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// Does something with the sandbox, and remembers how it failed.
fn act<T>(world: &mut Extending, work: impl FnOnce(&Extending) -> sandboxer_core::Result<T>) -> Option<T> {
    world.manager();
    let result = work(world);
    world.remember(result)
}

/// The manager, which [`act`] has opened.
fn of(world: &Extending) -> &sandboxer_core::service::SandboxManager {
    world.manager.as_ref().unwrap()
}

fn write(world: &mut Extending, file: String, content: String) {
    let written = act(world, |world| of(world).write(world.target(), &path(&file), content.as_bytes()));
    assert!(written.is_some(), "{world:?}");
}

fn read(world: &mut Extending, file: String) {
    act(world, |world| of(world).read(world.target(), &path(&file)));
}

fn reads(world: &mut Extending, file: String, content: String) {
    let found = act(world, |world| of(world).read(world.target(), &path(&file)));
    assert_eq!(found.map(|bytes| String::from_utf8(bytes).unwrap()), Some(content), "{world:?}");
}

fn is_not_there(world: &mut Extending, file: String) {
    let tree = world.target().workspaces[0].sandbox_ref.sandbox_path().unwrap();
    assert!(tree.join("readme.md").exists() && !tree.join(file).exists());
}

fn ask_differences(world: &mut Extending) {
    act(world, |world| of(world).diff(world.target(), &[]));
}

fn differences(world: &mut Extending) -> Vec<String> {
    let diff = act(world, |world| of(world).diff(world.target(), &[])).unwrap_or_else(|| panic!("{world:?}"));
    diff.workspaces[0]
        .entries
        .iter()
        .map(|entry| entry.path.to_string())
        .filter(|path| path != "new")
        .collect()
}

fn differs(world: &mut Extending, file: String) {
    assert_eq!(differences(world), [file]);
}

fn differs_twice(world: &mut Extending, file: String, other: String) {
    assert_eq!(differences(world), [file, other]);
}

fn nothing_differs(world: &mut Extending) {
    assert!(differences(world).is_empty());
}

fn checkpoint(world: &mut Extending, name: String) {
    act(world, |world| of(world).checkpoint(world.target(), Some(&name)))
        .unwrap_or_else(|| panic!("{world:?}"));
}

fn restore(world: &mut Extending, name: String) {
    act(world, |world| of(world).restore(world.target(), &name)).unwrap_or_else(|| panic!("{world:?}"));
}

fn commit(world: &mut Extending) {
    act(world, |world| of(world).commit(world.target(), &CommitRequest::default(), &CommitRules::default()));
}

fn commit_alone(world: &mut Extending, file: String) {
    let request = CommitRequest { paths: vec![path(&file)], ..CommitRequest::default() };
    act(world, |world| of(world).commit(world.target(), &request, &CommitRules::default()));
}

fn roll_back(world: &mut Extending) {
    let results = act(world, |world| of(world).rollback(world.target(), &[]));
    assert!(results.is_some_and(|results| results.iter().all(|(_, result)| result.success)), "{world:?}");
}

fn destroy(world: &mut Extending) {
    act(world, |world| of(world).destroy(world.target(), Uncommitted::Discard))
        .unwrap_or_else(|| panic!("{world:?}"));
}

fn start_again(world: &mut Extending) {
    world.manager = None;
    let id = world.target().sandbox.id.clone();
    world.target = Some(world.manager().find(id.as_str()).unwrap());
}

fn start_without(world: &mut Extending, name: String) {
    world.entries.remove(&name);
    world.entries.insert("another".to_owned(), "{module: \"builtin:none\"}".to_owned());
    start_again(world);
}

fn as_it_was(world: &mut Extending) {
    world.before.assert_same(&Manifest::capture(&world.original()), Facets::UNTOUCHED, "the original");
}

fn original_has(world: &mut Extending, content: String, file: String) {
    let found =
        fs::read_to_string(world.original().join(file)).unwrap_or_else(|error| panic!("{error}: {world:?}"));
    assert_eq!(found, content);
}

fn is_a_conflict(world: &mut Extending, file: String) {
    let Some(Error::Conflict { conflicts }) = &world.error else { panic!("expected a conflict: {world:?}") };
    assert_eq!(conflicts.iter().map(|conflict| conflict.path.to_string()).collect::<Vec<_>>(), [file]);
}

fn log_has(world: &mut Extending, state: String, kind: String) {
    let log = world.manager().log(None, 100).unwrap();
    let last = log.iter().find(|operation| operation.kind == kind).unwrap();
    assert_eq!(last.state, state, "{last:?}");
}
