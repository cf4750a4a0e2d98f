//! More than anybody asked for. Each flood is received in a process of its own, which tells how much memory it ever had.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use super::world::{LONG, SHORT, World, assert_plugin_error};

/// Which flood the process is to receive.
const FLOOD: &str = "SANDBOXER_TEST_FLOOD";
/// What a message of the largest size and its content may cost at once, and the test itself.
const BOUND_KIB: u64 = 300 << 10;

fn receive_in_a_process_of_its_own(flood: &Value) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "plugin_hostile::floods::receive", "--ignored", "--nocapture"])
        .env(FLOOD, flood.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{flood}: {said}{}", String::from_utf8_lossy(&child.stderr));
    let peak: u64 = said.split("peak: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(peak < BOUND_KIB, "{flood}: {peak} KiB, {BOUND_KIB} are the bound");
}

#[test]
#[ignore = "what the other tests here run, each in a process of its own"]
fn receive() {
    let Ok(flood) = std::env::var(FLOOD) else { return };
    let flood: Value = serde_json::from_str(&flood).unwrap();
    let words: Vec<&str> =
        flood["words"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let world = World::new(flood["options"].clone(), if flood["short"] == true { SHORT } else { LONG });
    let target = (flood["options"]["in"] != "create").then(|| world.worked_in());
    let began = Instant::now();
    let result = world.call("diff", target.as_ref());
    match &words[..] {
        [] => assert!(result.is_ok(), "{result:?}"),
        words => drop(assert_plugin_error(began, result, words)),
    }
    let target = target.unwrap_or_else(|| world.worked_in());
    assert_eq!(world.changes(&target), 1, "and the next one is in order");
    assert!(world.log_bytes().len() < 5 << 19, "{} bytes of log", world.log_bytes().len());
    world.assert_nobody_left();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
    println!("peak: {peak}");
}

fn flood(kind: &str, short: bool, words: &[&str]) {
    let options = json!({"evil": "flood", "in": "diff", "times": 1, "flood": kind});
    receive_in_a_process_of_its_own(&json!({"options": options, "short": short, "words": words}));
}

#[test]
fn a_gigabyte_without_a_line() {
    flood("garbage", false, &["`diff`", "no frame", "AAAAAAAA"]);
}

#[test]
fn a_gigabyte_of_lines() {
    flood("lines", false, &["`diff`", "no frame", "hello"]);
}

#[test]
fn a_frame_of_a_gigabyte() {
    flood("frame", false, &["`diff`", "1073741824"]);
}

/// Notifications are nobody's business, so nothing ends them but the deadline.
#[test]
fn notifications_without_end() {
    flood("notifications", true, &["`diff`", "no answer within"]);
}

#[test]
fn answers_that_nobody_asked_for() {
    flood("answers", false, &["`diff`", "999999", "nobody asked with"]);
}

fn swells(method: &str, place: &str, words: &[&str]) {
    let options = json!({"evil": "swell", "in": method, "times": 1, "where": place});
    receive_in_a_process_of_its_own(&json!({"options": options, "words": words}));
}

#[test]
fn a_result_that_swells() {
    swells("diff", "result", &[]);
}

#[test]
fn an_id_that_swells() {
    swells("diff", "id", &["`diff`"]);
}

#[test]
fn an_error_that_swells() {
    swells("diff", "error", &["`diff`"]);
}

/// It would be kept in the database, and sent along with every call.
#[test]
fn a_ref_that_swells() {
    swells("create", "ref", &["`create`"]);
}

#[test]
fn much_on_standard_error() {
    let options = json!({"evil": "chatter", "in": "diff", "times": 1, "bytes": 40 << 20});
    receive_in_a_process_of_its_own(&json!({"options": options, "words": []}));
}

/// Short lines cost more than long ones.
#[test]
fn many_lines_on_standard_error() {
    let options = json!({"evil": "chatter", "in": "diff", "times": 1, "bytes": 20 << 20, "line": 60});
    receive_in_a_process_of_its_own(&json!({"options": options, "words": []}));
}
