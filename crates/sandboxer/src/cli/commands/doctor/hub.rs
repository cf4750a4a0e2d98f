//! What `doctor` says of the State Hub. A hub that is down is told of, and no reason not to make sandboxes.

use std::path::Path;

use sandboxer_core::config::Settings;

use super::Check;
use crate::cli::hub::standing;

/// Whether there is one, and whether it has heard everything.
pub fn check(home: &Path, settings: &Settings) -> Check {
    let detail = match &settings.events.hub {
        None => "none configured: events are kept, and `sandbox events` shows them".to_owned(),
        Some(hub) => format!("{hub}: {}", standing(home)),
    };
    Check { about: "hub", ok: true, detail }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::config::EventsSettings;

    use super::*;

    #[test]
    fn one_line_says_how_it_stands() {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        assert!(check(home.path(), &settings).detail.starts_with("none configured"));
        settings.events = EventsSettings { hub: Some("http://hub.example/".into()), token: None };
        assert_eq!(check(home.path(), &settings).detail, "http://hub.example/: it has heard everything");
    }
}
