//! The last check of each plugin, kept in the state directory so that a listing shows it without starting anything.
//!
//! A record is valid for one declaration and the plugin's file as it was. Anything else is "not checked".

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sandboxer_core::config::CustomStrategy;
use sandboxer_core::verification::CheckResult;
use sandboxer_core::{Error, Result};
use sandboxer_fs::durable;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::envelope::shape::Role;
use crate::python;
use crate::source::{plugins, source_files};

/// Where the result of checking one plugin is kept, and for which state of the plugin it is valid.
#[derive(Clone, Debug)]
pub struct CheckRecord {
    file: PathBuf,
    fingerprint: String,
}

#[derive(Deserialize, Serialize)]
struct Recorded {
    fingerprint: String,
    result: CheckResult,
}

impl CheckRecord {
    /// The record of the plugin `name` as it is declared and as its file is now. Open it before the plugin is started: a file
    /// that changes during the check is then not taken for the one that was checked.
    pub(crate) fn open(
        home: &Path,
        role: &Role,
        name: &str,
        custom: &CustomStrategy,
        modules: Option<&Path>,
    ) -> Self {
        let file = plugins(home, "checks").join(role.name).join(format!("{name}.json"));
        Self { file, fingerprint: fingerprint(custom, modules) }
    }

    /// The last result, if it is about the plugin as it is now.
    pub fn load(&self) -> CheckResult {
        let bytes = fs::read(&self.file).unwrap_or_default();
        match serde_json::from_slice::<Recorded>(&bytes) {
            Ok(recorded) if recorded.fingerprint == self.fingerprint => recorded.result,
            _ => CheckResult::NotChecked,
        }
    }

    /// Keeps the result of a full check.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn save(&self, result: CheckResult) -> Result<()> {
        if self.load() == result {
            return Ok(());
        }
        python::make_private(self.file.parent().unwrap_or(Path::new("/")))?;
        let recorded = Recorded { fingerprint: self.fingerprint.clone(), result };
        durable::write_lazily(&self.file, &serde_json::to_vec(&recorded).unwrap_or_default())
    }

    /// Keeps what the verification at a start of the plugin found. It looks at methods alone, so success says nothing against
    /// steps that failed in a full check.
    pub fn save_verification<T>(&self, verified: &Result<T>) {
        let result = match verified {
            Ok(_) if self.load().has_failed_steps() => return,
            Ok(_) => Some(CheckResult::Ok),
            Err(error) => CheckResult::from_error(error),
        };
        // A result that cannot be kept is found again by the next check: no reason for a command to fail.
        let _: Option<Result<(), Error>> = result.map(|result| self.save(result));
    }
}

/// Identifies what would be started: the declaration, the SDK that loads Python classes, and the plugin's file.
fn fingerprint(custom: &CustomStrategy, modules: Option<&Path>) -> String {
    let declared = json!([
        custom.module,
        custom.class,
        custom.python,
        custom.env,
        custom.timeout,
        custom.resource_types,
        custom.options,
        python::version(),
    ]);
    let mut text = declared.to_string();
    for file in source_files(custom, modules) {
        let _ = write!(text, "\n{file:?} {:?}", stamp(&file));
    }
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Differs after every edit, and after a change of permissions, which decide whether a program can be started.
fn stamp(file: &Path) -> Option<[i64; 6]> {
    let data = fs::metadata(file).ok()?;
    let (size, inode) = (data.size().cast_signed(), data.ino().cast_signed());
    Some([size, inode, data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sandboxer_core::verification::PluginProblem;

    use super::*;
    use crate::strategy::STRATEGY;

    fn python(module: &str) -> CustomStrategy {
        CustomStrategy { module: module.to_owned(), ..CustomStrategy::default() }
    }

    fn open(home: &Path, custom: &CustomStrategy) -> CheckRecord {
        CheckRecord::open(home, &STRATEGY, "mine", custom, Some(home))
    }

    fn unusable(reason: &str) -> CheckResult {
        CheckResult::Broken { problems: vec![PluginProblem::Unusable { reason: reason.to_owned() }] }
    }

    #[test]
    fn a_result_is_kept_until_the_declaration_changes() {
        let home = tempfile::tempdir().unwrap();
        let custom = python("pkg.mine:Mine");
        assert_eq!(open(home.path(), &custom).load(), CheckResult::NotChecked);
        for result in [CheckResult::Ok, unusable("it is gone"), CheckResult::Ok] {
            open(home.path(), &custom).save(result.clone()).unwrap();
            assert_eq!(open(home.path(), &custom).load(), result);
        }
        let option = ("zone".to_owned(), json!("b"));
        let changed = [
            python("pkg.mine:Other"),
            CustomStrategy { python: Some("python3.12".into()), ..custom.clone() },
            CustomStrategy { options: [option].into(), ..custom.clone() },
            CustomStrategy { env: [("PYTHONPATH".to_owned(), "/elsewhere".to_owned())].into(), ..custom },
        ];
        for custom in changed {
            assert_eq!(open(home.path(), &custom).load(), CheckResult::NotChecked, "{custom:?}");
        }
    }

    #[test]
    fn a_result_is_kept_until_the_file_of_the_plugin_changes() {
        let home = tempfile::tempdir().unwrap();
        let (module, package) = (home.path().join("pkg/mine.py"), home.path().join("pkg/mine/__init__.py"));
        let program = home.path().join("program");
        fs::create_dir_all(package.parent().unwrap()).unwrap();
        let started = CustomStrategy { module: format!("exec:{}", program.display()), ..python("") };
        for (custom, file) in
            [(python("pkg.mine:Mine"), &module), (python("pkg.mine:Mine"), &package), (started, &program)]
        {
            for content in ["first", "again"] {
                let record = open(home.path(), &custom);
                record.save(CheckResult::Ok).unwrap();
                fs::write(file, content).unwrap();
                assert_eq!(open(home.path(), &custom).load(), CheckResult::NotChecked, "{}", file.display());
                assert_eq!(record.load(), CheckResult::Ok, "the test is about nothing");
            }
            open(home.path(), &custom).save(CheckResult::Ok).unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(open(home.path(), &custom).load(), CheckResult::NotChecked, "{}", file.display());
        }
    }

    #[test]
    fn a_damaged_record_counts_as_not_checked() {
        let home = tempfile::tempdir().unwrap();
        let record = open(home.path(), &python("a:B"));
        record.save(CheckResult::Ok).unwrap();
        fs::write(&record.file, "{").unwrap();
        assert_eq!(record.load(), CheckResult::NotChecked);
    }

    #[test]
    fn a_verification_does_not_hide_failed_steps_and_an_interruption_changes_nothing() {
        let home = tempfile::tempdir().unwrap();
        let record = open(home.path(), &python("a:B"));
        record.save_verification(&Ok(()));
        record.save_verification::<()>(&Err(Error::Cancelled));
        assert_eq!(record.load(), CheckResult::Ok);
        let step = PluginProblem::FailedStep { step: "commit".into(), detail: "nothing changed".into() };
        let failed = CheckResult::Broken { problems: vec![step] };
        record.save(failed.clone()).unwrap();
        record.save_verification(&Ok(()));
        assert_eq!(record.load(), failed);
        record.save_verification::<()>(&Err(Error::usage("it is gone")));
        assert_eq!(record.load(), unusable("it is gone"));
        record.save_verification(&Ok(()));
        assert_eq!(record.load(), CheckResult::Ok);
    }
}
