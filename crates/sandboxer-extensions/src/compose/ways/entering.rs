//! Who enters a stack and who holds it still keep out of each other's way.
//!
//! An engine refuses to begin a command in a container that is paused, and nobody is told when one has begun. So whoever enters has a lock for as long as a
//! beginning may take. Whoever is about to hold still waits for that, and leaves a mark while the lock is its own; whoever comes then waits for the mark to
//! go. All of it is on this machine: nobody has to be asked, and the kernel takes the lock from who is killed. That no mark stays for ever is seen to by
//! whoever enters next, before: it lets go of what was left standing still.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};

/// The lock, beside the mark.
const LOCK: &str = "entering";
/// As long as it takes to reach a host and to begin a command there, and more.
const BEGINNING: Duration = Duration::from_secs(3);
/// For how long the mark is waited for; then the engine says what is the matter.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// Waits until nobody holds the stack still. Nobody begins to for a while then, or until this process is at its end.
pub(super) fn enter(mark: &Path, cancel: &CancelFlag) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        // Without a directory there is nothing that anybody could hold.
        let Some(lock) = open(mark, false)? else { return Ok(()) };
        let is_ours = lock.try_lock_shared().is_ok();
        if is_ours && !mark.exists() {
            keep_for_a_while(lock);
            return Ok(());
        }
        if Instant::now() >= until {
            return Ok(());
        }
        drop(lock);
        cancel.check()?;
        std::thread::sleep(LOOK);
    }
}

/// The command has a process of its own, which does not have the lock: it is for us to let go of it while the command goes on.
fn keep_for_a_while(lock: File) {
    let kept = move || {
        std::thread::sleep(BEGINNING);
        drop(lock);
    };
    // Without a thread it is let go of at once, as if the beginning were over.
    let _ = std::thread::Builder::new().spawn(kept);
}

/// Leaves the mark once nobody is about to begin a command. Others wait for the sandbox's lock meanwhile, which the caller has.
pub(super) fn keep_out(mark: &Path, cancel: &CancelFlag) -> Result<()> {
    let told = |error| Error::io("write", mark, error);
    let lock = open(mark, true)?;
    // Somebody who was stopped in the middle is not waited for any longer.
    let until = Instant::now() + BEGINNING * 2;
    while lock.as_ref().is_some_and(|lock| lock.try_lock().is_err()) && Instant::now() < until {
        cancel.check()?;
        std::thread::sleep(LOOK);
    }
    std::fs::write(mark, []).map_err(told)
}

fn open(mark: &Path, make: bool) -> Result<Option<File>> {
    let path = mark.with_file_name(LOCK);
    if let Some(directory) = path.parent().filter(|_| make) {
        std::fs::create_dir_all(directory).map_err(|error| Error::io("make", directory, error))?;
    }
    match OpenOptions::new().create(true).truncate(false).write(true).open(&path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("open", path, error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_enters_waits_for_the_mark_and_who_marks_for_the_lock() {
        let at = tempfile::tempdir().unwrap();
        let (mark, cancel) = (at.path().join("records/held"), CancelFlag::default());
        enter(&mark, &cancel).unwrap();
        assert!(!mark.exists() && !at.path().join("records").exists());
        keep_out(&mark, &cancel).unwrap();
        assert!(mark.exists());
        std::thread::scope(|scope| {
            let entering = scope.spawn(|| enter(&mark, &cancel));
            std::thread::sleep(Duration::from_millis(200));
            assert!(!entering.is_finished());
            std::fs::remove_file(&mark).unwrap();
            entering.join().unwrap().unwrap();
            let keeping_out = scope.spawn(|| keep_out(&mark, &cancel));
            std::thread::sleep(Duration::from_millis(200));
            assert!(!keeping_out.is_finished() && !mark.exists());
            cancel.cancel();
            assert!(matches!(keeping_out.join().unwrap(), Err(Error::Cancelled)));
        });
        std::fs::write(&mark, []).unwrap();
        assert!(matches!(enter(&mark, &cancel), Err(Error::Cancelled)));
    }
}
