//! What counts as a value below `run`.
#![allow(clippy::unwrap_used)]

use super::*;

fn read(key: &str, text: &str) -> RunSetting {
    RunSetting::from_text(key, text).unwrap().unwrap()
}

fn complaint(key: &str, text: &str) -> (String, Option<String>) {
    match RunSetting::from_text(key, text).unwrap_err() {
        Error::Usage { message, hint } => (message, hint),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_are_checked() {
    let bad = [
        ("run.isolation", "none"),
        ("run.isolation", "Strict"),
        ("run.network", "all"),
        ("run.allow_hosts", ""),
        ("run.allow_hosts", "a.example,,b.example"),
        ("run.allow_hosts", "a.example b.example"),
        ("run.hide", "relative"),
        ("run.hide", "~other/x"),
        ("run.hide", "~"),
        ("run.hide", "/"),
        ("run.hide", "~/../other/.ssh"),
        ("run.show", "/etc/../root"),
        ("run.env", "NAME=value"),
        ("run.env", "A::B"),
        ("run.memory", "0"),
        ("run.memory", "64K"),
        ("run.memory", "2 apples"),
        ("run.pids", "0"),
        ("run.pids", "-1"),
        ("run.pids", "4194305"),
        ("run.cpus", "0"),
        ("run.cpus", "-1"),
        ("run.cpus", "NaN"),
        ("run.cpus", "inf"),
        ("run.timeout", "0s"),
        ("run.timeout", "soon"),
        ("run.disk_reserve", "101%"),
    ];
    for (key, text) in bad {
        assert!(RunSetting::from_text(key, text).is_err(), "{key} = {text:?}");
    }
    assert_eq!(complaint("run.isolation", "stric").1.as_deref(), Some("did you mean \"strict\"?"));
    assert_eq!(complaint("run.network", "everything").1.as_deref(), Some("valid here: none, host"));
    assert_eq!(RunSetting::from_text("run.other", "x").unwrap(), None);
    assert_eq!(RunSetting::from_list("run.memory", vec!["x".to_owned()]).unwrap(), None);
}

#[test]
fn hosts_have_ports_so_commas_separate_them() {
    let hosts = vec!["api.example.com:443".to_owned(), "*.crates.io".to_owned()];
    assert_eq!(read("run.allow_hosts", "api.example.com:443, *.crates.io"), RunSetting::AllowHosts(hosts));
    let places = vec!["~/.a".to_owned(), "/b".to_owned()];
    assert_eq!(read("run.show", "~/.a:/b"), RunSetting::Show(places));
}

#[test]
fn a_value_lands_in_its_field() {
    let mut run = RunSettings::default();
    for (key, text) in [
        ("run.isolation", "files"),
        ("run.memory", "2G"),
        ("run.cpus", "1.5"),
        ("run.timeout", "90s"),
        ("run.disk_reserve", "5GB"),
    ] {
        assert!(!read(key, text).apply(&mut run), "{key} replaces");
    }
    assert!(read("run.hide", "~/a:~/b").apply(&mut run) && read("run.hide", "~/b:~/c").apply(&mut run));
    let expected = RunSettings {
        isolation: Isolation::Files,
        memory: Some(2 << 30),
        cpus: Some(1.5),
        timeout: Some(Duration::from_secs(90)),
        disk_reserve: MinFree::Bytes(5_000_000_000),
        hide: ["~/a", "~/b", "~/c"].map(str::to_owned).to_vec(),
        ..RunSettings::default()
    };
    assert_eq!(run, expected);
}

#[test]
fn stricter_is_more() {
    assert!(Isolation::Strict > Isolation::Standard && Isolation::Standard > Isolation::Files);
    for isolation in Isolation::ALL {
        assert_eq!(Isolation::parse(isolation.as_str()).unwrap(), isolation);
        assert_eq!(serde_json::to_value(isolation).unwrap(), isolation.as_str());
    }
}

#[test]
fn nothing_is_loosened_by_what_is_no_more_than_before() {
    let own = RunSettings { memory: Some(1 << 30), ..RunSettings::default() };
    let loosens = |key, text| read(key, text).loosens(&own);
    assert_eq!(loosens("run.memory", "1G"), None);
    assert_eq!(loosens("run.memory", "1025M"), Some("is higher than your own"));
    assert_eq!(loosens("run.pids", "4194304"), None, "any limit is stricter than none");
    assert_eq!(loosens("run.isolation", "standard"), None);
    assert!(loosens("run.isolation", "files").is_some() && loosens("run.network", "host").is_some());
}
