//! The Python side, carried in this binary: unpacked into the state directory when a plugin needs it.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sandboxer_core::{Error, Result};
use sandboxer_fs::durable;

macro_rules! carried {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../python/", $name)))),*]
    };
}

/// Every file, by its place.
const FILES: &[(&str, &str)] = carried![
    "host.py",
    "sandboxer_plugin/__init__.py",
    "sandboxer_plugin/arguments.py",
    "sandboxer_plugin/calls.py",
    "sandboxer_plugin/diffing.py",
    "sandboxer_plugin/errors.py",
    "sandboxer_plugin/extensions.py",
    "sandboxer_plugin/failures.py",
    "sandboxer_plugin/loading.py",
    "sandboxer_plugin/models.py",
    "sandboxer_plugin/paths.py",
    "sandboxer_plugin/protocol.py",
    "sandboxer_plugin/py.typed",
    "sandboxer_plugin/results.py",
    "sandboxer_plugin/roles.py",
    "sandboxer_plugin/serving.py",
    "sandboxer_plugin/session.py",
    "sandboxer_plugin/shape.py",
    "sandboxer_plugin/streams.py",
    "sandboxer_plugin/testing.py",
    "sandboxer_plugin/trees.py",
    "sandboxer_plugin/wire.py",
];

/// The program that Python runs, unpacked below `directory`. What is there already is compared, and mended where it is not ours.
pub(crate) fn unpacked(directory: &Path) -> Result<PathBuf> {
    let top = directory.join(version());
    for (name, content) in FILES {
        let file = top.join(name);
        if std::fs::read(&file).is_ok_and(|found| found == content.as_bytes()) {
            continue;
        }
        let directory = file.parent().unwrap_or(&top);
        make_private(directory)?;
        durable::write_lazily(&file, content.as_bytes())?;
    }
    Ok(top.join("host.py"))
}

/// Two versions of this program may share a state directory.
pub(crate) fn version() -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, content) in FILES {
        hasher.update(name.as_bytes()).update(content.as_bytes());
    }
    hasher.finalize().to_hex().chars().take(12).collect()
}

/// Makes a directory that is its owner's alone.
pub(crate) fn make_private(directory: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| Error::io("create directory", directory, error))
}

/// The interpreter of a configuration entry: a name to look for, a program, or a virtual environment's directory. A bare name is
/// never a directory: whatever goes by it where the user happens to be is not meant.
pub(crate) fn interpreter(configured: Option<&str>) -> PathBuf {
    let named = configured.unwrap_or("python3");
    let path = PathBuf::from(named);
    if named.contains('/') && path.is_dir() { path.join("bin/python3") } else { path }
}

/// Where a virtual environment has its packages; nothing for any other interpreter.
pub(crate) fn site_packages(interpreter: &Path) -> Vec<PathBuf> {
    let Some(top) = interpreter.parent().and_then(Path::parent) else { return Vec::new() };
    if !top.join("pyvenv.cfg").exists() {
        return Vec::new();
    }
    let versions = std::fs::read_dir(top.join("lib")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|entry| entry.path().join("site-packages")).collect();
    found.sort();
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_python_needs_is_carried() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
        let is_source = |name: &String| name.ends_with(".py") || name.ends_with("py.typed");
        let listed = |dir: &str| {
            let entries = std::fs::read_dir(source.join(dir)).unwrap().flatten();
            let names = entries.map(|e| Path::new(dir).join(e.file_name()).to_str().unwrap().to_owned());
            names.filter(is_source).collect::<Vec<_>>()
        };
        let mut found = [listed(""), listed("sandboxer_plugin")].concat();
        found.sort();
        assert_eq!(found, FILES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_damaged_is_mended() {
        let dir = tempfile::tempdir().unwrap();
        let program = unpacked(dir.path()).unwrap();
        let whole = std::fs::read(&program).unwrap();
        std::fs::write(&program, "raise SystemExit").unwrap();
        assert_eq!(unpacked(dir.path()).unwrap(), program);
        assert_eq!(std::fs::read(&program).unwrap(), whole);
    }

    #[test]
    fn only_a_virtual_environment_has_packages_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let packages = dir.path().join("lib/python3.12/site-packages");
        std::fs::create_dir_all(&packages).unwrap();
        let interpreter = interpreter(dir.path().to_str());
        assert_eq!(site_packages(&interpreter), [""; 0].map(PathBuf::from));
        std::fs::write(dir.path().join("pyvenv.cfg"), "").unwrap();
        assert_eq!(site_packages(&interpreter), [packages]);
        assert!(site_packages(Path::new("python3")).is_empty());
    }

    #[test]
    fn an_interpreter_is_a_name_a_program_or_an_environment() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(interpreter(None), Path::new("python3"));
        assert_eq!(interpreter(Some("/opt/python3.12")), Path::new("/opt/python3.12"));
        assert_eq!(interpreter(dir.path().to_str()), dir.path().join("bin/python3"));
        assert!(Path::new("src").is_dir(), "the test is about nothing");
        assert_eq!(interpreter(Some("src")), Path::new("src"));
    }
}
