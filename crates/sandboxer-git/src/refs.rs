//! Branches that are locked now and moved later.
//!
//! A `git update-ref` that has prepared its transaction holds the locks of its references and waits: once it has said that it is ready, nobody
//! else can move them, and moving them cannot fail for a reason that was there before. If we are killed, its input ends and it gives up by
//! itself. What was decided is then moved by [`move_now`], as far as nobody has moved it elsewhere.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};
use std::sync::OnceLock;
use std::time::Duration;

use sandboxer_core::{Error, Result};
use sandboxer_fs::durable::sync_dir;
use serde::{Deserialize, Serialize};

use crate::git::{Git, Place, Version, complaint};
use crate::ledger::Ledger;
use crate::oid::Oid;
use crate::repository::Repository;

/// How often, and how long each time, a git that does not say whether it is ready is looked at.
const WAITS: (usize, Duration) = (5000, Duration::from_millis(2));

/// A reference on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Its full name, or `HEAD` for one that is detached.
    pub name: String,
    /// Where it must be; `None` if it must not be there.
    pub old: Option<Oid>,
    /// Where it goes.
    pub new: Oid,
    /// What its log says. Moves that are made together are logged under the first one's reason.
    pub reason: String,
}

/// References that are locked by a git that waits. Dropped, it gives them up.
#[must_use = "dropping it gives the references up"]
pub struct HeldRef {
    child: Child,
    from: BufReader<ChildStdout>,
    git_dir: PathBuf,
}

impl HeldRef {
    /// Locks the references and makes sure that they are where they must be. The commits may still be incoming in the ledger.
    ///
    /// [`Error::Refused`] says that one was moved, [`Error::Busy`] that somebody else holds the lock of one.
    pub fn prepare(repo: &Repository, ledger: &Ledger, moves: &[Move]) -> Result<Self> {
        Self::start(repo, Some(ledger), moves, answers_at_once())
    }

    fn start(repo: &Repository, ledger: Option<&Ledger>, moves: &[Move], answers: bool) -> Result<Self> {
        refuse_attached_head(repo, moves)?;
        let mut held = Self::spawn(repo, ledger, moves)?;
        let input = transaction(repo, moves);
        let ready = |held: &mut Self| match answers {
            true => held.hear("start: ok") && held.hear("prepare: ok"),
            false => held.locks_are_written(repo, moves),
        };
        if !(held.say(&input) && ready(&mut held)) {
            let said = held.last_words();
            drop(held);
            return Err(why_not(repo, moves, &said));
        }
        // Once it is locked nobody can attach it any more.
        refuse_attached_head(repo, moves)?;
        Ok(held)
    }

    fn spawn(repo: &Repository, ledger: Option<&Ledger>, moves: &[Move]) -> Result<Self> {
        let reason = moves.first().map(|one| clean_reason(&one.reason)).unwrap_or_default();
        let mut git = repo.git();
        if let Some(who) = repo.identity()? {
            let (name, mail) = who.split_once('<').unwrap_or((&who, ""));
            git = git
                .env("GIT_COMMITTER_NAME", name.trim())
                .env("GIT_COMMITTER_EMAIL", mail.trim_end_matches('>'));
        } else {
            git =
                git.env("GIT_COMMITTER_NAME", "sandboxer").env("GIT_COMMITTER_EMAIL", "sandboxer@localhost");
        }
        if let Some(ledger) = ledger {
            git = ledger.show_incoming(git);
        }
        let mut child = git.args(["update-ref", "-m", &reason, "--stdin", "-z"]).talk_aloud()?;
        let Some(from) = child.stdout.take().map(BufReader::new) else {
            return Err(Error::io("talk to git on", &repo.git_dir, ErrorKind::BrokenPipe));
        };
        Ok(Self { child, from, git_dir: repo.git_dir.clone() })
    }

    /// Moves the references.
    pub fn commit(mut self) -> Result<()> {
        let said = self.say(b"commit\0");
        drop(self.child.stdin.take());
        let mut heard = String::new();
        let _ = self.from.read_to_string(&mut heard);
        if said && heard.lines().any(|line| line == "commit: ok") {
            return Ok(());
        }
        let said = self.last_words();
        Err(Error::io("move references in", &self.git_dir, std::io::Error::other(said)))
    }

    /// Gives the references up, as they were.
    pub fn abort(self) {}

    fn say(&mut self, words: &[u8]) -> bool {
        let pipe = self.child.stdin.as_mut();
        pipe.is_some_and(|pipe| pipe.write_all(words).and_then(|()| pipe.flush()).is_ok())
    }

    fn hear(&mut self, expected: &str) -> bool {
        let mut line = String::new();
        self.from.read_line(&mut line).is_ok() && line.trim_end() == expected
    }

    /// Waits until every lock has the new value in it, which git writes when it has made sure of the old one.
    fn locks_are_written(&mut self, repo: &Repository, moves: &[Move]) -> bool {
        for _ in 0..WAITS.0 {
            if moves.iter().all(|one| lock_says(repo, one)) {
                return true;
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(WAITS.1);
        }
        false
    }

    /// What a git that has failed said.
    fn last_words(&mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = Vec::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            let _ = pipe.read_to_end(&mut said);
        }
        complaint(&said)
    }
}

impl Drop for HeldRef {
    fn drop(&mut self) {
        // At the end of its input it gives up what is not committed and removes its locks: killed, it would leave them.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Whether git says at once that it is ready. Before 2.34 it says so only when it ends.
fn answers_at_once() -> bool {
    static ANSWERS: OnceLock<bool> = OnceLock::new();
    let asked = || crate::git::version().is_ok_and(|found| found >= Version { major: 2, minor: 34 });
    *ANSWERS.get_or_init(asked)
}

/// Whether the lock of a reference has its new value in it.
fn lock_says(repo: &Repository, one: &Move) -> bool {
    std::fs::read(lock_of(repo, &one.name))
        .is_ok_and(|text| text.trim_ascii_end() == one.new.as_str().as_bytes())
}

fn lock_of(repo: &Repository, name: &str) -> PathBuf {
    let home = if name == "HEAD" { &repo.git_dir } else { &repo.common_dir };
    home.join(format!("{name}.lock"))
}

/// All up to the point where git waits.
fn transaction(repo: &Repository, moves: &[Move]) -> Vec<u8> {
    let mut input = b"start\0".to_vec();
    for one in moves {
        let old = one.old.clone().unwrap_or_else(|| repo.format.zero());
        let option = if one.name == "HEAD" { "option no-deref\0" } else { "" };
        input.extend(format!("{option}update {}\0{}\0{old}\0", one.name, one.new).bytes());
    }
    input.extend(b"prepare\0");
    input
}

/// One line, and not empty: git refuses that.
fn clean_reason(reason: &str) -> String {
    let line = reason.split(|c: char| c.is_control()).collect::<Vec<_>>().join(" ");
    if line.trim().is_empty() { "sandboxer".to_owned() } else { line.trim().to_owned() }
}

/// A HEAD that is on a branch again would be torn off it.
fn refuse_attached_head(repo: &Repository, moves: &[Move]) -> Result<()> {
    if !moves.iter().any(|one| one.name == "HEAD") {
        return Ok(());
    }
    match repo.head()?.branch {
        Some(branch) => Err(Error::refused(format!("HEAD is not detached any more: it is on {branch}"))),
        None => Ok(()),
    }
}

/// Why references could not be locked: by what is there now, and only then by what git said.
fn why_not(repo: &Repository, moves: &[Move], said: &str) -> Error {
    for one in moves {
        match repo.branch_tip(&one.name) {
            Err(error) => return error,
            Ok(now) if now != one.old => return moved(&one.name, one.old.as_ref(), now.as_ref()),
            Ok(_) => {}
        }
    }
    match lock_in(said) {
        Some(path) => Error::Busy {
            path,
            holder: Some(
                "git is at work, or was killed: remove the file only if no git runs here".to_owned(),
            ),
        },
        None => Error::io("lock references in", &repo.git_dir, std::io::Error::other(said.to_owned())),
    }
}

fn moved(name: &str, old: Option<&Oid>, now: Option<&Oid>) -> Error {
    let shown = |oid: Option<&Oid>| oid.map_or("nowhere".to_owned(), |oid| format!("at {}", oid.short()));
    let reason = format!("{name} was moved: it is {}, not {}", shown(now), shown(old));
    Error::Refused { reason, hint: Some("look at it with `git log`, and try again".to_owned()) }
}

/// The lock that git could not make.
fn lock_in(said: &str) -> Option<PathBuf> {
    let rest = said.split_once("Unable to create '")?.1;
    let end = rest.find(".lock'")? + ".lock".len();
    Some(PathBuf::from(&rest[..end]))
}

/// How [`move_now`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It was moved.
    Done,
    /// It was there already.
    Already,
    /// Somebody has moved it elsewhere: it stays there.
    Elsewhere(Option<Oid>),
}

/// How often, and how long each time, a git that was left behind is waited for before its locks are removed.
const LEFT_BEHIND: (usize, Duration) = (20, Duration::from_millis(50));

/// Removes the locks that a git of ours left when it was killed, or the power went: the lock of a reference is known to be ours by the commit
/// in it, and to be left by its staying there. With it goes that of HEAD, which is locked with its branch and has nothing in it.
pub fn release_left(repo: &Repository, one: &Move) -> Result<()> {
    for _ in 0..LEFT_BEHIND.0 {
        if !lock_says(repo, one) {
            return Ok(());
        }
        std::thread::sleep(LEFT_BEHIND.1);
    }
    let head = lock_of(repo, "HEAD");
    if head.metadata().is_ok_and(|found| found.len() == 0) {
        remove_lock(&head)?;
    }
    remove_lock(&lock_of(repo, &one.name))
}

fn remove_lock(lock: &Path) -> Result<()> {
    match std::fs::remove_file(lock) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", lock, e)),
        _ => Ok(()),
    }
}

/// Moves a reference, as far as it is where it must be. For what was decided before and may have been done.
pub fn move_now(repo: &Repository, one: &Move) -> Result<Moved> {
    if let Some(ended) = where_now(repo, one)? {
        return Ok(ended);
    }
    release_left(repo, one)?;
    let tried =
        HeldRef::start(repo, None, std::slice::from_ref(one), answers_at_once()).and_then(HeldRef::commit);
    match tried {
        Ok(()) => Ok(Moved::Done),
        Err(error) => where_now(repo, one)?.ok_or(error),
    }
}

/// `None` where it still has to be moved.
fn where_now(repo: &Repository, one: &Move) -> Result<Option<Moved>> {
    if one.name == "HEAD" && repo.head()?.branch.is_some() {
        return Ok(Some(Moved::Elsewhere(repo.branch_tip("HEAD")?)));
    }
    let now = repo.branch_tip(&one.name)?;
    Ok(match now {
        Some(now) if now == one.new => Some(Moved::Already),
        now if now == one.old => None,
        now => Some(Moved::Elsewhere(now)),
    })
}

/// Makes sure that a reference stays where it is when the power goes.
pub fn sync(repo: &Repository, name: &str) -> Result<()> {
    let home = if name == "HEAD" { &repo.git_dir } else { &repo.common_dir };
    flush(&home.join(name))?;
    flush_dirs(home, &home.join(name))?;
    flush(&repo.common_dir.join("packed-refs"))?;
    for dir in [&repo.common_dir, &repo.git_dir] {
        flush_tables(&dir.join("reftable"))?;
    }
    // A log that is lost takes nothing with it.
    for log in [repo.git_dir.join("logs/HEAD"), repo.common_dir.join("logs").join(name)] {
        let _ = flush(&log);
    }
    Ok(())
}

/// Flushes the directories from the one that has `file` up to `home`; one that is not there has nothing to lose.
fn flush_dirs(home: &Path, file: &Path) -> Result<()> {
    for dir in file.ancestors().skip(1).take_while(|dir| dir.starts_with(home)) {
        if dir.is_dir() {
            sync_dir(dir)?;
        }
    }
    Ok(())
}

/// Where references are kept in tables: all of them, as one does not tell which has which.
fn flush_tables(dir: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io("list", dir, e)),
    };
    for entry in entries {
        flush(&entry.map_err(|e| Error::io("list", dir, e))?.path())?;
    }
    sync_dir(dir)
}

fn flush(path: &Path) -> Result<()> {
    match File::open(path) {
        Ok(file) => file.sync_all().map_err(|e| Error::io("flush", path, e)),
        // Packed, or in tables: then the directory of branches is a file that nobody reads.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(e) => Err(Error::io("open", path, e)),
    }
}

/// Makes sure that `name` can be the name of a branch; short forms such as `@{-1}` cannot.
pub fn check_branch_name(name: &str) -> Result<()> {
    let full = format!("refs/heads/{name}");
    let plain = !name.starts_with('-') && name != "HEAD" && !name.contains('\0');
    let git = || Git::at(Place::From(Path::new("/"))).args(["check-ref-format", &full]);
    if plain && git().output_unless_no()?.is_some() {
        return Ok(());
    }
    let hint = Some("letters, digits, `-`, `_`, `.` and `/` between them are fine".to_owned());
    Err(Error::Usage { message: format!("{name:?} cannot be the name of a branch"), hint })
}

/// Refuses a branch that another one leaves no room for: where there is `a`, there can be no `a/b`.
pub fn refuse_crowded(repo: &Repository, name: &str) -> Result<()> {
    let full = format!("refs/heads/{name}");
    let above: Vec<&str> = full.match_indices('/').skip(2).map(|(end, _)| &full[..end]).collect();
    let told = repo.git().args(["for-each-ref", "--format=%(refname)"]).args(&above).arg(&full).output()?;
    let told = String::from_utf8_lossy(&told);
    let below = format!("{full}/");
    let in_the_way = |found: &&str| above.contains(found) || found.starts_with(&below);
    let Some(found) = told.lines().find(in_the_way) else { return Ok(()) };
    let other = found.trim_start_matches("refs/heads/");
    Err(Error::Refused {
        reason: format!("there can be no branch {name} beside the branch {other}"),
        hint: Some("name another branch".to_owned()),
    })
}

#[cfg(test)]
#[path = "refs_tests.rs"]
mod tests;
