//! See the crate's documentation.

use crate::engine::{Engine, Outcome, Prepared, Setup};
/// Opens.
pub fn open(_: &Setup) -> sandboxer_core::Result<Box<dyn Engine>> { todo!() }
/// Settles.
pub fn settle(_: &Setup, _: &Prepared, _: Option<bool>) -> sandboxer_core::Result<Outcome> { todo!() }
/// Account.
pub fn account(_: &str, _: &str) -> sandboxer_core::Result<crate::credentials::Account> { todo!() }
