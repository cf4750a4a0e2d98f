//! An event as the hub gets it: CloudEvents 1.0 in structured mode.

use jiff::Timestamp;
use sandboxer_core::environment::{Identity, LifecycleEvent};
use sandboxer_core::service::Consumer;
use serde::Serialize;

/// The content type of a post.
pub(crate) const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

/// One event of one sandbox. The same event has the same `source` and `id` however often it is told.
#[derive(Clone, Debug, Serialize)]
pub struct CloudEvent<'a> {
    specversion: &'static str,
    #[serde(rename = "type")]
    type_name: String,
    source: &'a str,
    id: &'a str,
    time: Timestamp,
    subject: &'a str,
    datacontenttype: &'static str,
    /// Its place among all events of one state directory, written so that text sorts like the numbers.
    sequence: String,
    data: Data<'a>,
}

#[derive(Clone, Debug, Serialize)]
struct Data<'a> {
    sandbox_id: &'a str,
    name: &'a str,
    kind: &'a str,
    at: Timestamp,
    profile_id: &'a str,
    extension_id: &'a str,
    host: &'a str,
    consumer: &'a Consumer,
    actor_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(flatten)]
    identity: &'a Identity,
}

impl<'a> CloudEvent<'a> {
    /// The event as it is told by `source`.
    pub fn new(event: &'a LifecycleEvent, source: &'a str) -> Self {
        Self {
            specversion: "1.0",
            type_name: format!("dev.sandboxer.sandbox.{}.v1", event.kind),
            source,
            id: &event.id,
            time: event.at,
            subject: event.sandbox_id.as_str(),
            datacontenttype: "application/json",
            sequence: format!("{:020}", event.seq),
            data: Data::of(event),
        }
    }
}

impl<'a> Data<'a> {
    fn of(event: &'a LifecycleEvent) -> Self {
        Self {
            sandbox_id: event.sandbox_id.as_str(),
            name: &event.name,
            kind: &event.kind,
            at: event.at,
            profile_id: &event.profile_id,
            extension_id: &event.extension_id,
            host: &event.host,
            consumer: &event.consumer,
            actor_type: &event.consumer.actor_type,
            reason: event.reason.as_deref().map(without_output),
            identity: &event.identity,
        }
    }
}

/// A reason may quote what a container printed before it ended: content, which is nobody's business outside.
fn without_output(reason: &str) -> &str {
    reason.split("; it said: ").next().unwrap_or(reason)
}

/// Who tells: this machine, as a URI.
pub(crate) fn source() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' };
    let name: String = name.trim().chars().map(plain).collect();
    format!("urn:sandboxer:{}", if name.is_empty() { "unknown" } else { &name })
}

#[cfg(test)]
pub(crate) fn example(seq: u64, kind: &str) -> LifecycleEvent {
    LifecycleEvent {
        seq,
        id: format!("evt_{seq}"),
        sandbox_id: sandboxer_core::model::SandboxId::from_string("sbx_1".to_owned()),
        name: "try".into(),
        kind: kind.into(),
        at: Timestamp::UNIX_EPOCH,
        profile_id: "profile.local".into(),
        extension_id: "ext.local".into(),
        host: "local".into(),
        consumer: Consumer { actor_type: "agt".into(), project: "shop".into() },
        reason: None,
        identity: Identity::default(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::environment::Endpoint;

    use super::*;

    #[test]
    fn it_has_what_the_specification_asks_for() {
        let identity = Identity {
            labels: [("team".to_owned(), "blue".to_owned())].into(),
            endpoints: vec![Endpoint {
                name: "80/tcp".into(),
                host: "127.0.0.1".into(),
                port: 8080,
                forward: None,
            }],
            credentials: vec!["env:NPM_TOKEN".into()],
        };
        let reason = Some("provision: no room; it said: password=1".into());
        let event = LifecycleEvent { reason, identity, ..example(7, "failed") };
        let json = serde_json::to_value(CloudEvent::new(&event, "urn:sandboxer:here")).unwrap();
        let expected = serde_json::json!({
            "specversion": "1.0",
            "type": "dev.sandboxer.sandbox.failed.v1",
            "source": "urn:sandboxer:here",
            "id": "evt_7",
            "time": "1970-01-01T00:00:00Z",
            "subject": "sbx_1",
            "datacontenttype": "application/json",
            "sequence": "00000000000000000007",
            "data": {
                "sandbox_id": "sbx_1", "name": "try", "kind": "failed", "at": "1970-01-01T00:00:00Z",
                "profile_id": "profile.local", "extension_id": "ext.local", "host": "local",
                "consumer": {"actor_type": "agt", "project": "shop"}, "actor_type": "agt",
                "reason": "provision: no room",
                "labels": {"team": "blue"},
                "endpoints": [{"name": "80/tcp", "host": "127.0.0.1", "port": 8080}],
                "credentials": ["env:NPM_TOKEN"],
            },
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn the_source_is_a_uri() {
        let source = source();
        assert!(source.starts_with("urn:sandboxer:") && source.len() > "urn:sandboxer:".len(), "{source}");
        assert!(!source.contains(char::is_whitespace));
    }
}
