//! The settings of each client, of which the one session has only one client's at a time.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::Result;

use super::super::held::{Held, STRINGS};
use super::super::statement::{ENDING, Kind, Statement};
use super::{Shared, locked};

/// What a client has set for its session.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// As far as they are known here.
    values: BTreeMap<String, String>,
    /// Names that the server does not list by itself.
    unlisted: BTreeSet<String>,
    /// The server knows better.
    stale: bool,
}

/// What a statement does to settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// Names that it sets for the session; an empty one stands for any.
    pub session: Vec<String>,
    /// Names that it sets until the end of the transaction.
    pub local: Vec<String>,
}

impl Effect {
    pub fn of(statement: &Statement) -> Self {
        let mut effect = Self::default();
        match &statement.kind {
            Kind::Set { local: true, name } => effect.local.push(name.clone()),
            Kind::Set { local: false, name } => effect.session.push(name.clone()),
            Kind::ResetAll => effect.session.push(String::new()),
            _ => {}
        }
        for (name, local) in &statement.configures {
            let names = if *local { &mut effect.local } else { &mut effect.session };
            names.push(name.clone());
        }
        effect
    }

    pub fn is_none(&self) -> bool {
        self.session.is_empty() && self.local.is_empty()
    }
}

impl Settings {
    /// Those that it came with.
    pub fn new(given: Vec<(String, String)>) -> Self {
        let values = given.into_iter().map(|(name, value)| (name.to_lowercase(), value));
        let values = values.filter(|(name, _)| !is_ours(name)).collect();
        Self { values, ..Self::default() }
    }

    /// Takes note of names that are about to be set for the session.
    pub fn note(&mut self, names: &[String]) {
        self.stale |= !names.is_empty();
        self.unlisted.extend(names.iter().filter(|name| name.contains('.') || *name == "role").cloned());
    }

    /// What gives a setting its value for the session again, after it had another until the end of a transaction.
    pub fn restoring(&self, name: &str) -> String {
        match (name, self.values.get(name)) {
            (_, Some(value)) => format!("SELECT {}", configuring(name, value)),
            ("role", None) => "SET SESSION ROLE NONE".to_owned(),
            (name, None) => format!("RESET {}", quoted_setting(name)),
        }
    }

    /// What makes them the session's, whatever it had before.
    fn applying(&self) -> String {
        format!("SET SESSION ROLE NONE; {}", self.resetting())
    }

    /// What `RESET ALL` is to a client that came with these.
    pub fn resetting(&self) -> String {
        let calls: Vec<String> = self.values.iter().map(|(name, value)| configuring(name, value)).collect();
        let all = if calls.is_empty() { String::new() } else { format!("; SELECT {}", calls.join(", ")) };
        format!("RESET ALL{all}")
    }

    fn asking(&self) -> String {
        let names: Vec<String> = self.unlisted.iter().map(|name| literal(name)).collect();
        format!(
            "SELECT name, setting FROM pg_catalog.pg_settings WHERE source = 'session' AND name NOT LIKE 'transaction\\_%'
             UNION ALL SELECT n, pg_catalog.current_setting(n, true) FROM pg_catalog.unnest(ARRAY[{}]::text[]) n",
            names.join(", ")
        )
    }
}

impl Shared {
    /// Asks the server for what the client whose settings the session has has set, where that is not known.
    pub fn save_settings(&self, held: &mut Held) -> Result<()> {
        let Some(owner) = held.owner else { return Ok(()) };
        let Some(settings) = locked(&self.settings).get(&owner).filter(|settings| settings.stale).cloned()
        else {
            return Ok(());
        };
        let rows = held.ask_inside(&settings.asking())?;
        // Startup settings are no session settings to the server before they were set again.
        let mut values = BTreeMap::new();
        for row in rows.rows {
            if let [Some(name), Some(value)] = row.as_slice() {
                values.insert(name.to_lowercase(), value.clone());
            }
        }
        values.retain(|name, value| !is_ours(name) && (name != "role" || value != "none"));
        let saved = Settings { values, stale: false, ..settings };
        locked(&self.settings).insert(owner, saved);
        Ok(())
    }

    /// Makes the session a client's, as far as settings go; what that takes is left pending.
    pub fn switch_settings(&self, held: &mut Held, id: u64) -> Result<()> {
        if held.owner == Some(id) {
            return Ok(());
        }
        self.save_settings(held)?;
        let all = locked(&self.settings);
        let mine = all.get(&id).cloned().unwrap_or_default();
        let theirs = held.owner.and_then(|owner| all.get(&owner)).map(|settings| &settings.values);
        if theirs != Some(&mine.values) {
            held.pending.close_sql();
            held.pending.push_sql("SAVEPOINT sandboxer_switch");
            held.pending.push_sql(&mine.applying());
            held.pending.push_sql("RELEASE SAVEPOINT sandboxer_switch");
            held.pending.close_sql();
        }
        held.owner = Some(id);
        Ok(())
    }
}

/// Settings that stay the held session's own.
fn is_ours(name: &str) -> bool {
    name == STRINGS || ENDING.contains(&name)
}

fn configuring(name: &str, value: &str) -> String {
    format!("pg_catalog.set_config({}, {}, false)", literal(name), literal(value))
}

/// A string that is read the same with `standard_conforming_strings` on and off.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn quoted_setting(name: &str) -> String {
    let part = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}
