//! Answers that are no answers.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};

use super::world::{LONG, World, assert_plugin_error};

/// Answers once so, and the caller is told with these words; the same call works the next time. `starts` tells whether the process
/// was ended for it.
fn answered(method: &'static str, mut options: Value, words: &[&str], starts: usize) {
    options["in"] = json!(method);
    options["times"] = json!(1);
    let shown = options.to_string();
    let world = World::new(options, LONG);
    let target = (method != "create").then(|| world.worked_in());
    let reason = assert_plugin_error(Instant::now(), world.call(method, target.as_ref()), words);
    assert!(reason.contains(&format!("`{method}`")), "{shown}: {reason}");
    if target.is_none() {
        world.assert_nothing_made();
    }
    world.call(method, target.as_ref()).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(world.noted("pids").len(), starts, "{shown}: {reason}");
    world.assert_nobody_left();
}

/// Only the shape is wrong: the conversation goes on.
fn misshapen(method: &'static str, result: Value, words: &[&str]) {
    answered(method, json!({"evil": "result", "result": result}), words, 1);
}

#[test]
fn differences_that_lead_out_of_the_sandbox() {
    for path in ["../x", "/etc/passwd", "a/../../b", "", "./a", "a//b", "nul\0"] {
        misshapen("diff", json!({"entries": [{"path": path, "kind": "created"}]}), &["cannot be used"]);
    }
}

#[test]
fn differences_of_the_wrong_shape() {
    let wrong = [
        json!("none"),
        json!(7),
        json!({"entries": null}),
        json!({"entries": {"a": 1}}),
        json!({"entries": [null]}),
        json!({"entries": [{"path": null, "kind": "created"}]}),
        json!({"entries": [{"path": "a", "kind": "exploded"}]}),
        json!({"entries": [{"path": "base64:***", "kind": "created"}]}),
    ];
    for result in wrong {
        misshapen("diff", result, &["cannot be used"]);
    }
}

#[test]
fn results_of_the_wrong_shape() {
    let wrong = [
        ("write", json!({"path": "other.txt", "kind": "created", "old_size": null, "new_size": 1})),
        ("write", json!("done")),
        ("commit", json!("done")),
        ("commit", json!({"entries": "all"})),
        ("commit", json!({"entries": [{"path": "../x", "kind": "created"}]})),
        ("rollback", json!("done")),
        ("rollback", json!({"success": "yes"})),
        ("restore_checkpoint", json!({"restored_files": -1})),
        ("checkpoint", json!({"at": "/tmp"})),
        ("create", json!("done")),
        ("create", json!({"metadata": null})),
        ("create", json!({"metadata": []})),
    ];
    for (method, result) in wrong {
        misshapen(method, result, &["cannot be used"]);
    }
}

#[test]
fn a_sandbox_of_something_else() {
    misshapen("create", json!({"resource_id": "path:/etc", "metadata": {}}), &["path:/etc"]);
    misshapen("create", json!({"plan_id": "pln_other", "metadata": {}}), &["pln_other"]);
}

#[test]
fn what_is_no_frame() {
    let wrong = [
        ("Content-Length: -1\r\n\r\n", "no frame"),
        ("Content-Length: 99999999999999999999\r\n\r\n", "no frame"),
        ("Content-Length: 1073741824\r\n\r\n", "1073741824"),
        ("Content-Length: 2\r\nAttachment-Length: 1073741824\r\n\r\n{}", "1073741824"),
        ("debugging here\n", "debugging here"),
        ("\u{1b}[31mred\u{1b}[0m\n", "\\u{1b}[31mred"),
    ];
    for (text, words) in wrong {
        answered("diff", json!({"evil": "raw", "text": text}), &[words], 2);
    }
}

#[test]
fn what_is_no_message() {
    let wrong = [
        ("hello", "no JSON-RPC"),
        ("[]", "no JSON-RPC"),
        ("null", "no JSON-RPC"),
        ("", "no JSON-RPC"),
        (r#"{"jsonrpc":"2.0","id":@ID@,"result":{}"#, "no JSON-RPC"),
        (r#"{"jsonrpc":"1.0","id":@ID@,"result":{}}"#, "1.0"),
        (r#"{"jsonrpc":"2.0","id":"@ID@","result":{}}"#, "none of ours"),
        (r#"{"jsonrpc":"2.0","id":77,"method":"commit"}"#, "request of its own"),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"eh"}}"#, "could not read a request"),
    ];
    for (message, words) in wrong {
        answered("diff", json!({"evil": "say", "message": message}), &[words], 2);
    }
}

#[test]
fn deep_nesting_is_refused() {
    let nested = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let message = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"metadata":{{"x":{nested}}}}}}}"#);
    answered("create", json!({"evil": "say", "message": message}), &["recursion limit"], 1);
}

#[test]
fn ids_that_nobody_asked_with() {
    for id in [json!(0), json!(1), json!(4711), json!(u64::MAX)] {
        answered("diff", json!({"evil": "other_id", "id": id}), &["nobody asked with"], 2);
    }
    for id in [json!(null), json!(-1), json!(1.5), json!("2")] {
        answered("diff", json!({"evil": "other_id", "id": id}), &["none of ours"], 2);
    }
}

/// The first answer counts. By the second the process has lost its credit, and whoever comes next gets another one.
#[test]
fn an_answer_given_twice() {
    let world = World::new(json!({"evil": "twice", "in": "diff", "times": 1}), LONG);
    let target = world.worked_in();
    let first = world.manager().diff(&target, &[]);
    if let Err(error) = &first {
        assert!(error.to_string().contains("twice"), "{error}");
    }
    // Whether the second one is seen before, in or after the next call is chance.
    let _ = world.manager().diff(&target, &[]);
    assert_eq!(world.changes(&target), 1);
    world.assert_nobody_left();
}

#[test]
fn a_path_that_is_not_its_to_give() {
    let paths = [
        ("{original}", "original"),
        ("/", "\"/\""),
        ("{link}", "link"),
        ("{scratch}", "scratch directory itself"),
        ("{scratch}/../..", "outside"),
        ("tree", "\"tree\""),
        ("", "\"\""),
        ("{scratch}/missing", "missing"),
    ];
    for (given, words) in paths {
        let result = json!({"metadata": {"path": given}});
        let world = World::new(json!({"evil": "result", "in": "create", "times": 1, "result": result}), LONG);
        assert_plugin_error(Instant::now(), world.call("create", None), &[words, "path"]);
        world.assert_nothing_made();
        assert_eq!(world.noted("calls").last().unwrap(), "cleanup", "{given}");
        assert_eq!(fs::read_to_string(world.original().join("a.txt")).unwrap(), "first");
        world.call("create", None).unwrap();
        world.assert_nobody_left();
    }
}

#[test]
fn no_path_where_one_was_promised() {
    for metadata in [json!({}), json!({"path": null}), json!({"path": 7}), json!({"path": ["/"]})] {
        let options = json!({"evil": "result", "in": "create", "times": 1, "result": {"metadata": metadata}});
        let world = World::new(options, LONG);
        assert_plugin_error(Instant::now(), world.call("create", None), &["file_tree", "path"]);
        world.assert_nothing_made();
        world.assert_nobody_left();
    }
}

/// What it made is its to remove, so it is told what it said of it.
#[test]
fn cleanup_of_what_was_refused_knows_what_it_is_about() {
    let result = json!({"metadata": {"path": "/", "bucket": "b-17"}});
    let world = World::new(
        json!({"evil": "result", "in": "create", "times": 1, "result": result, "notes": true}),
        LONG,
    );
    assert_plugin_error(Instant::now(), world.call("create", None), &["\"/\""]);
    let params: Value = serde_json::from_str(world.noted("params").last().unwrap()).unwrap();
    assert_eq!(params["ref"]["metadata"]["bucket"], "b-17", "{params}");
    world.assert_nobody_left();
}

/// An empty file and a file that was forgotten look the same on the wire; a result that is no object does not matter.
#[test]
fn content_is_what_is_attached() {
    for result in [json!({}), json!(null), json!([1])] {
        let world = World::new(json!({"evil": "bare", "in": "read", "times": 1, "result": result}), LONG);
        let target = world.worked_in();
        assert_eq!(world.manager().read(&target, &super::world::path("a.txt")).unwrap(), b"");
        assert_eq!(world.manager().read(&target, &super::world::path("a.txt")).unwrap(), b"changed");
        world.assert_nobody_left();
    }
}

#[test]
fn its_own_errors_are_told_as_what_they_are() {
    let kinds = [
        (json!({"kind": "not_found", "what": "file", "name": "a.txt"}), "no file"),
        (json!({"kind": "refused"}), "refused: because"),
        (json!({"kind": "usage"}), "because"),
        (json!({"kind": "unsupported"}), "cannot tell what differs: because"),
        (json!({"kind": "magic"}), "`diff` failed: because"),
        (json!("odd"), "`diff` failed: because"),
        (
            json!({"kind": "conflict", "conflicts": [{"path": "../../etc/passwd", "reason": "modified"}]}),
            "`diff` failed",
        ),
    ];
    for (data, words) in kinds {
        let error = json!({"code": -32000, "message": "because", "data": data});
        let world = World::new(json!({"evil": "error", "in": "diff", "times": 1, "error": error}), LONG);
        let target = world.worked_in();
        let told = world.manager().diff(&target, &[]).unwrap_err().to_string();
        assert!(told.contains(words), "{data}: {told}");
        assert_eq!(world.changes(&target), 1, "the process goes on");
        assert_eq!(world.noted("pids").len(), 1);
        world.assert_nobody_left();
    }
}

/// People and the database read it: a book is not an error message.
#[test]
fn a_message_without_end_is_cut() {
    let world =
        World::new(json!({"evil": "long_error", "in": "commit", "times": 1, "bytes": 50 << 20}), LONG);
    let target = world.worked_in();
    let reason = assert_plugin_error(Instant::now(), world.call("commit", Some(&target)), &["`commit`"]);
    assert!(reason.len() < 64 << 10, "{} bytes", reason.len());
    let operation = world.last_logged("commit");
    assert!(
        operation.state == "failed" && operation.summary.len() < 64 << 10,
        "{} bytes",
        operation.summary.len()
    );
    world.assert_nobody_left();
}
