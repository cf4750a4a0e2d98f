//! Spans over a sandbox's whole life, periods that cut them, days, money, and sums that stay fast.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::super::OperationEnd;
use super::super::schema::make_format;
use super::super::tests::{add, sandbox};
use super::*;
use crate::config::{QuotaFor, QuotaPeriod};
use crate::environment::Environment;
use crate::model::OpId;
use crate::service::{Consumer, Sandbox, SandboxState};
use crate::store::{Naming, now};

struct Place {
    temp: tempfile::TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let store = Store::open(temp.path()).unwrap();
        Self { temp, store }
    }

    fn raw(&self) -> Connection {
        Connection::open(self.temp.path().join("state.db")).unwrap()
    }

    /// A sandbox whose only span is `from` to `to`, in hours of 1970; up to now without an end.
    fn existed(&self, sandbox: Sandbox, from: i64, to: Option<i64>) -> SandboxId {
        add(&self.store, &sandbox);
        let hour = |n: i64| n * HOUR as i64;
        let sql = "UPDATE spans SET began = ?2, ended = ?3 WHERE sandbox_id = ?1";
        self.raw().execute(sql, params![sandbox.id.as_str(), hour(from), to.map(hour)]).unwrap();
        sandbox.id
    }

    /// Begin and end of each span, the oldest first.
    fn spans(&self, id: &SandboxId) -> Vec<(i64, Option<i64>)> {
        let raw = self.raw();
        let mut statement =
            raw.prepare("SELECT began, ended FROM spans WHERE sandbox_id = ?1 ORDER BY seq").unwrap();
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        statement.query_map([id.as_str()], read).unwrap().map(|row| row.unwrap()).collect()
    }

    fn rows(&self, query: &UsageQuery) -> Vec<UsageRow> {
        self.store.usage(query, now()).unwrap()
    }

    fn only(&self, query: &UsageQuery) -> Used {
        let mut rows = self.rows(query);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0).used
    }
}

fn hours(n: i64) -> Option<Timestamp> {
    Some(Timestamp::from_microsecond(n * HOUR as i64).unwrap())
}

fn of(name: &str, actor: &str, project: &str) -> Sandbox {
    Sandbox { consumer: Consumer { actor_type: actor.into(), project: project.into() }, ..sandbox(name) }
}

fn environment(extension: &str, per_hour: f64, currency: Option<&str>) -> Environment {
    serde_json::from_value(json!({
        "route": {
            "profile_id": "profile.p", "policy": "explicit", "extension_id": extension, "host": "local",
            "reason": "told", "cost": {"per_hour": per_hour, "currency": currency},
        },
        "isolation": "container", "network": "none", "scope": "consumer", "step": "ready",
    }))
    .unwrap()
}

fn priced(name: &str, per_hour: f64, currency: &str) -> Sandbox {
    let environment = Some(Box::new(environment("ext.x", per_hour, Some(currency))));
    Sandbox { environment, ..sandbox(name) }
}

fn ended() -> OperationEnd {
    OperationEnd { id: OpId::generate(), state: "done", summary: String::new(), details: json!({}) }
}

#[test]
fn a_span_is_closed_by_parking_and_by_the_end_and_opened_by_coming_back() {
    let place = Place::new();
    let x = sandbox("x");
    add(&place.store, &x);
    assert!(matches!(place.spans(&x.id)[..], [(_, None)]));
    place.store.set_state(&x.id, SandboxState::Active).unwrap();
    assert_eq!(place.spans(&x.id).len(), 1, "it went on");
    place.store.park(&x.id, "parked", 7, &ended()).unwrap();
    assert!(matches!(place.spans(&x.id)[..], [(began, Some(ended))] if began <= ended));
    place.store.unpark(&[], &x, &Naming::Exact("x".into())).unwrap();
    assert!(matches!(place.spans(&x.id)[..], [(_, Some(_)), (_, None)]));
    place.store.set_state(&x.id, SandboxState::Destroying).unwrap();
    assert!(matches!(place.spans(&x.id)[..], [_, (_, None)]), "it is still there");
    place.store.close(&x.id, SandboxState::Destroyed).unwrap();
    place.store.close(&x.id, SandboxState::Destroyed).unwrap();
    assert!(matches!(place.spans(&x.id)[..], [(_, Some(_)), (_, Some(_))]));
    let used = place.only(&UsageQuery::default());
    assert_eq!((used.sandboxes, used.live, used.disk), (1, 0, Some(0)));
}

#[test]
fn the_time_is_when_it_happened() {
    let place = Place::new();
    let before = now().as_microsecond() - 1000;
    let x = sandbox("x");
    add(&place.store, &x);
    place.store.close(&x.id, SandboxState::Failed).unwrap();
    let (began, ended) = place.spans(&x.id)[0];
    assert!(before <= began && began <= ended.unwrap() && ended.unwrap() <= now().as_microsecond());
}

#[test]
fn a_clock_that_was_set_back_makes_nothing_negative() {
    let place = Place::new();
    let x = sandbox("x");
    add(&place.store, &x);
    let ahead = now().as_microsecond() + 3 * HOUR as i64;
    place.raw().execute("UPDATE spans SET began = ?1", [ahead]).unwrap();
    assert_eq!(place.only(&UsageQuery::default()).wall_seconds, 0.0);
    place.store.close(&x.id, SandboxState::Destroyed).unwrap();
    assert_eq!(place.spans(&x.id), [(ahead, Some(ahead))]);
}

#[test]
fn what_is_adopted_as_parked_does_not_count_yet() {
    let place = Place::new();
    let x = Sandbox { state: SandboxState::Parked, ..sandbox("x") };
    place.store.adopt(&x, &[], 5).unwrap();
    assert_eq!(place.spans(&x.id), []);
    assert_eq!(place.rows(&UsageQuery::default()), []);
}

#[test]
fn a_period_cuts_spans_at_both_ends() {
    let place = Place::new();
    place.existed(sandbox("x"), 10, Some(20));
    place.existed(sandbox("y"), 18, Some(19));
    let wall = |since, until| {
        let rows = place.rows(&UsageQuery { since, until, ..UsageQuery::default() });
        rows.first().map(|row| (row.used.wall_seconds / 3600.0, row.used.sandboxes))
    };
    assert_eq!(wall(None, None), Some((11.0, 2)));
    assert_eq!(wall(hours(12), None), Some((9.0, 2)));
    assert_eq!(wall(hours(12), hours(14)), Some((2.0, 1)));
    assert_eq!(wall(None, hours(15)), Some((5.0, 1)));
    assert_eq!(wall(hours(0), hours(10)), None, "it began when the period was over");
    assert_eq!(wall(hours(20), hours(30)), None, "it had ended");
}

#[test]
fn what_goes_on_counts_up_to_now() {
    let place = Place::new();
    let x = sandbox("x");
    add(&place.store, &x);
    let hour_ago = now().as_microsecond() - HOUR as i64;
    place.raw().execute("UPDATE spans SET began = ?1", [hour_ago]).unwrap();
    let used = place.only(&UsageQuery::default());
    assert!((3600.0..3660.0).contains(&used.wall_seconds), "{used:?}");
    assert_eq!(used.live, 1);
    let later =
        UsageQuery { until: Some(now() + jiff::SignedDuration::from_hours(9)), ..UsageQuery::default() };
    assert!(place.only(&later).wall_seconds < 3660.0, "nobody is billed for what is to come");
}

#[test]
fn processors_are_added_by_days_and_memory_is_the_most() {
    let place = Place::new();
    let x = place.existed(sandbox("x"), 0, Some(100));
    let report = |at: i64, seconds: u64, peak: Option<u64>| {
        let at = hours(at).unwrap();
        place.store.add_use(&x, Duration::from_secs(seconds), peak, at).unwrap();
    };
    report(23, 1, Some(50));
    report(24, 10, Some(30));
    report(47, 20, None);
    report(48, 100, Some(10));
    let used = |since, until| {
        let used = place.only(&UsageQuery { since, until, ..UsageQuery::default() });
        (used.cpu_seconds, used.memory_peak)
    };
    assert_eq!(used(None, None), (131.0, Some(50)));
    assert_eq!(used(hours(24), hours(48)), (30.0, Some(30)));
    assert_eq!(used(hours(30), hours(49)), (130.0, Some(30)), "days count whole");
    assert_eq!(used(hours(72), None), (0.0, None));
}

#[test]
fn currencies_are_kept_apart_and_what_has_no_price_has_no_cost() {
    let place = Place::new();
    place.existed(priced("a", 2.0, "EUR"), 0, Some(3));
    place.existed(priced("b", 0.5, "EUR"), 1, Some(3));
    place.existed(priced("c", 10.0, "USD"), 0, Some(1));
    place.existed(sandbox("d"), 0, Some(5));
    let free = Sandbox { environment: Some(Box::new(environment("ext.x", 0.0, None))), ..sandbox("e") };
    place.existed(free, 0, Some(5));
    let all = place.only(&UsageQuery::default());
    assert_eq!(all.cost, BTreeMap::from([("EUR".into(), 7.0), ("USD".into(), 10.0)]));
    assert_eq!((all.sandboxes, all.wall_seconds), (5, 16.0 * 3600.0));
    let since = place.only(&UsageQuery { since: hours(2), ..UsageQuery::default() });
    assert_eq!(since.cost, BTreeMap::from([("EUR".into(), 2.5)]));
    let by = UsageQuery { by: UsageBy::Extension, ..UsageQuery::default() };
    let costs: Vec<_> =
        place.rows(&by).into_iter().map(|row| (row.key, row.used.cost.len(), row.used.sandboxes)).collect();
    assert_eq!(costs, [("ext.local".into(), 0, 1), ("ext.x".into(), 2, 4)]);
}

#[test]
fn another_price_begins_another_span_and_another_route_moves_the_meter() {
    let place = Place::new();
    let x = priced("x", 1.0, "EUR");
    add(&place.store, &x);
    place.store.set_environment(&x.id, &environment("ext.x", 1.0, Some("EUR"))).unwrap();
    assert_eq!(place.spans(&x.id).len(), 1);
    place.store.set_environment(&x.id, &environment("ext.y", 3.0, Some("EUR"))).unwrap();
    assert!(matches!(place.spans(&x.id)[..], [(_, Some(_)), (_, None)]));
    place.raw().execute("UPDATE spans SET began = 0, ended = ?1", [HOUR as i64]).unwrap();
    let by = UsageQuery { by: UsageBy::Extension, ..UsageQuery::default() };
    let rows = place.rows(&by);
    assert_eq!((rows[0].key.as_str(), rows[0].used.cost["EUR"]), ("ext.y", 4.0));
    assert_eq!(rows[0].used.sandboxes, 1, "both spans are one sandbox's");
}

#[test]
fn rows_are_of_what_was_asked_for_and_of_nobody_else() {
    let place = Place::new();
    let first = place.existed(of("a", "agt", "shop"), 0, Some(1));
    place.existed(of("b", "adm", "shop"), 0, Some(2));
    place.existed(of("c", "agt", "bank"), 0, Some(4));
    let keys = |query: &UsageQuery| {
        let rows = place.rows(query);
        rows.into_iter().map(|row| (row.key, row.used.wall_seconds / 3600.0)).collect::<Vec<_>>()
    };
    let by = |by| UsageQuery { by, ..UsageQuery::default() };
    let all = [("adm:shop".into(), 2.0), ("agt:bank".into(), 4.0), ("agt:shop".into(), 1.0)];
    assert_eq!(keys(&by(UsageBy::Consumer)), all);
    assert_eq!(keys(&by(UsageBy::Project)), [("bank".into(), 4.0), ("shop".into(), 3.0)]);
    assert_eq!(keys(&by(UsageBy::Profile)), [("profile.local".into(), 7.0)]);
    let shop = UsageQuery { project: Some("shop".into()), ..UsageQuery::default() };
    assert_eq!(keys(&shop).len(), 2);
    let consumer = Some(Consumer { actor_type: "agt".into(), project: "shop".into() });
    let own = UsageQuery { consumer, by: UsageBy::Sandbox, ..UsageQuery::default() };
    assert_eq!(place.rows(&own)[0].name.as_deref(), Some("a"));
    assert_eq!(keys(&own), [(first.to_string(), 1.0)]);
    let other = UsageQuery { project: Some("bank".into()), ..own };
    assert_eq!(keys(&other), [], "asking for another project shows no other consumer's");
}

#[test]
fn disk_is_as_last_measured_and_nothing_once_it_is_gone() {
    let place = Place::new();
    let (x, y) = (sandbox("x"), sandbox("y"));
    add(&place.store, &x);
    add(&place.store, &y);
    assert_eq!(place.only(&UsageQuery::default()).disk, None, "nobody has measured");
    place.store.set_disk(&[(&x.id, 10), (&y.id, 5)], now()).unwrap();
    assert_eq!(place.only(&UsageQuery::default()).disk, Some(15));
    place.store.close(&x.id, SandboxState::Destroyed).unwrap();
    place.store.set_disk(&[(&x.id, 10)], now()).unwrap();
    assert_eq!(place.only(&UsageQuery::default()).disk, Some(5));
    let long_ago = UsageQuery { until: hours(1), ..UsageQuery::default() };
    assert_eq!(place.rows(&long_ago), []);
}

#[test]
fn an_older_state_is_metered_from_what_it_knows() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("state.db");
    make_format(&file, 3).unwrap();
    let older = Connection::open(&file).unwrap();
    let rows = [("live", "ready"), ("gone", "destroyed"), ("parked", "parked"), ("odd", "failed")];
    for (name, state) in rows {
        let sql = "INSERT INTO sandboxes (id, name, plan_id, state, consumer, created_at, environment)
                   VALUES (?1, ?1, 'p', ?2, '{\"actor_type\":\"agt\",\"project\":\"shop\"}', 1000, ?3)";
        let environment = serde_json::to_string(&environment("ext.x", 2.0, Some("EUR"))).unwrap();
        older.execute(sql, params![name, state, environment]).unwrap();
    }
    older
        .execute_batch(
            "INSERT INTO events (id, sandbox_id, kind, at, data) VALUES ('e', 'gone', 'destroyed', 5000, '{}');
             INSERT INTO operations (id, sandbox_id, kind, state, started_at, finished_at, summary, details)
             VALUES ('o', 'parked', 'park', 'done', 1, 4000, '', '{}');",
        )
        .unwrap();
    drop(older);
    let place = Place { store: Store::open(temp.path()).unwrap(), temp };
    let spans = |id: &str| place.spans(&SandboxId::from_string(id));
    assert_eq!(spans("live"), [(1000, None)]);
    assert_eq!(spans("gone"), [(1000, Some(5000))]);
    assert_eq!(spans("parked"), [(1000, Some(4000))]);
    assert_eq!(spans("odd"), [(1000, Some(1000))]);
    let used = place.rows(&UsageQuery::default()).remove(0);
    assert_eq!((used.key.as_str(), used.used.sandboxes, used.used.live), ("agt:shop", 4, 1));
    assert!(used.used.cost["EUR"] > 0.0);
    place.store.set_state(&SandboxId::from_string("live"), SandboxState::Destroyed).unwrap();
    assert!(spans("live")[0].1.is_some(), "from now on it is metered like any other");
}

#[test]
fn the_usage_of_ten_thousand_sandboxes_is_summed() {
    let place = Place::new();
    add(&place.store, &sandbox("x"));
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
               INSERT INTO sandboxes (id, name, plan_id, state, consumer, created_at)
               SELECT 'sbx_' || i, 's' || i, 'p', iif(i % 10, 'destroyed', 'ready'),
                      '{\"actor_type\":\"agt\",\"project\":\"p' || (i % 7) || '\"}', 1 FROM n;
               INSERT INTO spans (sandbox_id, began, ended)
               SELECT sandbox_id, 0, 5 FROM meters WHERE sandbox_id NOT IN (SELECT sandbox_id FROM spans);
               INSERT INTO use_by_day SELECT sandbox_id, 20000, 7, 7 FROM meters;";
    place.raw().execute_batch(sql).unwrap();
    for by in [UsageBy::Consumer, UsageBy::Sandbox] {
        let rows = place.rows(&UsageQuery { by, ..UsageQuery::default() });
        assert_eq!(rows.iter().map(|row| row.used.sandboxes).sum::<u64>(), 10_001);
    }
    let limit = |measure| Limit {
        entry: QuotaFor::Project("p1".into()),
        actor_type: Some("agt".into()),
        project: "p1".into(),
        measure,
        of: 1e9,
        per: QuotaPeriod::Ever,
    };
    let all = [Measure::Sandboxes, Measure::CpuHours, Measure::WallHours, Measure::Disk, Measure::Cost];
    let standings = place.store.standings(&all.map(limit), now()).unwrap();
    assert!((100.0..200.0).contains(&standings[0].used), "{:?}", standings[0]);
}
