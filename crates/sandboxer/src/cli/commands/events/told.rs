//! One line of `sandbox events`: a step of a sandbox's life, or something that a command in it reached for.

use sandboxer_core::environment::{DEFAULT_PROFILE, LifecycleEvent};
use sandboxer_documents::events::EventDocument;

use crate::cli::output;

/// In one line for the screen, with the sandbox's name where that is not known from elsewhere.
pub fn line(event: &EventDocument, with_name: bool) -> String {
    let (at, name, consumer, kind, text) = match event {
        EventDocument::Life(it) => (Some(it.at), &it.name, &it.consumer, &it.kind, life(it)),
        EventDocument::Reached(it) => (it.at, &it.name, &it.consumer, &it.event.kind, it.event.text()),
    };
    let mut parts = vec![at.map(output::moment).unwrap_or_default()];
    parts.push(output::name(format!("{}/{}", consumer.actor_type, consumer.project)));
    parts.extend(with_name.then(|| output::name(name)));
    parts.push(output::name(kind));
    parts.extend((!text.is_empty()).then(|| output::sentence(&text)));
    parts.join("  ")
}

/// What there is to say of a step of its life: where it is, if that is not simply here, and why.
fn life(event: &LifecycleEvent) -> String {
    let place = (event.profile_id != DEFAULT_PROFILE)
        .then(|| format!("{} by {} on {}", event.profile_id, event.extension_id, event.host));
    let parts: Vec<String> = place.into_iter().chain(event.reason.clone()).collect();
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use jiff::Timestamp;
    use sandboxer_core::service::Consumer;
    use sandboxer_documents::events::Reached;
    use sandboxer_documents::reached::Event;

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
    fn a_line_says_who_and_what() {
        let mut event = life_at(0, "failed");
        let line = |event: &LifecycleEvent, named| line(&EventDocument::Life(Box::new(event.clone())), named);
        assert_eq!(line(&event, false), "1970-01-01 00:00:00Z  agt/shop  failed");
        assert!(line(&event, true).contains("  agt/shop  try\\x1b  failed"), "{}", line(&event, true));
        event.profile_id = "profile.x".into();
        event.reason = Some("provision: no room".into());
        assert!(line(&event, false).ends_with("failed  profile.x by ext.local on local: provision: no room"));
        assert!(super::line(&reached_at(0), false).ends_with("agt/shop  write  refused /etc/x"));
    }
}
