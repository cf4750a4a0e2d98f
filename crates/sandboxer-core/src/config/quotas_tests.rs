//! What an entry may say, and where it is told that it may not.
#![allow(clippy::unwrap_used)]

use super::super::keys::Setting;
use super::super::schema::parse;
use super::*;

fn read(text: &str) -> Result<Quotas> {
    let entries = parse(text, Path::new("c.yaml"))?;
    match entries.into_iter().next().map(|entry| entry.setting) {
        Some(Setting::Quotas(quotas)) => Ok(quotas),
        other => panic!("{other:?}"),
    }
}

fn complaint(text: &str) -> (Option<u64>, String, Option<String>) {
    match read(text).unwrap_err() {
        Error::Config { line, message, hint, file, .. } => {
            assert_eq!(file, Path::new("c.yaml"));
            (line, message, hint)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_limit_and_everybody_is_read() {
    let quotas = read(
        "quotas:\n  '*': {sandboxes: 3}\n  project:shop: {cost: 12.5, per: ever}\n  \
         agt:shop:\n    sandboxes: 0\n    cpu_hours: 2\n    wall_hours: 0.5\n    disk: 1GiB\n    per: day\n",
    )
    .unwrap();
    assert_eq!(quotas.file.as_deref(), Some(Path::new("c.yaml")));
    let names: Vec<String> = quotas.entries.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["*", "project:shop", "agt:shop"]);
    let all = &quotas.entries[&QuotaFor::Everybody];
    assert_eq!(*all, Quota { sandboxes: Some(3), ..Quota::default() });
    assert_eq!(all.per, QuotaPeriod::Month);
    let project = &quotas.entries[&QuotaFor::Project("shop".into())];
    assert_eq!((project.cost, project.per), (Some(12.5), QuotaPeriod::Ever));
    let own = &quotas.entries[&QuotaFor::parse("agt:shop").unwrap()];
    let expected = Quota {
        sandboxes: Some(0),
        cpu_hours: Some(2.0),
        wall_hours: Some(0.5),
        disk: Some(1 << 30),
        cost: None,
        per: QuotaPeriod::Day,
    };
    assert_eq!(*own, expected);
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_the_nearest_word() {
    let table = [
        (
            "quotas:\n  agt:shop:\n    sandboxs: 3\n",
            3,
            "unknown key \"sandboxs\"",
            Some("did you mean \"sandboxes\"?"),
        ),
        (
            "quotas:\n  agt:shop: {per: monht}\n",
            2,
            "unknown value \"monht\"",
            Some("did you mean \"month\"?"),
        ),
        (
            "quotas:\n  agn:shop: {}\n",
            2,
            "quotas: \"agn\" is not an actor type",
            Some("did you mean \"agt\"?"),
        ),
        (
            "quotas:\n  shop: {}\n",
            2,
            "quotas: \"shop\" is nobody that a quota can be for",
            Some("write ACTOR:PROJECT, such as agt:shop, or project:ID, or \"*\""),
        ),
        ("quotas:\n  'project:': {}\n", 2, "quotas: \"\" is not a name", None),
        (
            "quotas:\n  agt:shop:\n    sandboxes: 1\n    cpu_hours: -1\n",
            4,
            "quotas.agt:shop.cpu_hours: -1 is not an amount from 0 on",
            None,
        ),
        (
            "quotas:\n  agt:shop:\n    cost: .nan\n",
            3,
            "quotas.agt:shop.cost: NaN is not an amount from 0 on",
            None,
        ),
    ];
    for (text, line, message, hint) in table {
        assert_eq!(complaint(text), (Some(line), message.to_owned(), hint.map(str::to_owned)), "{text}");
    }
    let (line, message, _) = complaint("quotas:\n  agt:shop:\n    disk: lots\n");
    assert_eq!((line, message.as_str()), (Some(3), "quotas.agt:shop.disk: \"lots\" is not a size"));
    for wrong in ["sandboxes: many", "sandboxes: -1", "sandboxes: 1.5", "cost: [1]", "per: 3"] {
        let (line, message, _) = complaint(&format!("quotas:\n  agt:shop:\n    {wrong}\n"));
        assert!(line == Some(3) && !message.is_empty(), "{wrong}: {line:?} {message}");
    }
    assert_eq!(complaint("quotas:\n  agt:shop: 3\n").0, Some(2));
}

#[test]
fn a_period_begins_at_midnight_of_utc() {
    let now: Timestamp = "2024-02-29T23:59:59Z".parse().unwrap();
    let began = |per: QuotaPeriod| per.began(now).map(|at| at.to_string());
    assert_eq!(began(QuotaPeriod::Day).unwrap(), "2024-02-29T00:00:00Z");
    assert_eq!(began(QuotaPeriod::Month).unwrap(), "2024-02-01T00:00:00Z");
    assert_eq!(began(QuotaPeriod::Ever), None);
    assert_eq!([QuotaPeriod::Day, QuotaPeriod::Ever].map(QuotaPeriod::as_str), ["day", "ever"]);
}
