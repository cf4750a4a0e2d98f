//! What was decided about one wish to connect.

use std::net::IpAddr;

use serde::Serialize;

/// As much of a host as is kept; no valid name is longer than 253.
const LONGEST: usize = 255;

/// What was decided about one wish to connect, and why. Its text is safe to print: what came from inside is escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The name or the address that was asked for.
    pub host: String,
    /// The port that was asked for.
    pub port: u16,
    /// Whether that may be connected to. It says nothing about whether the connection came about.
    pub allowed: bool,
    /// Why, as half a sentence.
    pub reason: String,
    /// The rule that allowed it, as it was typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The address that was connected to, or that was the reason for a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// What `--allow-host` would have to be given for this to be allowed, if there is such a thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

impl Decision {
    /// No to something that is not even a host.
    pub(super) fn nonsense(host: &[u8], port: u16, reason: &str) -> Self {
        let reason = reason.to_owned();
        Self { host: printable(host), port, allowed: false, reason, rule: None, address: None, entry: None }
    }

    /// One line for whoever was refused: what, why, and what to type.
    pub(super) fn in_words(&self) -> String {
        let Self { host, port, reason, .. } = self;
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let advice = match &self.entry {
            Some(entry) => format!("; to allow it: --allow-host {entry}"),
            None => String::new(),
        };
        format!("refused by the sandbox: {bracketed}:{port}: {reason}{advice}")
    }
}

/// Bytes as text without anything that a terminal, a log or a JSON reader could trip over.
fn printable(bytes: &[u8]) -> String {
    let escaped: String =
        bytes.iter().take(LONGEST).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    match escaped.len() {
        // Everything is ASCII now, so it can be cut anywhere.
        length if length > LONGEST || bytes.len() > LONGEST => format!("{}...", &escaped[..LONGEST - 3]),
        _ => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hostile_is_escaped_and_cut() {
        assert_eq!(Decision::nonsense(b"a\x1b[2J\n\xff", 1, "why").host, "a\\x1b[2J\\n\\xff");
        let long = Decision::nonsense(&[0x1b; 70_000], 1, "why").host;
        assert!(long.len() == LONGEST && long.ends_with("..."), "{long}");
        assert_eq!(Decision::nonsense(&[b'a'; LONGEST], 1, "why").host, "a".repeat(LONGEST));
    }

    #[test]
    fn a_refusal_is_one_line_that_says_what_to_type() {
        let mut decision = Decision::nonsense(b"::1", 80, "no rule names it");
        assert_eq!(decision.in_words(), "refused by the sandbox: [::1]:80: no rule names it");
        decision.entry = Some("[::1]:80".into());
        assert!(decision.in_words().ends_with("no rule names it; to allow it: --allow-host [::1]:80"));
    }

    #[test]
    fn what_is_not_known_is_not_in_the_log() {
        let json = serde_json::to_string(&Decision::nonsense(b"x", 1, "why")).unwrap();
        assert_eq!(json, r#"{"host":"x","port":1,"allowed":false,"reason":"why"}"#);
    }
}
