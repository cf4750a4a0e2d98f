//! What became of sandboxes, and what commands in them reached for.

use jiff::Timestamp;
use sandboxer_core::environment::LifecycleEvent;
use sandboxer_core::service::{Consumer, Sandbox};
use schemars::JsonSchema;
use serde::Serialize;

use super::reached::Event;

/// `events`; of one sandbox, whose.
#[derive(Serialize, JsonSchema)]
pub struct EventsDocument<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    events: &'a [EventDocument],
}

impl<'a> EventsDocument<'a> {
    /// The document of these events, all of `sandbox` if there is one.
    pub fn new(sandbox: Option<&'a Sandbox>, events: &'a [EventDocument]) -> Self {
        Self { sandbox_id: sandbox.map(|s| s.id.as_str()), name: sandbox.map(|s| s.name.as_str()), events }
    }
}

/// What is told. Both have `at`, `kind`, `sandbox_id`, `name` and `consumer`; those of a life have `seq`, the others `what`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum EventDocument {
    /// Of its life.
    Life(Box<LifecycleEvent>),
    /// Of what runs in it.
    Reached(Box<Reached>),
}

/// What a command reached for, and whose sandbox that was in.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Reached {
    /// When.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub at: Option<Timestamp>,
    /// In which sandbox.
    pub sandbox_id: String,
    /// What that is called.
    pub name: String,
    /// Who asked for it.
    pub consumer: Consumer,
    /// For what.
    #[serde(flatten)]
    pub event: Event,
}

impl EventDocument {
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
}

/// Both by time, each in its own order.
pub fn merged(lives: Vec<LifecycleEvent>, reached: Vec<EventDocument>) -> Vec<EventDocument> {
    let mut reached = reached.into_iter().peekable();
    let mut all = Vec::new();
    for life in lives.into_iter().map(|event| EventDocument::Life(Box::new(event))) {
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

    fn reached_at(ms: u64) -> EventDocument {
        let what = serde_json::json!({"path": "/etc/x", "allowed": false});
        EventDocument::Reached(Box::new(Reached {
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
        assert_eq!(all.iter().map(EventDocument::at_ms).collect::<Vec<_>>(), [1, 3, 5, 9]);
        // A clock that was set back changes no life's order.
        let back = merged(vec![life_at(5, "ready"), life_at(1, "active")], Vec::new());
        assert_eq!(back.iter().map(EventDocument::at_ms).collect::<Vec<_>>(), [5, 1]);
    }

    #[test]
    fn json_says_whose() {
        for told in [EventDocument::Life(Box::new(life_at(1, "ready"))), reached_at(1)] {
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
