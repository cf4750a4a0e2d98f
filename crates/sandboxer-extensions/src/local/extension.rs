//! Namespaces of this machine as an extension.
//!
//! Providing one makes nothing: commands run in a runtime that is started when the first of them is, and ends by itself. So a sandbox of which
//! [`inspect`](EnvironmentExtension::inspect) finds nothing has lost nothing; there is something only while something runs in it, or where
//! a runtime that was killed has left its cgroups.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::contract::{CancelFlag, EnvironmentExtension, Quiet, Runtime};
use sandboxer_core::environment::{
    ExtensionContext, ExtensionFactory, Found, Handle, Health, Provision, Ready,
};
use sandboxer_core::model::SandboxId;
use sandboxer_core::{Error, Result};
use serde_json::json;

use super::client::Runtimes;

/// The version of what a handle holds.
const VERSION: u32 = 1;
/// How many user namespaces there may be.
const MOST: &str = "/proc/sys/user/max_user_namespaces";
/// Whether ordinary users may make one, where a kernel asks that.
const FOR_ALL: &str = "/proc/sys/kernel/unprivileged_userns_clone";

/// Commands in namespaces of this machine.
#[derive(Debug)]
pub struct LocalExtension {
    runtimes: Runtimes,
}

/// What makes the extensions of the provider `local`.
pub fn factory() -> ExtensionFactory {
    Arc::new(|_, context| Ok(Arc::new(LocalExtension::new(context))))
}

impl LocalExtension {
    /// Of the state directory that `context` names.
    pub fn new(context: &ExtensionContext) -> Self {
        // It is only ever started from what runs commands; here runtimes are found and ended.
        let program = context.program.as_deref().unwrap_or(Path::new(""));
        Self { runtimes: Runtimes::new(&context.home, program) }
    }

    fn found(&self, sandbox: String) -> Result<Option<Found>> {
        let Some(running) = self.runtimes.is_running(&sandbox)? else { return Ok(None) };
        let what = if running { "a runtime" } else { "what a killed runtime has left" };
        let socket = std::fs::metadata(self.runtimes.directory(&sandbox).join("socket"));
        let made_at = socket.and_then(|socket| socket.modified()).ok();
        Ok(Some(Found {
            sandbox_id: SandboxId::from_string(sandbox),
            what: what.to_owned(),
            running,
            made_at: made_at.and_then(|time| Timestamp::try_from(time).ok()),
        }))
    }
}

impl EnvironmentExtension for LocalExtension {
    fn provision(&self, request: &Provision) -> Result<Handle> {
        Ok(Handle {
            version: VERSION,
            sandbox_id: request.sandbox_id.clone(),
            data: json!({}),
            exec: Vec::new(),
            exec_on_terminal: Vec::new(),
        })
    }

    fn wait_ready(&self, _handle: &Handle, _deadline: Duration, _cancel: &CancelFlag) -> Result<Ready> {
        Ok(Ready::default())
    }

    fn teardown(&self, sandbox: &SandboxId, _handle: Option<&Handle>) -> Result<()> {
        self.runtimes.end(sandbox.as_str())?;
        if self.found(sandbox.as_str().to_owned())?.is_none() {
            return Ok(());
        }
        // Somebody started a command meanwhile.
        let holder = Some("its runtime was started again".to_owned());
        Err(Error::Busy { path: self.runtimes.directory(sandbox.as_str()), holder })
    }

    fn inspect(&self, sandbox: Option<&SandboxId>) -> Result<Vec<Found>> {
        let sandboxes = match sandbox {
            Some(sandbox) => vec![sandbox.as_str().to_owned()],
            None => self.runtimes.sandboxes()?,
        };
        sandboxes.into_iter().filter_map(|sandbox| self.found(sandbox).transpose()).collect()
    }

    fn health(&self) -> Health {
        let setting = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        judge(setting(MOST), setting(FOR_ALL), rustix::process::geteuid().is_root())
    }

    fn hold_still(&self, handle: &Handle) -> Result<Option<Quiet>> {
        self.runtimes.quiesce(&handle.sandbox_id)
    }
}

/// What can be known without trying; `sandbox doctor` tries.
fn judge(most: Option<String>, for_all: Option<String>, is_root: bool) -> Health {
    if most.is_none() {
        return Health::Undetected("this kernel has no user namespaces".to_owned());
    }
    let off = |path: &str, value: &str| {
        let key = path.trim_start_matches("/proc/sys/").replace('/', ".");
        Health::Unhealthy(format!("user namespaces are switched off: type `sysctl -w {key}={value}` as root"))
    };
    match (most.as_deref(), for_all.as_deref()) {
        (Some("0"), _) => off(MOST, "10000"),
        (_, Some("0")) if !is_root => off(FOR_ALL, "1"),
        _ => Health::Healthy,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::{self, File};
    use std::path::PathBuf;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    struct Yard {
        home: tempfile::TempDir,
        extension: LocalExtension,
    }

    impl Yard {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let context = ExtensionContext::quiet(home.path());
            Self { extension: LocalExtension::new(&context), home }
        }

        /// What a runtime leaves in its directory, and the lock that it holds.
        fn runtime(&self, sandbox: &str) -> (PathBuf, File) {
            let directory = self.home.path().join("sandboxes").join(sandbox).join("runtime");
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("socket"), "").unwrap();
            let lock = File::create(directory.join("lock")).unwrap();
            flock(&lock, FlockOperation::LockExclusive).unwrap();
            (directory, lock)
        }
    }

    fn id(text: &str) -> SandboxId {
        SandboxId::from_string(text)
    }

    #[test]
    fn without_a_runtime_there_is_nothing() {
        let yard = Yard::new();
        assert!(yard.extension.inspect(None).unwrap().is_empty());
        fs::create_dir_all(yard.home.path().join("sandboxes/sbx_1/runtime")).unwrap();
        assert!(yard.extension.inspect(None).unwrap().is_empty());
        assert!(yard.extension.inspect(Some(&id("sbx_2"))).unwrap().is_empty());
        yard.extension.teardown(&id("sbx_2"), None).unwrap();
    }

    #[test]
    fn a_runtime_is_found_by_its_directory() {
        let yard = Yard::new();
        let (_, lock) = yard.runtime("sbx_1");
        let found = yard.extension.inspect(None).unwrap();
        assert!(found.len() == 1 && found[0].running && found[0].made_at.is_some(), "{found:?}");
        drop(lock);
        let found = yard.extension.inspect(Some(&id("sbx_1"))).unwrap();
        assert!(found.len() == 1 && !found[0].running, "{found:?}");
    }

    #[test]
    fn what_a_killed_one_has_left_is_removed() {
        let yard = Yard::new();
        let (directory, lock) = yard.runtime("sbx_1");
        drop(lock);
        yard.extension.teardown(&id("sbx_1"), None).unwrap();
        assert!(yard.extension.inspect(None).unwrap().is_empty() && !directory.join("socket").exists());
        yard.extension.teardown(&id("sbx_1"), None).unwrap();
    }

    #[test]
    fn health_names_the_setting() {
        let judged = |most: Option<&str>, for_all: Option<&str>, root| {
            judge(most.map(str::to_owned), for_all.map(str::to_owned), root)
        };
        assert_eq!(judged(Some("100"), None, false), Health::Healthy);
        assert_eq!(judged(Some("100"), Some("0"), true), Health::Healthy);
        assert!(matches!(judged(None, None, true), Health::Undetected(_)));
        for health in [judged(Some("0"), None, true), judged(Some("9"), Some("0"), false)] {
            let Health::Unhealthy(reason) = health else { panic!("{health:?}") };
            assert!(reason.contains("sysctl -w "), "{reason}");
        }
    }
}
