//! Pages: all of it once, in order, through every filter; and what the query shows is what `Visibility` says.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::tests::{add, sandbox};
use super::{Page, PageQuery, Reservation, Store};
use crate::Error;
use crate::access::Visibility;
use crate::environment::Environment;
use crate::model::{PlanId, SandboxId};
use crate::service::{Consumer, Sandbox, SandboxState};

fn environment(scope: &str) -> Box<Environment> {
    let document = json!({
        "route": {"profile_id": "profile.x", "policy": "explicit", "extension_id": "ext.local", "host": "local",
                  "reason": "", "cost": {"per_hour": 0.0}, "considered": []},
        "isolation": "standard", "network": "none", "scope": scope, "step": "ready",
    });
    Box::new(serde_json::from_value(document).unwrap())
}

fn insert(store: &Store, sandbox: &Sandbox) {
    assert!(matches!(add(store, sandbox), Reservation::Made(_)));
    store.set_state(&sandbox.id, sandbox.state).unwrap();
}

fn page(store: &Store, query: &PageQuery) -> Page {
    store.page(query, &Visibility::Everything).unwrap()
}

/// Every page of a query, one behind the other.
fn pages(store: &Store, query: &PageQuery, visibility: &Visibility) -> Vec<Vec<String>> {
    let mut query = query.clone();
    let mut pages = Vec::new();
    loop {
        let page = store.page(&query, visibility).unwrap();
        assert!(page.next.is_none() || page.next.as_ref() == page.sandboxes.last().map(|s| &s.id));
        pages.push(page.sandboxes.into_iter().map(|sandbox| sandbox.name).collect());
        match page.next {
            Some(next) => query.after = Some(next),
            None => return pages,
        }
    }
}

#[test]
fn many_sandboxes_come_once_each_newest_first() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    assert_eq!(page(&store, &PageQuery::default()), Page::default());
    for number in 0..250 {
        insert(&store, &sandbox(&format!("s{number}")));
    }
    let expected: Vec<String> = (0..250).rev().map(|number| format!("s{number}")).collect();
    for (limit, lengths) in [
        (100, vec![100, 100, 50]),
        (125, vec![125, 125]),
        (250, vec![250]),
        (1000, vec![250]),
        (249, vec![249, 1]),
    ] {
        let query = PageQuery { limit, ..PageQuery::default() };
        let found = pages(&store, &query, &Visibility::Everything);
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), lengths);
        assert_eq!(found.concat(), expected);
    }
    assert_eq!(
        pages(&store, &PageQuery { limit: 1, ..PageQuery::default() }, &Visibility::Everything).len(),
        250
    );
}

#[test]
fn a_cursor_outlives_its_sandbox_and_what_came_later() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    (0..3).for_each(|number| insert(&store, &sandbox(&format!("s{number}"))));
    let query = PageQuery { limit: 1, ..PageQuery::default() };
    let next = page(&store, &query).next.unwrap();
    store.set_state(&next, SandboxState::Destroyed).unwrap();
    insert(&store, &sandbox("later"));
    let behind = page(&store, &PageQuery { after: Some(next), limit: 10, ..query.clone() });
    assert_eq!(behind.sandboxes.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["s1", "s0"]);
    let never = PageQuery { after: Some(SandboxId::generate()), ..query };
    assert!(matches!(store.page(&never, &Visibility::Everything), Err(Error::NotFound { .. })));
}

#[test]
fn a_cursor_that_is_not_seen_is_not_there() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let hers = Sandbox { principal: Some("ann".into()), ..sandbox("hers") };
    insert(&store, &hers);
    let of =
        |principal: &str| Visibility::Of { principal: principal.into(), consumer: hers.consumer.clone() };
    let query = PageQuery { after: Some(hers.id.clone()), ..PageQuery::default() };
    assert!(store.page(&query, &of("ann")).is_ok());
    let never = PageQuery { after: Some(SandboxId::generate()), ..PageQuery::default() };
    for query in [query, never] {
        assert!(matches!(store.page(&query, &of("bob")), Err(Error::NotFound { what: "sandbox", .. })));
    }
}

#[test]
fn filters_hold_together() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let mut all = Vec::new();
    for state in [SandboxState::Ready, SandboxState::Active, SandboxState::Parked, SandboxState::Destroyed] {
        for project in ["web", "a\"b'"] {
            for plan in ["one", "two"] {
                let base = sandbox(&format!("s{}", all.len()));
                let consumer = Consumer { actor_type: "agt".into(), project: project.into() };
                // One live workspace for a plan and a resource: each has its own plan, told apart by its end.
                let plan_id = PlanId::from_string(format!("{plan}-{}", all.len()));
                all.push(Sandbox { state, consumer, plan_id, ..base });
                insert(&store, all.last().unwrap());
            }
        }
    }
    let live = |sandbox: &&Sandbox| sandbox.state.is_live();
    let names = |found: Vec<&Sandbox>| found.iter().rev().map(|s| s.name.clone()).collect::<Vec<_>>();
    let ask =
        |query: PageQuery| pages(&store, &PageQuery { limit: 3, ..query }, &Visibility::Everything).concat();
    assert_eq!(ask(PageQuery::default()), names(all.iter().filter(live).collect()));
    assert_eq!(ask(PageQuery { all: true, ..PageQuery::default() }), names(all.iter().collect()));
    for state in [SandboxState::Ready, SandboxState::Parked, SandboxState::Destroyed, SandboxState::Failed] {
        for project in [None, Some("web"), Some("a\"b'"), Some("none")] {
            let query =
                PageQuery { state: Some(state), project: project.map(str::to_owned), ..PageQuery::default() };
            let fits = |s: &&Sandbox| {
                s.state == state && project.is_none_or(|project| s.consumer.project == project)
            };
            assert_eq!(ask(query), names(all.iter().filter(fits).collect()), "{state:?} {project:?}");
        }
    }
    let query = PageQuery { plan: Some("two-1".into()), ..PageQuery::default() };
    assert_eq!(ask(query), ["s1"]);
    let counted = store.count_by_state().unwrap();
    assert!(
        counted.contains(&("ready".to_owned(), 4)) && !counted.iter().any(|(state, _)| state == "destroyed")
    );
}

/// All combinations of who owns it and who looks: the query and the rule have to agree on each.
#[test]
fn the_query_shows_what_the_rule_says() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let names = ["ann", "bob", "Ann", ""];
    let projects = ["web", "api", "", "Web"];
    let actors = ["agt", "adm"];
    let mut all = Vec::new();
    for principal in [None, Some("ann"), Some("bob"), Some("Ann")] {
        for project in projects {
            for actor in actors {
                for scope in [None, Some("consumer"), Some("project"), Some("host")] {
                    let made = Sandbox {
                        principal: principal.map(str::to_owned),
                        consumer: Consumer { actor_type: actor.into(), project: project.into() },
                        environment: scope.map(environment),
                        ..sandbox(&format!("s{}", all.len()))
                    };
                    insert(&store, &made);
                    all.push(made);
                }
            }
        }
    }
    let query = PageQuery { limit: 1000, ..PageQuery::default() };
    let (mut seen, mut unseen) = (0, 0);
    let mut agree = |visibility: &Visibility| {
        let shown: Vec<String> = pages(&store, &query, visibility).concat();
        let rule = all.iter().rev().filter(|sandbox| visibility.includes(&sandbox.owner()));
        let expected: Vec<String> = rule.map(|sandbox| sandbox.name.clone()).collect();
        assert_eq!(shown, expected, "{visibility:?}");
        seen += shown.len();
        unseen += all.len() - shown.len();
    };
    agree(&Visibility::Everything);
    for principal in names {
        for project in projects {
            for actor in actors {
                let consumer = Consumer { actor_type: actor.into(), project: project.into() };
                agree(&Visibility::Of { principal: principal.into(), consumer });
            }
        }
    }
    assert!(seen > 1000 && unseen > 1000);
}
