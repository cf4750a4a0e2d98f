#![allow(clippy::unwrap_used)]
use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use crate::config::yaml;

/// A world in which what is not named is well and idle. It remembers what it was asked.
#[derive(Default)]
struct World {
    ill: BTreeMap<(&'static str, &'static str), &'static str>,
    loads: BTreeMap<&'static str, Load>,
    asked: RefCell<Vec<String>>,
}

impl Surroundings for World {
    fn health(&self, extension: &ExtensionDefinition, host: &Host) -> Health {
        self.asked.borrow_mut().push(format!("{} on {}", extension.id, host.id));
        match self.ill.get(&(extension.id.as_str(), host.id.as_str())) {
            Some(reason) => Health::Unhealthy((*reason).to_owned()),
            None => Health::Healthy,
        }
    }

    fn load(&self, host: &str) -> Load {
        self.loads.get(host).copied().unwrap_or_default()
    }
}

/// An extension `ext.NAME` that can do everything and costs nothing, with other lines of YAML.
fn extension(name: &str, rest: &str) -> (String, String) {
    let own = [
        ("provider", "provider: local"),
        ("self_hosted", "self_hosted: true"),
        (
            "capabilities",
            "capabilities: {isolation: [files, standard, strict, container], network: [none, host, allow], workspaces: transfer, ports: true, limits: true, mounts: true}",
        ),
        ("pricing", "pricing: {model: free}"),
    ];
    let lines = own.iter().filter(|(key, _)| !rest.contains(key)).map(|(_, line)| format!("{line}\n"));
    (
        format!("extensions/{name}.yaml"),
        format!("id: ext.{name}\nsummary: X\n{}{rest}\n", lines.collect::<String>()),
    )
}

fn host(name: &str, extensions: &str, rest: &str) -> (String, String) {
    let address = if rest.contains("address") { "" } else { "address: local\n" };
    (format!("hosts/{name}.yaml"), format!("id: {name}\n{address}extensions: [{extensions}]\n{rest}\n"))
}

fn catalogue(files: &[(String, String)]) -> Catalogue {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = directory.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    Catalogue::default().with_directory(directory.path()).unwrap()
}

fn profile(rest: &str) -> Profile {
    let text = format!("id: profile.x\nsummary: X\n{rest}\n");
    yaml::parse(&text, std::path::Path::new("p.yaml")).unwrap().unwrap()
}

fn ask(profile: &Profile, catalogue: &Catalogue, world: &World) -> Result<Route> {
    route(&RouteQuestion { profile, extension: None, host: None }, catalogue, world)
}

/// `EXTENSION on HOST` of what is chosen.
fn chosen(rest: &str, catalogue: &Catalogue) -> String {
    let route = ask(&profile(rest), catalogue, &World::default()).unwrap();
    format!("{} on {}", route.extension_id, route.host)
}

/// Each candidate with why not, where there is no route.
fn refusals(result: Result<Route>) -> Vec<String> {
    match result.unwrap_err() {
        Error::NoRoute { profile, candidates, .. } => {
            assert_eq!(profile, "profile.x");
            assert!(candidates.iter().all(|candidate| !candidate.eligible));
            candidates.iter().map(|c| format!("{} on {}: {}", c.extension_id, c.host, c.reason)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_shipped_goes_to_this_machine() {
    let catalogue = Catalogue::embedded().unwrap();
    let world = World::default();
    for (id, extension) in [
        ("profile.local", "ext.local"),
        ("profile.container", "ext.container"),
        ("profile.compose-e2e", "ext.compose-ssh"),
    ] {
        let route = ask(catalogue.profile(id).unwrap(), &catalogue, &world).unwrap();
        assert_eq!((route.extension_id.as_str(), route.host.as_str()), (extension, "local"));
        assert_eq!(
            route.reason,
            format!("{extension} on local: the only one of 3 candidates that qualifies")
        );
        assert_eq!(route.cost, Some(Cost { per_hour: 0.0, currency: None }));
        assert_eq!(route.considered.len(), 3);
        assert_eq!((route.considered[0].reason.as_str(), route.considered[0].eligible), ("chosen", true));
        assert_eq!(route.considered[1].reason, format!("the profile names {extension}"));
    }
    assert_eq!(
        *world.asked.borrow(),
        ["ext.local on local", "ext.container on local", "ext.compose-ssh on local"]
    );
}

#[test]
fn what_an_extension_lacks_speaks_against_it() {
    let can = |what: &str| format!("capabilities: {{{what}}}");
    let weak = can("isolation: [files, standard], network: [none], workspaces: transfer");
    let none = can("isolation: [strict], network: [none], workspaces: none, mounts: true");
    let table = [
        (&weak, "isolation: strict", "it has no isolation strict"),
        (&weak, "isolation: container", "it has no isolation container"),
        (&weak, "network: host", "it has no network host"),
        (&weak, "network: {allow: [a.b]}", "it has no network allow"),
        (&weak, "reachability: {ports: [80]}", "it publishes no ports"),
        (&weak, "resources: {pids: 3}", "it enforces no limits"),
        (&weak, "resources: {memory: 1G}", "it enforces no limits"),
        (&weak, "resources: {cpus: 1}", "it enforces no limits"),
        (&weak, "inputs: {a: {mount: /w}}", "inputs appear only at their own paths"),
        (&none, "inputs: {a: {}}", "it takes no inputs"),
        (&weak, "extension: {among: [ext.other]}", "the profile does not list this extension"),
        (&weak, "extension: {policy: explicit, id: ext.other}", "the profile names ext.other"),
    ];
    for (capabilities, wanted, says) in table {
        let files = [extension("a", capabilities), host("h", "ext.a", "")];
        let world = World::default();
        let result = ask(&profile(wanted), &catalogue(&files), &world);
        assert_eq!(refusals(result), [format!("ext.a on h: {says}")]);
        assert!(world.asked.borrow().is_empty(), "health is asked last");
    }
}

#[test]
fn a_stricter_isolation_will_do_and_a_container_is_itself() {
    use IsolationLevel::{Container, Files, Standard, Strict};
    let levels = [Files, Standard, Strict];
    for (offered, wanted) in levels.iter().flat_map(|a| levels.iter().map(move |b| (*a, *b))) {
        assert_eq!(suffices(offered, wanted), offered >= wanted, "{offered:?} for {wanted:?}");
    }
    assert!(suffices(Container, Container));
    for level in levels {
        assert!(!suffices(Container, level) && !suffices(level, Container));
    }
}

#[test]
fn what_a_host_lacks_speaks_against_it() {
    let busy = Load { sandboxes: 3, cpus: 3.0, memory: 3 << 30 };
    let world = World { loads: BTreeMap::from([("h", busy)]), ..World::default() };
    let needs = "resources: {cpus: 2, memory: 2G}";
    let table = [
        ("", "placement: {labels: {gpu: \"1\"}}", Some("the host has no label gpu=1")),
        ("labels: {gpu: \"2\"}", "placement: {labels: {gpu: \"1\"}}", Some("the host has no label gpu=1")),
        ("labels: {gpu: \"1\"}", "placement: {labels: {gpu: \"1\"}}", None),
        ("region: us", "placement: {regions: [eu]}", Some("it is in none of the profile's regions")),
        ("", "placement: {regions: [eu]}", Some("it is in none of the profile's regions")),
        ("region: eu", "placement: {regions: [us, eu]}", None),
        ("drained: true", "", Some("the host is drained")),
        ("", "placement: {fallback: [other]}", Some("the profile places it on other hosts")),
        ("capacity: {sandboxes: 3}", "", Some("the host is full: 3 sandboxes")),
        ("capacity: {sandboxes: 4}", "", None),
        ("capacity: {cpus: 4}", needs, Some("the host has 1 processors left, not 2")),
        ("capacity: {cpus: 5}", needs, None),
        ("capacity: {memory: 4G}", needs, Some("the host has 1024 MiB of memory left, not 2048 MiB")),
        ("capacity: {memory: 5G}", needs, None),
        ("capacity: {cpus: 1, memory: 1G}", "", None),
    ];
    for (has, wanted, says) in table {
        let result =
            ask(&profile(wanted), &catalogue(&[extension("a", ""), host("h", "ext.a", has)]), &world);
        match says {
            Some(says) => assert_eq!(refusals(result), [format!("ext.a on h: {says}")]),
            None => assert_eq!(result.unwrap().reason, "ext.a on h: the only candidate, and it qualifies"),
        }
    }
}

#[test]
fn a_region_of_the_extension_counts_where_the_host_has_none() {
    let files = [extension("a", "regions: [eu]"), host("h", "ext.a", "")];
    assert_eq!(chosen("placement: {regions: [eu]}", &catalogue(&files)), "ext.a on h");
}

#[test]
fn what_works_with_paths_stays_on_this_machine() {
    for (access, reaches) in [("any", false), ("host-path", false), ("transfer", true), ("none", true)] {
        let can = format!("capabilities: {{isolation: [standard], network: [none], workspaces: {access}}}");
        let files = [extension("a", &can), host("far", "ext.a", "address: ssh://far")];
        let result = ask(&profile(""), &catalogue(&files), &World::default());
        match reaches {
            true => assert_eq!(result.unwrap().host, "far"),
            false => assert_eq!(
                refusals(result),
                ["ext.a on far: it works with paths of this machine, and the host is another"]
            ),
        }
    }
}

#[test]
fn the_caller_may_name_both() {
    let files =
        [extension("a", ""), extension("b", ""), host("g", "ext.a", ""), host("h", "ext.a, ext.b", "")];
    let (catalogue, world, profile) = (catalogue(&files), World::default(), profile(""));
    let ask =
        |extension, host| route(&RouteQuestion { profile: &profile, extension, host }, &catalogue, &world);
    let both = |route: Route| (route.extension_id, route.host, route.considered.len());
    let is = |extension: &str, host: &str, count| (extension.to_owned(), host.to_owned(), count);
    assert_eq!(both(ask(None, None).unwrap()), is("ext.a", "g", 3));
    assert_eq!(both(ask(Some("ext.b"), None).unwrap()), is("ext.b", "h", 2));
    assert_eq!(both(ask(None, Some("h")).unwrap()), is("ext.a", "h", 2));
    assert_eq!(
        refusals(ask(Some("ext.b"), Some("g"))),
        ["ext.b on g: the host does not list this extension"]
    );
    assert!(matches!(ask(Some("ext.c"), None), Err(Error::NotFound { what: "extension", .. })));
    assert!(matches!(ask(None, Some("i")), Err(Error::NotFound { what: "host", .. })));
}

#[test]
fn one_s_own_come_first_then_the_cheapest() {
    let hour = |amount: &str, own: bool| {
        format!("self_hosted: {own}\npricing: {{model: per-hour, amount: {amount}, currency: EUR}}")
    };
    let files = [
        extension("a", &hour("0.1", false)),
        extension("b", &hour("2", true)),
        extension("c", &hour("1", true)),
        host("h", "ext.a, ext.b, ext.c", ""),
    ];
    let catalogue = catalogue(&files);
    let route = ask(&profile(""), &catalogue, &World::default()).unwrap();
    assert_eq!(
        route.reason,
        "ext.c on h: on machines of one's own, the cheapest in EUR, 1 an hour; 3 of 3 candidates qualify"
    );
    assert_eq!(route.cost, Some(Cost { per_hour: 1.0, currency: Some("EUR".into()) }));
    let order: Vec<&str> = route.considered.iter().map(|c| c.extension_id.as_str()).collect();
    assert_eq!(order, ["ext.c", "ext.b", "ext.a"]);
    let route = ask(&profile("extension: {policy: lowest-cost}"), &catalogue, &World::default()).unwrap();
    assert_eq!(route.reason, "ext.a on h: the cheapest in EUR, 0.1 an hour; 3 of 3 candidates qualify");
}

#[test]
fn prices_are_compared_within_one_currency() {
    let price = |model: &str, amount: &str, currency: &str| {
        format!("pricing: {{model: {model}, amount: {amount}, currency: {currency}}}")
    };
    let mut files = vec![
        extension("a", &price("per-hour", "1", "USD")),
        extension("b", &price("per-hour", "9", "EUR")),
        extension("c", &price("per-sandbox", "10", "EUR")),
        host("h", "ext.a, ext.b, ext.c", ""),
    ];
    let cheapest = |rest: &str, files: &[(String, String)]| {
        let profile = profile(&format!("extension: {{policy: lowest-cost}}\n{rest}"));
        ask(&profile, &catalogue(files), &World::default()).unwrap().reason
    };
    assert_eq!(
        cheapest("", &files),
        "ext.b on h: the cheapest in EUR, 9 an hour; prices in other currencies were not compared; 3 of 3 candidates qualify"
    );
    assert!(
        cheapest("ttl: 2h", &files)
            .starts_with("ext.c on h: the cheapest in EUR, 5 an hour; prices in other")
    );
    files.push(extension("d", ""));
    files[3] = host("h", "ext.a, ext.b, ext.c, ext.d", "");
    assert_eq!(cheapest("", &files), "ext.d on h: free; 4 of 4 candidates qualify");
}

#[test]
fn placement_comes_before_policy() {
    let paid = "self_hosted: false\npricing: {model: per-hour, amount: 5, currency: EUR}";
    let files = [
        extension("a", ""),
        extension("p", paid),
        host("g", "ext.a", ""),
        host("h", "ext.p", ""),
        host("i", "ext.a", ""),
    ];
    let catalogue = catalogue(&files);
    assert_eq!(chosen("", &catalogue), "ext.a on g");
    assert_eq!(chosen("placement: {prefer: [h]}", &catalogue), "ext.p on h");
    assert_eq!(chosen("placement: {prefer: [i, h]}", &catalogue), "ext.a on i");
    assert_eq!(chosen("placement: {fallback: [i, g]}", &catalogue), "ext.a on i");
    let ill = World { ill: BTreeMap::from([(("ext.p", "h"), "it is off")]), ..World::default() };
    let fallen = ask(&profile("placement: {prefer: [h], fallback: [i]}"), &catalogue, &ill).unwrap();
    assert_eq!(fallen.reason, "ext.a on i: the only one of 3 candidates that qualifies");
    let reasons: Vec<&str> = fallen.considered.iter().map(|c| c.reason.as_str()).collect();
    assert_eq!(reasons, ["chosen", "the profile places it on other hosts", "it is off"]);
    let anywhere = ask(&profile("placement: {prefer: [h]}"), &catalogue, &ill).unwrap();
    assert_eq!(anywhere.host, "g");
    let preferred = ask(&profile("placement: {prefer: [h]}"), &catalogue, &World::default()).unwrap();
    assert_eq!(preferred.reason, "ext.p on h: profile.x prefers this host; 3 of 3 candidates qualify");
}

#[test]
fn health_is_asked_of_the_best_first_and_no_further() {
    let files = [
        extension("a", ""),
        host("f", "ext.a", "drained: true"),
        host("g", "ext.a", ""),
        host("h", "ext.a", ""),
        host("i", "ext.a", ""),
    ];
    let catalogue = catalogue(&files);
    let mut world =
        World { ill: BTreeMap::from([(("ext.a", "g"), "no daemon answers")]), ..World::default() };
    assert_eq!(ask(&profile(""), &catalogue, &world).unwrap().host, "h");
    assert_eq!(*world.asked.borrow(), ["ext.a on g", "ext.a on h"]);
    world.ill.extend([(("ext.a", "h"), "nor here"), (("ext.a", "i"), "nor there")]);
    assert_eq!(
        refusals(ask(&profile(""), &catalogue, &world)),
        [
            "ext.a on f: the host is drained",
            "ext.a on g: no daemon answers",
            "ext.a on h: nor here",
            "ext.a on i: nor there"
        ]
    );
}

#[test]
fn equals_are_told_apart_by_their_ids_whatever_the_order_of_the_files() {
    let hosts = ["a", "b", "c"];
    for order in ["ext.x, ext.y", "ext.y, ext.x"] {
        let mut files = vec![extension("y", ""), extension("x", "")];
        files.extend(hosts.iter().rev().map(|name| host(name, order, "")));
        for policy in ["prefer-self-hosted", "lowest-cost"] {
            let wanted = format!("extension: {{policy: {policy}}}");
            let route = ask(&profile(&wanted), &catalogue(&files), &World::default()).unwrap();
            let listed: Vec<String> =
                route.considered.iter().map(|c| format!("{} {}", c.host, c.extension_id)).collect();
            assert_eq!(listed, ["a ext.x", "a ext.y", "b ext.x", "b ext.y", "c ext.x", "c ext.y"]);
            assert_eq!(
                route.reason,
                "ext.x on a: free, and of equals the first by its id; 6 of 6 candidates qualify"
            );
        }
    }
}

/// Every subset of four hosts being out of service, each in every way: the first that is left is chosen, twice alike.
#[test]
fn the_same_question_has_the_same_answer() {
    let names = ["a", "b", "c", "d"];
    for out in 0..16u32 {
        for how in ["drained: true", "region: us", "capacity: {sandboxes: 0}"] {
            let state = |index: usize| if out & (1 << index) == 0 { "region: eu" } else { how };
            let mut files = vec![extension("x", "")];
            files.extend(names.iter().enumerate().map(|(index, name)| host(name, "ext.x", state(index))));
            let (catalogue, wanted) = (catalogue(&files), profile("placement: {regions: [eu]}"));
            let expected = names.iter().enumerate().find(|(index, _)| out & (1 << index) == 0);
            let answers = [(), ()].map(|()| ask(&wanted, &catalogue, &World::default()).ok());
            assert_eq!(answers[0], answers[1]);
            assert_eq!(answers[0].as_ref().map(|route| route.host.as_str()), expected.map(|(_, name)| *name));
        }
    }
}

#[test]
fn of_many_candidates_some_are_listed_and_all_counted() {
    let mut files = vec![extension("x", "")];
    files.extend((0..30).map(|n| host(&format!("h{n:02}"), "ext.x", "drained: true")));
    match ask(&profile(""), &catalogue(&files), &World::default()).unwrap_err() {
        Error::NoRoute { candidates, left_out, .. } => assert_eq!((candidates.len(), left_out), (20, 10)),
        other => panic!("{other:?}"),
    }
    files.push(host("z", "ext.x", ""));
    let route = ask(&profile(""), &catalogue(&files), &World::default()).unwrap();
    assert_eq!(route.reason, "ext.x on z: the only one of 31 candidates that qualifies");
    assert_eq!(route.considered.len(), 20);
    let error = ask(&profile(""), &Catalogue::default(), &World::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no route for profile.x: no host has an extension that it may use"
    );
}

#[test]
fn what_is_in_use_is_counted_by_host() {
    let sandbox = |state: &str, host: Option<&str>| -> Sandbox {
        let environment = host.map(|host| {
            serde_json::json!({
                "route": {"profile_id": "profile.x", "policy": "explicit", "extension_id": "ext.x", "host": host, "reason": ""},
                "isolation": "standard", "network": "none", "scope": "consumer", "step": "ready",
                "resources": {"cpus": 1.5, "memory": "1G"},
            })
        });
        serde_json::from_value(serde_json::json!({
            "id": crate::model::SandboxId::generate(), "name": "x", "plan_id": crate::model::PlanId::generate(),
            "state": state, "consumer": {"actor_type": "adm", "project": "p"}, "created_at": "2026-01-01T00:00:00Z",
            "expires_at": null, "workspaces": [], "environment": environment,
        }))
        .unwrap()
    };
    let sandboxes = [
        sandbox("ready", None),
        sandbox("active", Some("h")),
        sandbox("provisioning", Some("h")),
        sandbox("parked", Some("h")),
        sandbox("destroyed", Some("h")),
        sandbox("failed", Some("i")),
    ];
    let loads = Load::by_host(&sandboxes);
    assert_eq!(loads.keys().collect::<Vec<_>>(), ["h", LOCAL_HOST]);
    assert_eq!(loads["h"], Load { sandboxes: 2, cpus: 3.0, memory: 2 << 30 });
    assert_eq!(loads[LOCAL_HOST], Load { sandboxes: 1, ..Load::default() });
}
