//! What `doctor` says of the State Hub. A hub that is down is told of, and no reason not to make sandboxes.

use std::path::Path;

use sandboxer_core::config::Settings;
use sandboxer_hub::{Standing, standing};

use super::Check;
use crate::cli::output;

/// Whether there is one, and whether it has heard everything.
pub fn check(home: &Path, settings: &Settings) -> Check {
    let detail = match &settings.events.hub {
        None => "none configured: events are kept, and `sandbox events` shows them".to_owned(),
        Some(hub) => match standing(home) {
            Ok(standing) => format!("{hub}: {}", sentence(&standing)),
            Err(error) => format!("{hub}: what it has heard cannot be told: {error}"),
        },
    };
    Check { about: "hub", ok: true, detail }
}

fn sentence(standing: &Standing) -> String {
    let mut text = match standing.since {
        None => "it has heard everything".to_owned(),
        Some(since) => {
            let verb = if standing.waiting == 1 { "waits" } else { "wait" };
            let count = output::count(usize::try_from(standing.waiting).unwrap_or(usize::MAX), "event");
            format!("{count} {verb} since {}", output::moment(since))
        }
    };
    if let Some(failure) = &standing.failure {
        text.push_str(&format!("; last error, at {}: {}", output::moment(failure.at), failure.reason));
    }
    if standing.waiting > 0 {
        text.push_str("; `sandbox events --deliver` tries now");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use jiff::Timestamp;
    use sandboxer_core::config::EventsSettings;
    use sandboxer_hub::LastFailure;

    use super::*;

    #[test]
    fn one_line_says_how_it_stands() {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        assert!(check(home.path(), &settings).detail.starts_with("none configured"));
        settings.events = EventsSettings { hub: Some("http://hub.example/".into()), token: None };
        assert_eq!(check(home.path(), &settings).detail, "http://hub.example/: it has heard everything");
        let failure = LastFailure { at: Timestamp::UNIX_EPOCH, reason: "no answer".into() };
        let since = Some(Timestamp::UNIX_EPOCH);
        let text = sentence(&Standing { waiting: 2, since, failure: Some(failure) });
        assert!(text.starts_with("2 events wait since 1970-01-01 00:00:00Z; last error, at 1970"), "{text}");
        assert!(text.contains("no answer") && text.ends_with("tries now"), "{text}");
    }
}
