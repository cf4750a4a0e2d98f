#![allow(clippy::unwrap_used)]
use std::io::Write;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn call(script: &str) -> Call<'_> {
    Call { script, arguments: &[], input: &[], deadline: LONG, output: 1 << 20, cancel: None, heard: None }
}

fn source(error: &Error) -> String {
    std::error::Error::source(error).unwrap().to_string()
}

#[test]
fn arguments_input_both_streams_and_the_code_come_through() {
    let arguments = [OsStr::new("a b"), OsStr::new("$x'")];
    let script = r#"printf '%s|' "$@"; cat; echo err >&2; exit 3"#;
    let answer = Here.run(&Call { arguments: &arguments, input: b"in", ..call(script) }).unwrap();
    assert_eq!(
        (answer.code, answer.stdout.as_slice(), answer.complaint().as_str()),
        (3, &b"a b|$x'|in"[..], "err")
    );
    assert_eq!(Here.run(&call("exit 4")).unwrap().complaint(), "it ended with exit code 4");
    assert_eq!(Here.run(&call("kill -9 $$")).unwrap().code, 137);
}

#[test]
fn much_input_and_output_at_once_do_not_block_each_other() {
    let input = vec![b'x'; 3 << 20];
    let answer = Here.run(&Call { input: &input, output: 4 << 20, ..call("cat") }).unwrap();
    assert_eq!(answer.stdout, input);
    assert_eq!(Here.run(&Call { input: &input, ..call("exit 0") }).unwrap().code, 0, "nobody has to listen");
}

#[test]
fn output_has_a_bound_and_of_complaints_the_end_is_kept() {
    let error = Here.run(&Call { output: 2_000, ..call("head -c 3000 /dev/zero") }).unwrap_err();
    assert_eq!(source(&error), "it says more than 2000 bytes");
    let answer = Here.run(&call("head -c 300000 /dev/zero >&2; echo last words >&2")).unwrap();
    assert!(answer.stderr.ends_with(b"last words\n") && answer.stderr.len() == process::COMPLAINTS);
}

#[test]
fn who_takes_too_long_is_killed_with_what_it_started() {
    let temp = tempfile::tempdir().unwrap();
    let pid = temp.path().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; wait", pid.display());
    let error = Here.run(&Call { deadline: Duration::from_secs(3), ..call(&script) }).unwrap_err();
    assert!(source(&error).starts_with("no answer in 3 s"), "{}", source(&error));
    let pid = std::fs::read_to_string(pid).unwrap();
    let until = Instant::now() + LONG;
    while lives(pid.trim()) {
        assert!(Instant::now() < until, "process {pid} goes on");
        std::thread::yield_now();
    }
}

fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.starts_with(" Z"))
}

#[test]
fn who_is_asked_to_stop_stops() {
    let flag = CancelFlag::default();
    flag.cancel();
    let stopped = Here.run(&Call { cancel: Some(&flag), ..call("sleep 1000") });
    assert!(matches!(stopped, Err(Error::Cancelled)));
    let running = Here.start("sleep 1000", &[]).unwrap();
    assert!(matches!(running.finish_unless(Some(&flag)), Err(Error::Cancelled)));
}

#[test]
fn a_script_that_streams_is_finished_or_says_why_not() {
    let mut running = Here.start("cat; exit 0", &[]).unwrap();
    running.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    running.finish().unwrap();
    let failed = Here.start("echo no room >&2; exit 2", &[]).unwrap().finish().unwrap_err();
    assert_eq!(source(&failed), "no room");
    // Something that was left behind holds the stream of complaints.
    Here.start("sleep 5 & exit 0", &[]).unwrap().finish().unwrap();
}

#[test]
fn what_long_work_says_of_itself_is_heard_meanwhile() {
    let at = tempfile::tempdir().unwrap();
    let (mark, last) = (at.path().join("heard"), std::cell::RefCell::new(None));
    let told = |said: &[u8]| {
        *last.borrow_mut() = crate::last_line(said);
        std::fs::write(&mark, "").unwrap();
    };
    // It goes on when it has been heard.
    let script = "echo one >&2; while [ ! -e \"$1\" ]; do sleep 0.01; done; echo two >&2; printf three >&2";
    let arguments = [mark.as_os_str()];
    let answer = Here.run(&Call { heard: Some(&told), arguments: &arguments, ..call(script) }).unwrap();
    assert_eq!(last.into_inner().as_deref(), Some("two"));
    assert_eq!(answer.stderr, b"one\ntwo\nthree");
}
