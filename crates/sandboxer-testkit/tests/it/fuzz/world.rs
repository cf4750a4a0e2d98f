//! The real tree, its sandboxes and their models, and the commands that change them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sandboxer_testkit::faults::binary;
use sandboxer_testkit::mounts::{DetachBelow, mounts_below};
use sandboxer_testkit::users::USER;
use serde_json::Value;
use tempfile::TempDir;

use super::edit::{Edit, FIRST_TREE, other_names};
use super::ground::LaidGround;
use super::kind::Kind;
use super::model::{Checked, OnConflict, SandboxModel, Versions, in_scope};
use super::ran::{Ran, entry_paths, texts};
use super::tree::{Tree, differing, read_subtree, read_tree};

pub const CONFLICT: i32 = 3;
const NOT_FOUND: i32 = 4;
pub const REFUSED: i32 = 5;

/// Recovers what was killed, as soon as no child of it holds its locks any more.
const RECOVER: &str = "for i in $(seq 100); do sandbox list >/dev/null; sandbox log -n 3 --json | grep -q '\"running\"' || break; sleep 0.05; done";

/// What ends a commit that was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    Recover,
    Abort,
}

pub struct World {
    pub kind: Kind,
    dir: TempDir,
    pub resource: PathBuf,
    pub original: Tree,
    pub versions: Versions,
    pub sandboxes: Vec<SandboxModel>,
    /// Numbers contents and checkpoints.
    pub count: u32,
    /// The commands so far.
    pub script: Vec<String>,
    programs: PathBuf,
    _mounts: DetachBelow,
}

impl World {
    /// A tree of files and a state directory on `ground`.
    pub fn new(kind: Kind, ground: &LaidGround, programs: &Path) -> Checked<Self> {
        let dir = TempDir::with_prefix_in("fuzz-", &ground.state).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if kind == Kind::OverlayAsUser {
            chown(dir.path(), Some(USER), Some(USER)).unwrap();
        }
        let name = dir.path().file_name().unwrap_or_default();
        let is_apart = ground.originals != ground.state;
        let resource = if is_apart { ground.originals.join(name) } else { dir.path().join("p") };
        let _mounts = DetachBelow(dir.path().to_path_buf());
        let (original, versions) = (Tree::new(), Versions::new());
        let mut world = Self {
            kind,
            dir,
            resource,
            original,
            versions,
            sandboxes: Vec::new(),
            count: 0,
            script: Vec::new(),
            programs: programs.to_path_buf(),
            _mounts,
        };
        world.fill()?;
        for index in 0..kind.prefixes().len() {
            let sandbox = world.create(index)?;
            world.sandboxes.push(sandbox);
        }
        Ok(world)
    }

    fn fill(&mut self) -> Checked {
        self.must("mkdir $P && cd $P && ".to_owned() + FIRST_TREE)?;
        if self.kind == Kind::Git {
            let identity = "git config user.name t && git config user.email t@example.com";
            self.must(format!("cd $P && git init -q && {identity} && git add . && git commit -qm first"))?;
        }
        self.original = read_tree(&self.resource);
        let first = self.original.iter().map(|(path, node)| (path.clone(), vec![None, Some(node.clone())]));
        self.versions = first.collect();
        Ok(())
    }

    /// The commands so far, ready to be pasted.
    pub fn script(&self) -> String {
        let user = match self.kind {
            Kind::OverlayAsUser => "# as an ordinary user\n",
            _ => "",
        };
        format!("{user}W=$(mktemp -d); P=$W/p; export SANDBOXER_HOME=$W/home\n{}", self.script.join("\n"))
    }

    fn create(&mut self, index: usize) -> Checked<SandboxModel> {
        let (name, prefix) = (format!("q{index}"), self.kind.prefixes()[index]);
        let strategy = self.kind.strategy();
        let line =
            format!("sandbox create $P/{prefix} --name {name} --strategy {strategy} --no-fallback --json");
        let made = self.must(line)?.document();
        self.script.push(format!("Q{index}=$(sandbox path {name})"));
        let mut sandbox = SandboxModel {
            name,
            id: made["sandbox_id"].as_str().unwrap_or_default().to_owned(),
            prefix,
            path: made["sandbox_path"].as_str().unwrap_or_default().into(),
            looks_through: self.kind.looks_through(),
            in_git: self.kind == Kind::Git,
            base: Tree::new(),
            pending: BTreeMap::new(),
            loose: BTreeSet::new(),
            foreign: BTreeSet::new(),
            committed: BTreeSet::new(),
            checkpoints: Vec::new(),
            commits: Vec::new(),
        };
        sandbox.base = sandbox.part_of(&self.original);
        Ok(sandbox)
    }

    /// A line of shell, to be run as the user of the sandboxes.
    pub fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("setpriv");
        if self.kind == Kind::OverlayAsUser {
            let id = USER.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh"]);
        } else {
            command = Command::new("sh");
        }
        for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("SANDBOXER_")) {
            command.env_remove(name);
        }
        let paths = format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap_or_default());
        let w = self.dir.path();
        command
            .env("W", w)
            .env("P", &self.resource)
            .env("PATH", paths)
            .env("HOME", w)
            .env("SANDBOXER_HOME", w.join("home"));
        command.env("XDG_CONFIG_HOME", w.join("config")).env("NO_COLOR", "1").env("TMPDIR", w);
        for (index, sandbox) in self.sandboxes.iter().enumerate() {
            command.env(format!("Q{index}"), &sandbox.path);
        }
        command.args(["-c", line]).current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs a line of shell.
    pub fn run(&mut self, line: impl Into<String>) -> Ran {
        let line = line.into();
        let output = self.shell(&line).output().unwrap();
        self.script.push(format!("({line})"));
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs what has to succeed.
    fn must(&mut self, line: impl Into<String>) -> Checked<Ran> {
        let line = line.into();
        let ran = self.run(line.clone());
        if ran.code == 0 { Ok(ran) } else { Err(format!("`{line}` failed with {}", ran.describe())) }
    }

    pub fn view(&self, who: usize) -> Tree {
        read_tree(&self.sandboxes[who].path)
    }

    /// Reads the original again and tells the models what has changed, by hand or by a sandbox.
    fn observe_original(&mut self, by: Option<usize>) -> Tree {
        let now = read_tree(&self.resource);
        let old = std::mem::replace(&mut self.original, now);
        let changed = differing(&old, &self.original);
        for path in &changed {
            let versions = self.versions.entry(path.clone()).or_insert_with(|| vec![None]);
            versions.push(self.original.get(path).cloned());
        }
        let others = self.sandboxes.iter_mut().enumerate().filter(|(index, _)| by != Some(*index));
        others.for_each(|(_, sandbox)| sandbox.note_foreign(&changed, by.is_none()));
        old
    }

    /// The original is what it was.
    pub fn check_original(&self, context: &str) -> Checked {
        let now = read_tree(&self.resource);
        match differing(&self.original, &now).first() {
            None => Ok(()),
            Some(path) => Err(format!(
                "{context} changed {path} in the original from {:?} to {:?}",
                self.original.get(path),
                now.get(path)
            )),
        }
    }

    /// Everything that a sandbox shows is right.
    pub fn look(&mut self, who: usize) -> Checked {
        self.script.push(format!("find $Q{who} -type f -exec cat {{}} + >/dev/null"));
        self.sandboxes[who].check_view(&self.view(who), &self.versions)
    }

    pub fn edit(&mut self, who: usize, edit: &Edit) -> Checked {
        self.count += 1;
        let root = self.sandboxes[who].path.clone();
        let Some(planned) = edit.plan(&root, self.count) else { return Ok(()) };
        let names = [planned.targets.clone(), other_names(&root, &planned.targets)].concat();
        let read = || -> Tree { names.iter().flat_map(|name| read_subtree(&root, name)).collect() };
        let before = read();
        let ran = self.run(format!("cd $Q{who} && {}", planned.line));
        if ran.code != 0 && self.sandboxes[who].loose.is_empty() {
            return Err(format!(
                "`{}` in {} failed with {}",
                planned.line,
                self.sandboxes[who].name,
                ran.describe()
            ));
        }
        self.sandboxes[who].edited(&planned.targets, &before, &read(), &self.versions)
    }

    pub fn edit_original(&mut self, edit: &Edit) -> Checked {
        self.count += 1;
        // The root of the inner sandbox stays.
        let Some(planned) = edit.plan(&self.resource, self.count) else { return Ok(()) };
        let replaces_inner = planned.targets.iter().any(|t| *t == "d" && !planned.line.starts_with("chmod"));
        if !replaces_inner {
            self.must(format!("cd $P && {}", planned.line))?;
            self.observe_original(None);
        }
        Ok(())
    }

    pub fn diff(&mut self, who: usize) -> Checked {
        let ran = self.must(format!("sandbox diff q{who} --json"))?;
        let sandbox = &self.sandboxes[who];
        sandbox.check_diff(&entry_paths(&ran.document()), &sandbox.part_of(&self.original))
    }

    pub fn commit(&mut self, who: usize, scope: &[&str], on_conflict: OnConflict) -> Checked {
        let words = format!("q{who} {} --on-conflict {}", scope.join(" "), on_conflict.word());
        let ran = self.run(format!("sandbox commit {words} --accept-flags --json"));
        let document = ran.document();
        match ran.code {
            0 => {
                let operation = document["op_id"].as_str().map(str::to_owned);
                self.accept_commit(who, scope, on_conflict, operation, Some(&entry_paths(&document)))
            }
            CONFLICT => {
                self.check_original("a commit in conflict")?;
                let explained =
                    self.sandboxes[who].check_conflicts(&texts(&document["error"]["paths"], "path"));
                let explained = explained.map_err(|wrong| format!("{wrong}: {}", ran.describe()));
                // What is selected can lack the directory that it is in. A checkout also knows what is not committed to git.
                if scope.is_empty() && self.kind != Kind::Git { explained } else { Ok(()) }
            }
            NOT_FOUND if self.selects_nothing(who, scope) => self.check_original("a commit of nothing"),
            REFUSED if !scope.is_empty() || self.replaces_inner_root(who) => {
                self.check_original("a refused commit")
            }
            _ => Err(format!("a commit of q{who} failed with {}", ran.describe())),
        }
    }

    /// Whether there is nothing to commit at one of the selected paths.
    fn selects_nothing(&self, who: usize, scope: &[&str]) -> bool {
        scope.iter().any(|path| !self.sandboxes[who].has_work_in(&[path]))
    }

    /// Whether a sandbox removes the directory that another one is made from.
    pub fn replaces_inner_root(&self, who: usize) -> bool {
        self.sandboxes[who].prefix.is_empty() && self.sandboxes[who].pending.contains_key("d")
    }

    pub fn accept_commit(
        &mut self,
        who: usize,
        scope: &[&str],
        on_conflict: OnConflict,
        operation: Option<String>,
        entries: Option<&BTreeSet<String>>,
    ) -> Checked {
        let old = self.observe_original(Some(who));
        let sandbox = &mut self.sandboxes[who];
        let outside = |path: &String| sandbox.local(path).is_none();
        if let Some(path) = differing(&old, &self.original).iter().find(|path| outside(path)) {
            return Err(format!("the commit of {} changed {path}, outside of its root", sandbox.name));
        }
        let (old, new) = (sandbox.part_of(&old), sandbox.part_of(&self.original));
        let all: BTreeSet<String> = sandbox.pending.keys().cloned().collect();
        sandbox.check_commit(scope, on_conflict, (&old, &new), entries.unwrap_or(&all))?;
        sandbox.committed(operation, scope, &old, &new);
        Ok(())
    }

    /// A commit that is killed, and finished or aborted by the next command. An abort takes back what was written.
    pub fn killed_commit(&mut self, who: usize, after_ms: u8, afterwards: Afterwards) -> Checked {
        let next = match afterwards {
            Afterwards::Recover => String::new(),
            Afterwards::Abort => format!("sandbox commit q{who} --abort >/dev/null 2>&1; "),
        };
        self.run(format!(
            "sandbox commit q{who} --accept-flags >/dev/null 2>&1 & sleep 0.{after_ms:03}; kill -KILL $! 2>/dev/null; wait $!; {next}{RECOVER}"
        ));
        if read_tree(&self.resource) == self.original {
            return Ok(());
        }
        self.accept_commit(who, &[], OnConflict::Fail, None, None)
    }

    pub fn undo(&mut self, who: usize, which: usize) -> Checked {
        let sandbox = &self.sandboxes[who];
        let Some(which) = sandbox.commits.len().checked_sub(1 + which) else { return Ok(()) };
        let commit = &sandbox.commits[which];
        let (operation, part) = (commit.operation.clone(), sandbox.part_of(&self.original));
        let is_untouched = commit.replaced.iter().all(|r| part.get(&r.path) == r.after.as_ref());
        let view = self.view(who);
        let ran = self.run(format!("sandbox undo {operation} --json"));
        if ran.code != 0 {
            // What else is in a directory that would go is in the way, too.
            let is_newest =
                which + 1 == self.sandboxes[who].commits.len() && self.sandboxes[who].foreign.is_empty();
            if is_untouched && is_newest && !self.replaces_inner_root(who) {
                return Err(format!("an undo of q{who} failed with {}", ran.describe()));
            }
            return self.check_original("a refused undo");
        }
        let old = self.observe_original(Some(who));
        let mut expected = old;
        let commit = self.sandboxes[who].commits.remove(which);
        for replaced in &commit.replaced {
            let path = self.sandboxes[who].global(&replaced.path);
            if expected.get(&path) != replaced.after.as_ref() {
                return Err(format!(
                    "an undo of q{who} went over what {path} has become: {:?}",
                    expected.get(&path)
                ));
            }
            match &replaced.before {
                Some(node) => drop(expected.insert(path, node.clone())),
                None => drop(expected.remove(&path)),
            }
        }
        if let Some(path) = differing(&expected, &self.original).first() {
            let (expected, found) = (expected.get(path), self.original.get(path));
            return Err(format!("after an undo of q{who}, {path} is {found:?} instead of {expected:?}"));
        }
        self.sandboxes[who].undone(&commit.replaced, &view);
        Ok(())
    }

    pub fn rollback(&mut self, who: usize, scope: Option<&str>) -> Checked {
        let scope: Vec<&str> = scope.into_iter().collect();
        let mut partners = BTreeSet::new();
        if !scope.is_empty() {
            let document = self.must(format!("sandbox diff q{who} --json"))?.document();
            let renamed = document["entries"].as_array().cloned().unwrap_or_default();
            for entry in renamed.iter().filter(|entry| entry["from"].is_string()) {
                let both = [entry["path"].as_str().unwrap(), entry["from"].as_str().unwrap()];
                if both.iter().any(|path| in_scope(path, &scope)) {
                    partners.extend(both.map(str::to_owned));
                }
            }
        }
        let ran = self.run(format!("sandbox rollback q{who} {} --json", scope.join(" ")));
        match ran.code {
            0 => self.sandboxes[who].rolled_back(&scope, &partners),
            _ if scope.is_empty() || (ran.code == NOT_FOUND && !self.selects_nothing(who, &scope)) => {
                return Err(format!("a rollback of q{who} failed with {}", ran.describe()));
            }
            _ => {}
        }
        self.check_original("a rollback")
    }

    pub fn checkpoint(&mut self, who: usize) -> Checked {
        self.look(who)?;
        self.count += 1;
        let (name, view) = (format!("c{}", self.count), self.view(who));
        self.must(format!("sandbox checkpoint q{who} {name}"))?;
        self.sandboxes[who].checkpointed(name, view);
        self.check_original("a checkpoint")
    }

    pub fn restore(&mut self, who: usize, which: usize) -> Checked {
        let Some(which) = self.sandboxes[who].checkpoints.len().checked_sub(1 + which) else { return Ok(()) };
        let name = self.sandboxes[who].checkpoints[which].name.clone();
        self.must(format!("sandbox restore q{who} {name}"))?;
        self.sandboxes[who].restored(which);
        self.check_original("a restore")
    }

    pub fn refresh(&mut self, who: usize) -> Checked {
        if !self.kind.can_refresh() {
            return Ok(());
        }
        let ran = self.run(format!("sandbox refresh q{who} --json"));
        if ![0, CONFLICT].contains(&ran.code) {
            return Err(format!("a refresh of q{who} failed with {}", ran.describe()));
        }
        let view = self.view(who);
        self.take_over_refresh(who, &ran, &view)
    }

    pub fn take_over_refresh(&mut self, who: usize, ran: &Ran, view: &Tree) -> Checked {
        let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        let conflicts = texts(&document["workspaces"][0]["conflicts"], "path");
        self.sandboxes[who].check_conflicts(&conflicts)?;
        let sandbox = &mut self.sandboxes[who];
        let original = sandbox.part_of(&self.original);
        sandbox.refreshed(&original, &conflicts.into_iter().collect(), view)?;
        self.check_original("a refresh")
    }

    /// Destroys a sandbox; brings its work back, or makes a new one.
    pub fn park(&mut self, who: usize) -> Checked {
        let parked = self.must(format!("sandbox destroy q{who} --json"))?.document()["state"] == "parked";
        self.check_original("a destroy")?;
        let sandbox = &self.sandboxes[who];
        if !parked && sandbox.has_work_in(&[]) {
            return Err(format!("{} was destroyed with its work: {:?}", sandbox.name, sandbox.pending));
        }
        if !parked {
            self.sandboxes[who] = self.create(who)?;
            return Ok(());
        }
        if sandbox.is_untouched() {
            return Err(format!("{} was parked without any work", sandbox.name));
        }
        let line = format!("sandbox unpark {} --json", sandbox.id);
        let document = self.must(line)?.document();
        self.script.push(format!("Q{who}=$(sandbox path q{who})"));
        let sandbox = &mut self.sandboxes[who];
        sandbox.path = document["sandbox_path"].as_str().unwrap_or_default().into();
        let original = sandbox.part_of(&self.original);
        sandbox.unparked(&original);
        Ok(())
    }

    /// Ends the mount or its keeper, as a restart of the machine does.
    pub fn remount(&mut self, who: usize) -> Checked {
        match self.kind {
            Kind::OverlayAsRoot | Kind::Git => drop(self.run(format!("umount $Q{who}"))),
            Kind::OverlayAsUser => {
                let id = self.sandboxes[who].id.clone();
                drop(self.run(format!("pkill -KILL -f '^sandbox-keeper.*{id}'; sleep 0.02")));
            }
            Kind::Copy | Kind::Reflink => return Ok(()),
        }
        self.must(format!("sandbox path q{who}")).map(drop)
    }

    /// Ends everything, and looks for what is left.
    pub fn end(mut self) -> Checked {
        for who in 0..self.sandboxes.len() {
            self.look(who)?;
            self.must(format!("sandbox destroy q{who} --discard"))?;
        }
        self.check_original("the end of all sandboxes")?;
        let log = self.must("sandbox log -n 1000 --json")?.document();
        let states = texts(&log["operations"], "state");
        if let Some(state) = states.iter().find(|state| ["running", "decided"].contains(&state.as_str())) {
            return Err(format!("an operation is left {state}"));
        }
        match mounts_below(self.dir.path()).as_slice() {
            [] => Ok(()),
            left => Err(format!("mounts are left: {left:?}")),
        }
    }
}

/// A directory with `sandbox` in it that any user can read.
pub fn program_directory() -> PathBuf {
    // Another build, to see what the model finds in it.
    if let Some(directory) = std::env::var_os("SANDBOXER_FUZZ_PROGRAMS") {
        return directory.into();
    }
    let copied = sandboxer_testkit::once_per_run("sandbox for all users", || {
        let directory = sandboxer_testkit::run_directory().join("bin");
        fs::create_dir_all(&directory).map_err(|e| e.to_string())?;
        fs::copy(binary(), directory.join("sandbox")).map_err(|e| e.to_string())?;
        Ok(directory.display().to_string())
    });
    copied.unwrap().into()
}
