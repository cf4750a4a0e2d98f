//! Values of the plugin's environment are told to nobody.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::world::{EVIL, LONG, World};

const TOKEN: &str = "s3cr3t-t0k3n-0123456789";
const KEY: &str = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA7\n-----END KEY-----";

/// The plugin tells its token in that way; afterwards it is in no error, no debug output and no file of the state directory.
fn told(variable: &str, how: &str) {
    let options = json!({"evil": "tell", "in": "commit", "times": 1, "variable": variable, "how": how});
    let world = World::with(options, LONG, &[("TOKEN", TOKEN), ("KEY", KEY)]);
    let target = world.worked_in();
    let error = world.call("commit", Some(&target)).unwrap_err();
    let shown = format!("{error} {error:?} {:?}", world.manager().log(None, 100).unwrap());
    assert_unknown(&shown, how);
    let home = world.home();
    world.assert_log_has("my token is");
    assert_in_no_file(&home, how);
    world.assert_nobody_left();
}

/// Neither whole nor any line of it.
fn assert_unknown(text: &str, place: &str) {
    for secret in [TOKEN, &TOKEN[..12], &TOKEN[12..], "MIIEowIBAAKCAQEA7"] {
        assert!(!text.contains(secret), "{secret:?} by {place:?} in {text:.2000}");
    }
}

fn assert_in_no_file(directory: &Path, how: &str) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => assert_in_no_file(&entry.path(), how),
            false => {
                let content = fs::read(entry.path()).unwrap_or_default();
                assert_unknown(
                    &String::from_utf8_lossy(&content),
                    &format!("{how} in {}", entry.path().display()),
                );
            }
        }
    }
}

#[test]
fn by_death() {
    told("TOKEN", "death");
}

#[test]
fn in_an_error_of_its_own() {
    told("TOKEN", "error");
}

#[test]
fn on_standard_output() {
    told("TOKEN", "stdout");
}

#[test]
fn at_the_end_of_what_is_quoted() {
    told("TOKEN", "long stdout");
}

#[test]
fn across_the_end_of_a_long_line() {
    told("TOKEN", "long line");
}

#[test]
fn with_several_lines() {
    told("KEY", "death");
}

#[test]
fn settings_do_not_show_it() {
    let world = World::with(json!({}), LONG, &[("TOKEN", TOKEN)]);
    assert_unknown(&world.shown(), "Debug");
    assert!(world.shown().contains(EVIL));
    let entry = world.manager().registry().get(EVIL).unwrap();
    assert_unknown(&format!("{:?} {:?} {}", entry.options, entry.capabilities, entry.origin), "the registry");
    world.assert_nobody_left();
}
