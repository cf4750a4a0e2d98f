//! A sandbox that is gone leaves nothing but the resource.

use std::fs;

use sandboxer_core::model::{PlanId, Resource};

use super::commits::change_everything;
use super::fixture::{Fixture, Open};

#[track_caller]
fn clean(open: &Open<'_>) {
    open.strategy.cleanup(&open.sandbox).unwrap();
    let leftovers = open.fixture.leftovers();
    assert!(leftovers.is_empty(), "left behind: {leftovers:?}");
}

pub(super) fn leaves_nothing(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("new/file", "new\n");
    clean(&open);
}

pub(super) fn twice(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    clean(&open);
    clean(&open);
    clean(&open.reopened());
}

/// A clean-up that was killed half-way has removed some of it already.
pub(super) fn after_half_of_it(fixture: &Fixture) {
    let open = fixture.open();
    open.unmount();
    fs::remove_dir_all(open.path("")).unwrap();
    clean(&open);
    let open = fixture.open();
    open.unmount();
    fs::remove_dir_all(open.path("").parent().unwrap()).unwrap();
    clean(&open);
}

pub(super) fn the_resource_stays(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    clean(&open);
    fixture.assert_untouched(&before);
}

pub(super) fn a_failed_create_leaves_nothing(fixture: &Fixture) {
    let missing = Resource::at_path("fs-directory", &fixture.original("not there"));
    assert!(fixture.strategy().create(&PlanId::generate(), &missing).is_err());
    let leftovers = fixture.leftovers();
    assert!(leftovers.is_empty(), "left behind: {leftovers:?}");
}

/// Modes that keep their owner out, checkpoints, a prepared commit: all of it goes.
pub(super) fn with_everything_in_it(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    change_everything(&open);
    open.checkpoint("one");
    fs::create_dir_all(open.path("closed/inner")).unwrap();
    fs::write(open.path("closed/inner/file"), "x").unwrap();
    for path in ["closed/inner", "closed"] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(open.path(path), fs::Permissions::from_mode(0o000)).unwrap();
    }
    open.checkpoint("two");
    clean(&open);
    fixture.assert_untouched(&before);
}
