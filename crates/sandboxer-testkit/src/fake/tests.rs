use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::conformance::Fixture;

fn panics(work: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(work)).expect_err("the fake let a broken contract pass");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}

fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

#[test]
fn use_after_cleanup_is_caught() {
    let fixture = Fixture::new(entry());
    let open = fixture.open();
    open.strategy.cleanup(&open.sandbox).unwrap();
    assert!(panics(|| drop(open.strategy.diff(&open.sandbox))).contains("after cleanup"));
}

#[test]
fn a_foreign_ref_is_caught() {
    let fixture = Fixture::new(entry());
    let open = fixture.open();
    let mut foreign = open.sandbox.clone();
    foreign.strategy_name = "overlay".to_owned();
    assert!(panics(|| drop(open.strategy.read(&foreign, &rel("a.txt")))).contains("another strategy"));
}

#[test]
fn unsorted_and_repeated_paths_are_caught() {
    let fixture = Fixture::new(entry());
    let open = fixture.open();
    for paths in [["b", "a"], ["a", "a"]] {
        let request = CommitRequest { paths: paths.map(rel).to_vec(), ..CommitRequest::default() };
        assert!(panics(|| drop(open.try_commit(&request))).contains("unsorted or repeated"));
    }
}

#[test]
fn a_second_prepare_is_caught() {
    let fixture = Fixture::new(entry());
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.phase(Phase::Prepare).unwrap();
    assert!(panics(|| drop(open.phase(Phase::Prepare))).contains("prepared twice"));
}

#[test]
fn overlapping_calls_are_caught() {
    let fixture = Fixture::new(entry());
    let open = fixture.open();
    let busy = Busy::enter(Path::new(open.sandbox.text("file").unwrap()), "commit");
    let write = || drop(open.strategy.write(&open.sandbox, &rel("a.txt"), b""));
    assert!(panics(write).contains("another call"));
    drop(busy);
    open.write("a.txt", "alone now\n");
}

#[test]
fn calls_are_counted_and_fail_on_demand() {
    let calls = Arc::new(Calls::default());
    let fixture = Fixture::new(counting(calls.clone()));
    let open = fixture.open();
    calls.fail_next("write");
    assert!(open.strategy.write(&open.sandbox, &rel("a.txt"), b"x").is_err());
    open.write("a.txt", "x");
    open.phase(Phase::Finish).unwrap();
    assert_eq!((calls.of("create"), calls.of("write")), (1, 2));
    assert_eq!((calls.of("finish"), calls.of("finish without prepare"), calls.of("diff")), (1, 1, 0));
}
