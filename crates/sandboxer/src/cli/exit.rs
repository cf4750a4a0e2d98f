//! Exit codes. They are a contract with scripts: `docs/exit-codes.md` lists them, and a test compares the two.

use sandboxer_documents::Kind;

/// Everything went well. Also `diff` without differences.
pub const OK: u8 = 0;
/// Something failed. Also `diff --exit-code` with differences, as git has it.
pub const ERROR: u8 = 1;
/// The command line, or a path on it, makes no sense.
pub const USAGE: u8 = 2;
/// The original has changed where a commit wants to write; nothing was written.
pub const CONFLICT: u8 = 3;
/// No sandbox, workspace, checkpoint, file or strategy of that name.
pub const NOT_FOUND: u8 = 4;
/// A rule says no: an entry that may not be committed, a digest that is not the reviewed one.
pub const REFUSED: u8 = 5;
/// The isolation that was asked for is not to be had here.
pub const UNAVAILABLE: u8 = 6;
/// A commit is decided and partly written; the next command finishes it.
pub const UNFINISHED: u8 = 7;

/// `run`: the command took longer than it may.
pub const RUN_TIMED_OUT: u8 = 124;
/// `run`: our own failure, as opposed to the command's.
pub const RUN_FAILED: u8 = 125;
/// `run`: the command is there but cannot be executed.
pub const RUN_NOT_EXECUTABLE: u8 = 126;
/// `run`: there is no such command.
pub const RUN_NOT_FOUND: u8 = 127;
/// Added to a signal's number: `run` when a signal ended the command.
pub const SIGNAL_BASE: u8 = 128;
/// Interrupted by Ctrl-C: 128 and the number of SIGINT.
pub const INTERRUPTED: u8 = 130;

/// The exit code of a kind of failure.
pub fn of(kind: Kind) -> u8 {
    match kind {
        Kind::Usage => USAGE,
        Kind::Conflict => CONFLICT,
        Kind::NotFound => NOT_FOUND,
        Kind::Refused => REFUSED,
        Kind::Unavailable => UNAVAILABLE,
        Kind::Unfinished => UNFINISHED,
        Kind::Interrupted => INTERRUPTED,
        Kind::Error
        | Kind::Unsupported
        | Kind::Plugin
        | Kind::Busy
        | Kind::Config
        | Kind::Corrupt
        | Kind::NewerState => ERROR,
    }
}

/// Every constant with its name, for the test that compares them with the documentation.
#[cfg(test)]
pub const ALL: [(u8, &str); 14] = [
    (OK, "fine"),
    (ERROR, "error"),
    (USAGE, "usage"),
    (CONFLICT, "conflict"),
    (NOT_FOUND, "not found"),
    (REFUSED, "refused"),
    (UNAVAILABLE, "unavailable"),
    (UNFINISHED, "unfinished"),
    (RUN_TIMED_OUT, "timed out"),
    (RUN_FAILED, "run failed"),
    (RUN_NOT_EXECUTABLE, "not executable"),
    (RUN_NOT_FOUND, "not found"),
    (SIGNAL_BASE, "signal"),
    (INTERRUPTED, "interrupted"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented() {
        let page = include_str!("../../../../docs/exit-codes.md");
        for (code, name) in ALL {
            assert!(
                page.contains(&format!("| {code}")),
                "exit code {code} ({name}) is not in docs/exit-codes.md"
            );
        }
    }
}
