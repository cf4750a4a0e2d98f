//! Working in a sandbox, and throwing the work away.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use sandboxer_core::Error;
use sandboxer_core::model::{CheckpointId, CommitRequest, DiffKind, RelPath, RollbackResult, SandboxRef};

use super::bench::{SECRET, look_at};
use super::report::Verdict;
use super::{Check, expect, expect_entries, name, told};

const CHANGED: &[u8] = b"changed in a sandbox\n";
const OTHER: &[u8] = b"changed in another way\n";
const LATER: &[u8] = b"changed once more, after the checkpoint\n";
/// Not text, so that nobody gets away with a conversion.
const NEW: &[u8] = b"\0new\r\n\xff\xfe";
/// As much as a file is read at a time.
const PIECE: u64 = 4 << 20;

impl Check<'_> {
    /// Puts the first file there, where nobody else has.
    pub(super) fn seed(&mut self) {
        let file = self.bench.kept().ok().and_then(|kept| self.bench.on_disk(&kept));
        if file.is_some_and(|file| file.exists()) {
            return;
        }
        self.step(name::SEED, &[], |check| {
            let (path, content) = (check.kept()?, check.bench.seed_content());
            let sandbox = check.open()?;
            check.write(&sandbox, &path, content)?;
            told("commit", check.strategy.commit(&sandbox, &CommitRequest::default()))?;
            let _ = check.strategy.cleanup(&sandbox);
            check.expect_real(&path, Some(content))?;
            Ok(format!("{path} was written, and committed to start from"))
        });
    }

    /// From the first sandbox to its rollback.
    pub(super) fn work(&mut self) {
        let kept = self.kept();
        let new = self.new_path();
        let later = self.new_path();
        self.step(name::CREATE, &[], Self::create);
        self.step(name::REF, &[name::CREATE], Self::survive_json);
        let Ok(kept) = kept else { return };
        self.look_around(&kept);
        self.change(&kept, new.as_ref());
        self.step(name::DIFF, &[name::WRITE], |check| check.name_what_was_written(&kept, new.as_ref()));
        self.step(name::DIGEST, &[name::DIFF], |check| check.follow_content(&kept));
        let again = self.bench.again.as_ref().map(drop).ok_or("there is nothing to start another one from");
        self.step_if(again, name::ANOTHER_PROCESS, &[name::DIGEST], Self::be_found_by_another);
        self.come_back(&kept, new.as_ref(), later.as_ref());
        self.step(name::ROLLBACK, &[name::WRITE, name::UNTOUCHED], |check| {
            check.throw_away(&kept, new.as_ref())
        });
        let trees = if self.can.file_tree { Ok(()) } else { Err("`file_tree` is not declared") };
        self.step_if(self.has_room().and(trees), name::LINKS, &[name::READ], Self::follow_no_link);
    }

    fn create(&mut self) -> Verdict {
        let made = self.open()?;
        self.sandbox = Some(made.clone());
        let path = made.sandbox_path();
        let is_there = path.as_ref().is_some_and(|path| path.exists());
        if self.can.file_tree && !is_there {
            return Err("it declares `file_tree`, and there is nothing at the `path` of its ref".to_owned());
        }
        let place = path.map_or("a sandbox".to_owned(), |path| format!("a sandbox at {}", path.display()));
        let reason = made.text("fallback_reason").map(|reason| format!("; {reason}")).unwrap_or_default();
        Ok(format!("{place}{reason}"))
    }

    /// What follows is done with what came out of the JSON.
    fn survive_json(&mut self) -> Verdict {
        let made = self.sandbox()?;
        let text = serde_json::to_string(&made).map_err(|error| error.to_string())?;
        let read: SandboxRef = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if read != made {
            return Err("its ref is another one after it was stored and read".to_owned());
        }
        self.sandbox = Some(read);
        Ok(format!("{} bytes of JSON, used from here on", text.len()))
    }

    fn look_around(&mut self, kept: &RelPath) {
        let seed = self.bench.seed_content();
        self.step(name::READ, &[name::REF, name::SEED], |check| {
            check.expect_seen(&check.sandbox()?, kept, Some(seed))?;
            Ok(format!("the {} bytes that were there", seed.len()))
        });
        self.step_if(self.has_room(), name::READ_MISSING, &[name::REF], Self::miss_what_is_missing);
    }

    fn miss_what_is_missing(&mut self) -> Verdict {
        let missing = self.bench.below("missing.txt").map_err(|error| error.to_string())?;
        match self.strategy.read(&self.sandbox()?, &missing) {
            Err(Error::NotFound { .. }) => Ok("not_found, as it has to be".to_owned()),
            Err(error) => {
                Err(format!("expected not_found, and `read` failed otherwise: {}", super::words(&error)))
            }
            Ok(content) => Err(format!("expected not_found, found {} bytes", content.len())),
        }
    }

    pub(super) fn read_in_pieces(&mut self) -> Verdict {
        let (path, content) = (self.kept()?, more_than_a_piece());
        let sandbox = self.open()?;
        self.write(&sandbox, &path, &content)?;
        let size = content.len() as u64;
        let pieces =
            [(0, 5), (6, 4), (0, PIECE), (PIECE, PIECE), (size - 3, 100), (size, PIECE), (size + 10, 5)];
        for (offset, length) in pieces {
            let begin = content.len().min(offset as usize);
            let end = content.len().min((offset + length) as usize);
            let piece = self.seen(&sandbox.clone().ranged(offset, length), &path)?;
            expect(&format!("{length} bytes from {offset}"), piece, Some(&content[begin..end]))?;
        }
        super::commits::done_with(self, &sandbox)?;
        Ok(format!("pieces of {size} bytes: from within, to the end and past it"))
    }

    fn change(&mut self, kept: &RelPath, new: Option<&RelPath>) {
        self.step(name::WRITE, &[name::READ], |check| {
            check.write(&check.sandbox()?, kept, CHANGED)?;
            check.expect_seen(&check.sandbox()?, kept, Some(CHANGED))?;
            Ok(format!("{} bytes, and read back", CHANGED.len()))
        });
        self.step_if(self.has_room(), name::WRITE_NEW, &[name::WRITE], |check| {
            let path = new.ok_or("there is no room for a new file")?;
            check.write(&check.sandbox()?, path, NEW)?;
            check.expect_seen(&check.sandbox()?, path, Some(NEW))?;
            Ok("a new file in a new directory, and read back".to_owned())
        });
        let isolates = if self.can.isolates { Ok(()) } else { Err("it says that it does not isolate") };
        self.step_if(isolates, name::UNTOUCHED, &[name::WRITE], |check| {
            let seed = check.bench.seed_content();
            check.expect_real(kept, Some(seed))?;
            if let Some(path) = new {
                check.expect_real(path, None)?;
            }
            Ok("the resource is as it was".to_owned())
        });
    }

    fn name_what_was_written(&mut self, kept: &RelPath, new: Option<&RelPath>) -> Verdict {
        let view = self.diff(&self.sandbox()?)?;
        let written = new.filter(|_| self.sheet.is_ok(name::WRITE_NEW));
        let created = written.map(|path| (path, DiffKind::Created));
        let expected: Vec<_> = [(kept, DiffKind::Modified)].into_iter().chain(created).collect();
        expect_entries(&view, &expected)?;
        Ok(format!("exactly what was written: 1 modified, {} created", expected.len() - 1))
    }

    fn follow_content(&mut self, kept: &RelPath) -> Verdict {
        let sandbox = self.sandbox()?;
        let mut digests = vec![self.diff(&sandbox)?.digest];
        for content in [OTHER, CHANGED] {
            self.write(&sandbox, kept, content)?;
            digests.push(self.diff(&sandbox)?.digest);
        }
        if digests[0] == digests[1] {
            return Err(format!("the content of {kept} is another, and the digest is still {}", digests[0]));
        }
        if digests[0] != digests[2] {
            return Err(format!(
                "the content is the same again, and the digest is {}, not {}",
                digests[2], digests[0]
            ));
        }
        Ok("another content has another digest, the same content the same".to_owned())
    }

    fn come_back(&mut self, kept: &RelPath, new: Option<&RelPath>, later: Option<&RelPath>) {
        let id = CheckpointId::generate();
        let has = if self.can.checkpoints { Ok(()) } else { Err("`checkpoints` is not declared") };
        self.step_if(has, name::CHECKPOINT, &[name::WRITE], |check| {
            let sandbox = check.sandbox()?;
            told("checkpoint", check.strategy.checkpoint(&sandbox, &id))?;
            check.expect_seen(&sandbox, kept, Some(CHANGED))?;
            Ok("the state is kept, and nothing has changed".to_owned())
        });
        self.step_if(has, name::RESTORE, &[name::CHECKPOINT], |check| {
            let sandbox = check.sandbox()?;
            for path in [Some(kept), later].into_iter().flatten() {
                check.write(&sandbox, path, LATER)?;
            }
            done("restore_checkpoint", check.strategy.restore_checkpoint(&sandbox, &id))?;
            check.expect_seen(&sandbox, kept, Some(CHANGED))?;
            check.expect_written(&sandbox, new)?;
            later.map_or(Ok(()), |path| check.expect_seen(&sandbox, path, None))?;
            Ok("the content is that of the checkpoint".to_owned())
        });
    }

    fn expect_written(&self, sandbox: &SandboxRef, new: Option<&RelPath>) -> Result<(), String> {
        match new.filter(|_| self.sheet.is_ok(name::WRITE_NEW)) {
            Some(path) => self.expect_seen(sandbox, path, Some(NEW)),
            None => Ok(()),
        }
    }

    fn throw_away(&mut self, kept: &RelPath, new: Option<&RelPath>) -> Verdict {
        let sandbox = self.sandbox()?;
        done("rollback", self.strategy.rollback(&sandbox))?;
        self.expect_seen(&sandbox, kept, Some(self.bench.seed_content()))?;
        new.map_or(Ok(()), |path| self.expect_seen(&sandbox, path, None))?;
        if self.sheet.is_ok(name::DIFF) {
            expect_entries(&self.diff(&sandbox)?, &[])
                .map_err(|wrong| format!("after the rollback: {wrong}"))?;
        }
        Ok("the old content is back, and nothing differs".to_owned())
    }

    /// Links are put into the tree as any program that works there could.
    fn follow_no_link(&mut self) -> Verdict {
        let secret = self.bench.secret().map_err(|error| error.to_string())?;
        let sandbox = self.open()?;
        let tree = sandbox.sandbox_path().ok_or("its ref has no `path`")?;
        let links = [("link-to-file", secret.as_path()), ("link-to-directory", self.bench.outside.as_path())];
        for (link, target) in links {
            let link = tree.join(&self.bench.name).join(link);
            symlink(target, &link).map_err(|error| format!("{} cannot be made: {error}", link.display()))?;
        }
        for path in ["link-to-file", "link-to-directory/secret", "link-to-directory/escaped"] {
            self.try_to_get_out(&sandbox, path, &secret)?;
        }
        Ok("neither read nor written through".to_owned())
    }

    fn try_to_get_out(&self, sandbox: &SandboxRef, path: &str, secret: &Path) -> Result<(), String> {
        let path = self.bench.below(path).map_err(|error| error.to_string())?;
        let before = entries_of(&self.bench.outside)?;
        if self.strategy.read(sandbox, &path).is_ok_and(|content| content == SECRET) {
            return Err(format!("`read` of {path} followed a link out of the sandbox"));
        }
        // A refusal is right, and so is a file in the place of the link.
        let _ = self.strategy.write(sandbox, &path, LATER);
        if entries_of(&self.bench.outside)? != before || look_at(secret)?.as_deref() != Some(SECRET) {
            return Err(format!("`write` of {path} followed a link out of the sandbox"));
        }
        Ok(())
    }
}

/// Content that differs from place to place, so that no piece can be taken for another.
fn more_than_a_piece() -> Vec<u8> {
    const SPREAD: u32 = 2_654_435_761;
    (0..PIECE as u32 + 100_000).map(|place| (place.wrapping_mul(SPREAD) >> 24) as u8).collect()
}

fn entries_of(directory: &Path) -> Result<BTreeSet<std::ffi::OsString>, String> {
    let entries = fs::read_dir(directory)
        .map_err(|error| format!("{} cannot be listed: {error}", directory.display()))?;
    Ok(entries.flatten().map(|entry| entry.file_name()).collect())
}

/// A rollback that does not say that it worked did not.
pub(super) fn done(method: &str, answer: sandboxer_core::Result<RollbackResult>) -> Result<(), String> {
    let result = told(method, answer)?;
    if result.success {
        Ok(())
    } else {
        Err(format!("`{method}` says that it did not work: {}", result.message))
    }
}
