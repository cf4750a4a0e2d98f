//! A manager with one strategy that does wrong, and everything that has to hold afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sandboxer::wiring::{self, Setup};
use sandboxer_core::config::{CustomStrategy, Settings};
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::{CommitRequest, RelPath};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{
    Consumer, CreateRequest, Input, Operation, SandboxManager, Target, Uncommitted,
};
use sandboxer_core::verification::join_problems;
use sandboxer_core::{Error, Result};
use sandboxer_testkit::faults::workspace_root;
use serde_json::Value;
use tempfile::TempDir;

/// The name of the strategy that does wrong.
pub const EVIL: &str = "evil";

/// Enough for a plugin that answers, also where many others run.
pub const LONG: Duration = Duration::from_secs(50);
/// For calls that nobody answers; a process has to be able to start within it.
pub const SHORT: Duration = Duration::from_secs(6);
/// How long anything may take, deadlines, a second start and a busy machine included.
const AT_MOST: Duration = Duration::from_secs(60);

/// What the methods of the contract are called in the operation log; those that only look are not in it.
pub const LOGGED: [(&str, &str); 7] = [
    ("create", "create"),
    ("write", "write"),
    ("commit", "commit"),
    ("rollback", "rollback"),
    ("checkpoint", "checkpoint"),
    ("restore_checkpoint", "restore"),
    ("cleanup", "destroy"),
];

pub struct World {
    /// Goes before the directory does.
    manager: Option<SandboxManager>,
    settings: Settings,
    pub cancel: CancelFlag,
    dir: TempDir,
}

impl World {
    /// A directory with two files, and a strategy with these options.
    pub fn new(options: Value, timeout: Duration) -> Self {
        Self::with(options, timeout, &[])
    }

    /// The same, with variables for the plugin.
    pub fn with(options: Value, timeout: Duration, env: &[(&str, &str)]) -> Self {
        let dir = TempDir::with_prefix("sandboxer-evil-").unwrap();
        let original = dir.path().join("original");
        fs::create_dir(&original).unwrap();
        fs::write(original.join("a.txt"), "first").unwrap();
        fs::write(original.join("b.txt"), "second").unwrap();
        let settings = Settings {
            custom_strategies: BTreeMap::from([(EVIL.to_owned(), strategy(options, timeout, env))]),
            ..Settings::default()
        };
        let mut world = Self { manager: None, settings, cancel: CancelFlag::default(), dir };
        world.open();
        world
    }

    /// As another start of the program would.
    pub fn open(&mut self) {
        self.manager = None;
        let cancel = self.cancel.clone();
        let setup = Setup { settings: self.settings.clone(), cancel, ..Setup::quiet(self.home()) };
        self.manager = Some(wiring::open(setup).unwrap());
    }

    /// From now on another program is the strategy.
    pub fn use_program(&mut self, program: &str) {
        if let Some(custom) = self.settings.custom_strategies.get_mut(EVIL) {
            custom.module = format!("exec:{program}");
        }
        self.open();
    }

    pub fn manager(&self) -> &SandboxManager {
        self.manager.as_ref().unwrap()
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn original(&self) -> PathBuf {
        self.dir.path().join("original")
    }

    /// What the plugin noted in its state directory, line by line.
    pub fn noted(&self, file: &str) -> Vec<String> {
        let notes =
            fs::read_to_string(self.home().join("plugins/state").join(EVIL).join(file)).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }

    /// What it wrote to standard error arrives in its own time.
    pub fn assert_log_has(&self, words: &str) {
        let has = || String::from_utf8_lossy(&self.log_bytes()).contains(words);
        wait_until(has, || format!("{words:?} is not in the log"));
    }

    /// The settings, as they are shown to programmers.
    pub fn shown(&self) -> String {
        format!("{:?}", self.settings)
    }

    pub fn log_bytes(&self) -> Vec<u8> {
        let read = |name: &str| fs::read(self.home().join("plugins/log").join(name)).unwrap_or_default();
        [read("evil.log.1"), read("evil.log")].concat()
    }

    pub fn create(&self, strategy: &str) -> Result<Target> {
        let location = self.original().to_str().unwrap().to_owned();
        let created = self.manager().get_or_create_sandbox(&CreateRequest {
            inputs: vec![Input { name: None, location, properties: BTreeMap::new() }],
            strategy: Some(strategy.to_owned()),
            no_fallback: false,
            plan: None,
            name: None,
            ttl: None,
            consumer: Consumer { actor_type: "agt".to_owned(), project: "tests".to_owned() },
            disposable: false,
            environment: None,
        })?;
        let workspaces = created.sandbox.workspaces.clone();
        Ok(Target { sandbox: created.sandbox, workspaces })
    }

    /// A sandbox with one change and one checkpoint.
    pub fn worked_in(&self) -> Target {
        let target = self.create(EVIL).unwrap();
        if self.options()["in"] != "checkpoint" {
            self.manager().checkpoint(&target, Some("one")).unwrap();
        }
        fs::write(self.tree(&target).join("a.txt"), "changed").unwrap();
        target
    }

    pub fn tree(&self, target: &Target) -> PathBuf {
        target.workspaces[0].sandbox_ref.sandbox_path().unwrap()
    }

    fn options(&self) -> Value {
        serde_json::to_value(&self.settings.custom_strategies[EVIL].options).unwrap()
    }

    /// Ends the plugin's process behind the manager's back.
    pub fn kill_plugin(&self) {
        let pid = self.noted("pids").pop().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    /// Calls one of the nine methods, as the manager does it.
    pub fn call(&self, method: &str, target: Option<&Target>) -> Result<()> {
        let manager = self.manager();
        let Some(target) = target else { return self.create(EVIL).map(drop) };
        match method {
            "create" => self.create(EVIL).map(drop),
            "read" => manager.read(target, &path("a.txt")).map(drop),
            "write" => manager.write(target, &path("a.txt"), b"written").map(drop),
            "diff" => manager.diff(target, &[]).map(drop),
            "commit" => manager.commit(target, &CommitRequest::default(), &CommitRules::default()).map(drop),
            "rollback" => manager.rollback(target, &[]).map(drop),
            "checkpoint" => manager.checkpoint(target, Some("two")).map(drop),
            "restore_checkpoint" => manager.restore(target, "one").map(drop),
            "cleanup" => manager.destroy(target, Uncommitted::Discard).map(drop),
            other => panic!("{other} is no method"),
        }
    }

    /// How many paths differ.
    pub fn changes(&self, target: &Target) -> usize {
        self.manager().diff(target, &[]).unwrap().workspaces[0].entries.len()
    }

    /// The last operation of that kind.
    pub fn last_logged(&self, kind: &str) -> Operation {
        let log = self.manager().log(None, 100).unwrap();
        log.into_iter()
            .find(|operation| operation.kind == kind)
            .unwrap_or_else(|| panic!("no {kind} is logged"))
    }

    /// Every workspace directory that is there.
    pub fn workspaces(&self) -> Vec<PathBuf> {
        found_below(self.dir.path(), "ws_")
    }

    /// Another strategy over the same original goes on as if nothing were the matter.
    pub fn assert_others_work(&self) {
        let other = self.create("filesystem_copy").unwrap();
        self.manager().write(&other, &path("other.txt"), b"x").unwrap();
        assert_eq!(self.changes(&other), 1);
        self.manager().destroy(&other, Uncommitted::Discard).unwrap();
    }

    /// Nothing of it is alive: no sandbox, no directory of one.
    pub fn assert_nothing_made(&self) {
        assert!(self.manager().list(false).unwrap().is_empty(), "{:?}", self.manager().list(false));
        assert_eq!(self.workspaces(), Vec::<PathBuf>::new());
    }

    /// Ends the manager; no process that the plugin noted is left.
    pub fn assert_nobody_left(mut self) {
        self.manager = None;
        let pids = [self.noted("pids"), self.noted("children")].concat();
        assert!(!pids.is_empty(), "it was never started");
        wait_until(|| pids.iter().all(|pid| is_gone(pid)), || format!("one of {pids:?} is left"));
    }
}

fn strategy(options: Value, timeout: Duration, env: &[(&str, &str)]) -> CustomStrategy {
    let script = workspace_root().join("crates/sandboxer-testkit/tests/plugins/evil.py");
    let variables = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    CustomStrategy {
        module: format!("exec:{}", script.display()),
        env: std::iter::once(("PATH".to_owned(), python_first().to_owned())).chain(variables).collect(),
        timeout: Some(timeout),
        options: serde_json::from_value(options).unwrap(),
        ..CustomStrategy::default()
    }
}

/// `PATH` with the interpreter itself before any script that looks for it: those take longer to start than it does.
fn python_first() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let found =
            Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
        let python = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
        format!("{}:{}", python.parent().unwrap().display(), std::env::var("PATH").unwrap())
    })
}

pub fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// The error is the plugin's, within the time that everything may take, and has all these words.
pub fn assert_plugin_error<T: std::fmt::Debug>(began: Instant, result: Result<T>, words: &[&str]) -> String {
    assert!(began.elapsed() < AT_MOST, "{:?} is no deadline that was kept", began.elapsed());
    let error = result.expect_err("it did wrong, and nobody noticed");
    let (plugin, reason, log) = match error.root() {
        Error::Plugin { plugin, reason, log } => (plugin, reason.clone(), log.as_deref()),
        Error::InvalidPlugin { plugin, problems, .. } => (plugin, join_problems(problems), None),
        _ => panic!("not an error of a plugin: {error:?}"),
    };
    assert_eq!(plugin, EVIL);
    for word in words {
        assert!(reason.contains(word), "{word:?} is not in {reason:?}");
    }
    assert!(log.is_none_or(|log| log.ends_with("plugins/log/evil.log")), "{log:?}");
    reason
}

/// Waits for what comes by itself.
pub fn wait_until(mut done: impl FnMut() -> bool, otherwise: impl FnOnce() -> String) {
    let deadline = Instant::now() + AT_MOST;
    while !done() {
        assert!(Instant::now() < deadline, "{}", otherwise());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Neither running nor waiting for us to take note of its end. What others have to reap is theirs.
pub fn is_gone(pid: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[0] == "Z" && fields[1] != std::process::id().to_string()
}

fn found_below(top: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(found_below(&entry.path(), prefix));
        }
    }
    found
}
