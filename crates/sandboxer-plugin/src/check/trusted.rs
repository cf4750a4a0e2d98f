//! What a reviewer has to be shown, what may not leave a sandbox, and what another process has to find.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use sandboxer_core::model::{CommitRequest, DiffView, RelPath};

use super::commits::done_with;
use super::report::Verdict;
use super::{Check, expect, told, words};

/// What a careful person is told of, by the name of the file that it is seen at.
const FLAGGED: [(&str, &str); 3] =
    [(POWERFUL, "setuid"), (".envrc", "runs by itself"), ("leaves", "link leaves the tree")];
const POWERFUL: &str = "powerful";

impl Check<'_> {
    /// Files are put into the tree as any program that works there could.
    pub(super) fn flag_and_relieve(&mut self) -> Verdict {
        let sandbox = self.open()?;
        let tree = sandbox.sandbox_path().ok_or("its ref has no `path`")?.join(&self.bench.name);
        plant(&tree).map_err(|error| format!("{} cannot be written to: {error}", tree.display()))?;
        let view = self.diff(&sandbox)?;
        for (name, flag) in FLAGGED {
            expect_flag(&view, &self.named(name)?, flag)?;
        }
        for (name, _) in &FLAGGED[1..] {
            fs::remove_file(tree.join(name)).map_err(|error| format!("{name} cannot be removed: {error}"))?;
        }
        self.commit_with(&sandbox, &CommitRequest::default())?;
        let committed = self.expect_no_powers()?;
        done_with(self, &sandbox)?;
        Ok(format!("what is to be looked at is flagged{committed}"))
    }

    fn named(&self, name: &str) -> Result<RelPath, String> {
        self.bench.below(name).map_err(|error| error.to_string())
    }

    fn expect_no_powers(&self) -> Result<&'static str, String> {
        let Some(file) = self.bench.on_disk(&self.named(POWERFUL)?) else { return Ok("") };
        let found = fs::symlink_metadata(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        if found.permissions().mode() & 0o6000 != 0 {
            return Err(format!("{} was committed with its setuid bit", file.display()));
        }
        Ok(", and a setuid bit is not committed")
    }

    /// A ref is good in any process: what was written is there for another one.
    pub(super) fn be_found_by_another(&mut self) -> Verdict {
        let again = self.bench.again.clone().ok_or("there is nothing to start another one from")?;
        let (kept, sandbox) = (self.kept()?, self.sandbox()?);
        let another =
            (again.0)().map_err(|error| format!("it cannot be started again: {}", words(&error)))?;
        let content = told("read", another.read(&sandbox, &kept))?;
        expect(&format!("{kept} in another process"), Some(content), self.seen(&sandbox, &kept)?.as_deref())?;
        let (digest, found) = (self.diff(&sandbox)?.digest, told("diff", another.diff(&sandbox))?.digest);
        if digest != found {
            return Err(format!("its difference has the digest {found} in another process, not {digest}"));
        }
        Ok("another process finds what was written, and the same difference".to_owned())
    }
}

fn plant(tree: &Path) -> std::io::Result<()> {
    fs::write(tree.join(POWERFUL), "#!/bin/sh\n")?;
    fs::set_permissions(tree.join(POWERFUL), Permissions::from_mode(0o4755))?;
    fs::write(tree.join(".envrc"), "export A=1\n")?;
    symlink("/etc/passwd", tree.join("leaves"))
}

fn expect_flag(view: &DiffView, path: &RelPath, flag: &str) -> Result<(), String> {
    let entry = view.entries.iter().find(|entry| entry.path == *path);
    let entry =
        entry.ok_or_else(|| format!("{path} was made in the sandbox, and `diff` does not have it"))?;
    match entry.flags.iter().any(|found| found == flag) {
        true => Ok(()),
        false => Err(format!("{path} is not flagged: expected {flag:?} among {:?}", entry.flags)),
    }
}
