//! `sandbox token`: made, listed, taken back; and what is no token.

use crate::common::World;

const CREATE: [&str; 6] = ["token", "create", "--principal", "ann", "--project", "web"];

fn create<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&CREATE[..], more].concat()
}

#[test]
fn a_token_is_shown_once() {
    let world = World::new();
    let project = world.project().canonicalize().unwrap().display().to_string();
    let ran = world.run(&create(&["--resource", "."]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text = ran.stdout.trim_end();
    let parts: Vec<&str> = text.split('_').collect();
    assert_eq!((parts.len(), parts[0], parts[1].len(), parts[2].len()), (3, "sbxt", 16, 52), "{text}");
    assert!(ran.stderr.contains("the only time") && ran.stderr.contains(parts[1]), "{}", ran.stderr);
    assert!(!ran.stderr.contains(parts[2]), "the secret is on stdout alone");
    let listed = world.ok(&["token", "list"]);
    for word in [parts[1], "ann", "agt", "web", "read,work", "until revoked", &project] {
        assert!(listed.contains(word), "{word}: {listed}");
    }
    assert!(!listed.contains(parts[2]));
}

#[test]
fn documents_have_everything_but_the_secret() {
    let world = World::new();
    let made = world.json(&create(&[
        "--actor",
        "atm",
        "--scope",
        "commit",
        "--scope",
        "admin",
        "--resource",
        "/srv/web",
        "--resource",
        "s3://bucket",
        "--ttl",
        "30d",
    ]));
    assert_eq!(made["scopes"], serde_json::json!(["read", "work", "commit", "admin"]));
    assert_eq!(made["resources"], serde_json::json!(["/srv/web", "s3://bucket"]));
    assert_eq!(made["consumer"], serde_json::json!({"actor_type": "atm", "project": "web"}));
    assert!(made["expires_at"].as_str().unwrap() > made["created_at"].as_str().unwrap());
    let id = made["id"].as_str().unwrap();
    assert!(made["text"].as_str().unwrap().starts_with(&format!("sbxt_{id}_")));
    let listed = world.json(&["token", "list"]);
    let mut expected = made.clone();
    expected.as_object_mut().unwrap().remove("text");
    assert_eq!(listed["tokens"], serde_json::json!([expected]));
    let revoked = world.json(&["token", "revoke", &id[..8]]);
    assert!(revoked["revoked_at"].is_string());
    assert_eq!(world.json(&["token", "revoke", id]), revoked, "the first time counts");
    assert!(world.ok(&["token", "list"]).contains("revoked "));
}

#[test]
fn what_is_no_token_is_told() {
    let world = World::new();
    let refused = |more: &[&str], words: &[&str]| {
        let error = world.json_error(&create(more), 2);
        for word in words {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    };
    refused(&["--resource", "/srv", "--scope", "wrok"], &["is no scope", "did you mean work?"]);
    refused(&[], &["has to say of what", "--resource"]);
    refused(&["--scope", "commit"], &["has to say of what"]);
    for ttl in ["soon", "0s", "-1h"] {
        let error = world.json_error(&create(&["--resource", "/srv", &format!("--ttl={ttl}")]), 2);
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let odd = ["token", "create", "--principal", "../x", "--project", "web", "--scope", "read"];
    assert!(world.json_error(&odd, 2)["message"].as_str().unwrap().contains("no name for a principal"));
    assert_eq!(world.json_error(&["token", "revoke", "nope"], 4)["kind"], "not_found");
    assert_eq!(world.json_error(&["token", "revoke", ""], 4)["kind"], "not_found");
    assert_eq!(world.json(&["token", "list"])["tokens"], serde_json::json!([]));
    assert!(world.run(&["token", "list"]).stderr.contains("sandbox token create"));
    // Whoever only looks isolates nothing.
    world.ok(&create(&["--scope", "read"]));
    world.ok(&create(&["--scope", "admin"]));
}
