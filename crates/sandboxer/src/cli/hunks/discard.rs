//! Throwing hunks away: they are taken out of the sandbox's files.

use sandboxer_core::model::{RelPath, RollbackResult};
use sandboxer_core::service::{RollbackResults, Target};

use super::{Chosen, FileHunks, Purpose, changed_and, changed_meanwhile, first_changed};
use crate::cli::error::CliError;
use crate::cli::output::{self, count};
use crate::cli::session::Session;

/// Rolls back what was chosen. Nothing is written unless every file is still what the choice was made in.
///
/// Hunks go first: a rollback of whole entries takes its time, in which their files could change.
pub fn discard(session: &Session, target: &Target, chosen: &Chosen) -> Result<RollbackResults, CliError> {
    for file in &chosen.files {
        remaining(session, target, file, 0)?;
    }
    for (done, file) in chosen.files.iter().enumerate() {
        // Looked at again right before the write. An edit between these two lines is still lost: whoever works in the
        // sandbox takes no lock of ours, and a file cannot be replaced on the condition of its content.
        let content = remaining(session, target, file, done)?;
        session.manager.write(target, &file.path, &content)?;
    }
    let mut results = match chosen.whole.as_slice() {
        [] => target.workspaces.iter().map(|workspace| (workspace.name.clone(), nothing_yet())).collect(),
        paths => {
            if let Some(path) = first_changed(session, target, chosen)? {
                return Err(changed_after(&path, chosen.files.len()));
            }
            session.manager.rollback(target, paths)?
        }
    };
    if let (Some((_, result)), false) = (results.first_mut(), chosen.files.is_empty()) {
        add_files(result, chosen.files.len());
    }
    Ok(results)
}

/// What the file is without its chosen hunks; those of `done` files are gone already.
fn remaining(session: &Session, target: &Target, file: &FileHunks, done: usize) -> Result<Vec<u8>, CliError> {
    if session.manager.read(target, &file.path)? != file.sides.new {
        return Err(changed_after(&file.path, done));
    }
    let broken = |error| CliError::usage(format!("{}: {error}", output::name(file.path.as_bytes())));
    Purpose::Discard.apply(&file.sides, &file.hunks).map_err(broken)
}

/// Something has changed since it was shown, and the hunks of `done` files are gone already.
fn changed_after(path: &RelPath, done: usize) -> CliError {
    match done {
        0 => changed_meanwhile(path),
        _ => {
            let told = format!("threw chosen hunks of {} away and left the rest", count(done, "file"));
            changed_and(path, &told)
        }
    }
}

fn nothing_yet() -> RollbackResult {
    RollbackResult { success: true, checkpoint_id: None, restored_files: 0, message: String::new() }
}

fn add_files(result: &mut RollbackResult, files: usize) {
    let told = format!("threw chosen hunks of {} away", count(files, "file"));
    result.restored_files += files as u64;
    result.message = if result.message.is_empty() { told } else { format!("{}; {told}", result.message) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_change_is_told_with_what_was_done_before() {
        let path = RelPath::parse("a").unwrap();
        let told = |done| changed_after(&path, done);
        assert_eq!((told(0).exit, told(2).exit), (3, 3));
        assert!(told(0).message.ends_with("since it was shown; nothing was done"), "{}", told(0).message);
        let after = "since it was shown; threw chosen hunks of 2 files away and left the rest";
        assert!(told(2).message.ends_with(after), "{}", told(2).message);
    }

    #[test]
    fn hunks_are_told_beside_whole_entries() {
        let mut result = nothing_yet();
        add_files(&mut result, 2);
        assert_eq!(
            (result.restored_files, result.message.as_str()),
            (2, "threw chosen hunks of 2 files away")
        );
        let mut both = RollbackResult { restored_files: 3, message: "3 entries".into(), ..nothing_yet() };
        add_files(&mut both, 1);
        assert_eq!(
            (both.restored_files, both.message.as_str()),
            (4, "3 entries; threw chosen hunks of 1 file away")
        );
    }
}
