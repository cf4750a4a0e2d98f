//! Custom strategies that fail, lie or die: what the command makes of it, and what is left behind.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Ran, World};

/// What a strategy is told in its environment, and is not to tell on.
const TOKEN: &str = "t0ken-5d1c7a-of-the-user";

/// How a Rust program ends that panics.
const PANICKED: i32 = 101;

/// The strategies.
const MODULE: &str = include_str!("plugins/mine.py");

struct Plugins {
    world: World,
}

impl Plugins {
    /// A world whose configuration declares `mine`, which is that class.
    fn of(class: &str) -> Self {
        Self::with(&format!("mine:{class}"), "")
    }

    /// The same for any module, and more settings.
    fn with(module: &str, settings: &str) -> Self {
        let plugins = Self { world: World::new() };
        let minimal =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/strategies/minimal/minimal.py");
        plugins.world.file("config/strategies/minimal.py", fs::read(minimal).unwrap());
        plugins.world.file("config/strategies/mine.py", MODULE);
        let env = format!("{{TOKEN: {TOKEN}, NOTES: {}}}", plugins.world.path("notes").display());
        let mine = format!("    mine: {{module: {module}, env: {env}}}\n");
        plugins.configure(&format!("{settings}sandbox:\n  custom_strategies:\n{mine}"));
        plugins
    }

    fn configure(&self, settings: &str) {
        self.world.file("config/config.yaml", settings);
    }

    /// With a sandbox `try`.
    fn with_sandbox(class: &str) -> Self {
        let plugins = Self::of(class);
        plugins.create("try");
        plugins
    }

    fn create(&self, name: &str) {
        self.ok(&["create", "--name", name, "-s", "mine"]);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.command(arguments);
        command.env("SANDBOXER_CONFIG", self.world.path("config/config.yaml"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    fn ok(&self, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "sandbox {arguments:?}\n{}{}", ran.stdout, ran.stderr);
        ran
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat()).stdout).unwrap()
    }

    /// What an error says.
    fn error(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert!(
            ran.code > 0 && ran.code != PANICKED,
            "{arguments:?}: {}\n{}{}",
            ran.code,
            ran.stdout,
            ran.stderr
        );
        ran.stderr
    }

    /// Writes `content` to the file `hello.txt` of a sandbox, past its plugin.
    fn change(&self, name: &str, content: &str) {
        fs::write(self.inside(name).join("hello.txt"), content).unwrap();
    }

    fn inside(&self, name: &str) -> PathBuf {
        PathBuf::from(self.ok(&["path", name]).stdout.trim_end())
    }

    fn original(&self) -> String {
        self.world.text("project/hello.txt")
    }

    /// How often that was noted.
    fn noted(&self, what: &str) -> usize {
        let notes = fs::read_to_string(self.world.path("notes")).unwrap_or_default();
        notes.lines().filter(|line| line.starts_with(what)).count()
    }

    /// Ends the first process of the plugin, which outlives its host for a while.
    fn end_first(&self) {
        let notes = self.world.text("notes");
        let pid = notes.lines().next().unwrap().strip_prefix("start ").unwrap().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    /// The newest operation of that kind in the log.
    fn logged(&self, kind: &str) -> Value {
        let log = self.json(&["log"]);
        let all = log["operations"].as_array().unwrap();
        all.iter().find(|operation| operation["kind"] == kind).unwrap().clone()
    }
}

#[test]
fn a_failed_cleanup_troubles_nobody_and_can_be_done_without() {
    let plugins = Plugins::with_sandbox("CannotCleanUp");
    let workspace = plugins.inside("try").parent().unwrap().to_path_buf();
    let told = plugins.error(&["destroy", "try", "--discard"]);
    assert!(told.contains("the bucket is stuck"), "{told}");
    let starts = plugins.noted("start");
    let listed = plugins.ok(&["list"]);
    assert!(listed.stdout.contains("try") && listed.stderr.is_empty(), "{}{}", listed.stdout, listed.stderr);
    assert_eq!(plugins.noted("start"), starts, "it was started for nothing");
    let told = plugins.error(&["read", "try", "hello.txt"]);
    assert!(told.contains("is half removed"), "{told}");
    let told = plugins.error(&["gc"]);
    assert!(told.contains("the bucket is stuck"), "{told}");
    let forced = plugins.json(&["destroy", "try", "--force"]);
    let left = forced["left"].as_array().unwrap();
    assert!(left.len() == 1 && left[0].as_str().unwrap().contains("the bucket is stuck"), "{forced}");
    assert_eq!(forced["state"], "destroyed");
    assert!(!workspace.exists(), "{} is left", workspace.display());
    assert!(!plugins.ok(&["list"]).stdout.contains("try"));
    plugins.ok(&["gc"]);
}

#[test]
fn force_says_what_may_be_left_and_keeps_the_original() {
    let plugins = Plugins::with_sandbox("CannotCleanUp");
    plugins.change("try", "mine\n");
    let workspace = plugins.inside("try").parent().unwrap().to_path_buf();
    let ran = plugins.ok(&["destroy", "try", "--force"]);
    assert!(!workspace.exists(), "{} is left", workspace.display());
    assert!(ran.stdout.starts_with("removed sandbox try ("), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("may be left") && ran.stderr.contains("the bucket is stuck"),
        "{}",
        ran.stderr
    );
    assert_eq!(plugins.original(), "hello\nworld\n");
    let honest = Plugins::with_sandbox("Honest");
    assert_eq!(honest.json(&["destroy", "try", "--force"])["left"], Value::Array(Vec::new()));
}

#[test]
fn a_sandbox_whose_strategy_is_not_declared_any_more_can_be_removed() {
    let plugins = Plugins::with_sandbox("Honest");
    let workspace = plugins.inside("try").parent().unwrap().to_path_buf();
    plugins.configure("sandbox: {}\n");
    plugins.error(&["destroy", "try", "--discard"]);
    let listed = plugins.ok(&["list"]);
    assert!(listed.stdout.contains("try") && listed.stderr.is_empty(), "{}{}", listed.stdout, listed.stderr);
    let ran = plugins.ok(&["destroy", "try", "--force"]);
    assert!(ran.stderr.contains("may be left") && ran.stderr.contains("mine"), "{}", ran.stderr);
    assert!(!workspace.exists() && !plugins.ok(&["list"]).stdout.contains("try"));
}

#[test]
fn of_two_commits_at_once_one_is_told_of_the_other() {
    let plugins = Plugins::of("Slow");
    let names = ["one", "two"];
    for name in names {
        plugins.create(name);
        plugins.change(name, name);
    }
    let commit = |name: &str| {
        let mut command = plugins.command(&["--json", "commit", name]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let begun = names.map(commit);
    let ran = begun.map(|child| Ran::of(child.wait_with_output().unwrap()));
    let winners: Vec<_> = (0..2).filter(|n| ran[*n].code == 0).collect();
    assert_eq!(winners.len(), 1, "{}{}", ran[0].stderr, ran[1].stderr);
    assert_eq!(plugins.original(), names[winners[0]]);
    let error: Value = serde_json::from_str(&ran[1 - winners[0]].stderr).unwrap();
    let kind = error["error"]["kind"].as_str().unwrap();
    assert!(["conflict", "busy"].contains(&kind), "{error}");
}

#[test]
fn a_path_that_came_to_lead_out_is_not_worked_in() {
    let plugins = Plugins::with_sandbox("Swaps");
    let tree = plugins.inside("try");
    plugins.ok(&["diff", "try"]);
    assert!(tree.is_symlink(), "it was meant to be swapped");
    for command in [&["path", "try"][..], &["exec", "try", "--", "sh", "-c", "echo x > hello.txt"]] {
        let told = plugins.error(command);
        assert!(told.contains("leads to") && told.contains("not in the sandbox"), "{command:?}: {told}");
    }
    assert_eq!(plugins.original(), "hello\nworld\n");
}

#[test]
fn what_a_strategy_was_told_in_confidence_is_told_nobody() {
    let plugins = Plugins::of("Tells");
    let mut shown = vec![plugins.ok(&["create", "--name", "try", "-s", "mine"])];
    shown.push(plugins.ok(&["get", "try"]));
    plugins.change("try", "mine\n");
    for arguments in [&["rollback", "try"][..], &["get", "try", "--json"]] {
        shown.push(plugins.ok(arguments));
    }
    plugins.change("try", "mine\n");
    for arguments in [&["commit", "try"][..], &["log"], &["log", "--json"], &["list", "--json"]] {
        shown.push(plugins.ok(arguments));
    }
    let all: String = shown.iter().map(|ran| ran.stdout.clone() + &ran.stderr).collect();
    for said in ["no clones with", "brought back with", "written with"] {
        assert!(all.contains(said), "{said} is not told at all:\n{all}");
    }
    assert!(!all.contains(TOKEN), "{all}");
    let database = plugins.world.path("home");
    let files = fs::read_dir(database).unwrap().flatten().map(|entry| entry.path());
    let kept: Vec<_> = files.filter(|path| path.to_string_lossy().contains("state.db")).collect();
    assert!(!kept.is_empty(), "there is no database to look into");
    for file in kept {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes()), "{}", file.display());
    }
}

#[test]
fn a_commit_that_says_it_did_nothing_is_an_error() {
    let plugins = Plugins::with_sandbox("CommitsNothing");
    plugins.change("try", "mine\n");
    let told = plugins.error(&["commit", "try"]);
    assert!(told.contains("committed nothing"), "{told}");
    assert_eq!(plugins.logged("commit")["state"], "failed");
    assert!(plugins.ok(&["diff", "try"]).stdout.contains("hello.txt"));
}

#[test]
fn of_a_commit_that_dies_nobody_says_that_it_did_nothing() {
    let plugins = Plugins::with_sandbox("DiesInCommit");
    plugins.change("try", "mine\n");
    let told = plugins.error(&["commit", "try"]);
    assert!(told.contains("what it had changed by then is not known"), "{told}");
    assert_eq!(plugins.original(), "mine\n", "the test is about nothing");
    let logged = plugins.logged("commit");
    assert_eq!(logged["state"], "failed", "{logged}");
}

#[test]
fn what_has_to_be_looked_at_is_flagged_and_no_power_is_committed() {
    for class in ["Honest", "KeepsModes"] {
        let plugins = Plugins::with_sandbox(class);
        let tree = plugins.inside("try");
        fs::create_dir_all(tree.join(".github/workflows")).unwrap();
        fs::write(tree.join(".github/workflows/x.yml"), "on: push\n").unwrap();
        symlink("/etc/passwd", tree.join("leaves")).unwrap();
        fs::write(tree.join("powerful"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(tree.join("powerful"), Permissions::from_mode(0o4755)).unwrap();
        let refused = plugins.run(&["commit", "try"]);
        assert_eq!(refused.code, 5, "{class}: {}{}", refused.stdout, refused.stderr);
        for flag in ["runs by itself", "link leaves the tree", "setuid"] {
            assert!(refused.stderr.contains(flag), "{class}: {flag}: {}", refused.stderr);
        }
        assert!(!plugins.world.path("project/powerful").exists(), "{class}");
        let done = plugins.ok(&["commit", "try", "--accept-flags"]);
        assert!((done.stdout + &done.stderr).contains("setuid bit removed"), "{class}");
        let mode = fs::metadata(plugins.world.path("project/powerful")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{class}");
    }
}

#[test]
fn a_commit_of_other_than_was_reviewed_is_told() {
    let plugins = Plugins::with_sandbox("CommitsMore");
    plugins.change("try", "mine\n");
    let told = plugins.error(&["commit", "try", "--if", "paths=hello.txt"]);
    assert!(told.contains("committed other than was reviewed (secret"), "{told}");
    assert!(told.contains("look at the original"), "{told}");
    assert_eq!(plugins.logged("commit")["state"], "failed");
}

#[test]
fn an_odd_answer_does_not_deny_a_commit_that_happened() {
    let plugins = Plugins::with_sandbox("SaysMore");
    plugins.change("try", "mine\n");
    plugins.ok(&["commit", "try"]);
    assert_eq!(
        (plugins.original(), plugins.logged("commit")["state"].clone()),
        ("mine\n".into(), "done".into())
    );
    let plugins = Plugins::with_sandbox("SaysNonsense");
    plugins.change("try", "mine\n");
    let told = plugins.error(&["commit", "try"]);
    assert!(told.contains("must be a list") && told.contains("look at the original"), "{told}");
    assert_eq!(plugins.original(), "mine\n", "the test is about nothing");
}

#[test]
fn a_broken_entry_troubles_whoever_asks_for_it_and_nobody_else() {
    let plugins = Plugins::with_sandbox("Honest");
    let broken = "    typo: {module: \"builtin:filesystem_cpy\"}\n    again: {module: \"builtin:mine\"}\n    none: {module: \"a:B\"}\n    vague: {module: a}\n    odd/name: {module: \"a:B\"}\n";
    let present = plugins.world.text("config/config.yaml");
    plugins.configure(&(present + broken));
    let starts = plugins.noted("start");
    assert!(plugins.ok(&["list"]).stdout.contains("try"));
    assert_eq!(plugins.noted("start"), starts, "it was started for nothing");
    for (name, words) in [
        ("typo", "filesystem_copy"),
        ("again", "no built-in strategy"),
        ("none", "registered already"),
        ("vague", "needs the class"),
        ("odd/name", "no name for a custom strategy"),
    ] {
        assert!(plugins.error(&["strategies", "check", name]).contains(words), "{name}");
        let told = plugins.error(&["create", "-s", name]);
        assert!(
            told.contains(words) && told.contains(&format!("custom_strategies.{name}")),
            "{name}: {told}"
        );
    }
    plugins.create("another");
}

/// A directory of that name where the user is has nothing to do with the interpreter.
#[test]
fn a_directory_named_like_the_interpreter_is_in_nobodys_way() {
    let plugins = Plugins::of("Honest");
    fs::create_dir(plugins.world.path("project/python3")).unwrap();
    plugins.create("try");
}

#[test]
fn the_digest_is_not_for_the_strategy_to_say() {
    for (class, claim, code) in [("TwoPhases", Some("sha256:mine"), 0), ("SaysOthers", None, 5)] {
        let plugins = Plugins::with_sandbox(class);
        plugins.change("try", "mine\n");
        let reviewed = plugins.json(&["diff", "try"])["digest"].as_str().unwrap().to_owned();
        plugins.world.file("notes.digest", claim.unwrap_or(&reviewed));
        let ran = plugins.run(&["commit", "try", "--digest", &reviewed]);
        assert_eq!(ran.code, code, "{class}: {}{}", ran.stdout, ran.stderr);
        assert!(plugins.noted("named a digest") > 0, "the test is about nothing");
        assert!(!(ran.stdout + &ran.stderr).contains("sha256:mine"));
        assert_eq!(plugins.original() == "mine\n", code == 0, "{class}");
    }
}

/// Waits until something is so; a test that fails gets to the end of it.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_create_that_was_killed_is_cleaned_up_by_its_plugin() {
    let plugins = Plugins::of("SlowToCreate");
    let mut create = plugins.command(&["create", "--name", "try", "-s", "mine"]);
    let mut create = create.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("it makes something", || plugins.noted("creating") == 1);
    create.kill().unwrap();
    create.wait().unwrap();
    plugins.end_first();
    plugins.ok(&["gc"]);
    assert_eq!(plugins.noted("cleanup"), 1);
    assert!(!plugins.world.path("notes.bucket").exists());
    assert!(!plugins.ok(&["list"]).stdout.contains("try"));
    let scratch = fs::read_dir(plugins.world.path("home/scratch")).into_iter().flatten().flatten();
    assert_eq!(scratch.map(|entry| entry.file_name()).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn strategies_are_found_whatever_is_around_python() {
    let safe = Plugins::of("Honest");
    safe.world.file("config/strategies/select.py", "raise RuntimeError('not the one that was meant')\n");
    let beside = Plugins::with("dev:Mine", "");
    beside.world.file("project/lib/dev.py", "from minimal import MinimalStrategy as Mine\n");
    for (plugins, variable, value) in [(safe, "PYTHONSAFEPATH", "1"), (beside, "PYTHONPATH", "lib")] {
        let mut command = plugins.command(&["create", "--name", "try", "-s", "mine"]);
        let ran = Ran::of(command.env(variable, value).output().unwrap());
        assert_eq!(ran.code, 0, "{variable}: {}", ran.stderr);
    }
}

#[test]
fn a_place_that_has_no_name_in_text_is_refused() {
    let plugins = Plugins::of("Honest");
    let mut command = plugins.command(&["create", "-s", "mine"]);
    let home = plugins.world.path("").join(OsStr::from_bytes(b"home-\xff"));
    let ran = Ran::of(command.env("SANDBOXER_HOME", home).output().unwrap());
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("not UTF-8") && !ran.stderr.contains("panicked"), "{}", ran.stderr);
}

#[test]
fn what_cannot_leave_anything_out_is_refused_where_something_is_to_be() {
    let asked = Plugins::of("Honest");
    let set = Plugins::with("mine:Honest", "copy: {exclude: [hello.txt]}\n");
    for (plugins, flags) in [(asked, &["--exclude", "hello.txt"][..]), (set, &[])] {
        let told = plugins.error(&[&["create", "--name", "try", "-s", "mine"], flags].concat());
        assert!(told.contains("mine cannot leave paths out"), "{flags:?}: {told}");
        assert!(!plugins.ok(&["list"]).stdout.contains("try"));
    }
}
