//! From making to removing, once and twice, alone and beside others.

use std::time::Duration;

use sandboxer_core::Error;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::environment::{Health, Provision};
use sandboxer_core::model::SandboxId;
use serde_json::json;

use super::yard::{LONG, Yard, inside, request, told, try_inside};

#[test]
fn a_container_is_made_used_and_gone() {
    let Some(yard) = Yard::new() else { return };
    assert_eq!(yard.extension.health(), Health::Healthy);
    let request = request();
    let handle = yard.provision(&request);
    assert!(yard.ready(&handle).unwrap().endpoints.is_empty());
    assert_eq!(inside(&handle, "hostname; echo hi"), "try\nhi");

    // As another process would, that knows the handle from the store.
    let again = serde_json::from_value(serde_json::to_value(&handle).unwrap()).unwrap();
    yard.ready(&again).unwrap();
    let found = yard.extension.inspect(Some(&request.sandbox_id)).unwrap();
    assert!(found.len() == 1 && found[0].running && found[0].made_at.is_some(), "{found:?}");

    yard.extension.teardown(&request.sandbox_id, Some(&handle)).unwrap();
    assert_eq!(yard.things_of(&request.sandbox_id), 0);
    yard.extension.teardown(&request.sandbox_id, Some(&handle)).unwrap();
    yard.extension.teardown(&request.sandbox_id, None).unwrap();
    assert!(told(&yard.ready(&handle).unwrap_err()).contains("it is gone"));
}

#[test]
fn making_it_twice_is_making_it_once() {
    let Some(yard) = Yard::new() else { return };
    let mut request = request();
    let first = yard.provision(&request);
    assert_eq!(yard.provision(&request), first);
    for state in ["stop --time=0", "pause"] {
        let words: Vec<&str> = state.split(' ').chain([first.data["container"].as_str().unwrap()]).collect();
        yard.docker.run(&words);
        assert_eq!(yard.provision(&request), first);
        yard.ready(&first).unwrap();
    }
    assert_eq!(yard.things_of(&request.sandbox_id), 1);

    request.options.insert("command".into(), json!(["sleep", "9999"]));
    let error = yard.extension.provision(&request).unwrap_err();
    assert!(told(&error).contains("sandboxer.configuration differs"), "{}", told(&error));
}

#[test]
fn somebody_elses_container_of_that_name_is_left_alone() {
    let Some(yard) = Yard::new() else { return };
    let request = request();
    let name = format!("--name=sandboxer-{}", request.sandbox_id.as_str());
    let theirs =
        yard.docker.run(&["run", "--detach", "--network=none", &name, "busybox:test", "sleep", "infinity"]);
    assert!(matches!(yard.extension.provision(&request), Err(Error::Refused { .. })));
    yard.extension.teardown(&request.sandbox_id, None).unwrap();
    yard.docker.run(&["rm", "--force", &theirs]);
}

#[test]
fn what_is_made_of_ours_is_not_ours() {
    let Some(yard) = Yard::new() else { return };
    let request = request();
    let handle = yard.provision(&request);
    let container = handle.data["container"].as_str().unwrap();
    let image = yard.docker.run(&["commit", container]);
    let theirs =
        yard.docker.run(&["run", "--detach", "--network=none", "--entrypoint=sleep", &image, "infinity"]);
    assert_eq!(yard.extension.inspect(None).unwrap().len(), 1);
    yard.extension.teardown(&request.sandbox_id, None).unwrap();
    assert_eq!(yard.docker.run(&["inspect", "--format={{.State.Running}}", &theirs]), "true");
    yard.docker.run(&["rm", "--force", &theirs]);
}

#[test]
fn another_state_directory_is_another_world() {
    let Some(yard) = Yard::new() else { return };
    let other = yard.another();
    let (mine, theirs) = (request(), request());
    yard.provision(&mine);
    let handle = other.provision(&theirs);
    let ids: Vec<_> = yard.extension.inspect(None).unwrap().into_iter().map(|f| f.sandbox_id).collect();
    assert_eq!(ids, std::slice::from_ref(&mine.sandbox_id));
    yard.extension.teardown(&theirs.sandbox_id, None).unwrap();
    other.ready(&handle).unwrap();
    assert!(matches!(yard.extension.provision(&theirs), Err(Error::Refused { .. })));
}

#[test]
fn what_stands_still_goes_on() {
    let Some(yard) = Yard::new() else { return };
    let request = request();
    let handle = yard.provision(&request);
    let state = || {
        let container = handle.data["container"].as_str().unwrap();
        yard.docker.run(&["inspect", "--format={{.State.Status}}", container])
    };
    let held = yard.extension.hold_still(&handle).unwrap();
    assert!(held.is_some() && state() == "paused");
    // Whoever held it is killed: nothing is dropped.
    std::mem::forget(held);
    let found = yard.extension.inspect(Some(&request.sandbox_id)).unwrap();
    assert!(found[0].what.ends_with("(paused)") && found[0].running, "{found:?}");
    drop(yard.extension.hold_still(&handle).unwrap());
    assert_eq!(state(), "running");

    std::mem::forget(yard.extension.hold_still(&handle).unwrap());
    yard.ready(&handle).unwrap();
    assert_eq!(state(), "running");

    std::mem::forget(yard.extension.hold_still(&handle).unwrap());
    yard.extension.teardown(&request.sandbox_id, Some(&handle)).unwrap();
    assert!(yard.extension.hold_still(&handle).unwrap().is_none());
}

#[test]
fn who_ends_at_once_is_quoted() {
    let Some(yard) = Yard::new() else { return };
    let mut request = request();
    let script = "echo 'cannot \x1b[31mstart'; exit 3".replace('\x1b', "\\033");
    request.options.insert("command".into(), json!(["sh", "-c", script.replace("echo", "echo -e")]));
    let error = end_of(&yard, &request);
    assert!(error.contains("exit code 3; it said: cannot  [31mstart"), "{error:?}");
    assert!(!error.contains('\x1b'));

    request.sandbox_id = SandboxId::generate();
    request.options.insert("command".into(), json!(["no-such-program"]));
    let error = end_of(&yard, &request);
    assert!(error.contains("exit code 127") && error.contains("no-such-program"), "{error}");
    yard.extension.teardown(&request.sandbox_id, None).unwrap();
    assert_eq!(yard.things_of(&request.sandbox_id), 0);
}

/// Why a container is never ready. It may be for a moment, before it ends.
fn end_of(yard: &Yard, request: &Provision) -> String {
    let handle = yard.provision(request);
    loop {
        if let Err(error) = yard.ready(&handle) {
            return told(&error);
        }
    }
}

#[test]
fn waiting_ends_with_health_and_with_the_deadline() {
    let Some(yard) = Yard::new() else { return };
    let check = r#"HEALTHCHECK --interval=200ms CMD ["test", "-e", "/tmp/well"]"#;
    let made = yard.docker.run(&["create", "busybox:test", "true"]);
    yard.docker.run(&["commit", "--change", check, &made, "healthy:test"]);
    yard.docker.run(&["rm", &made]);
    let mut request = request();
    request.options.insert("image".into(), json!("healthy:test"));
    let handle = yard.provision(&request);
    let short = yard.extension.wait_ready(&handle, Duration::from_millis(10), &CancelFlag::default());
    assert!(told(&short.unwrap_err()).contains("its health is \"starting\""));
    assert!(try_inside(&handle, "touch /tmp/well").status.success());
    yard.ready(&handle).unwrap();

    let flag = CancelFlag::default();
    flag.cancel();
    assert!(matches!(yard.extension.wait_ready(&handle, LONG, &flag), Err(Error::Cancelled)));
}
