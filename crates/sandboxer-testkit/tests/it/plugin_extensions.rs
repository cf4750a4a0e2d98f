//! An extension that is served by the Rust SDK: what the check makes of it, and what becomes of one that is not ready yet.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::contract::{CancelFlag, EnvironmentExtension};
use sandboxer_core::environment::{ExtensionContext, ExtensionDefinition, Health};
use sandboxer_plugin::check::{AnotherExtension, Outcome, Trial, check_extension};
use sandboxer_plugin::extension::factory;
use serde_json::json;

fn definition(ready_after_ms: u64) -> ExtensionDefinition {
    let module = format!("exec:{}", env!("CARGO_BIN_EXE_served-extension"));
    serde_json::from_value(json!({
        "id": "ext.served",
        "summary": "",
        "provider": {"plugin": {"module": module, "timeout": "50s"}},
        "capabilities": {"isolation": ["files"], "network": ["none"], "workspaces": "none"},
        "pricing": {"model": "free"},
        "options": {"ready_after_ms": ready_after_ms},
    }))
    .unwrap()
}

fn open(home: &Path, ready_after_ms: u64) -> Arc<dyn EnvironmentExtension> {
    let context = ExtensionContext::quiet(home);
    factory()(&definition(ready_after_ms), &context).unwrap()
}

#[test]
fn one_that_is_served_passes_whole() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().to_path_buf();
    let another = AnotherExtension(Arc::new(move || Ok(open(&path, 0))));
    let trial = Trial { another: Some(another), ..Trial::of(&definition(0), CancelFlag::default()) };
    let report = check_extension(&*open(home.path(), 0), &trial);
    assert_eq!(report.count(Outcome::Ok), report.steps.len(), "{report:#?}");
}

#[test]
fn an_error_when_time_is_up_is_asked_about_again_and_one_in_time_is_not() {
    let home = tempfile::tempdir().unwrap();
    let request = Trial::of(&definition(0), CancelFlag::default()).request;
    let wait = |extension: &dyn EnvironmentExtension, seconds| {
        let handle = extension.provision(&request).unwrap();
        extension.wait_ready(&handle, Duration::from_secs(seconds), &CancelFlag::default())
    };
    // Longer than it is asked to wait at a time.
    wait(&*open(home.path(), 5000), 50).unwrap();
    let late = wait(&*open(home.path(), 3_600_000), 3).unwrap_err();
    assert!(late.to_string().ends_with("it was not ready within 3s: the paint is still wet"), "{late}");
    let extension = open(home.path(), 0);
    let handle = extension.provision(&request).unwrap();
    extension.teardown(&request.sandbox_id, Some(&handle)).unwrap();
    let gone = extension.wait_ready(&handle, Duration::from_secs(50), &CancelFlag::default()).unwrap_err();
    assert!(gone.to_string().contains("cannot look at"), "{gone}");
    assert_eq!(extension.health(), Health::Healthy);
}
