//! Which `sandbox` is measured: the release build in the target directory that the benchmark itself was built into. One
//! that is missing or older than its sources is built first, so that nobody measures yesterday's code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::failure::{During, Failure, Result};

/// What the binary is built from, below the workspace's root.
const SOURCES: [&str; 16] = [
    "Cargo.lock",
    "crates/sandboxer",
    "crates/sandboxer-compose",
    "crates/sandboxer-core",
    "crates/sandboxer-database",
    "crates/sandboxer-extensions",
    "crates/sandboxer-fs",
    "crates/sandboxer-git",
    "crates/sandboxer-keeper",
    "crates/sandboxer-remote",
    "crates/sandboxer-sqlite",
    "crates/sandboxer-strategies",
    "extensions",
    "hosts",
    "profiles",
    "resource-types",
];

/// The release `sandbox`, up to date.
pub fn locate() -> Result<PathBuf> {
    let own = std::env::current_exe().during("find", Path::new("the benchmark's own file"))?;
    let binary = release_directory(&own).join("sandbox");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if is_stale(&binary, &workspace) {
        build(&workspace)?;
    }
    if binary.exists() {
        return Ok(binary);
    }
    Err(Failure::new(format!("no {}: run `cargo build --release -p sandboxer`", binary.display())))
}

/// The `release` directory beside the one that `own` is in.
fn release_directory(own: &Path) -> PathBuf {
    let profile = own.parent().unwrap_or(Path::new("."));
    profile.parent().unwrap_or(profile).join("release")
}

fn is_stale(binary: &Path, workspace: &Path) -> bool {
    let built = fs::metadata(binary).and_then(|meta| meta.modified());
    let newest = SOURCES.iter().filter_map(|source| newest_below(&workspace.join(source))).max();
    match (built, newest) {
        (Err(_), _) => true,
        (Ok(built), Some(newest)) => newest > built,
        (Ok(_), None) => false,
    }
}

fn newest_below(path: &Path) -> Option<SystemTime> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_dir() {
        return meta.modified().ok();
    }
    let entries = fs::read_dir(path).ok()?;
    entries.flatten().filter_map(|entry| newest_below(&entry.path())).max()
}

fn build(workspace: &Path) -> Result<()> {
    crate::say("building the release binary");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--quiet", "-p", "sandboxer", "--bin", "sandbox"])
        .current_dir(workspace);
    let status = command.status().during("run cargo in", workspace)?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("cargo build ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_release_directory_is_beside_every_profile() {
        for own in ["/t/release/sandboxer-bench", "/t/debug/sandboxer-bench"] {
            assert_eq!(release_directory(Path::new(own)), Path::new("/t/release"));
        }
    }

    #[test]
    fn a_binary_is_stale_when_missing_or_older_than_a_source() {
        let scratch = tempfile::tempdir().unwrap();
        let binary = scratch.path().join("sandbox");
        assert!(is_stale(&binary, scratch.path()));
        fs::write(&binary, "").unwrap();
        assert!(!is_stale(&binary, scratch.path()));
        let source = scratch.path().join("crates/sandboxer/src/main.rs");
        fs::create_dir_all(source.parent().unwrap()).unwrap();
        let later = SystemTime::now() + Duration::from_secs(60);
        fs::File::create(&source).unwrap().set_modified(later).unwrap();
        assert!(is_stale(&binary, scratch.path()));
    }
}
