//! Each call of the engine failed once, before it did anything and after it has; then the same again, and nothing is left at the end.

use sandboxer_core::contract::{CancelFlag, EnvironmentExtension};
use sandboxer_core::environment::{Handle, Provision};
use sandboxer_core::{Error, Result};
use serde_json::json;

use super::yard::{LONG, Yard, inside, request, told};

/// More calls than a whole life has.
const CALLS: usize = 13;

/// A whole life; how far it got is in `handle`.
fn live(
    extension: &dyn EnvironmentExtension,
    request: &Provision,
    handle: &mut Option<Handle>,
) -> Result<()> {
    let made = handle.insert(extension.provision(request)?);
    extension.wait_ready(made, LONG, &CancelFlag::default())?;
    drop(extension.hold_still(made)?);
    extension.teardown(&request.sandbox_id, Some(made))
}

#[test]
fn every_call_fails_once() {
    let Some(yard) = Yard::new() else { return };
    let mut failed = 0;
    let both = (1..=CALLS).flat_map(|nth| [(nth, "before"), (nth, "after")]);
    // Every call fails, before it has done its work or after it; in both ways in a full run.
    for (nth, how) in
        both.filter(|(nth, how)| sandboxer_testkit::full() || (nth % 2 == 0) == (*how == "after"))
    {
        let mut request = request();
        request.reachability.ports = vec![80];
        let broken = yard.through(&yard.failing_client(nth, how));
        let mut handle = None;
        let lived = live(&*broken, &request, &mut handle);
        if let Err(error) = &lived {
            failed += 1;
            assert!(told(error).contains("no luck"), "{nth} {how}: {}", told(error));
        }
        // Another process repeats it from where the store says that it is.
        let again = yard.provision(&request);
        yard.ready(&again).unwrap();
        assert_eq!(inside(&again, "echo works"), "works", "{nth} {how}");
        yard.extension.teardown(&request.sandbox_id, Some(&again)).unwrap();
        assert_eq!(yard.things_of(&request.sandbox_id), 0, "{nth} {how}");
    }
    assert!(failed >= 3, "{failed} of the calls failed a life");
}

#[test]
fn a_removal_that_fails_is_no_success() {
    let Some(yard) = Yard::new() else { return };
    let request = request();
    let handle = yard.provision(&request);
    // Lists, and then does not remove, however often it is asked.
    let program = yard.home.path().join("docker-keeps");
    let real = yard.docker.client().display();
    let script =
        format!("#!/bin/sh\ncase \"$3\" in rm) echo 'no luck' >&2; exit 1;; esac\nexec {real} \"$@\"\n");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = yard.through(&program).teardown(&request.sandbox_id, None).unwrap_err();
    assert!(told(&error).contains("no luck"), "{}", told(&error));
    yard.ready(&handle).unwrap();
}

#[test]
fn what_was_killed_half_way_is_found_and_completed() {
    let Some(yard) = Yard::new() else { return };
    let mut request = request();
    request.reachability.ports = vec![80];
    let handle = yard.provision(&request);
    let container = handle.data["container"].as_str().unwrap().to_owned();
    yard.docker.run(&["rm", "--force", &container]);
    // Only the network is there, as after a kill between the two.
    let found = yard.extension.inspect(None).unwrap();
    assert!(found.len() == 1 && found[0].what.starts_with("network "), "{found:?}");
    let again = yard.provision(&request);
    yard.ready(&again).unwrap();
    yard.docker.run(&["rm", "--force", again.data["container"].as_str().unwrap()]);
    yard.extension.teardown(&request.sandbox_id, None).unwrap();
    assert_eq!(yard.things_of(&request.sandbox_id), 0);
}

#[test]
fn a_missing_image_says_what_to_type() {
    let Some(yard) = Yard::new() else { return };
    let mut request = request();
    request.options.insert("image".into(), json!("nothing/here:1"));
    let error = yard.extension.provision(&request).unwrap_err();
    let Error::Refused { reason, hint } = &error else { panic!("{error:?}") };
    assert_eq!(reason, "the image nothing/here:1 is not on this machine");
    assert!(hint.as_ref().unwrap().contains("`docker pull nothing/here:1`"), "{hint:?}");
    assert_eq!(yard.things_of(&request.sandbox_id), 0);
}
