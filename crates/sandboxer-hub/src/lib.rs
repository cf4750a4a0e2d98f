//! Lifecycle events, told to a State Hub: an HTTP endpoint that takes CloudEvents.
//!
//! The events are in the store already, written with the transitions that they tell of. [`deliver`] posts them one after the other
//! and remembers each that the hub has taken, so that whoever goes on after a crash repeats one at the most and leaves out none. A
//! command does not wait for that: it [starts](start) a *courier*, this very program once more under the name `sandbox-courier`,
//! which delivers, waits longer after each failure, and ends when all is told.

mod backoff;
mod client;
mod cloud_event;
mod courier;
mod delivery;
pub mod http;
mod journal;
mod token;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use cloud_event::CloudEvent;
pub use courier::{serve_if_asked, start};
pub use delivery::{Delivery, Standing, deliver, standing};
pub use journal::LastFailure;
pub use token::{Secret, Token};

/// Under this name the store remembers how far the hub has heard.
pub const SUBSCRIBER: &str = sandboxer_core::environment::HUB;

/// What is to be told, to whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The state directory whose events they are.
    pub home: PathBuf,
    /// The URL that they are posted to.
    pub hub: String,
    /// What the hub asks for.
    pub token: Token,
}

impl Orders {
    /// Where they send events and with which token, as far as that can be written down.
    fn address(&self) -> String {
        let token = match &self.token {
            Token::None => "no token".to_owned(),
            Token::File(path) => path.display().to_string(),
            Token::Given(_) => "a token".to_owned(),
            Token::Missing(_) => "a token that is missing".to_owned(),
        };
        format!("{}\n{token}\n", self.hub)
    }
}

/// Where the courier of a state directory has its lock, its log and its last failure.
fn office(home: &Path) -> PathBuf {
    home.join("courier")
}
