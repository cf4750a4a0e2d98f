//! Get or create: identity, names, fallback, undo.

use super::*;
use jiff::SignedDuration;
use serde_json::json;

#[test]
fn looking_at_a_state_that_is_not_there_makes_nothing() {
    let world = World::new();
    let manager = world.manager();
    assert_eq!(manager.list(true).unwrap(), []);
    assert_eq!(manager.recover().unwrap(), []);
    assert_eq!(manager.enforce_ttl().unwrap(), GcReport::default());
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), GcReport::default());
    assert_eq!(manager.adopt().unwrap(), []);
    assert!(manager.log(None, 10).unwrap().is_empty());
    assert!(manager.find("x").is_err());
    assert!(!world.home().exists());
}

#[test]
fn a_sandbox_is_ready_described_and_logged() {
    let world = World::new();
    let (manager, target) = world.one();
    let sandbox = &target.sandbox;
    assert_eq!((sandbox.name.as_str(), sandbox.state), ("proj", SandboxState::Ready));
    assert_eq!(sandbox.workspaces[0].requested_strategy, "overlay");
    assert!(sandbox.workspaces[0].reason.contains("default_strategy"), "{}", sandbox.workspaces[0].reason);
    assert!(!sandbox.workspaces[0].sandbox_ref.metadata.contains_key("unmade"));
    assert_eq!(manager.list(false).unwrap(), std::slice::from_ref(sandbox));
    assert_eq!(last(&manager, "create").0, "done");
    let descriptor = descriptor::Descriptor::read(&world.home().join("sandboxes").join(sandbox.id.as_str()));
    assert_eq!(&descriptor.unwrap().unwrap().sandbox, sandbox);
    assert_eq!(manager.home(), world.home());
    assert!(manager.registry().get("none").is_ok());
}

#[test]
fn without_a_plan_the_same_directory_gives_two_sandboxes() {
    let world = World::new();
    let resource = world.resource("proj");
    let manager = world.manager();
    let first = manager.get_or_create_sandbox(&request(&[&resource])).unwrap();
    let second = manager.get_or_create_sandbox(&request(&[&resource])).unwrap();
    assert!(first.created && second.created);
    assert_ne!(first.sandbox.plan_id, second.sandbox.plan_id);
    assert_eq!((first.sandbox.name.as_str(), second.sandbox.name.as_str()), ("proj", "proj-2"));
    assert_eq!(manager.list(false).unwrap()[0].name, "proj-2", "newest first");
}

#[test]
fn with_a_plan_the_live_sandbox_is_returned() {
    let world = World::new();
    let (x, y) = (world.resource("x"), world.resource("y"));
    let first = world.manager().get_or_create_sandbox(&with_plan("p", &[&x, &y])).unwrap();
    let again = world.manager().get_or_create_sandbox(&with_plan("p", &[&y, &x])).unwrap();
    assert!(first.created && !again.created);
    assert_eq!(first.sandbox, again.sandbox);
    assert!(again.message.contains(&first.sandbox.name), "{}", again.message);
    let other_plan = world.manager().get_or_create_sandbox(&with_plan("q", &[&x, &y])).unwrap();
    assert!(other_plan.created);
}

#[test]
fn a_plan_place_is_free_again_after_destroy() {
    let world = World::new();
    let x = world.resource("x");
    let manager = world.manager();
    let first = manager.get_or_create_sandbox(&with_plan("p", &[&x])).unwrap().sandbox;
    manager.destroy(&manager.find("x").unwrap(), Uncommitted::Discard).unwrap();
    let second = manager.get_or_create_sandbox(&with_plan("p", &[&x])).unwrap();
    assert!(second.created);
    assert_ne!(second.sandbox.id, first.id);
    assert_eq!(second.sandbox.name, first.name);
}

fn refusal(world: &World, request: &CreateRequest) -> String {
    match world.manager().get_or_create_sandbox(request) {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_partial_overlap_is_refused_by_name() {
    let world = World::new();
    let (x, y) = (world.resource("x"), world.resource("y"));
    let inner = world.resource("x/inner");
    let existing = world.manager().get_or_create_sandbox(&with_plan("p", &[&x])).unwrap().sandbox;
    let partial =
        [with_plan("p", &[&x, &y]), with_plan("p", &[&inner]), with_plan("p", &[x.parent().unwrap()])];
    for request in partial {
        let reason = refusal(&world, &request);
        assert!(reason.contains(existing.id.as_str()) && reason.contains("plan p"), "{reason}");
    }
    world.manager().get_or_create_sandbox(&with_plan("p", &[&y])).unwrap();
    let both = refusal(&world, &with_plan("p", &[&x, &y]));
    assert!(both.contains("x (") && both.contains("y ("), "{both}");
}

#[test]
fn another_strategy_or_other_options_are_refused() {
    let world = World::new();
    let x = world.resource("x");
    let with_strategy = |name: &str| CreateRequest { strategy: Some(name.into()), ..with_plan("p", &[&x]) };
    world.manager().get_or_create_sandbox(&with_strategy("filesystem_copy")).unwrap();
    assert!(refusal(&world, &with_strategy("overlay")).contains("filesystem_copy"));
    let mut request = with_plan("p", &[&x]);
    assert!(
        !world.manager().get_or_create_sandbox(&request).unwrap().created,
        "no strategy asked for: any will do"
    );
    assert!(!world.manager().get_or_create_sandbox(&with_strategy("filesystem_copy")).unwrap().created);
    request.inputs[0].properties.insert("exclude".into(), json!(["*.o"]));
    assert!(refusal(&world, &request).contains("other options"));
}

#[test]
fn what_does_not_make_sense_is_refused_before_anything_is_made() {
    let world = World::new();
    let (x, y, inner) = (world.resource("x"), world.resource("y"), world.resource("x/inner"));
    assert!(refusal(&world, &request(&[&x, &inner])).contains("overlap"));
    assert!(refusal(&world, &request(&[&x, &x])).contains("overlap"));
    let usage = |request: CreateRequest| match world.manager().get_or_create_sandbox(&request) {
        Err(Error::Usage { message, .. }) => message,
        other => panic!("accepted: {other:?}"),
    };
    assert!(usage(request(&[])).contains("at least one"));
    assert!(usage(CreateRequest { name: Some("sbx_1".into()), ..request(&[&x]) }).contains("sbx_1"));
    assert!(usage(CreateRequest { plan: Some(PlanId::from_string("")), ..request(&[&x]) }).contains("plan"));
    let ttl = |seconds| CreateRequest { ttl: Some(SignedDuration::from_secs(seconds)), ..request(&[&x]) };
    assert!(usage(ttl(0)).contains("not positive"));
    assert!(usage(ttl(i64::MAX)).contains("too long"));
    let mut twice = request(&[&x, &y]);
    twice.inputs.iter_mut().for_each(|input| input.name = Some("same".into()));
    assert!(usage(twice).contains("same"));
    let mut odd = request(&[&x]);
    odd.inputs[0].name = Some("a:b".into());
    assert!(usage(odd).contains("a:b"));
    assert!(world.manager().get_or_create_sandbox(&request(&[Path::new("/no/such")])).is_err());
    assert!(!world.home().exists());
}

#[test]
fn a_taken_name_is_an_error_that_names_its_holder() {
    let world = World::new();
    let (x, y) = (world.resource("x"), world.resource("y"));
    let named = |resource: &Path| CreateRequest { name: Some("mine".into()), ..request(&[resource]) };
    let holder = world.manager().get_or_create_sandbox(&named(&x)).unwrap().sandbox;
    let error = world.manager().get_or_create_sandbox(&named(&y)).unwrap_err();
    assert!(error.to_string().contains(holder.id.as_str()), "{error}");
    assert_eq!(world.manager().list(true).unwrap().len(), 1);
}

#[test]
fn workspaces_are_named_after_inputs_or_resources() {
    let world = World::new();
    let (one, two, three) = (world.resource("p/src"), world.resource("q/src"), world.resource("r/src"));
    let mut request = request(&[&one, &two, &three]);
    request.inputs[2].name = Some("src-2".into());
    let sandbox = world.manager().get_or_create_sandbox(&request).unwrap().sandbox;
    let names: Vec<_> = sandbox.workspaces.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["src", "src-3", "src-2"]);
}

#[test]
fn a_time_to_live_comes_from_the_request_or_the_settings() {
    let world = World::new();
    let x = world.resource("x");
    let mut parts = world.parts();
    parts.settings.default_ttl = Some(SignedDuration::from_hours(1));
    let manager = SandboxManager::open(parts).unwrap();
    let expiry = |request: &CreateRequest| {
        let sandbox = manager.get_or_create_sandbox(request).unwrap().sandbox;
        sandbox.expires_at.unwrap().duration_since(sandbox.created_at)
    };
    assert_eq!(expiry(&request(&[&x])), SignedDuration::from_hours(1));
    let own = CreateRequest { ttl: Some(SignedDuration::from_mins(2)), ..request(&[&x]) };
    assert_eq!(expiry(&own), SignedDuration::from_mins(2));
}

#[test]
fn a_fallback_is_told() {
    let world = World::new();
    *world.script.fall_back_to.lock().unwrap() = Some("filesystem_copy".into());
    let (_, target) = world.one();
    let workspace = &target.workspaces[0];
    assert_eq!(workspace.requested_strategy, "overlay");
    assert_eq!(workspace.sandbox_ref.strategy_name, "filesystem_copy");
    assert!(
        workspace.reason.ends_with("fell back to filesystem_copy: no reflinks here"),
        "{}",
        workspace.reason
    );
}

#[test]
fn a_fallback_that_was_ruled_out_is_undone() {
    let world = World::new();
    *world.script.fall_back_to.lock().unwrap() = Some("filesystem_copy".into());
    let x = world.resource("x");
    let strict = CreateRequest { no_fallback: true, ..with_plan("p", &[&x]) };
    let error = world.manager().get_or_create_sandbox(&strict).unwrap_err();
    let text = "isolation by overlay is not available";
    assert!(error.to_string().starts_with(text) && error.to_string().contains("no reflinks"), "{error}");
    assert_eq!(world.leftovers(), [""; 0]);
    world.manager().get_or_create_sandbox(&with_plan("p", &[&x])).unwrap();
    assert!(refusal(&world, &strict).contains("filesystem_copy"), "the existing one fell back");
}

#[test]
fn a_failed_create_leaves_nothing_and_says_which_workspace() {
    for point in ["create y", "create.half y"] {
        let world = World::new();
        let (x, y) = (world.resource("x"), world.resource("y"));
        world.script.at(point, Fault::Fail);
        let manager = world.manager();
        let error = manager.get_or_create_sandbox(&with_plan("p", &[&x, &y])).unwrap_err();
        assert!(matches!(&error, Error::Workspace { workspace, .. } if workspace == "y"), "{error}");
        assert!(world.script.calls().contains(&"cleanup x".to_owned()));
        assert_eq!(manager.list(false).unwrap(), []);
        assert_eq!(manager.list(true).unwrap()[0].state, SandboxState::Failed);
        assert!(last(&manager, "create").1.contains("scripted failure"));
        let again = manager.get_or_create_sandbox(&with_plan("p", &[&x, &y])).unwrap();
        assert!(again.created, "the plan's place and the name are free");
        assert_eq!(again.sandbox.name, "x");
    }
}

#[test]
fn workspaces_are_undone_last_first() {
    let world = World::new();
    let (x, y, z) = (world.resource("x"), world.resource("y"), world.resource("z"));
    world.script.at("create z", Fault::Fail);
    world.manager().get_or_create_sandbox(&request(&[&x, &y, &z])).unwrap_err();
    let cleaned: Vec<_> =
        world.script.calls().into_iter().filter(|call| call.starts_with("cleanup")).collect();
    assert_eq!(cleaned, ["cleanup y", "cleanup x"]);
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn an_undo_that_fails_is_left_to_recovery() {
    let world = World::new();
    let (x, y) = (world.resource("x"), world.resource("y"));
    world.script.at("create y", Fault::Fail);
    world.script.at("cleanup x", Fault::Fail);
    let manager = world.manager();
    let error = manager.get_or_create_sandbox(&request(&[&x, &y])).unwrap_err();
    assert!(error.root().to_string().contains("create y"), "the first failure is the one to tell: {error}");
    assert_eq!(manager.list(false).unwrap()[0].state, SandboxState::Provisioning);
    let recovered = world.manager().recover().unwrap();
    assert!(recovered[0].message.contains("removed half-made sandbox"), "{recovered:?}");
    assert_eq!(world.leftovers(), [""; 0]);
    assert_eq!(manager.list(false).unwrap(), []);
}

#[test]
fn an_interrupt_undoes_what_was_made() {
    let world = World::new();
    let x = world.resource("x");
    world.cancel.cancel();
    let error = world.manager().get_or_create_sandbox(&request(&[&x])).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn a_refusal_of_the_permission_service_says_why() {
    let world = World::new();
    let x = world.resource("x");
    let parts = ManagerParts { permissions: Arc::new(AllBut("create")), ..world.parts() };
    let error = SandboxManager::open(parts).unwrap().get_or_create_sandbox(&request(&[&x])).unwrap_err();
    assert_eq!(error.to_string(), "refused: adm:test may not create");
    assert!(!world.home().exists());
}

#[test]
fn a_dead_creation_of_the_same_plan_is_cleared_out_of_the_way() {
    let world = World::new();
    let x = world.resource("x");
    world.script.at("create.half", Fault::Die);
    dies(|| world.manager().get_or_create_sandbox(&with_plan("p", &[&x])));
    let created = world.manager().get_or_create_sandbox(&with_plan("p", &[&x])).unwrap();
    assert!(created.created);
    assert_eq!(world.leftovers().len(), 2, "{:?}", world.leftovers());
}

#[test]
fn a_living_creation_of_the_same_plan_is_waited_for_and_then_busy() {
    let world = World::new();
    let x = world.resource("x");
    world.script.at("create.half", Fault::Die);
    dies(|| world.manager().get_or_create_sandbox(&with_plan("p", &[&x])));
    let manager = world.manager();
    let id = manager.list(false).unwrap()[0].id.clone();
    let _alive = lock::SandboxLock::try_acquire(&manager.sandbox_dir(&id)).unwrap().unwrap();
    let error = manager.get_or_create_sandbox(&with_plan("p", &[&x])).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert_eq!(manager.recover().unwrap(), [], "what is alive is not recovered");
}

#[test]
fn the_state_directory_and_what_lies_in_it_are_no_resources() {
    let world = World::new();
    let (manager, target) = world.one();
    let link = world.temp.path().join("link");
    std::os::unix::fs::symlink(world.home(), &link).unwrap();
    let before = world.leftovers();
    for inside in [world.home(), link.join("scratch"), manager.sandbox_path(&target).unwrap()] {
        let error = manager.get_or_create_sandbox(&request(&[&inside])).unwrap_err();
        assert!(matches!(&error, Error::Refused { .. }), "{error}");
        assert!(error.to_string().contains("lies in the state directory"), "{error}");
    }
    assert_eq!(world.leftovers(), before);
    assert_eq!(manager.list(true).unwrap().len(), 1);
}

#[test]
fn a_caller_cannot_have_a_parked_workspace_brought_back() {
    let world = World::new();
    let x = world.resource("x");
    let manager = world.manager();
    let mut request = request(&[&x]);
    request.inputs[0].properties.insert("parked".to_owned(), "/somebody/elses".into());
    assert!(matches!(manager.get_or_create_sandbox(&request), Err(Error::Usage { .. })));
    let mut resource = crate::model::Resource::at_path("fs-directory", &x);
    resource.properties.insert("parked".to_owned(), "/somebody/elses".into());
    let handler = manager.handler("fs-directory").unwrap();
    let refused = handler.create_sandbox(&PlanId::from_string("p"), &resource);
    assert!(matches!(refused, Err(Error::Usage { .. })));
    assert!(manager.list(true).unwrap().is_empty());
}

#[test]
fn options_on_branches_need_something_that_has_them() {
    let world = World::new();
    let resource = world.resource("proj");
    for (key, value, flag) in [
        ("from", json!("main"), "--from"),
        ("clean", json!(true), "--clean"),
        ("ignored", json!(false), "--no-ignored"),
    ] {
        let mut request = request(&[&resource]);
        request.inputs[0].properties.insert(key.to_owned(), value);
        let refusal = world.manager().get_or_create_sandbox(&request).unwrap_err();
        assert!(
            matches!(&refusal, Error::Usage { message, hint: Some(_) } if message.contains(flag)),
            "{refusal:?}"
        );
    }
    assert!(world.manager().list(true).unwrap().is_empty());
}
