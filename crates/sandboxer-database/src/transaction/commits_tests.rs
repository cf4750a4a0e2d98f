//! What is kept of a commit that somebody gave up.
#![allow(clippy::unwrap_used)]

use sandboxer_core::registry::{StrategyContext, StrategyOptions};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::credentials::Environment;
use crate::engine::Options;

fn given_up() -> (Transactions, Place, Record, TempDir) {
    let temp = tempfile::tempdir().unwrap();
    let place = Place {
        dir: temp.path().join("w"),
        kind: "postgres".to_owned(),
        location: "postgres://app@/shop".to_owned(),
        credentials: None,
        options: Options::default(),
    };
    std::fs::create_dir_all(place.keeper()).unwrap();
    let record = Record {
        operation: "op".to_owned(),
        prepared: Prepared::Durable(json!({ "operation": "op", "xid": 7, "gid": "later" })),
        result: CommitResult::default(),
        committed: false,
        vain: false,
    };
    record.write(&place.keeper()).unwrap();
    let context = StrategyContext::quiet(temp.path());
    let strategy =
        Transactions::new("t", &StrategyOptions::default(), &context, Environment::empty()).unwrap();
    (strategy, place, record, temp)
}

#[test]
fn only_what_never_will_be_real_is_forgotten() {
    for (outcome, ends, remembered) in
        [(Outcome::Aborted, true, false), (Outcome::Waiting, false, true), (Outcome::Committed, false, true)]
    {
        let (strategy, place, record, _temp) = given_up();
        assert_eq!(strategy.given_up(&place, record, outcome).is_ok(), ends, "{outcome:?}");
        let record = Record::of(&place.keeper(), "op").unwrap();
        assert_eq!(record.is_some(), remembered, "{outcome:?}");
        assert!(record.is_none_or(|record| record.committed == (outcome == Outcome::Committed)));
    }
}

/// The refusal that says "it is real" must not be given for what is only undecided.
#[test]
fn what_waits_is_not_taken_for_real() {
    let (strategy, place, record, _temp) = given_up();
    let error = strategy.given_up(&place, record, Outcome::Waiting).unwrap_err();
    assert!(!matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("postgres://app@/shop"), "{error}");
}
