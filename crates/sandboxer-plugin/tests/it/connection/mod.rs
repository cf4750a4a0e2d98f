//! Conversations with a process that answers in any order, late, or never.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use sandboxer_core::contract::CancelFlag;
use sandboxer_plugin::envelope::connection::{CallError, Connection, Patience};
use sandboxer_plugin::envelope::frame::MAX_ATTACHMENT;
use sandboxer_plugin::envelope::log::Log;
use sandboxer_plugin::envelope::process::Launch;
use sandboxer_plugin::envelope::secrets::Secrets;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Nobody waits so long.
const EVER: Duration = Duration::from_secs(50);
/// Over soon.
const SOON: Duration = Duration::from_millis(300);

/// A result, and what belongs to it.
type Answer = (Value, Vec<u8>);

struct Talk {
    connection: Connection,
    dir: TempDir,
}

impl Talk {
    fn start(concurrency: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let launch = Launch {
            program: "python3".into(),
            arguments: vec![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/connection/partner.py").into()],
            env: BTreeMap::new(),
            directory: dir.path().to_path_buf(),
        };
        let connection =
            Connection::start(&launch, &Log::new(&dir.path().join("log"), Secrets::default())).unwrap();
        connection.allow(concurrency);
        let talk = Self { connection, dir };
        // From here on it runs.
        talk.call("echo", json!({}), &[], EVER).unwrap();
        talk
    }

    fn call(&self, method: &str, params: Value, content: &[u8], time: Duration) -> Result<Answer, CallError> {
        self.ask(method, &params, content, time, None)
    }

    /// A call that the user may end.
    fn stoppable(&self, method: &str, cancel: &CancelFlag) -> Result<Answer, CallError> {
        self.ask(method, &json!({}), &[], EVER, Some(cancel.clone()))
    }

    fn ask(
        &self,
        method: &str,
        params: &Value,
        content: &[u8],
        time: Duration,
        cancel: Option<CancelFlag>,
    ) -> Result<Answer, CallError> {
        let patience = Patience { deadline: Instant::now() + time, cancel };
        let (said, content) = self.connection.call(method, params, content, &patience)?;
        Ok((serde_json::from_str(said.get()).unwrap(), content))
    }

    /// What it has noted of the requests that arrived, one a line.
    fn noted(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("noted")).unwrap_or_default()
    }

    /// What it has seen, and how many calls were under way at once.
    fn seen(&self) -> (Vec<String>, u64) {
        let (said, _) = self.call("seen", json!({}), &[], EVER).unwrap();
        (serde_json::from_value(said["seen"].clone()).unwrap(), said["most"].as_u64().unwrap())
    }
}

#[test]
fn answers_find_their_callers_in_any_order() {
    const CALLERS: usize = 8;
    let talk = Talk::start(CALLERS as u64);
    std::thread::scope(|scope| {
        for number in 0..CALLERS {
            let talk = &talk;
            scope.spawn(move || {
                let params = json!({"of": CALLERS, "number": number});
                assert_eq!(talk.call("pile", params.clone(), &[], EVER), Ok((params, Vec::new())));
            });
        }
    });
}

#[test]
fn no_more_is_asked_at_once_than_was_allowed() {
    const ALLOWED: u64 = 3;
    let talk = Talk::start(ALLOWED);
    let together = Barrier::new(24);
    std::thread::scope(|scope| {
        for caller in 0..24_u8 {
            let (talk, together) = (&talk, &together);
            scope.spawn(move || {
                together.wait();
                for number in 0..20_usize {
                    let content = vec![caller; number * 1000];
                    let params = json!({"caller": caller, "number": number});
                    assert_eq!(talk.call("echo", params.clone(), &content, EVER), Ok((params, content)));
                }
            });
        }
    });
    let (seen, most) = talk.seen();
    assert_eq!(seen.len(), 1 + 24 * 20 + 1);
    assert!(most <= ALLOWED, "{most} at once");
}

/// Whoever waits for a slot in vain has not asked for anything: the plugin never hears of it.
#[test]
fn the_wait_for_a_slot_counts() {
    let talk = Talk::start(1);
    let cancel = CancelFlag::default();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| talk.stoppable("never", &cancel));
        // It has the slot when a second one does not get it.
        while talk.call("echo", json!({}), &[], SOON * 10).is_ok() {}
        let in_vain = Err(CallError::NotSent(Box::new(CallError::TimedOut)));
        assert_eq!(talk.call("wanted", json!({}), &[], SOON), in_vain);
        cancel.cancel();
        assert_eq!(first.join().unwrap(), Err(CallError::Cancelled));
    });
    let seen = talk.noted();
    assert!(seen.contains("never") && !seen.contains("wanted"), "{seen:?}");
}

/// The slot of a call that was given up is nobody's: what hangs would not answer the next one either.
#[test]
fn nothing_is_sent_into_what_hangs() {
    let talk = Talk::start(1);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| talk.call("never", json!({}), &[], SOON * 5));
        wait_until_noted(&talk, "never");
        let behind: Vec<_> =
            (0..3).map(|_| scope.spawn(|| talk.call("wanted", json!({}), &[], EVER))).collect();
        assert_eq!(first.join().unwrap(), Err(CallError::TimedOut));
        for call in behind {
            let unheard = call.join().unwrap().unwrap_err();
            let is_unheard =
                matches!(&unheard, CallError::NotSent(why) if matches!(**why, CallError::Broken(_)));
            assert!(is_unheard, "{unheard:?}");
        }
    });
    assert!(!talk.noted().contains("wanted"), "{}", talk.noted());
}

fn wait_until_noted(talk: &Talk, method: &str) {
    let deadline = Instant::now() + EVER;
    while !talk.noted().contains(method) {
        assert!(Instant::now() < deadline, "{method} never arrived");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_answer_that_comes_too_late_is_passed_over() {
    let talk = Talk::start(4);
    std::thread::scope(|scope| {
        let later = scope.spawn(|| talk.call("echo", json!({"ms": 2500}), b"later", EVER).unwrap());
        while talk.noted().lines().count() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(talk.call("echo", json!({"ms": 1500}), &[], SOON), Err(CallError::TimedOut));
        assert_eq!(later.join().unwrap().1, b"later");
    });
    assert!(!talk.connection.is_broken(), "the late answer has come by now");
}

#[test]
fn who_wants_to_stop_is_let_go_and_nobody_else() {
    let talk = Talk::start(2);
    let cancel = CancelFlag::default();
    cancel.cancel();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| talk.call("echo", json!({"ms": 1000}), &[], EVER));
        while talk.noted().lines().count() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(talk.stoppable("never", &cancel), Err(CallError::Cancelled));
        assert!(other.join().unwrap().is_ok());
    });
}

#[test]
fn what_is_too_large_is_never_sent() {
    let talk = Talk::start(1);
    let content = vec![0; MAX_ATTACHMENT as usize + 1];
    let refused = talk.call("echo", json!({}), &content, EVER).unwrap_err();
    assert!(
        matches!(&refused, CallError::TooLarge(why) if why.contains(&content.len().to_string())),
        "{refused:?}"
    );
    let largest = talk.call("echo", json!({}), &content[1..], EVER).unwrap();
    assert_eq!(largest.1.len() as u64, MAX_ATTACHMENT);
    assert_eq!(talk.seen().0.len(), 3);
}

/// Nobody who wants to send waits for longer than they said behind somebody whose request is not taken.
#[test]
fn a_partner_that_does_not_listen_holds_nobody_up() {
    let talk = Talk::start(4);
    let large = vec![0; 32 << 20];
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| talk.call("deaf", json!({}), &large, EVER / 5));
        wait_until_noted(&talk, "deaf");
        // Behind the first one, or in a pipe that nobody empties: it ends before the first one does.
        let second = talk.call("echo", json!({}), &large, SOON);
        assert!(matches!(second, Err(CallError::TimedOut | CallError::NotSent(_))), "{second:?}");
        assert!(!stuck.is_finished(), "the first one still has time");
        assert!(matches!(stuck.join().unwrap(), Err(CallError::TimedOut | CallError::Broken(_))));
    });
    assert!(talk.connection.is_broken());
}

#[test]
fn an_end_is_told_to_everybody() {
    let talk = Talk::start(8);
    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..4).map(|_| scope.spawn(|| talk.call("never", json!({}), &[], EVER))).collect();
        let mut dying = talk.call("die", json!({}), &[], EVER);
        for call in waiting {
            dying = dying.and(call.join().unwrap());
        }
        assert!(matches!(&dying, Err(CallError::Broken(why)) if why.contains("status 5")), "{dying:?}");
    });
    let after = talk.call("echo", json!({}), &[], EVER).unwrap_err();
    assert!(matches!(&after, CallError::NotSent(why) if matches!(**why, CallError::Broken(_))), "{after:?}");
}
