//! What to type next, for each error of the library. `ID` stands for the sandbox.

use std::io;
use std::path::Path;

use sandboxer_core::Error;
use sandboxer_core::model::{OnConflict, RelPath};
use sandboxer_strategies::git_worktree;

use super::conflicts::{self, Attempt};
use super::words::shell_word;
use super::{git, rules};

/// The usual hints on an error.
pub(crate) fn hints_of(error: &Error) -> Vec<String> {
    match error {
        Error::Io { source, .. } => io_hints(source),
        Error::Store { source, .. } => store_hints(&source.to_string()),
        Error::Path(_) => {
            vec!["paths are relative to the workspace's root, as `sandbox diff ID` shows them".to_owned()]
        }
        Error::NewerState { .. } => {
            vec![
                "use the newer `sandbox`, or another state directory: --home DIR or $SANDBOXER_HOME"
                    .to_owned(),
            ]
        }
        Error::Corrupt { path, .. } => corrupt_hints(path),
        Error::Unfinished { .. } => vec![
            "remove what is in the way: the next command finishes the commit".to_owned(),
            "or take back what it has written: `sandbox commit ID --abort`".to_owned(),
        ],
        Error::AlreadyDecided { .. } => {
            vec!["see what keeps it from being finished: `sandbox commit ID`".to_owned()]
        }
        Error::NotFound { what, similar, .. } => not_found_hints(what, similar),
        Error::Usage { hint, .. } | Error::Refused { hint, .. } | Error::Config { hint, .. } => {
            hint.iter().cloned().collect()
        }
        Error::Conflict { conflicts } => {
            let attempt = Attempt::Commit { way: OnConflict::Fail, selection: String::new() };
            conflicts::hints(conflicts, &attempt)
        }
        Error::DigestMismatch { .. } => {
            vec!["review again: `sandbox diff ID --json` gives the digest of what is there now".to_owned()]
        }
        Error::Uncommittable { entries } => uncommittable_hints(entries),
        Error::RulesFailed { failures, .. } => rules::hints(failures),
        Error::Unavailable { strategy, .. } if strategy == git_worktree::NAME => {
            vec![format!(
                "install git {}, or use `--strategy overlay`, which knows nothing of git",
                git::OLDEST
            )]
        }
        Error::Unsupported { .. } => {
            vec!["`sandbox strategies --json` shows what each strategy can do".to_owned()]
        }
        Error::Unavailable { .. } => {
            vec!["`sandbox doctor` shows which strategies work here, and why not".to_owned()]
        }
        Error::NoRoute { profile, .. } => no_route_hints(profile),
        Error::Plugin { plugin, reason, log } => plugin_hints(plugin, reason, log.as_deref()),
        Error::InvalidPlugin { plugin, role, .. } => vec![invalid_plugin_hint(plugin, role)],
        Error::Busy { holder, .. } => busy_hints(holder.as_deref()),
        Error::Cancelled => vec!["type the command again to go on".to_owned()],
        _ => Vec::new(),
    }
}

fn no_route_hints(profile: &str) -> Vec<String> {
    vec![format!(
        "`sandbox profiles {}` shows what it asks for, `sandbox hosts` where there is room",
        shell_word(profile)
    )]
}

fn plugin_hints(plugin: &str, reason: &str, log: Option<&Path>) -> Vec<String> {
    let force = reason
        .starts_with("`cleanup`")
        .then(|| "`sandbox destroy ID --force` removes the sandbox without it".to_owned());
    let said = log
        .filter(|log| log.exists())
        .map(|log| format!("what it wrote to its standard error is in {}", log.display()));
    let check = format!(
        "`sandbox strategies check {}` tries it on something that can be thrown away",
        shell_word(plugin)
    );
    said.into_iter().chain(force).chain([check]).collect()
}

fn invalid_plugin_hint(plugin: &str, role: &str) -> String {
    let command = if role == "extension" { "extensions" } else { "strategies" };
    format!("add or correct these methods, then `sandbox {command} check {}`", shell_word(plugin))
}

fn busy_hints(holder: Option<&str>) -> Vec<String> {
    let command = holder.is_some_and(|holder| holder.starts_with("a command is running"));
    let see = command.then(|| "`sandbox ps ID` shows what runs in it".to_owned());
    see.into_iter().chain(["wait until it has ended, then try again".to_owned()]).collect()
}

fn io_hints(source: &io::Error) -> Vec<String> {
    let hint = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there (`sandbox gc`, `sandbox list`), or use --home DIR on a larger filesystem"
        }
        io::ErrorKind::PermissionDenied => {
            "run this as a user who may, or change the permissions of that path"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "that filesystem is read-only: nothing can be committed to it or kept there"
        }
        io::ErrorKind::NotADirectory => "a part of that path is not a directory",
        _ => return Vec::new(),
    };
    vec![hint.to_owned()]
}

fn store_hints(source: &str) -> Vec<String> {
    if source.contains("locked") || source.contains("busy") {
        return vec!["another `sandbox` is writing: try again".to_owned()];
    }
    vec!["`sandbox doctor` looks at the state directory".to_owned()]
}

fn corrupt_hints(path: &Path) -> Vec<String> {
    if path.extension().is_some_and(|e| e == "db") {
        let database = shell_word(&path.to_string_lossy());
        return vec![format!(
            "move it away with `mv {database} {database}.damaged`, then `sandbox adopt` finds the sandboxes again"
        )];
    }
    vec![
        "what is in the sandbox can still be copied from `sandbox path ID`; `sandbox destroy ID` removes it"
            .to_owned(),
    ]
}

fn not_found_hints(what: &str, similar: &[String]) -> Vec<String> {
    let mut hints = Vec::new();
    if !similar.is_empty() {
        hints.push(format!("did you mean {}?", similar.join(" or ")));
    }
    let listing = match what {
        "resource" => "name a directory or a file that is there; without one it is the current directory",
        "sandbox" => "`sandbox list` shows what there is",
        "open sandbox of plan" => "`sandbox list --json` shows the plan of each open sandbox",
        "workspace" => "`sandbox get ID` shows its workspaces",
        "checkpoint" => "`sandbox checkpoints ID` shows what there is",
        "operation" | "commit to take back" => {
            "`sandbox log` shows what was done, with the id of each operation"
        }
        "registered strategy" => {
            hints.push("`sandbox destroy ID --force` removes the sandbox without it".to_owned());
            "the sandbox was made with a configuration that registers it (sandbox.custom_strategies), which is missing now: give it with --config FILE"
        }
        "strategy" | "strategy (named by sandbox.strategy)" => "`sandbox strategies` shows what there is",
        "profile" => "`sandbox profiles` shows what there is",
        "extension" => "`sandbox extensions` shows what there is",
        "host" => "`sandbox hosts` shows what there is",
        "resource type" | "type" => "`sandbox types` shows what there is",
        _ => return hints,
    };
    hints.push(listing.to_owned());
    hints
}

fn uncommittable_hints(entries: &[(RelPath, String)]) -> Vec<String> {
    let first = entries.first().map(|(path, _)| shell_word(&path.to_string())).unwrap_or_default();
    vec![
        format!("drop it from the sandbox with `sandbox rollback ID {first}`"),
        "or commit the rest by naming it: `sandbox commit ID PATH…`".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Told};

    #[test]
    fn a_strategy_that_is_gone_points_at_the_configuration() {
        let told = Told::from(Error::not_found("registered strategy", "mine"));
        assert_eq!(told.kind, Kind::NotFound);
        assert!(told.hints[0].contains("--force") && told.hints[1].contains("--config"), "{:?}", told.hints);
    }

    #[test]
    fn near_names_come_first() {
        let error = Error::NotFound { what: "sandbox", name: "proy".into(), similar: vec!["proj".into()] };
        assert_eq!(Told::from(error).hints[0], "did you mean proj?");
    }
}
