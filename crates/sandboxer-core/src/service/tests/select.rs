//! From a typed word to a target.

use super::*;

#[test]
fn ids_prefixes_names_and_last_find_the_sandbox() {
    let world = World::new();
    let (manager, target) = world.one();
    let id = target.sandbox.id.as_str();
    for selector in [id, &id.to_uppercase(), &id[..20], &id[4..], &id[4..16], "proj", "@last"] {
        assert_eq!(manager.find(selector).unwrap(), target, "{selector}");
    }
}

#[test]
fn last_is_the_most_recently_created_live_one() {
    let world = World::new();
    let (manager, first) = world.one();
    let (_, second) = world.one();
    assert_eq!(manager.find("@last").unwrap(), second);
    manager.destroy(&second, Uncommitted::Discard).unwrap();
    assert_eq!(manager.find("@last").unwrap(), first);
    manager.destroy(&first, Uncommitted::Discard).unwrap();
    assert!(matches!(manager.find("@last"), Err(Error::NotFound { what: "sandbox", .. })));
}

#[test]
fn an_ambiguous_beginning_lists_the_candidates() {
    let world = World::new();
    let (manager, first) = world.one();
    let (_, second) = world.one();
    let error = manager.find(&first.sandbox.id.as_str()[..8]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Usage { .. }));
    assert!(text.contains(first.sandbox.id.as_str()) && text.contains(second.sandbox.id.as_str()), "{text}");
}

#[test]
fn too_short_or_odd_beginnings_find_nothing() {
    let world = World::new();
    let (manager, target) = world.one();
    let id = target.sandbox.id.as_str();
    for selector in [&id[..7], &id[4..7], "", "sbx_", "01%", "sbx_01~~", &format!("{id}0")] {
        assert!(matches!(manager.find(selector), Err(Error::NotFound { .. })), "{selector:?}");
    }
}

#[test]
fn a_name_that_is_nearly_right_is_suggested() {
    let world = World::new();
    let (manager, _) = world.one();
    match manager.find("porj") {
        Err(Error::NotFound { similar, .. }) => assert_eq!(similar, ["proj"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_workspace_is_named_behind_a_colon() {
    let world = World::new();
    let (manager, target) = world.two();
    assert_eq!(target.workspaces.len(), 2);
    let y = manager.find("x:y").unwrap();
    assert_eq!(y.workspaces.len(), 1);
    assert_eq!(y.workspaces[0].name, "y");
    assert_eq!(manager.find("@last:y").unwrap(), y);
    match manager.find("x:z") {
        Err(Error::NotFound { what: "workspace", similar, .. }) => assert_eq!(similar, ["x", "y"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn destroyed_ones_are_found_only_when_asked_for() {
    let world = World::new();
    let (manager, target) = world.one();
    let id = target.sandbox.id.as_str().to_owned();
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    for selector in [id.as_str(), &id[..20], "proj"] {
        assert!(matches!(manager.find(selector), Err(Error::NotFound { .. })), "{selector}");
        assert_eq!(manager.find_any(selector).unwrap().sandbox.state, SandboxState::Destroyed, "{selector}");
    }
    let (_, again) = world.one();
    assert_eq!(manager.find_any("proj").unwrap().sandbox.id, again.sandbox.id, "the live one first");
}
