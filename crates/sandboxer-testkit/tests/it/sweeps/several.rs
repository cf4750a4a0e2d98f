//! A commit of several workspaces, or of several sandboxes of one plan, killed: all of them are old, or all of them are new.

use std::fs;
use std::path::{Path, PathBuf};

use sandboxer_testkit::faults::{Cli, Point, Trace, sample};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::{full, skip};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["app", "conf", "data"];

/// A sandbox over three directories, each with a few pending changes.
struct Several {
    cli: Cli,
    id: String,
    originals: Vec<PathBuf>,
    old: Vec<Manifest>,
    new: Vec<Manifest>,
    _dir: TempDir,
}

impl Several {
    fn new() -> Self {
        let dir = TempDir::with_prefix_in("sandboxer-several-", sandboxer_testkit::in_memory()).unwrap();
        let originals: Vec<PathBuf> = NAMES.iter().map(|name| dir.path().join(name)).collect();
        originals.iter().for_each(|original| fill(original));
        let cli = Cli::new(&dir.path().join("home"));
        let locations: Vec<&str> = originals.iter().map(|o| o.to_str().unwrap()).collect();
        let made = cli.json(&[&["create", "--strategy", "filesystem_copy"], &locations[..]].concat());
        let id = made["sandbox_id"].as_str().unwrap().to_owned();
        let of =
            |name: &str| made["workspaces"].as_array().unwrap().iter().find(|w| w["name"] == name).unwrap();
        let trees = NAMES.map(|name| PathBuf::from(of(name)["sandbox_path"].as_str().unwrap()));
        trees.iter().for_each(|tree| change(tree));
        let capture = |paths: &[PathBuf]| paths.iter().map(|p| Manifest::capture(p)).collect();
        Self { old: capture(&originals), new: capture(&trees), cli, id, originals, _dir: dir }
    }

    fn arguments(&self) -> [&str; 2] {
        ["commit", &self.id]
    }

    /// Whether everything is new; a panic if it is neither all old nor all new.
    #[track_caller]
    fn is_new(&self, context: &str) -> bool {
        is_new(&self.originals, &self.old, &self.new, context)
    }
}

fn fill(original: &Path) {
    fs::create_dir(original).unwrap();
    for i in 0..4 {
        fs::write(original.join(format!("{i}.txt")), format!("old {i}\n")).unwrap();
    }
}

fn change(tree: &Path) {
    fs::write(tree.join("0.txt"), "new 0\n").unwrap();
    fs::write(tree.join("added.txt"), "new\n").unwrap();
    fs::remove_file(tree.join("1.txt")).unwrap();
    fs::rename(tree.join("2.txt"), tree.join("moved.txt")).unwrap();
}

/// Whether everything is new; a panic if it is neither all old nor all new.
#[track_caller]
fn is_new(originals: &[PathBuf], old: &[Manifest], new: &[Manifest], context: &str) -> bool {
    let now: Vec<Manifest> = originals.iter().map(|o| Manifest::capture(o)).collect();
    let new: Vec<bool> = new.iter().zip(&now).map(|(new, now)| new.same(now, Facets::WRITTEN)).collect();
    let old: Vec<bool> = old.iter().zip(&now).map(|(old, now)| old.same(now, Facets::UNTOUCHED)).collect();
    let (all_new, all_old) = (new.iter().all(|n| *n), old.iter().all(|o| *o));
    assert!(all_new || all_old, "{context}: torn: new {new:?}, old {old:?}");
    all_new
}

#[test]
fn a_killed_commit_of_several_is_all_or_nothing() {
    if let Some(reason) = Trace::unavailable() {
        return skip(&reason);
    }
    let first = Several::new();
    let points = Trace::new(&first.cli).on_one_processor().points(&first.arguments());
    assert!(first.is_new("an undisturbed commit"));
    let changing: Vec<Point> = points.into_iter().filter(|p| full() || p.changes).collect();
    let mut seen = [0, 0];
    for point in sample(&changing, 2) {
        let several = Several::new();
        Trace::new(&several.cli).on_one_processor().kill(&point, &several.arguments());
        let context = format!("a commit of several killed at {point:?}");
        several.cli.ok(&["list"]);
        let is_new = several.is_new(&context);
        seen[usize::from(is_new)] += 1;
        let pending = several.cli.code(&["diff", "--exit-code", &several.id]);
        assert_eq!(pending, i32::from(!is_new), "{context}: diff does not agree");
        several.cli.ok(&several.arguments());
        assert!(several.is_new(&context), "{context}: the repeated commit did nothing");
        several.cli.ok(&["destroy", &several.id]);
    }
    println!("old {}, new {}", seen[0], seen[1]);
    assert!(seen.iter().all(|count| *count > 0), "a sweep over a whole commit sees both outcomes");
}

/// Two sandboxes of one plan, each over a directory with a few pending changes.
struct Plan {
    cli: Cli,
    originals: Vec<PathBuf>,
    old: Vec<Manifest>,
    new: Vec<Manifest>,
    _dir: TempDir,
}

const COMMIT_PLAN: [&str; 3] = ["commit", "--plan", "work"];

impl Plan {
    fn new() -> Self {
        let dir = TempDir::with_prefix_in("sandboxer-plan-", sandboxer_testkit::in_memory()).unwrap();
        let cli = Cli::new(&dir.path().join("home"));
        let originals: Vec<PathBuf> = NAMES[..2].iter().map(|name| dir.path().join(name)).collect();
        let trees: Vec<PathBuf> = originals.iter().map(|original| sandbox_of_plan(&cli, original)).collect();
        let capture = |paths: &[PathBuf]| paths.iter().map(|p| Manifest::capture(p)).collect();
        Self { old: capture(&originals), new: capture(&trees), cli, originals, _dir: dir }
    }

    /// Whether everything is new; a panic if it is neither all old nor all new.
    #[track_caller]
    fn is_new(&self, context: &str) -> bool {
        is_new(&self.originals, &self.old, &self.new, context)
    }
}

fn sandbox_of_plan(cli: &Cli, original: &Path) -> PathBuf {
    fill(original);
    let location = original.to_str().unwrap();
    let made = cli.json(&["create", "--strategy", "filesystem_copy", "--plan", "work", location]);
    let tree = PathBuf::from(made["sandbox_path"].as_str().unwrap());
    change(&tree);
    tree
}

#[test]
fn a_killed_commit_of_a_plan_is_all_or_nothing() {
    if let Some(reason) = Trace::unavailable() {
        return skip(&reason);
    }
    let first = Plan::new();
    let points = Trace::new(&first.cli).on_one_processor().points(&COMMIT_PLAN);
    assert!(first.is_new("an undisturbed commit"));
    let changing: Vec<Point> = points.into_iter().filter(|p| full() || p.changes).collect();
    let mut seen = [0, 0];
    for point in sample(&changing, 2) {
        let plan = Plan::new();
        Trace::new(&plan.cli).on_one_processor().kill(&point, &COMMIT_PLAN);
        let context = format!("a commit of a plan killed at {point:?}");
        // Any command puts right what was left, in all sandboxes.
        plan.cli.ok(&["list"]);
        let is_new = plan.is_new(&context);
        seen[usize::from(is_new)] += 1;
        let pending = plan.cli.code(&["diff", "--exit-code", "--plan", "work"]);
        assert_eq!(pending, i32::from(!is_new), "{context}: diff does not agree");
        plan.cli.ok(&COMMIT_PLAN);
        assert!(plan.is_new(&context), "{context}: the repeated commit did nothing");
        NAMES[..2].iter().for_each(|name| drop(plan.cli.ok(&["destroy", name])));
    }
    println!("old {}, new {}", seen[0], seen[1]);
    assert!(seen.iter().all(|count| *count > 0), "a sweep over a whole commit sees both outcomes");
}

/// A conflict in one workspace keeps all of them as they were.
#[test]
fn a_conflict_in_one_refuses_all() {
    let several = Several::new();
    fs::write(several.originals[2].join("0.txt"), "by hand\n").unwrap();
    let before: Vec<Manifest> = several.originals.iter().map(|o| Manifest::capture(o)).collect();
    assert_eq!(several.cli.code(&several.arguments()), 3);
    for (original, before) in several.originals.iter().zip(&before) {
        before.assert_same(&Manifest::capture(original), Facets::UNTOUCHED, "a refused commit of several");
    }
    several.cli.ok(&["commit", &format!("{}:app", several.id)]);
    assert!(several.new[0].same(&Manifest::capture(&several.originals[0]), Facets::WRITTEN));
}
