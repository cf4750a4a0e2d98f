//! `sandbox strategies`: what is listed, what a check finds, and what it leaves behind (nothing).

use std::fs;
use std::path::{Path, PathBuf};

use sandboxer_testkit::git::GitRepo;
use serde_json::{Value, json};

use crate::common::{Ran, World};

/// A strategy that is honest but for what a test puts on top of it.
const LIAR: &str = "\
import os

from minimal import MinimalStrategy
from sandboxer_plugin import Capabilities, CommitResult, RollbackResult, SandboxRef, trees


class Honest(MinimalStrategy):
    \"\"\"Says the truth.\"\"\"


class Boasts(MinimalStrategy):
    capabilities = Capabilities(checkpoints=True, file_tree=True, looks_through=True, refreshes=True)


class ClaimsEverything(MinimalStrategy):
    capabilities = Capabilities(
        checkpoints=True, file_tree=True, faithful=True, undo=True, keeps_base=True, select_hunks=True, parts=True
    )

    def commit(self, ref, request):
        return super().commit(ref)


class RollsBackNothing(MinimalStrategy):
    def rollback(self, ref):
        return RollbackResult(restored_files=1)


class CommitsNothing(MinimalStrategy):
    def commit(self, ref):
        return CommitResult(entries=[])


class DiesInDiff(MinimalStrategy):
    def diff(self, ref):
        import os, sys
        print('about to \\x1b[31mdie', file=sys.stderr, flush=True)
        os._exit(7)


class Hangs(MinimalStrategy):
    def rollback(self, ref):
        import time
        time.sleep(600)


class Box(MinimalStrategy):
    \"\"\"What is at a URL, kept in a directory that only this class knows.\"\"\"

    capabilities = Capabilities(checkpoints=True, resource_types=['box'])

    def create(self, plan_id, resource):
        root, base, tree = os.environ['BOX'], *(os.path.join(resource.scratch, name) for name in ('base', 'tree'))
        trees.mirror(root, base)
        trees.mirror(base, tree)
        return SandboxRef(metadata={'path': tree, 'base': root})


class BoxOfFiles(Box):
    capabilities = Capabilities(checkpoints=True, file_tree=True, resource_types=['box'])


class Half:
    def create(self, plan_id, resource): ...
    def read(self, ref, path): ...
    def write(self, ref, path): ...
";

struct Strategies {
    world: World,
}

impl Strategies {
    /// A world whose configuration declares `mine`, made of `keys`; the modules are beside the configuration.
    fn with(keys: &str) -> Self {
        let world = World::new();
        let minimal =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/strategies/minimal/minimal.py");
        world.file("config/strategies/minimal.py", fs::read(minimal).unwrap());
        world.file("config/strategies/liar.py", LIAR);
        let keys: String = keys.lines().map(|line| format!("      {line}\n")).collect();
        let text = format!("sandbox:\n  custom_strategies:\n    mine:\n{keys}");
        world.file("config/config.yaml", text);
        Self { world }
    }

    /// The class of that name in the module of liars.
    fn class(name: &str) -> Self {
        Self::with(&format!("module: liar:{name}"))
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.world.command(arguments);
        fs::create_dir_all(self.temporary()).unwrap();
        command
            .env("SANDBOXER_CONFIG", self.world.path("config/config.yaml"))
            .env("TMPDIR", self.temporary());
        Ran::of(command.output().unwrap())
    }

    fn temporary(&self) -> PathBuf {
        self.world.path("tmp")
    }

    /// Checks `name`, and that nothing is left of the check.
    fn check(&self, name: &str) -> Ran {
        self.checked(&["strategies", "check", name])
    }

    fn checked(&self, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments);
        let left: Vec<_> = fs::read_dir(self.temporary()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert!(left.is_empty(), "left over: {left:?}\n{}", ran.stdout);
        for used in ["state", "log", "python"].map(|part| self.world.path("home/plugins").join(part)) {
            assert!(!used.exists(), "the state directory of the user was used: {}", used.display());
        }
        ran
    }

    /// The rows of a check that failed, with the document.
    fn failures(&self, name: &str) -> (Vec<String>, Value) {
        let ran = self.checked(&["strategies", "check", name, "--json"]);
        assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        let steps = document["steps"].as_array().unwrap().iter().filter(|step| step["outcome"] == "failed");
        (steps.map(|step| step["name"].as_str().unwrap().to_owned()).collect(), document)
    }

    /// What a listing says of the last check, which starts nothing.
    fn last_check(&self) -> Value {
        let ran = self.run(&["strategies", "list", "--json"]);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        let all = document["strategies"].as_array().unwrap();
        all.iter().find(|listed| listed["name"] == "mine").unwrap()["check"].clone()
    }

    /// What an error says, on one line.
    fn error(&self, arguments: &[&str], code: i32) -> String {
        let ran = self.checked(arguments);
        assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
        ran.stderr
    }
}

#[test]
fn help_of_every_part() {
    let world = World::new();
    for part in ["check", "list", "log"] {
        insta::assert_snapshot!(format!("help_{part}"), world.ok(&["strategies", part, "--help"]));
    }
}

#[test]
fn a_declared_strategy_is_listed_and_not_started() {
    let strategies = Strategies::with("module: no_such_module:Class");
    let ran = strategies.run(&["strategies"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let row = ran.stdout.lines().find(|line| line.starts_with("mine ")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[1..6], ["-", "-", "not", "checked", "no_such_module:Class"], "{row}");
    assert!(row.ends_with("not started yet; `sandbox strategies check mine` tries it"), "{row}");
    let document: Value = serde_json::from_str(&strategies.run(&["strategies", "--json"]).stdout).unwrap();
    let all = document["strategies"].as_array().unwrap();
    let of = |name: &str| all.iter().find(|s| s["name"] == name).unwrap();
    assert_eq!((&of("mine")["capabilities"], &of("mine")["declared"]), (&Value::Null, &Value::Bool(true)));
    assert_eq!((&of("none")["declared"], &of("none")["check"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(of("mine")["check"], json!({"status": "not_checked"}));
    assert_eq!(of("none")["capabilities"]["isolates"], false);
    assert!(!strategies.world.path("home").exists(), "something was started");
}

#[test]
fn every_built_in_passes() {
    let strategies = Strategies::with("module: builtin:filesystem_copy");
    for name in ["filesystem_copy", "none", "overlay", "git_worktree", "copy_on_write", "mine"] {
        let ran = strategies.check(name);
        if ran.code == 6 {
            sandboxer_testkit::skip(&format!("{name} does not work here: {}", ran.stderr.trim()));
            continue;
        }
        assert_eq!(ran.code, 0, "{name}\n{}{}", ran.stdout, ran.stderr);
        let last = ran.stdout.lines().last().unwrap();
        assert!(last.starts_with(&format!("{name} does what ")), "{last}");
        assert_eq!(last.contains(" it says: "), !last.contains("declared and not tried: "), "{last}");
    }
}

#[test]
fn the_example_passes() {
    let strategies = Strategies::with("module: minimal\nclass: MinimalStrategy");
    let ran = strategies.check("mine");
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("not tried"), "{}", ran.stdout);
}

#[test]
fn a_report_in_json() {
    let strategies = Strategies::class("Honest");
    let ran = strategies.checked(&["strategies", "check", "mine", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let keys: Vec<&String> = document.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["capabilities", "declared_untried", "failed", "origin", "passed", "steps", "strategy"]);
    assert_eq!((&document["strategy"], &document["origin"]), (&"mine".into(), &"liar:Honest".into()));
    assert_eq!(document["failed"], 0);
    assert_eq!(document["declared_untried"], Value::Array(Vec::new()));
    assert_eq!(document["capabilities"]["checkpoints"], true);
    let steps = document["steps"].as_array().unwrap();
    let step: Vec<&String> = steps[0].as_object().unwrap().keys().collect();
    assert_eq!(step, ["detail", "ms", "name", "outcome"]);
    let passed = steps.iter().filter(|step| step["outcome"] == "ok").count();
    assert_eq!(document["passed"], passed);
    assert!(steps.iter().any(|step| step["name"] == "two_phase" && step["outcome"] == "not_offered"));
}

#[test]
fn what_is_claimed_and_was_not_tried_is_not_vouched_for() {
    let ran = Strategies::class("Boasts").check("mine");
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let last = ran.stdout.lines().last().unwrap();
    assert!(last.starts_with("mine does what was tried: "), "{last}");
    assert!(last.ends_with("declared and not tried: looks_through, refreshes"), "{last}");
}

#[test]
fn claims_that_nothing_stands_behind_are_found_out() {
    let (failed, document) = Strategies::class("ClaimsEverything").failures("mine");
    assert_eq!(failed, ["faithful", "undo", "parts", "select_hunks", "keeps_base"], "{document}");
    assert_eq!(document["declared_untried"], Value::Array(Vec::new()));
}

#[test]
fn a_strategy_that_does_nothing_and_says_otherwise_is_found_out() {
    assert_eq!(Strategies::class("RollsBackNothing").failures("mine").0, ["rollback"]);
    assert_eq!(Strategies::class("CommitsNothing").failures("mine").0, ["commit"]);
    let ran = Strategies::class("RollsBackNothing").check("mine");
    let row = ran.stdout.lines().find(|line| line.starts_with("rollback ")).unwrap();
    assert!(row.contains("FAILED") && row.contains("expected \"there before the check\\n\""), "{row}");
    assert!(ran.stdout.contains("mine does not do what it says: 1 step failed"), "{}", ran.stdout);
}

#[test]
fn a_plugin_that_dies_is_reported_with_its_last_words() {
    let strategies = Strategies::class("DiesInDiff");
    let (failed, document) = strategies.failures("mine");
    // A commit asks for the difference first.
    assert_eq!(failed, ["diff", "commit"]);
    assert!(
        document["log"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains("about to"))
    );
    let ran = strategies.check("mine");
    assert!(ran.stdout.contains("about to \\x1b[31mdie"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\x1b'), "{}", ran.stdout);
}

#[test]
fn a_plugin_that_hangs_is_held_to_its_deadline() {
    let (failed, document) = Strategies::with("module: liar:Hangs\ntimeout: 10s").failures("mine");
    assert_eq!(failed, ["rollback"]);
    assert!(document["steps"].to_string().contains("got no answer within 10s"), "{document}");
}

/// A strategy of something at a URL, and where that is kept.
fn boxed(class: &str) -> (Strategies, PathBuf) {
    let strategies = Strategies::with("module: liar:Box");
    let kept = strategies.world.path("box");
    fs::create_dir(&kept).unwrap();
    let keys = format!("module: liar:{class}, env: {{BOX: {}}}", kept.display());
    let text = format!("sandbox:\n  custom_strategies:\n    mine: {{{keys}}}\n");
    strategies.world.file("config/config.yaml", text);
    let detect = "detect: {kind: url, schemes: [box]}";
    let text = format!(
        "name: box\nsummary: A box\nhandler: generic\n{detect}\ndefault_strategy: mine\nstrategies: [mine]\n"
    );
    strategies.world.file("config/resource-types/box.yaml", text);
    (strategies, kept)
}

#[test]
fn what_is_at_a_url_is_looked_at_through_the_strategy() {
    let on = ["strategies", "check", "mine", "--on", "box://area"];
    for (class, outcome) in [("Box", "not offered"), ("BoxOfFiles", "ok")] {
        let (strategies, kept) = boxed(class);
        let told = strategies.error(&on, 5);
        assert!(told.contains("the check commits to box://area"), "{told}");
        let ran = strategies.checked(&[&on[..], &["--yes"]].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        for (step, outcome) in [("seed", "ok"), ("untouched", "ok"), ("conflict", "ok"), ("remove", outcome)]
        {
            let row = ran.stdout.lines().find(|line| line.starts_with(&format!("{step} "))).unwrap();
            assert!(row[step.len()..].trim_start().starts_with(outcome), "{row}");
        }
        let left = names(&kept);
        match class {
            "Box" => assert!(left[0].to_str().unwrap().starts_with("sandboxer-check-"), "{left:?}"),
            _ => assert!(left.is_empty(), "{left:?}"),
        }
    }
}

#[test]
fn everything_that_is_missing_is_one_error() {
    let told = Strategies::class("Half").error(&["strategies", "check", "mine"], 1);
    for method in ["write", "diff", "commit", "rollback", "checkpoint", "restore_checkpoint", "cleanup"] {
        assert!(told.contains(method), "{method} is not named:\n{told}");
    }
    assert_eq!(told.lines().filter(|line| line.starts_with("error:")).count(), 1, "{told}");
}

#[test]
fn an_invalid_strategy_is_an_error_with_typed_problems() {
    let strategies = Strategies::class("Half");
    let ran = strategies.checked(&["strategies", "check", "mine", "--json"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let error: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "plugin", "{error}");
    let problems = &error["error"]["problems"];
    let (takes, called_with) = (["ref", "path"], ["ref", "path", "content"]);
    let write =
        json!({"problem": "wrong_arguments", "method": "write", "takes": takes, "called_with": called_with});
    assert_eq!(problems[0], write);
    assert_eq!(problems[1], json!({"problem": "missing_method", "method": "diff"}));
    assert_eq!(problems.as_array().unwrap().len(), 7);
    assert_eq!(strategies.last_check(), json!({"status": "broken", "problems": problems}));
    let row = strategies.run(&["strategies"]).stdout;
    let row = row.lines().find(|line| line.starts_with("mine ")).unwrap();
    assert!(row.contains(" broken ") && row.contains("`diff` is missing; `commit` is missing"), "{row}");
}

#[test]
fn the_last_check_is_listed_until_the_module_changes() {
    let strategies = Strategies::class("RollsBackNothing");
    strategies.failures("mine");
    let broken = strategies.last_check();
    let step = &broken["problems"][0];
    assert_eq!((&step["problem"], &step["step"]), (&"failed_step".into(), &"rollback".into()), "{broken}");
    // The methods are there; what the full check found is not forgotten.
    let report = strategies.run(&["doctor", "--json"]).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let expected = json!([{"strategy": "mine", "origin": "liar:RollsBackNothing", "check": broken}]);
    assert_eq!(report["custom_strategies"], expected);
    assert_eq!(strategies.last_check(), broken);
    strategies.world.file("config/strategies/liar.py", format!("{LIAR}\n"));
    assert_eq!(strategies.last_check(), json!({"status": "not_checked"}));
}

#[test]
fn a_strategy_that_is_broken_does_not_make_doctor_fail() {
    let strategies = Strategies::class("Half");
    let healthy = Strategies::with("module: builtin:filesystem_copy").run(&["doctor"]);
    let ran = strategies.run(&["doctor"]);
    assert_eq!(ran.code, healthy.code, "{}{}", ran.stdout, ran.stderr);
    let line = ran.stdout.lines().find(|line| line.starts_with("no  mine ")).unwrap();
    assert!(line.contains("liar:Half: `write` takes (ref, path)"), "{line}");
}

#[test]
fn what_cannot_be_started_says_why() {
    let cases = [
        ("module: liar:NoSuchClass", "NoSuchClass"),
        ("module: no_such_module:Class", "no_such_module"),
        ("module: broken:Class", "broken.py"),
        ("module: liar:Honest\npython: /no/such/python", "/no/such/python"),
        ("module: exec:/no/such/program", "/no/such/program"),
    ];
    for (keys, named) in cases {
        let strategies = Strategies::with(keys);
        strategies.world.file("config/strategies/broken.py", "def broken(:\n");
        let told = strategies.error(&["strategies", "check", "mine"], 1);
        assert!(told.starts_with("error: plugin mine: ") && told.contains(named), "{keys}\n{told}");
        assert!(!told.contains("is in /"), "names a log that is gone:\n{told}");
        assert_eq!(strategies.run(&["strategies"]).code, 0);
    }
    let told = Strategies::class("Honest").error(&["strategies", "check", "mnie"], 4);
    assert!(told.contains("did you mean mine?"), "{told}");
}

#[test]
fn what_takes_other_types_needs_a_resource() {
    let strategies = Strategies::with("module: liar:Honest\nresource_types: [bucket]");
    let told = strategies.error(&["strategies", "check", "mine"], 2);
    assert!(told.contains("bucket") && told.contains("--on LOCATION"), "{told}");
    let single = Strategies::with("module: builtin:filesystem_copy");
    let ran = single.check("mine");
    assert_eq!(ran.code, 0, "{}", ran.stdout);
}

#[test]
fn something_real_is_written_to_only_with_a_yes() {
    let strategies = Strategies::class("Honest");
    let project = strategies.world.project();
    let on = ["strategies", "check", "mine", "--on", project.to_str().unwrap()];
    let told = strategies.error(&on, 5);
    assert!(told.contains("the check commits to") && told.contains("--yes"), "{told}");
    let before = names(&project);
    for name in ["mine", "overlay"] {
        let ran =
            strategies.checked(&["strategies", "check", name, "--on", project.to_str().unwrap(), "--yes"]);
        if ran.code == 6 {
            sandboxer_testkit::skip(&format!("{name} does not work here: {}", ran.stderr.trim()));
            continue;
        }
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert!(
            ran.stdout.lines().any(|line| line.starts_with("remove ") && line.contains(" ok ")),
            "{}",
            ran.stdout
        );
    }
    assert_eq!(names(&project), before);
    assert_eq!(strategies.world.text("project/hello.txt"), "hello\nworld\n");
    assert_eq!(strategies.run(&["strategies", "check", "mine", "--yes"]).code, 2);
    let file = project.join("hello.txt");
    let told = strategies.error(&["strategies", "check", "mine", "--on", file.to_str().unwrap(), "--yes"], 2);
    assert!(told.contains("a single file"), "{told}");
    assert_eq!(
        strategies
            .error(&["strategies", "check", "mine", "--on", "/no/such/place", "--yes"], 4)
            .lines()
            .count(),
        2
    );
}

#[test]
fn a_real_checkout_is_as_it_was_but_for_its_history() {
    let strategies = Strategies::with("module: builtin:git_worktree");
    let repo = GitRepo::new(strategies.world.path("checkout"));
    repo.write("own.txt", "mine\n");
    repo.git(&["add", "--all"]);
    repo.git(&["commit", "-q", "-m", "first"]);
    let on = strategies.world.path("checkout");
    let ran = strategies.checked(&["strategies", "check", "mine", "--on", on.to_str().unwrap(), "--yes"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(repo.git(&["ls-files"]), "own.txt");
}

fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    names
}

#[test]
fn the_log_of_a_plugin_is_shown() {
    let strategies = Strategies::class("DiesInDiff");
    let none = strategies.run(&["strategies", "log", "mine"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    assert!(none.stderr.contains("has written nothing"), "{}", none.stderr);
    assert_eq!(strategies.run(&["create", "--name", "try", "-s", "mine"]).code, 0);
    assert_eq!(strategies.run(&["diff", "try"]).code, 1);
    let shown = strategies.run(&["strategies", "log", "mine"]);
    assert!(shown.stdout.contains("about to \\x1b[31mdie"), "{}", shown.stdout);
    let document: Value =
        serde_json::from_str(&strategies.run(&["strategies", "log", "mine", "--json"]).stdout).unwrap();
    assert!(document["lines"][0].as_str().unwrap().contains("about to"), "{document}");
    let refused = strategies.run(&["strategies", "log", "none"]);
    assert!(refused.code == 2 && refused.stderr.contains("built-in"), "{}", refused.stderr);
    assert_eq!(strategies.run(&["strategies", "log", "nobody"]).code, 4);
}
