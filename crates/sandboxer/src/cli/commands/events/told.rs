//! One line of `sandbox events`: a step of a sandbox's life, or something that a command in it reached for.

use jiff::Timestamp;
use sandboxer_core::environment::{DEFAULT_PROFILE, LifecycleEvent};
use sandboxer_core::service::{Consumer, Sandbox};
use serde::Serialize;

use crate::cli::contain::events::Event;
use crate::cli::output;

/// What is told. Both have `at`, `kind`, `sandbox_id`, `name` and `consumer`; those of a life have `seq`, the others `what`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Told {
    /// Of its life.
    Life(Box<LifecycleEvent>),
    /// Of what runs in it.
    Reached(Box<Reached>),
}

/// What a command reached for, and whose sandbox that was in.
#[derive(Debug, Serialize)]
pub struct Reached {
    at: Option<Timestamp>,
    sandbox_id: String,
    name: String,
    consumer: Consumer,
    #[serde(flatten)]
    event: Event,
}

impl Told {
    /// Something that was reached for in `sandbox`.
    pub fn reached(event: Event, sandbox: &Sandbox) -> Self {
        let at = i64::try_from(event.at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        Self::Reached(Box::new(Reached {
            at,
            sandbox_id: sandbox.id.to_string(),
            name: sandbox.name.clone(),
            consumer: sandbox.consumer.clone(),
            event,
        }))
    }

    /// When, in milliseconds since 1970.
    pub fn at_ms(&self) -> i64 {
        match self {
            Self::Life(event) => event.at.as_millisecond(),
            Self::Reached(reached) => i64::try_from(reached.event.at_ms).unwrap_or(i64::MAX),
        }
    }

    /// In one line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// In one line for the screen, with the sandbox's name where that is not known from elsewhere.
    pub fn line(&self, with_name: bool) -> String {
        let (at, name, consumer, kind, text) = match self {
            Self::Life(event) => (Some(event.at), &event.name, &event.consumer, &event.kind, life(event)),
            Self::Reached(it) => (it.at, &it.name, &it.consumer, &it.event.kind, it.event.text()),
        };
        let mut parts = vec![at.map(output::moment).unwrap_or_default()];
        parts.push(output::name(format!("{}/{}", consumer.actor_type, consumer.project)));
        parts.extend(with_name.then(|| output::name(name)));
        parts.push(output::name(kind));
        parts.extend((!text.is_empty()).then(|| output::sentence(&text)));
        parts.join("  ")
    }
}

/// What there is to say of a step of its life: where it is, if that is not simply here, and why.
fn life(event: &LifecycleEvent) -> String {
    let place = (event.profile_id != DEFAULT_PROFILE)
        .then(|| format!("{} by {} on {}", event.profile_id, event.extension_id, event.host));
    let parts: Vec<String> = place.into_iter().chain(event.reason.clone()).collect();
    parts.join(": ")
}

/// Both by time, each in its own order.
pub fn merged(lives: Vec<LifecycleEvent>, reached: Vec<Told>) -> Vec<Told> {
    let mut reached = reached.into_iter().peekable();
    let mut all = Vec::new();
    for life in lives.into_iter().map(|event| Told::Life(Box::new(event))) {
        while let Some(earlier) = reached.next_if(|event| event.at_ms() < life.at_ms()) {
            all.push(earlier);
        }
        all.push(life);
    }
    all.extend(reached);
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn life_at(ms: i64, kind: &str) -> LifecycleEvent {
        serde_json::from_value(serde_json::json!({
            "seq": ms, "id": "evt_1", "sandbox_id": "sbx_1", "name": "try\u{1b}", "kind": kind,
            "at": Timestamp::from_millisecond(ms).unwrap(), "profile_id": "profile.local",
            "extension_id": "ext.local", "host": "local",
            "consumer": {"actor_type": "agt", "project": "shop"},
        }))
        .unwrap()
    }

    fn reached_at(ms: u64) -> Told {
        let what = serde_json::json!({"path": "/etc/x", "allowed": false});
        Told::Reached(Box::new(Reached {
            at: Timestamp::from_millisecond(ms as i64).ok(),
            sandbox_id: "sbx_1".into(),
            name: "try".into(),
            consumer: Consumer { actor_type: "agt".into(), project: "shop".into() },
            event: Event { at_ms: ms, kind: "write".into(), what },
        }))
    }

    #[test]
    fn both_kinds_are_in_order_of_time() {
        let all = merged(vec![life_at(1, "ready"), life_at(5, "active")], vec![reached_at(3), reached_at(9)]);
        assert_eq!(all.iter().map(Told::at_ms).collect::<Vec<_>>(), [1, 3, 5, 9]);
        // A clock that was set back changes no life's order.
        let back = merged(vec![life_at(5, "ready"), life_at(1, "active")], Vec::new());
        assert_eq!(back.iter().map(Told::at_ms).collect::<Vec<_>>(), [5, 1]);
    }

    #[test]
    fn a_line_says_who_and_what() {
        let mut event = life_at(0, "failed");
        let line = |event: &LifecycleEvent, named| Told::Life(Box::new(event.clone())).line(named);
        assert_eq!(line(&event, false), "1970-01-01 00:00:00Z  agt/shop  failed");
        assert!(line(&event, true).contains("  agt/shop  try\\x1b  failed"), "{}", line(&event, true));
        event.profile_id = "profile.x".into();
        event.reason = Some("provision: no room".into());
        assert!(line(&event, false).ends_with("failed  profile.x by ext.local on local: provision: no room"));
        assert!(reached_at(0).line(false).ends_with("agt/shop  write  refused /etc/x"));
    }

    #[test]
    fn json_says_whose() {
        for told in [Told::Life(Box::new(life_at(1, "ready"))), reached_at(1)] {
            let json: serde_json::Value = serde_json::from_str(&told.json()).unwrap();
            assert_eq!(
                (&json["sandbox_id"], &json["consumer"]["project"]),
                (&"sbx_1".into(), &"shop".into())
            );
            assert!(json["at"].is_string() && json["kind"].is_string());
            assert!(json["seq"].is_u64() != json["what"].is_object());
        }
    }
}
