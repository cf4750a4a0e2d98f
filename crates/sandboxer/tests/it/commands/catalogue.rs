//! `profiles`, `extensions`, `hosts` and `route`: what is shipped, what the user adds, and what is chosen.

use serde_json::{Value, json};

use crate::common::World;

const FAR: &str = "id: far\naddress: ssh://me@far.example.com\nextensions: [ext.cloud]\nregion: eu\n";

const CLOUD: &str = "\
id: ext.cloud
summary: Machines of somebody else's
provider: {plugin: {module: cloud, class: Cloud, timeout: 60s}}
capabilities: {isolation: [strict, container], network: [none, host], workspaces: transfer}
pricing: {model: per-hour, amount: 0.5, currency: EUR}
";

/// It makes nothing, and is well unless a file says otherwise.
const MODULE: &str = "
import os
from sandboxer_plugin import Health

class Cloud:
    def provision(self, request): ...
    def wait_ready(self, handle, deadline_ms): ...
    def teardown(self, sandbox_id, handle): ...
    def inspect(self, sandbox_id): return []
    def health(self):
        is_sick = os.path.exists(os.path.join(os.path.dirname(__file__), 'sick'))
        return Health('unhealthy', 'it rains') if is_sick else Health('healthy')
";

const EUROPE: &str = "\
id: profile.europe
summary: Wherever it is cheap
extension: {policy: lowest-cost}
isolation: strict
placement: {regions: [eu]}
";

/// A world whose user has written a file of each kind.
fn furnished() -> World {
    let world = World::new();
    world.file("user/.config/sandboxer/hosts/far.yaml", FAR);
    world.file("user/.config/sandboxer/extensions/cloud.yaml", CLOUD);
    world.file("user/.config/sandboxer/extensions/cloud.py", MODULE);
    world.file("user/.config/sandboxer/profiles/europe.yaml", EUROPE);
    world
}

fn ids(document: &Value, key: &str) -> Vec<String> {
    document[key].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_shipped_and_what_the_user_adds_is_listed() {
    let world = furnished();
    let listed = |command| ids(&world.json(&[command]), command);
    assert_eq!(
        listed("profiles"),
        ["profile.compose-e2e", "profile.container", "profile.europe", "profile.local"]
    );
    assert_eq!(listed("extensions"), ["ext.cloud", "ext.compose-ssh", "ext.container", "ext.local"]);
    assert_eq!(listed("hosts"), ["far", "local"]);
    let one = world.json(&["hosts", "far"]);
    assert_eq!((&one["region"], &one["address"]), (&"eu".into(), &"ssh://me@far.example.com".into()));
    assert!(one["origin"].as_str().unwrap().ends_with("hosts/far.yaml"));
    assert_eq!(world.json(&["profiles", "profile.local"])["origin"], "built-in");
    for (command, id, word) in [
        ("profiles", "profile.europe", "lowest-cost"),
        ("extensions", "ext.cloud", "0.5 EUR an hour"),
        ("hosts", "far", "ssh://me@far"),
    ] {
        assert!(world.ok(&[command]).contains(word), "{command}");
        assert!(world.ok(&[command, id]).starts_with(&format!("{id}\n")), "{command}");
    }
    assert!(!world.path("home").exists(), "looking makes nothing");
}

#[test]
fn what_is_unknown_comes_with_the_nearest() {
    let world = World::new();
    for (command, typed, meant) in [
        ("profiles", "profile.lokal", "profile.local"),
        ("extensions", "ext.contaner", "ext.container"),
        ("hosts", "locl", "local"),
    ] {
        let error = world.json_error(&[command, typed], 4);
        assert_eq!(error["hints"][0], format!("did you mean {meant}?"));
        assert_eq!(error["hints"][1], format!("`sandbox {command}` shows what there is"));
    }
}

#[test]
fn a_route_says_why() {
    let world = furnished();
    let route = world.json(&["route", "--profile", "profile.local"]);
    assert_eq!((&route["extension_id"], &route["host"]), (&"ext.local".into(), &"local".into()));
    assert_eq!(route["policy"], "explicit");
    assert!(route["reason"].as_str().unwrap().starts_with("ext.local on local: "));
    assert!(!world.path("home").exists(), "asking makes nothing");
    let europe = world.ok(&["route", "--profile", "profile.europe"]);
    assert!(europe.starts_with("ext.cloud on far\n"), "{europe}");
    assert!(
        europe.contains("0.5 EUR an hour") && europe.contains("it is in none of the profile's regions"),
        "{europe}"
    );
    world.file("user/.config/sandboxer/extensions/sick", "");
    let error = world.json_error(&["route", "--profile", "profile.europe"], 6);
    assert_eq!(error["candidates"][0]["reason"], "it rains");
}

#[test]
fn no_route_tells_of_each_candidate_why_not() {
    let world = furnished();
    let asked = ["route", "--profile", "profile.europe", "--host", "local"];
    let ran = world.run(&asked);
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    assert!(
        ran.stderr
            .starts_with("error: there is no route for profile.europe: none of 3 candidates qualifies\n"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("\n  ext.local on local: it is in none of the profile's regions\n"),
        "{}",
        ran.stderr
    );
    let error = world.json_error(&asked, 6);
    assert_eq!(error["kind"], "unavailable");
    assert_eq!(error["candidates"][0]["extension_id"], "ext.compose-ssh");
    assert_eq!(error["candidates"][0]["reason"], "it has no isolation strict");
    assert_eq!(world.run(&["route", "--profile", "profile.europe", "--host", "locl"]).code, 4);
}

#[test]
fn a_mistake_is_told_with_its_place() {
    let world = World::new();
    world.file(
        "user/.config/sandboxer/hosts/far.yaml",
        FAR.replace("ssh://me@far", "ssh://-oProxyCommand=id"),
    );
    let ran = world.run(&["hosts"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("hosts/far.yaml:2:10: address: \"ssh://-oProxyCommand"), "{}", ran.stderr);
}

#[test]
fn a_project_brings_nothing() {
    let world = World::new();
    for directory in ["project", "project/.config/sandboxer", "project/sandboxer"] {
        world.file(&format!("{directory}/hosts/far.yaml"), FAR.replace("ext.cloud", "ext.local"));
        world.file(&format!("{directory}/profiles/x.yaml"), EUROPE);
    }
    assert_eq!(ids(&world.json(&["hosts"]), "hosts"), ["local"]);
    assert_eq!(
        ids(&world.json(&["profiles"]), "profiles"),
        ["profile.compose-e2e", "profile.container", "profile.local"]
    );
}

#[test]
fn the_last_check_of_an_extension_is_listed() {
    let world = furnished();
    let check = |known: &str| {
        let document = world.json(&["extensions"]);
        let all = document["extensions"].as_array().unwrap().clone();
        all.into_iter().find(|entry| entry["id"] == known).unwrap()["check"].clone()
    };
    assert_eq!((check("ext.cloud"), check("ext.local")), (json!({"status": "not_checked"}), Value::Null));
    assert!(!world.path("home").exists(), "something was started");
    let of_doctor = || {
        let report: Value = serde_json::from_str(&world.run(&["doctor", "--json"]).stdout).unwrap();
        let all = report["extensions"].as_array().unwrap().clone();
        all.into_iter().find(|entry| entry["extension"] == "ext.cloud").unwrap()["check"].clone()
    };
    assert_eq!((of_doctor(), check("ext.cloud")), (json!({"status": "ok"}), json!({"status": "ok"})));
    let broken = MODULE.replace("def teardown(self, sandbox_id, handle)", "def teardown(self)");
    world.file("user/.config/sandboxer/extensions/cloud.py", broken);
    assert_eq!(check("ext.cloud"), json!({"status": "not_checked"}));
    let ran = world.run(&["extensions", "check", "ext.cloud", "--json"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let called_with = ["sandbox_id", "handle"];
    let problem =
        json!({"problem": "wrong_arguments", "method": "teardown", "takes": [], "called_with": called_with});
    assert_eq!(report["check"], json!({"status": "broken", "problems": [problem]}));
    assert_eq!((check("ext.cloud"), of_doctor()), (report["check"].clone(), report["check"].clone()));
    let row = world.ok(&["extensions"]);
    assert!(row.lines().any(|line| line.starts_with("ext.cloud ") && line.contains(" broken ")), "{row}");
}

/// The entry of an extension in what `doctor` says.
fn doctor_entry(world: &World, extension: &str) -> Value {
    let report: Value = serde_json::from_str(&world.run(&["doctor", "--json"]).stdout).unwrap();
    let all = report["extensions"].as_array().unwrap().clone();
    all.into_iter().find(|entry| entry["extension"] == extension).unwrap()
}

#[test]
fn an_unusable_extension_fails_only_the_commands_that_use_it() {
    let without_teardown = MODULE.replace("    def teardown(self, sandbox_id, handle): ...\n", "");
    let table = [
        (CLOUD.to_owned(), without_teardown.as_str(), "`teardown` is missing"),
        (CLOUD.replace("class: Cloud", "class: Clout"), MODULE, "Clout"),
        (CLOUD.replace("module: cloud", "module: ''"), MODULE, "\"\" names nothing"),
        (CLOUD.replace("60s", "soon"), MODULE, "\"soon\" is not a duration"),
        (CLOUD.replace("timeout: 60s}}", "timeout: 60s"), MODULE, "cloud.yaml"),
    ];
    let bound =
        "id: profile.cloud\nsummary: Mine\nextension: {policy: explicit, id: ext.cloud}\nisolation: strict\n";
    for (definition, module, problem) in table {
        let world = furnished();
        world.file("user/.config/sandboxer/profiles/cloud.yaml", bound);
        world.file("user/.config/sandboxer/extensions/cloud.yaml", &definition);
        world.file("user/.config/sandboxer/extensions/cloud.py", module);
        let create = |profile: &str| {
            let input = world.project().display().to_string();
            world.run(&["create", &input, "-s", "filesystem_copy", "--profile", profile, "--name", "try"])
        };
        let unused = create("profile.local");
        assert_eq!(unused.code, 0, "{problem}: {}{}", unused.stdout, unused.stderr);
        world.ok(&["destroy", "try", "--discard"]);
        let entry = doctor_entry(&world, "ext.cloud");
        let reason = entry["reason"].as_str().unwrap();
        assert!(entry["healthy"] == false && reason.contains(problem), "{entry:#}");
        assert_eq!(entry["check"]["status"], "broken", "{entry:#}");
        let used = create("profile.cloud");
        assert!(used.code != 0 && used.stderr.contains(problem), "{problem}: {}", used.stderr);
        let row = world.ok(&["extensions"]);
        assert!(row.lines().any(|line| line.starts_with("ext.cloud ") && line.contains(" broken ")), "{row}");
    }
}

#[test]
fn doctor_names_the_command_that_checks_each_remote_host() {
    let world = furnished();
    let report: Value = serde_json::from_str(&world.run(&["doctor", "--json"]).stdout).unwrap();
    let far =
        json!({"host": "far", "address": "ssh://me@far.example.com", "check": "sandbox hosts check far"});
    assert_eq!(report["hosts"], json!([far]));
    let line = "--  far              ssh://me@far.example.com: not connected to; check it with `sandbox hosts check far`\n";
    let shown = world.run(&["doctor"]).stdout;
    assert!(shown.contains(line), "{shown}");
}
