//! Operations while a program writes to the sandbox.

use std::collections::BTreeSet;
use std::process::Stdio;

use super::model::{Checked, OnConflict, Pending};
use super::ran::entry_paths;
use super::tree::read_tree;
use super::world::{CONFLICT, REFUSED, World};

/// What is done while a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Commit,
    Checkpoint,
    Refresh,
    Diff,
}

impl Beside {
    fn line(self, who: usize, n: u32) -> String {
        match self {
            Self::Commit => format!("sandbox commit q{who} --accept-flags --json"),
            Self::Checkpoint => format!("sandbox checkpoint q{who} beside{n} --json"),
            Self::Refresh => format!("sandbox refresh q{who} --json"),
            Self::Diff => format!("sandbox diff q{who} --json"),
        }
    }
}

impl World {
    /// Does `operation` while a program goes on making files. None of them is lost, and the program sees no error.
    pub fn beside_a_writer(&mut self, who: usize, operation: Beside) -> Checked {
        if operation == Beside::Refresh && !self.kind.can_refresh() {
            return Ok(());
        }
        self.count += 1;
        let n = self.count;
        let line = format!("for i in 1 2 3 4 5 6 7 8; do echo made > $Q{who}/w{n}_$i; sleep 0.005; done");
        let writer = self.shell(&line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        self.script.push(format!("({line}) &"));
        let ran = self.run(operation.line(who, n));
        let output = writer.wait_with_output().unwrap();
        self.script.push("wait".to_owned());
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || !said.is_empty() {
            return Err(format!("a program that wrote to q{who} meanwhile failed: {said}"));
        }
        let may_refuse = match ran.code {
            CONFLICT => operation != Beside::Checkpoint,
            REFUSED => operation == Beside::Commit && self.replaces_inner_root(who),
            code => code == 0,
        };
        if !may_refuse {
            return Err(format!("{operation:?} of q{who} beside a program failed with {}", ran.describe()));
        }
        let left = self.take_over_written(who, &format!("w{n}_"))?;
        let done = match operation {
            Beside::Commit if ran.code == 0 => {
                self.accept_commit(who, &[], OnConflict::Fail, None, Some(&entry_paths(&ran.document())))
            }
            Beside::Refresh => {
                let view = self.view(who);
                self.take_over_refresh(who, &ran, &view)
            }
            Beside::Commit | Beside::Checkpoint | Beside::Diff => {
                self.check_original("a look beside a program")
            }
        };
        self.sandboxes[who].pending.extend(left);
        done
    }

    /// What a program has written meanwhile is there; a commit may have taken a part of it, and of a file its beginning. Returns what is
    /// pending of it.
    fn take_over_written(&mut self, who: usize, prefix: &str) -> Checked<Vec<(String, Pending)>> {
        let mut left = Vec::new();
        let (view, now) = (self.view(who), read_tree(&self.resource));
        for i in 1..=8 {
            let path = format!("{prefix}{i}");
            let sandbox = &mut self.sandboxes[who];
            let global = sandbox.global(&path);
            let (written, committed) = (view.get(&path).cloned(), now.get(&global).cloned());
            if written.as_ref().is_none_or(|node| !node.lines().contains("made")) {
                return Err(format!("{} shows {written:?} at {path}, which was written", sandbox.name));
            }
            if written != committed {
                left.push((path.clone(), Pending { seen: committed.clone(), now: written }));
            }
            let Some(node) = committed else { continue };
            sandbox.committed.insert(path.clone());
            sandbox.base.insert(path, node.clone());
            self.original.insert(global.clone(), node.clone());
            self.versions.insert(global.clone(), vec![None, Some(node)]);
            let others = self.sandboxes.iter_mut().enumerate().filter(|(index, _)| *index != who);
            others.for_each(|(_, other)| other.note_foreign(&BTreeSet::from([global.clone()]), false));
        }
        Ok(left)
    }
}
