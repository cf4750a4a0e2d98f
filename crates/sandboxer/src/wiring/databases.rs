//! The strategies of databases.

use std::sync::Arc;

use sandboxer_core::Result;
use sandboxer_core::config::Settings;
use sandboxer_core::registry::{StrategyOptions, StrategyRegistry};
use sandboxer_database::credentials::Environment;
use sandboxer_database::engine::Options;
use sandboxer_database::{snapshot, transaction};
use serde_json::json;

pub fn register(registry: &mut StrategyRegistry, settings: &Settings) -> Result<()> {
    registry.register(snapshot::entry())?;
    let mut transactions = transaction::entry(environment());
    transactions.options = options(settings);
    registry.register(transactions)
}

fn options(settings: &Settings) -> StrategyOptions {
    let database = &settings.database;
    let options = Options {
        lock_timeout: database.lock_timeout,
        block_limit: database.block_limit,
        turn_timeout: database.turn_timeout,
        allow_ddl: database.allow_ddl.clone(),
        ..Options::default()
    };
    serde_json::from_value(json!(options)).unwrap_or_default()
}

/// Where references to credentials are looked up.
fn environment() -> Environment {
    Environment { variable: Arc::new(|name| std::env::var(name).ok()), home: std::env::home_dir() }
}
