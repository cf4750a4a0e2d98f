//! `sandbox usage`: what was used, by whom, within which limits; and what happens at one.

use serde_json::Value;

use crate::common::World;

const CONFIG: &str = "user/.config/sandboxer/config.yaml";

/// Keeps a processor busy for a while.
const BUSY: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";

/// As `ext.local`, but somebody wants money for it.
const PAID: &str = "\
id: ext.paid
summary: Namespaces that cost
provider: local
capabilities: {isolation: [files, standard, strict], network: [none, host, allow], workspaces: any, exec: true, limits: true}
pricing: {model: per-hour, amount: 36000, currency: EUR}
";

const DEAR: &str = "\
id: profile.dear
summary: What costs
extension: {policy: explicit, id: ext.paid}
";

const HOST: &str = "id: local\naddress: local\nextensions: [ext.local, ext.paid]\n";

fn row<'a>(report: &'a Value, key: &str) -> &'a Value {
    let rows = report["rows"].as_array().unwrap();
    rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("no {key} in {report}"))
}

fn create(world: &World, name: &str, actor: &str, project: &str) -> String {
    let arguments = ["create", "--name", name, "--actor-type", actor, "--project", project];
    world.json(&arguments)["sandbox_id"].as_str().unwrap().to_owned()
}

#[test]
fn commands_report_what_they_used() {
    let world = World::with_sandbox();
    for command in [
        vec!["exec", "try"],
        vec!["exec", "try", "--isolation", "files"],
        vec!["run", "--discard"],
        vec!["run", "--discard", "--isolation", "files"],
    ] {
        let before = world.json(&["usage"])["total"]["cpu_seconds"].as_f64().unwrap();
        world.ok(&[&command[..], &["--", "sh", "-c", BUSY]].concat());
        let total = world.json(&["usage"])["total"].clone();
        let used = total["cpu_seconds"].as_f64().unwrap() - before;
        assert!((0.01..60.0).contains(&used), "{command:?}: {used} s, {total}");
        assert!(total["memory_peak"].as_u64().unwrap() > 100_000, "{command:?}: {total}");
    }
    let report = world.json(&["usage", "--by", "sandbox"]);
    assert_eq!(report["total"]["sandboxes"], 3, "those that are gone count: {report}");
    assert_eq!(report["total"]["live"], 1);
    assert!(report["total"]["wall_seconds"].as_f64().unwrap() > 0.0);
    let tried = report["rows"].as_array().unwrap().iter().find(|row| row["name"] == "try").unwrap();
    assert!(tried["cpu_seconds"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn who_joins_others_is_counted_once_with_the_last_of_them() {
    let world = World::with_sandbox();
    let cpu = || world.json(&["usage"])["total"]["cpu_seconds"].as_f64().unwrap();
    let waits = ["exec", "try", "--", "sh", "-c", "echo ready; read line"];
    let ran = world.run_while(&waits, || {
        world.ok(&["exec", "try", "--", "sh", "-c", BUSY]);
        assert_eq!(cpu(), 0.0, "the runtime goes on, and nobody has its report");
    });
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!((0.01..60.0).contains(&cpu()), "{}", cpu());
}

#[test]
fn rows_are_by_whatever_is_asked_for() {
    let world = World::new();
    assert!(world.run(&["usage"]).stderr.contains("nothing was used"));
    assert_eq!(world.json(&["usage"])["rows"], serde_json::json!([]));
    let id = create(&world, "a", "agt", "shop");
    create(&world, "b", "adm", "shop");
    create(&world, "c", "agt", "bank");
    let keys = |by: &str| {
        let report = world.json(&["usage", "--by", by]);
        assert_eq!(report["by"], by);
        let rows = report["rows"].as_array().unwrap().iter();
        let mut keys: Vec<String> = rows.map(|row| row["key"].as_str().unwrap().to_owned()).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(keys("consumer"), ["adm:shop", "agt:bank", "agt:shop"]);
    assert_eq!(keys("project"), ["bank", "shop"]);
    assert_eq!(keys("profile"), ["profile.local"]);
    assert_eq!(keys("extension"), ["ext.local"]);
    assert!(keys("sandbox").len() == 3 && keys("sandbox").contains(&id));
    let text = world.ok(&["usage", "--by", "project"]);
    let first: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    let headings = ["PROJECT", "SANDBOXES", "LIVE", "WALL", "CPU", "MEMORY", "PEAK", "DISK", "COST"];
    assert_eq!(first, headings);
    assert!(text.lines().last().unwrap().starts_with("total "), "{text}");
    assert_eq!(world.run(&["usage", "--by", "colour"]).code, 2);
}

#[test]
fn a_period_is_from_a_date_to_another() {
    let world = World::with_sandbox();
    let sandboxes =
        |arguments: &[&str]| world.json(&[&["usage"], arguments].concat())["total"]["sandboxes"].clone();
    assert_eq!(sandboxes(&["--since", "2001-01-01"]), 1);
    assert_eq!(sandboxes(&["--since", "2001-01-01", "--until", "2001-02-01T00:00:00Z"]), 0);
    assert_eq!(sandboxes(&["--since", "2999-01-01"]), 0);
    let error = world.json_error(&["usage", "--since", "yesterday"], 2);
    assert!(error["hint"].to_string().contains("2026-11-01") || error.to_string().contains("2026-11-01"));
    world.json_error(&["usage", "--since", "2002-01-01", "--until", "2001-01-01"], 2);
}

#[test]
fn values_separated_by_commas_are_no_formulas() {
    let world = World::new();
    create(&world, "plain", "agt", "a,b");
    create(&world, "other", "agt", "=1+1");
    let text = world.ok(&["usage", "--by", "project", "--csv"]);
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(lines[0], "project,sandboxes,live,wall_seconds,cpu_seconds,memory_peak,disk");
    assert!(lines.iter().any(|line| line.starts_with("\"a,b\",1,1,")), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("'=1+1,1,1,")), "{text}");
    assert_eq!((lines.len(), lines[3]), (4, ""), "{text}");
    assert_eq!(world.run(&["usage", "--csv", "--json"]).code, 2);
    assert_eq!(world.run(&["usage", "--csv", "--disk"]).code, 2);
}

#[test]
fn the_disk_is_on_the_meter_once_it_was_measured() {
    let world = World::with_sandbox();
    assert_eq!(world.json(&["usage"])["total"]["disk"], Value::Null);
    let measured = world.json(&["usage", "--disk"])["sandboxes"][0]["total"].clone();
    assert_eq!(world.json(&["usage"])["total"]["disk"], measured);
    world.ok(&["destroy", "try", "--discard"]);
    assert_eq!(world.json(&["usage"])["total"]["disk"], 0);
}

#[test]
fn what_costs_is_told_in_its_currency_and_held_to_a_budget() {
    let world = World::new();
    world.file("user/.config/sandboxer/extensions/paid.yaml", PAID);
    world.file("user/.config/sandboxer/profiles/dear.yaml", DEAR);
    world.file("user/.config/sandboxer/hosts/local.yaml", HOST);
    world.ok(&["create", "--name", "dear", "--profile", "profile.dear"]);
    world.ok(&["exec", "dear", "--", "sleep", "0.3"]);
    let report = world.json(&["usage", "--by", "profile"]);
    let cost = row(&report, "profile.dear")["cost"]["EUR"].as_f64().unwrap();
    assert!((3.0..3000.0).contains(&cost), "10 EUR a second: {report}");
    let text = world.ok(&["usage", "--by", "profile", "--csv"]);
    assert!(text.lines().next().unwrap().ends_with(",cost_EUR"), "{text}");
    world.file(CONFIG, "quotas:\n  adm:local: {cost: 1}\n");
    let error = world.json_error(&["create", "--profile", "profile.dear"], 5);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`quotas.adm:local.cost`") && message.contains(" of 1 EUR"), "{message}");
    world.ok(&["create", "--name", "free"]);
}

#[test]
fn at_the_limit_a_create_is_refused_with_what_to_do() {
    let world = World::new();
    world.file(CONFIG, "quotas:\n  agt:shop:\n    sandboxes: 1\n");
    let create = ["create", "--actor-type", "agt", "--project", "shop", "--plan", "p"];
    let first = world.json(&create);
    assert_eq!(world.json(&create)["sandbox_id"], first["sandbox_id"], "it is there already");
    let another = ["create", "--actor-type", "agt", "--project", "shop"];
    let ran = world.run(&another);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    insta::assert_snapshot!("quota_reached", ran.transcript(&world));
    world.ok(&["create", "--actor-type", "agt", "--project", "bank"]);
    let report = world.json(&["usage"]);
    let limit = &row(&report, "agt:shop")["limits"][0];
    assert_eq!(
        (&limit["limit"], &limit["used"], &limit["of"]),
        (&"sandboxes".into(), &1.0.into(), &1.0.into())
    );
    assert!(row(&report, "agt:bank")["limits"].is_null());
    assert!(world.ok(&["usage"]).contains("1 of 1 live (agt:shop)"));
    let name = first["name"].as_str().unwrap();
    world.ok(&["destroy", name, "--discard"]);
    world.ok(&another);
}

#[test]
fn quotas_are_the_users_and_have_to_be_right() {
    let world = World::new();
    world.file("project/sandboxer.yaml", "quotas:\n  '*': {sandboxes: 9}\n");
    let refused = world.run(&["create"]);
    assert!(refused.code != 0 && refused.stderr.contains("quotas is not for a project to set"));
    std::fs::remove_file(world.path("project/sandboxer.yaml")).unwrap();
    world.file(CONFIG, "quotas:\n  '*':\n    sandbox: 9\n");
    let wrong = world.run(&["create"]);
    assert!(wrong.code != 0 && wrong.stderr.contains("config.yaml:3"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("sandboxes"), "{}", wrong.stderr);
    world.file(CONFIG, "quotas:\n  '*': {sandboxes: 9}\n");
    let settings = world.json(&["doctor"])["settings"].clone();
    let found = settings.as_array().unwrap().iter().find(|entry| entry["key"] == "quotas").unwrap();
    assert_eq!(found["value"], "*");
}
