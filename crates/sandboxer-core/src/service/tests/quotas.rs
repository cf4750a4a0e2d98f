//! Limits: who is held to which, what is said at one, and that nobody slips past it.

use super::environment::Hosted;
use super::race::all_at_once;
use super::*;
use crate::config::{Quota, QuotaFor, QuotaPeriod, Quotas};
use crate::environment::Cost;
use crate::model::SandboxId;
use crate::service::quotas::limits_for;

fn consumer(actor: &str, project: &str) -> Consumer {
    Consumer { actor_type: actor.into(), project: project.into() }
}

fn own(actor: &str, project: &str) -> QuotaFor {
    QuotaFor::Consumer { actor_type: actor.into(), project: project.into() }
}

fn quotas(entries: &[(QuotaFor, Quota)]) -> Quotas {
    Quotas { file: Some("/etc/config.yaml".into()), entries: entries.iter().cloned().collect() }
}

fn few(sandboxes: u64) -> Quota {
    Quota { sandboxes: Some(sandboxes), ..Quota::default() }
}

fn held_to(world: &World, entries: &[(QuotaFor, Quota)]) -> SandboxManager {
    let mut parts = world.parts();
    parts.settings.quotas = quotas(entries);
    SandboxManager::open(parts).unwrap()
}

/// What a refusal says, and what it advises.
fn refusal<T: std::fmt::Debug>(result: Result<T>) -> (String, String) {
    match result.unwrap_err() {
        Error::Refused { reason, hint } => (reason, hint.unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_limit_is_told_with_what_is_used_and_what_to_do() {
    let world = World::new();
    let x = world.resource("x");
    let manager = held_to(&world, &[(QuotaFor::Everybody, few(2))]);
    let create = || manager.get_or_create_sandbox(&request(&[&x]));
    let first = create().unwrap().sandbox;
    create().unwrap();
    let (reason, hint) = refusal(create());
    assert_eq!(reason, "the limit `quotas.*.sandboxes` is reached for adm:test: 2 of 2 sandboxes are live");
    assert!(hint.contains("`sandbox list`"), "{hint}");
    assert!(hint.ends_with("or raise `quotas.*.sandboxes` in /etc/config.yaml"), "{hint}");
    assert_eq!(manager.list(true).unwrap().len(), 2, "nothing was written");
    let other = CreateRequest { consumer: consumer("agt", "test"), ..request(&[&x]) };
    manager.get_or_create_sandbox(&other).unwrap();
    manager.destroy(&manager.find(first.id.as_str()).unwrap(), Uncommitted::Discard).unwrap();
    create().unwrap();
}

#[test]
fn an_own_entry_counts_instead_of_everybodys_and_the_projects_besides() {
    let quotas = quotas(&[
        (QuotaFor::Everybody, Quota { cpu_hours: Some(1.0), per: QuotaPeriod::Day, ..few(2) }),
        (own("agt", "shop"), few(9)),
        (QuotaFor::Project("shop".into()), few(20)),
    ]);
    let told = |actor: &str, project: &str| {
        let limits = limits_for(&quotas, &consumer(actor, project));
        limits.iter().map(|l| format!("{} {} {}", l.entry, l.measure.key(), l.of)).collect::<Vec<_>>()
    };
    assert_eq!(told("agt", "shop"), ["agt:shop sandboxes 9", "* cpu_hours 1", "project:shop sandboxes 20"]);
    assert_eq!(told("adm", "bank"), ["* sandboxes 2", "* cpu_hours 1"]);
}

#[test]
fn a_projects_limit_is_for_all_of_it_together() {
    let world = World::new();
    let x = world.resource("x");
    let manager = held_to(&world, &[(QuotaFor::Project("test".into()), few(2))]);
    let by = |actor: &str| CreateRequest { consumer: consumer(actor, "test"), ..request(&[&x]) };
    manager.get_or_create_sandbox(&by("adm")).unwrap();
    manager.get_or_create_sandbox(&by("agt")).unwrap();
    let (reason, _) = refusal(manager.get_or_create_sandbox(&by("atm")));
    assert_eq!(reason, "the limit `quotas.project:test.sandboxes` is reached: 2 of 2 sandboxes are live");
    let elsewhere = CreateRequest { consumer: consumer("adm", "other"), ..request(&[&x]) };
    manager.get_or_create_sandbox(&elsewhere).unwrap();
}

#[test]
fn what_is_there_already_is_answered_and_not_refused() {
    let world = World::new();
    let x = world.resource("x");
    let manager = held_to(&world, &[(QuotaFor::Everybody, few(1))]);
    let first = manager.get_or_create_sandbox(&with_plan("p", &[&x])).unwrap();
    let again = manager.get_or_create_sandbox(&with_plan("p", &[&x])).unwrap();
    assert!(!again.created && again.sandbox.id == first.sandbox.id);
    refusal(manager.get_or_create_sandbox(&with_plan("q", &[&x])));

    let hosted = Hosted::new();
    let first = hosted.manager().get_or_create_sandbox(&hosted.request(Some("k"))).unwrap();
    let mut parts = hosted.world.parts();
    parts.settings.quotas = quotas(&[(QuotaFor::Everybody, few(1))]);
    let full = SandboxManager::open(parts).unwrap();
    let again = full.get_or_create_sandbox(&hosted.request(Some("k"))).unwrap();
    assert!(!again.created && again.sandbox.id == first.sandbox.id);
    refusal(full.get_or_create_sandbox(&hosted.request(Some("other"))));
}

#[test]
fn of_many_at_once_exactly_as_many_as_may_are_made() {
    let world = World::new();
    let x = world.resource("x");
    let entries = [(QuotaFor::Everybody, few(3))];
    let answers = all_at_once(&world, 12, |_, _| {
        let manager = held_to(&world, &entries);
        manager.get_or_create_sandbox(&request(&[&x])).map_err(|error| error.to_string())
    });
    let refused: Vec<&String> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(refused.len(), 9, "{refused:?}");
    assert!(refused.iter().all(|reason| reason.contains("3 of 3 sandboxes")), "{refused:?}");
    assert_eq!(world.manager().list(false).unwrap().len(), 3);
    assert_eq!(world.manager().list(true).unwrap().len(), 3);
}

/// Says when a sandbox's only span began.
fn began_hours_ago(world: &World, id: &SandboxId, hours: i64) {
    let state = rusqlite::Connection::open(world.home().join("state.db")).unwrap();
    let began = crate::store::now().as_microsecond() - hours * 3_600_000_000;
    state.execute("UPDATE spans SET began = ?2 WHERE sandbox_id = ?1", (id.as_str(), began)).unwrap();
}

#[test]
fn hours_are_used_up_whether_or_not_the_sandbox_is_still_there() {
    let ever = Quota { per: QuotaPeriod::Ever, ..Quota::default() };
    let table = [
        ("cpu_hours", Quota { cpu_hours: Some(1.5), ..ever.clone() }, "1.5 of 1.5 processor hours are used"),
        ("wall_hours", Quota { wall_hours: Some(2.0), ..ever }, "3 of 2 hours are used"),
    ];
    for (key, quota, told) in table {
        let world = World::new();
        let x = world.resource("x");
        let manager = held_to(&world, &[(QuotaFor::Everybody, quota)]);
        let made = manager.get_or_create_sandbox(&request(&[&x])).unwrap().sandbox;
        manager.add_use(&made.id, Duration::from_secs(5399), None).unwrap();
        manager.get_or_create_sandbox(&request(&[&x])).unwrap();
        manager.add_use(&made.id, Duration::from_secs(1), None).unwrap();
        began_hours_ago(&world, &made.id, 3);
        manager.destroy(&manager.find(made.id.as_str()).unwrap(), Uncommitted::Discard).unwrap();
        let (reason, hint) = refusal(manager.get_or_create_sandbox(&request(&[&x])));
        assert_eq!(reason, format!("the limit `quotas.*.{key}` is reached for adm:test: {told}"));
        assert!(hint.contains("`sandbox usage`") && hint.contains("`sandbox list`"), "{hint}");
    }
}

#[test]
fn a_month_ends_and_what_was_used_in_it_is_forgiven() {
    let world = World::new();
    let x = world.resource("x");
    let quota = Quota { cpu_hours: Some(1.0), ..Quota::default() };
    let manager = held_to(&world, &[(QuotaFor::Everybody, quota)]);
    let made = manager.get_or_create_sandbox(&request(&[&x])).unwrap().sandbox;
    let now = crate::store::now();
    let last_month = QuotaPeriod::Month.began(now).unwrap() - jiff::SignedDuration::from_secs(1);
    manager.store.add_use(&made.id, Duration::from_secs(7200), None, last_month).unwrap();
    manager.get_or_create_sandbox(&request(&[&x])).unwrap();
    manager.store.add_use(&made.id, Duration::from_secs(7200), None, now).unwrap();
    let (reason, _) = refusal(manager.get_or_create_sandbox(&request(&[&x])));
    assert!(reason.contains("2 of 1 processor hours are used since "), "{reason}");
}

#[test]
fn the_disk_is_measured_before_somebody_is_held_to_it() {
    let world = World::new();
    let x = world.resource("x");
    let manager = held_to(&world, &[(QuotaFor::Everybody, Quota { disk: Some(1), ..Quota::default() })]);
    let made = manager.get_or_create_sandbox(&request(&[&x])).unwrap().sandbox;
    manager.store.set_disk(&[(&made.id, 4096)], crate::store::now()).unwrap();
    let (reason, hint) = refusal(manager.get_or_create_sandbox(&request(&[&x])));
    assert!(reason.ends_with("4096 of 1 bytes are on disk"), "{reason}");
    assert!(hint.contains("`sandbox parked`"), "{hint}");
    let long_ago = "2001-01-01T00:00:00Z".parse().unwrap();
    manager.store.set_disk(&[(&made.id, 4096)], long_ago).unwrap();
    let measured = manager.disk_report().unwrap().sandboxes[0].total;
    manager.store.set_disk(&[(&made.id, 4096)], long_ago).unwrap();
    let answer = manager.get_or_create_sandbox(&request(&[&x]));
    assert_eq!(answer.is_ok(), measured < 1, "what was measured long ago is measured again");
}

#[test]
fn money_is_held_to_its_own_currency_and_what_is_free_to_none() {
    let hosted = Hosted::new();
    let quota = Quota { cost: Some(5.0), per: QuotaPeriod::Ever, ..Quota::default() };
    let mut parts = hosted.world.parts();
    parts.settings.quotas = quotas(&[(QuotaFor::Everybody, quota)]);
    let price = |per_hour: f64, currency: Option<&str>| {
        let mut request = hosted.request(None);
        let route = &mut request.environment.as_mut().unwrap().route;
        route.cost = Some(Cost { per_hour, currency: currency.map(str::to_owned) });
        request
    };
    let maker = hosted.manager();
    let made = maker.get_or_create_sandbox(&price(2.0, Some("EUR"))).unwrap().sandbox;
    began_hours_ago(&hosted.world, &made.id, 3);
    let held = SandboxManager::open(parts).unwrap();
    let (reason, _) = refusal(held.get_or_create_sandbox(&price(1.0, Some("EUR"))));
    assert_eq!(reason, "the limit `quotas.*.cost` is reached for adm:test: 6 of 5 EUR are spent");
    for other in [price(1.0, Some("USD")), price(0.0, None)] {
        // This manager has no extensions, so it gets as far as that.
        let error = held.get_or_create_sandbox(&other).unwrap_err();
        assert!(!matches!(error, Error::Refused { .. }), "{error:?}");
    }
    let report = held.usage(&UsageQuery::default()).unwrap();
    let limit = &report.rows[0].limits[0];
    assert_eq!((limit.currency.as_deref(), limit.of, limit.per), (Some("EUR"), 5.0, Some(QuotaPeriod::Ever)));
    assert!((6.0..6.1).contains(&limit.used), "{limit:?}");
}

#[test]
fn a_report_has_a_total_and_limits_where_they_hold() {
    let world = World::new();
    let x = world.resource("x");
    let manager = held_to(
        &world,
        &[
            (QuotaFor::Everybody, few(5)),
            (QuotaFor::Project("test".into()), Quota { disk: Some(9), ..few(7) }),
        ],
    );
    let made = manager.get_or_create_sandbox(&request(&[&x])).unwrap().sandbox;
    let other = CreateRequest { consumer: consumer("agt", "bank"), ..request(&[&x]) };
    manager.get_or_create_sandbox(&other).unwrap();
    manager.add_use(&made.id, Duration::from_millis(1500), Some(77)).unwrap();
    let report = manager.usage(&UsageQuery::default()).unwrap();
    assert_eq!((report.total.sandboxes, report.total.cpu_seconds), (2, 1.5));
    assert_eq!((report.total.memory_peak, report.total.live), (Some(77), 2));
    let row = report.rows.iter().find(|row| row.key == "adm:test").unwrap();
    let told: Vec<_> = row.limits.iter().map(|l| (l.entry.as_str(), l.limit.key(), l.used, l.of)).collect();
    assert_eq!(told[0], ("*", "sandboxes", 1.0, 5.0));
    assert_eq!((told[1].0, told[1].1, told[2].1), ("project:test", "sandboxes", "disk"));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["rows"][0]["sandboxes"], 1, "flat: {json}");
    let projects = manager.usage(&UsageQuery { by: UsageBy::Project, ..UsageQuery::default() }).unwrap();
    let limits: Vec<usize> = projects.rows.iter().map(|row| row.limits.len()).collect();
    assert_eq!(limits.iter().sum::<usize>(), 2, "{projects:?}");
    let backwards = UsageQuery {
        since: Some(crate::store::now()),
        until: Some("2001-01-01T00:00:00Z".parse().unwrap()),
        ..UsageQuery::default()
    };
    assert!(matches!(manager.usage(&backwards), Err(Error::Usage { .. })));
}

#[test]
fn taking_up_what_is_parked_is_held_to_how_many_may_be_live() {
    let world = World::new();
    let x = world.resource("x");
    let quota = Quota { cpu_hours: Some(1.0), per: QuotaPeriod::Ever, ..few(1) };
    let manager = held_to(&world, &[(QuotaFor::Everybody, quota)]);
    let first = manager.get_or_create_sandbox(&request(&[&x])).unwrap().sandbox;
    let target = manager.find(first.id.as_str()).unwrap();
    change_all(&manager, &target);
    manager.destroy(&target, Uncommitted::Park).unwrap();
    let second = manager.get_or_create_sandbox(&request(&[&x])).unwrap().sandbox;
    manager.add_use(&first.id, Duration::from_secs(9999), None).unwrap();
    let (reason, _) = refusal(manager.unpark(&first, None));
    assert!(reason.contains("1 of 1 sandboxes are live"), "{reason}");
    manager.destroy(&manager.find(second.id.as_str()).unwrap(), Uncommitted::Discard).unwrap();
    manager.unpark(&first, None).unwrap();
}
