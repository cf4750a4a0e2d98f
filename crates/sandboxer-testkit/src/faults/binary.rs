//! Finding the `sandbox` binary of this build, and building it where it is missing or stale.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Names a binary to use instead of this build's.
const OVERRIDE: &str = "SANDBOXER_TEST_BINARY";

/// The `sandbox` binary beside the present test executable, at least as new as the sources.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os(OVERRIDE) {
        Some(path) => PathBuf::from(path),
        None => built(),
    })
}

/// The root of the cargo workspace.
pub fn workspace_root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::canonicalize(root).unwrap()
}

fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // <target>/<profile>/deps/<test>
    let profile = test.parent().and_then(Path::parent).expect("a test runs from <target>/<profile>/deps");
    let binary = profile.join("sandbox");
    let lock = File::create(profile.join(".sandbox-for-tests.lock")).unwrap();
    lock.lock().unwrap();
    if is_stale(&binary) {
        build(profile);
    }
    assert!(binary.exists(), "cargo built no {}", binary.display());
    binary
}

fn build(profile: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "sandboxer", "--bin", "sandbox", "--target-dir"]);
    command.arg(profile.parent().unwrap()).current_dir(workspace_root());
    if profile.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?} failed");
}

/// Cargo leaves a binary's time alone where nothing had to be done, so a stale look only costs a short `cargo build`.
fn is_stale(binary: &Path) -> bool {
    let Ok(built) = fs::metadata(binary).and_then(|m| m.modified()) else { return true };
    let crates = [
        "sandboxer",
        "sandboxer-core",
        "sandboxer-database",
        "sandboxer-extensions",
        "sandboxer-fs",
        "sandboxer-git",
        "sandboxer-hub",
        "sandboxer-keeper",
        "sandboxer-plugin",
        "sandboxer-sqlite",
        "sandboxer-strategies",
    ];
    crates.iter().any(|name| newest(&workspace_root().join("crates").join(name).join("src")) > built)
}

fn newest(path: &Path) -> SystemTime {
    let Ok(meta) = fs::symlink_metadata(path) else { return SystemTime::UNIX_EPOCH };
    let own = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    if !meta.is_dir() {
        return own;
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|e| newest(&e.path())).max().unwrap_or(own)
}
