//! What there is to know about a sandbox beyond its state: lines that its strategy left beside each workspace.

use std::fs::File;
use std::io::Read;

use sandboxer_core::service::{Sandbox, SandboxManager, Target, Workspace};

use super::Told;

/// More than this is not read: a notice is a line, and there are few.
const MOST: u64 = 64 << 10;

/// The notices of each workspace of `sandbox`, as they are now.
pub fn of(sandbox: &Sandbox) -> Vec<Vec<String>> {
    sandbox.workspaces.iter().map(of_workspace).collect()
}

/// The same, once each workspace has been brought up. What cannot be brought up has a notice that says why.
pub fn brought_up(manager: &SandboxManager, sandbox: &Sandbox) -> Vec<Vec<String>> {
    if !sandbox.state.is_open() {
        return of(sandbox);
    }
    let all = sandbox.workspaces.iter();
    all.map(|workspace| {
        let target = Target { workspaces: vec![workspace.clone()], sandbox: sandbox.clone() };
        let failed = manager.bring_up(&target).err();
        let mut notices = of_workspace(workspace);
        notices.extend(failed.map(|error| unreachable_notice(Told::from(error))));
        #[cfg(feature = "databases")]
        notices.extend(super::transactions::notices(manager, &target, workspace));
        notices
    })
    .collect()
}

fn unreachable_notice(error: Told) -> String {
    let told = format!("it cannot be worked in now: {}", error.message);
    error.hints.iter().fold(told, |text, hint| format!("{text}; {hint}"))
}

fn of_workspace(workspace: &Workspace) -> Vec<String> {
    let Some(path) = workspace.sandbox_ref.text("notices") else { return Vec::new() };
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST).read_to_end(&mut text));
    match read {
        Ok(_) => {
            String::from_utf8_lossy(&text).lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
        }
        Err(_) => Vec::new(),
    }
}
