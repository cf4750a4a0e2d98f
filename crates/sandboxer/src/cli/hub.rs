//! The State Hub, as commands see it: who it is, and a courier that tells it what this command did.

use std::path::Path;
use std::time::Duration;

use sandboxer::wiring;
use sandboxer_core::config::{self, EventsSettings, TokenRef, TrustStore};
use sandboxer_core::store::Store;
use sandboxer_hub::{Delivery, Orders, SUBSCRIBER, Standing, Token};
use serde::Serialize;

use super::error::{CliError, Kind};
use super::places::{Places, variable};
use super::session::App;
use super::{Outcome, exit, output};

/// How long `--deliver` waits for a courier that is at it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is to be told to whom; nothing where no hub is configured. A token in the environment is looked up here, since a courier has
/// none of it.
pub fn orders(places: &Places, events: &EventsSettings) -> Option<Orders> {
    let token = match &events.token {
        None => Token::None,
        Some(TokenRef::File(path)) => Token::File(path.clone()),
        Some(TokenRef::Variable(name)) => Token::of_variable(name, variable(name).as_deref()),
    };
    Some(Orders { home: places.home.clone(), hub: events.hub.clone()?, token })
}

/// `events --deliver`.
#[derive(Serialize)]
struct DeliveryDocument {
    told: u64,
    waiting: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// Delivers now, waits for it, and shows what came of it.
pub fn deliver(app: &mut App) -> Outcome {
    let settings = app.own_settings()?;
    let done = deliver_now(&app.places, &settings.events)?;
    let code = if done.failure.is_none() { exit::OK } else { exit::ERROR };
    if app.ui.json {
        app.ui.document(&DeliveryDocument {
            told: done.told,
            waiting: done.waiting,
            failure: done.failure,
        })?;
        return Ok(code);
    }
    let count = |number: u64| output::count(usize::try_from(number).unwrap_or(usize::MAX), "event");
    app.ui.line(format_args!("the hub has taken {}; {} left", count(done.told), count(done.waiting)))?;
    match done.failure {
        Some(why) => Err(CliError::new(Kind::Error, why)
            .hint("the events are kept, and tried again; `sandbox doctor` says how many wait")),
        None => Ok(code),
    }
}

fn deliver_now(places: &Places, events: &EventsSettings) -> Result<Delivery, CliError> {
    let orders = orders(places, events).ok_or_else(|| {
        CliError::usage("there is no hub to deliver to")
            .hint("name one: `events: {hub: URL}` in the configuration file, or $SANDBOXER_HUB")
    })?;
    Ok(sandboxer_hub::deliver(&orders, PATIENCE)?)
}

/// Has a courier tell what is not told yet. Whatever keeps that from happening is no fault of the command's: the events are kept, and
/// `sandbox doctor` says that they wait.
pub fn send_courier(places: &Places) {
    let _ = try_to_send(places);
}

fn try_to_send(places: &Places) -> Option<bool> {
    if !wiring::has_state(&places.home) {
        return None;
    }
    // No project has a say in this.
    let settings = config::load(&places.own_layers(), &TrustStore::new(&places.home)).ok()?;
    let orders = orders(places, &settings.events)?;
    let store = Store::open(&places.home).ok()?;
    if store.last_event().ok()? <= store.heard(SUBSCRIBER).ok()? {
        return None;
    }
    sandboxer_hub::start(&std::env::current_exe().ok()?, &orders).ok()
}

/// How far the hub is behind, in one sentence.
pub fn standing(home: &Path) -> String {
    match sandboxer_hub::standing(home) {
        Ok(standing) => sentence(&standing),
        Err(error) => format!("what it has heard cannot be told: {error}"),
    }
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
    use jiff::Timestamp;
    use sandboxer_hub::LastFailure;

    use super::*;

    #[test]
    fn the_sentence_names_waiting_events_and_the_last_failure() {
        let failure = LastFailure { at: Timestamp::UNIX_EPOCH, reason: "no answer".into() };
        let since = Some(Timestamp::UNIX_EPOCH);
        let text = sentence(&Standing { waiting: 2, since, failure: Some(failure) });
        assert!(text.starts_with("2 events wait since 1970-01-01 00:00:00Z; last error, at 1970"), "{text}");
        assert!(text.contains("no answer") && text.ends_with("tries now"), "{text}");
    }
}
