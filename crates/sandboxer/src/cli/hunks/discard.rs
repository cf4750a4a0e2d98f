//! Throwing hunks away: they are taken out of the sandbox's files.

use sandboxer_core::model::RollbackResult;
use sandboxer_core::service::{RollbackResults, Target};

use super::{Chosen, FileHunks, Purpose, changed_meanwhile};
use crate::cli::error::CliError;
use crate::cli::output::{self, count};
use crate::cli::session::Session;

/// Rolls back what was chosen. Nothing is written unless every file is still what the choice was made in.
pub fn discard(session: &Session, target: &Target, chosen: &Chosen) -> Result<RollbackResults, CliError> {
    let contents =
        chosen.files.iter().map(|file| remaining(session, target, file)).collect::<Result<Vec<_>, _>>()?;
    let mut results = match chosen.whole.as_slice() {
        [] => target.workspaces.iter().map(|workspace| (workspace.name.clone(), nothing_yet())).collect(),
        paths => session.manager.rollback(target, paths)?,
    };
    for (file, content) in chosen.files.iter().zip(contents) {
        session.manager.write(target, &file.path, &content)?;
    }
    if let (Some((_, result)), false) = (results.first_mut(), chosen.files.is_empty()) {
        add_files(result, chosen.files.len());
    }
    Ok(results)
}

/// What the file is without its chosen hunks.
fn remaining(session: &Session, target: &Target, file: &FileHunks) -> Result<Vec<u8>, CliError> {
    if session.manager.read(target, &file.path)? != file.sides.new {
        return Err(changed_meanwhile(&file.path));
    }
    let broken = |error| CliError::usage(format!("{}: {error}", output::name(file.path.as_bytes())));
    Purpose::Discard.apply(&file.sides, &file.hunks).map_err(broken)
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
    use super::*;

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
