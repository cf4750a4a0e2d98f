//! The State Hub, as commands see it: who it is, and a courier that tells it what this command did.

use std::time::Duration;

use sandboxer::wiring;
use sandboxer_core::config::{self, EventsSettings, TokenRef, TrustStore};
use sandboxer_core::store::Store;
use sandboxer_hub::{Delivery, Orders, SUBSCRIBER, Token};

use super::error::CliError;
use super::places::{Places, variable};

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

/// Delivers now, and waits for it.
pub fn deliver(places: &Places, events: &EventsSettings) -> Result<Delivery, CliError> {
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
