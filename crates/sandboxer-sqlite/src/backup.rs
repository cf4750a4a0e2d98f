//! SQLite's own copying of content from one open database into another.

use sandboxer_core::Result;

use crate::connection::Connection;
use crate::ffi;

/// How often a copy is begun anew that other connections got in the way of.
const ATTEMPTS: usize = 20;

struct Backup(*mut ffi::Backup);

impl Drop for Backup {
    fn drop(&mut self) {
        // SAFETY: made by `backup_init`, finished once. What went wrong is known from the step.
        unsafe { ffi::backup_finish(self.0) };
    }
}

/// Replaces everything in `to` by what `from` has at one instant, in one transaction. Connections that have `to` open see the
/// new content from their next transaction on; an open one of theirs is waited for.
pub fn copy_content(from: &Connection, to: &Connection) -> Result<()> {
    to.busy_timeout(crate::clone::PATIENCE)?;
    for attempt in 1.. {
        match step(from, to)? {
            ffi::DONE => return Ok(()),
            ffi::BUSY | ffi::LOCKED if attempt < ATTEMPTS => {
                std::thread::sleep(std::time::Duration::from_millis(10 * attempt as u64));
            }
            code => {
                let failure = crate::Failure { code, message: "the content could not be copied".to_owned() };
                return Err(failure.on("write", to.path()));
            }
        }
    }
    Ok(())
}

fn step(from: &Connection, to: &Connection) -> Result<i32> {
    // SAFETY: both connections are open and outlive the backup, which is finished when this returns.
    let handle = unsafe { ffi::backup_init(to.handle(), from.handle()) };
    if handle.is_null() {
        return Err(to.error("write"));
    }
    let backup = Backup(handle);
    // SAFETY: the backup is live; all pages in one step keep one read transaction on the source.
    Ok(unsafe { ffi::backup_step(backup.0, -1) } & 0xff)
}
