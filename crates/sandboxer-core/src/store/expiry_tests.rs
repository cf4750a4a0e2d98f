//! The time to live by two clocks: one that people set, and one that only a restart sets back.
#![allow(clippy::unwrap_used)]

use jiff::{SignedDuration, Timestamp};

use super::tests::{add, sandbox};
use super::*;
use crate::model::SandboxId;

const HOUR: i64 = 3600;

/// A sandbox that ends in an hour, in a store that was closed since: whoever looks is another process.
fn ends_in_an_hour() -> (tempfile::TempDir, SandboxId) {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let one = sandbox("x");
    add(&store, &one);
    store.set_expiry(&one.id, Some(in_hours(1))).unwrap();
    (temp, one.id)
}

fn in_hours(hours: i64) -> Timestamp {
    now() + SignedDuration::from_secs(hours * HOUR)
}

/// The moment when the clock on the wall shows `wall` hours more than now, and `passed` hours have gone by.
fn later(wall: i64, passed: i64) -> Moment {
    let Moment { boot, in_boot, .. } = Moment::now();
    assert!(boot.is_some(), "the kernel tells one boot from another");
    Moment { wall: in_hours(wall), boot, in_boot: in_boot + passed * HOUR * 1_000_000 }
}

/// The same after a restart, since when that many hours have gone by.
fn restarted(wall: i64, since: i64) -> Moment {
    Moment { wall: in_hours(wall), boot: Some("another".into()), in_boot: since * HOUR * 1_000_000 }
}

fn has_ended(home: &Path, at: &Moment) -> bool {
    !Store::open(home).unwrap().expired(at).unwrap().is_empty()
}

#[test]
fn a_clock_that_is_set_forward_ends_nothing_early() {
    let (home, _) = ends_in_an_hour();
    assert!(!has_ended(home.path(), &later(0, 0)));
    assert!(!has_ended(home.path(), &later(24 * 365, 0)));
    assert!(has_ended(home.path(), &later(24 * 365, 2)));
}

#[test]
fn a_clock_that_is_set_back_keeps_nothing_alive() {
    let (home, _) = ends_in_an_hour();
    assert!(has_ended(home.path(), &later(-24 * 365, 2)));
    assert!(!has_ended(home.path(), &later(-24 * 365, 0)));
}

#[test]
fn after_a_restart_the_clock_on_the_wall_decides() {
    let (home, _) = ends_in_an_hour();
    assert!(
        !has_ended(home.path(), &restarted(0, 24 * 365)),
        "how long another boot has lasted says nothing"
    );
    assert!(has_ended(home.path(), &restarted(2, 0)));
    let unknown = |wall: i64| Moment { boot: None, ..later(wall, 0) };
    assert!(has_ended(home.path(), &unknown(2)) && !has_ended(home.path(), &unknown(0)));
}

#[test]
fn what_is_extended_after_a_restart_goes_by_the_new_boot() {
    let (home, id) = ends_in_an_hour();
    let store = Store::open(home.path()).unwrap();
    // As the row is that another boot has left: its count of microseconds means nothing here.
    let left = "UPDATE sandboxes SET boot = 'another', expires_in_boot = 0";
    store.write("pretend", |t| t.execute(left, []).map(drop)).unwrap();
    assert!(!has_ended(home.path(), &later(0, 0)) && has_ended(home.path(), &later(2, 0)));
    store.set_expiry(&id, Some(in_hours(1))).unwrap();
    assert!(!has_ended(home.path(), &later(2, 0)) && has_ended(home.path(), &later(0, 2)));
}

/// A create sets it as well, before anything is made.
#[test]
fn the_first_time_to_live_goes_by_both_clocks_too() {
    let temp = tempfile::tempdir().unwrap();
    let one = crate::service::Sandbox { expires_at: Some(in_hours(1)), ..sandbox("x") };
    add(&Store::open(temp.path()).unwrap(), &one);
    assert!(!has_ended(temp.path(), &later(2, 0)) && has_ended(temp.path(), &later(-2, 2)));
    assert!(has_ended(temp.path(), &restarted(2, 0)));
}

#[test]
fn what_has_no_time_to_live_never_ends() {
    let (home, id) = ends_in_an_hour();
    Store::open(home.path()).unwrap().set_expiry(&id, None).unwrap();
    assert!([later(9, 9), restarted(9, 9)].iter().all(|at| !has_ended(home.path(), at)));
}
