//! A client's time with the session: taking its turn, the savepoint, and what is done at the end of either.

use std::sync::atomic::Ordering;

use super::super::client::{Failure, PgError};
use super::super::held::{Held, UNIT};
use super::super::wire;
use super::client::{Client, End, State, lost};
use super::extended::Prepared;
use super::relay::misreading;
use super::reply::Said;
use super::{Shared, locked};

/// The constraints that can be deferred, as lists for `SET CONSTRAINTS`; empty where there are none.
#[derive(Debug, Default)]
pub(super) struct Constraints {
    /// All of them.
    pub all: String,
    /// Those that are deferred from the beginning.
    pub deferred: String,
}

const CONSTRAINTS: &str = r"
    SELECT pg_catalog.format('%I.%I', n.nspname, c.conname), pg_catalog.bool_or(c.condeferred)
    FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace
    WHERE n.nspname NOT LIKE 'sandboxer\_guard\_%' AND c.conname <> 'sandboxer_guard'
    AND pg_catalog.has_schema_privilege(n.oid, 'usage')
    GROUP BY n.nspname, c.conname HAVING pg_catalog.bool_and(c.condeferrable)";

/// What the server says of names that are no more, or not for this role.
const OUTDATED: [&str; 4] = ["42704", "42P01", "3F000", "42501"];

impl Shared {
    /// Asks for them where they are not known. Only inside a unit: it may fail.
    fn constraints(&self, held: &mut Held) -> Result<std::sync::Arc<Constraints>, End> {
        if let Some(known) = locked(&self.constraints).clone() {
            return Ok(known);
        }
        let rows = held.ask_inside(CONSTRAINTS).map_err(|error| lost(&error))?;
        let names = |deferred_only: bool| {
            let rows = rows.rows.iter().filter(|row| !deferred_only || row[1].as_deref() == Some("t"));
            rows.filter_map(|row| row[0].clone()).collect::<Vec<_>>().join(", ")
        };
        let found = std::sync::Arc::new(Constraints { all: names(false), deferred: names(true) });
        *locked(&self.constraints) = Some(found.clone());
        Ok(found)
    }
}

impl Client {
    /// Takes the turn and begins a unit; `false` where the client was told why not.
    pub fn enter(&mut self) -> Result<bool, End> {
        if self.unit {
            return Ok(true);
        }
        let shared = self.shared.clone();
        if let Err(holder) = shared.turn.take(self.id, self.name(), shared.options.turn_timeout) {
            let who = holder.map_or("the sandbox is being stopped".to_owned(), |holder| {
                format!(
                    "{} has had a transaction open for {} s",
                    holder.name,
                    holder.since.elapsed().as_secs()
                )
            });
            let mut said = Said::new("55P03", format!("the sandbox's one session is in use: {who}"));
            said.hint = Some("A sandbox runs one transaction at a time; end the other one first.".to_owned());
            self.fail(&said);
            return Ok(false);
        }
        let mut held = shared.lock_held();
        let begun = self.begin(&mut held);
        if begun.is_err() {
            shared.turn.give(self.id);
        }
        begun.map(|()| true)
    }

    fn begin(&mut self, held: &mut Held) -> Result<(), End> {
        held.held().map_err(|error| lost(&error))?;
        let garbage = std::mem::take(&mut *locked(&self.shared.garbage));
        if !garbage.is_empty() {
            held.pending.push_messages(&garbage);
        }
        self.unnamed_here &= held.owner == Some(self.id);
        self.shared.switch_settings(held, self.id).map_err(|error| lost(&error))?;
        if self.generation != held.generation() {
            self.generation = held.generation();
            self.prepare_again(held).map_err(|error| lost(&error))?;
        }
        held.pending.push_sql("SAVEPOINT sandboxer_unit");
        (held.depth, self.unit) = (1, true);
        self.broken = false;
        self.locals.clear();
        Ok(())
    }

    /// A new session knows no statements. They are no part of the transaction, so preparing them may fail and be rolled back.
    fn prepare_again(&mut self, held: &mut Held) -> sandboxer_core::Result<()> {
        let parses: Vec<u8> =
            self.statements.values().filter_map(Prepared::parse).flatten().copied().collect();
        self.statements.retain(|_, prepared| !matches!(prepared, Prepared::Sql));
        self.unnamed_here = false;
        if parses.is_empty() {
            return Ok(());
        }
        held.settle()?;
        held.depth = 1;
        held.ask("SAVEPOINT sandboxer_again")?;
        let sent = held.connection().send(&[parses.as_slice(), &[b'S', 0, 0, 0, 4]].concat());
        held.attempt(sent)?;
        let answer = held.connection().answer();
        let _ = held.attempt(answer);
        held.ask("ROLLBACK TO SAVEPOINT sandboxer_again; RELEASE SAVEPOINT sandboxer_again").map(drop)
    }

    /// Ends the unit where no transaction of the client's is open.
    pub fn end_unit(&mut self) -> Result<(), End> {
        let ok = !std::mem::take(&mut self.failed);
        if self.state == State::Idle && self.unit {
            let shared = self.shared.clone();
            self.finish(&mut shared.lock_held(), ok)?;
        }
        Ok(())
    }

    /// Ends the unit and the turn. Where deferred constraints do not hold it is undone, and the client told so; whether it was kept.
    pub fn finish(&mut self, held: &mut Held, keep: bool) -> Result<bool, End> {
        let kept = match keep && !self.broken {
            true => self.keep(held),
            false => self.undo(held).map(|()| false),
        };
        (held.depth, self.unit) = (0, false);
        (self.defined, self.called) = (false, false);
        self.tell_parameters(held);
        self.portals.clear();
        self.shared.turn.give(self.id);
        kept
    }

    fn keep(&mut self, held: &mut Held) -> Result<bool, End> {
        if self.defined {
            *locked(&self.shared.constraints) = None;
        }
        if let Some(error) = self.constrained(held)? {
            self.tell(&error);
            self.undo(held)?;
            return Ok(false);
        }
        if let Some(said) = self.objection(held)? {
            said.error(&mut self.out);
            self.undo(held)?;
            return Ok(false);
        }
        self.close_cursors(held);
        held.pending.push_sql(&format!("RELEASE SAVEPOINT {UNIT}"));
        let settings = locked(&self.shared.settings).get(&self.id).cloned().unwrap_or_default();
        for name in std::mem::take(&mut self.locals) {
            held.pending.push_sql(&settings.restoring(&name));
        }
        Ok(true)
    }

    /// Why the unit may not be kept, by what it has done. Deferred triggers have been called by now, too.
    fn objection(&mut self, held: &mut Held) -> Result<Option<Said>, End> {
        let watchful = self.shared.watchful.fetch_or(self.defined, Ordering::SeqCst) || self.defined;
        if self.called || watchful {
            if !held.is_guarded().map_err(|error| lost(&error))? {
                return Ok(Some(Said::new(
                    "42501",
                    "this touched what keeps the sandbox's transaction from being committed, and was undone",
                )));
            }
            if let Some(said) = self.shared.look(held) {
                return Ok(Some(said));
            }
        }
        Ok((!held.reads_strings()).then(misreading))
    }

    /// What does not hold at the end of the unit. Others may have dropped or renamed a constraint meanwhile: then the names are asked
    /// for once more.
    fn constrained(&mut self, held: &mut Held) -> Result<Option<PgError>, End> {
        let known = self.shared.constraints(held)?;
        let error = self.check_constraints(held, &known)?;
        if !error.as_ref().is_some_and(|error| OUTDATED.contains(&error.code.as_str())) {
            return Ok(error);
        }
        *locked(&self.shared.constraints) = None;
        let known = self.shared.constraints(held)?;
        self.check_constraints(held, &known)
    }

    /// All of it in a savepoint, and before the unit's own is released: nothing may fail outside of any.
    fn check_constraints(&self, held: &mut Held, known: &Constraints) -> Result<Option<PgError>, End> {
        if known.all.is_empty() {
            return Ok(None);
        }
        held.settle().map_err(|error| lost(&error))?;
        let deferred = match known.deferred.as_str() {
            "" => String::new(),
            names => format!("SET CONSTRAINTS {names} DEFERRED;"),
        };
        let answer = held.connection().query(&format!(
            "SAVEPOINT sandboxer_work; SET CONSTRAINTS {} IMMEDIATE; {deferred} RELEASE SAVEPOINT sandboxer_work",
            known.all
        ));
        match answer {
            Err(Failure::Server { error, .. }) => {
                let undone = "ROLLBACK TO SAVEPOINT sandboxer_work; RELEASE SAVEPOINT sandboxer_work";
                held.ask(undone).map_err(|error| lost(&error))?;
                Ok(Some(*error))
            }
            other => held.attempt(other).map(|_| None).map_err(|error| lost(&error)),
        }
    }

    fn tell(&mut self, error: &PgError) {
        wire::put(&mut self.out, b'E', |body| {
            let texts = [
                (b'S', Some(&error.severity)),
                (b'V', Some(&error.severity)),
                (b'C', Some(&error.code)),
                (b'M', Some(&error.message)),
                (b'D', error.detail.as_ref()),
                (b'H', error.hint.as_ref()),
            ];
            for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text?))) {
                body.push(field);
                wire::put_text(body, text);
            }
            body.push(0);
        });
    }

    /// The constraints that can be deferred; `None` where the client was told why it cannot have the session.
    pub fn constraint_names(&mut self) -> Result<Option<String>, End> {
        if !self.enter()? {
            return Ok(None);
        }
        let shared = self.shared.clone();
        *locked(&shared.constraints) = None;
        let constraints = shared.constraints(&mut shared.lock_held())?;
        Ok(Some(constraints.all.clone()))
    }

    fn close_cursors(&mut self, held: &mut Held) {
        let mut closed = Vec::new();
        for name in self.cursors.drain() {
            wire::put(&mut closed, b'C', |body| {
                body.push(b'P');
                wire::put_text(body, name);
            });
        }
        if !closed.is_empty() {
            held.pending.push_messages(&closed);
        }
    }

    fn undo(&mut self, held: &mut Held) -> Result<(), End> {
        if self.defined {
            *locked(&self.shared.constraints) = None;
        }
        self.cursors.clear();
        let to = if self.broken { "sandboxer_switch" } else { UNIT };
        held.settle().map_err(|error| lost(&error))?;
        let undone = format!("ROLLBACK TO SAVEPOINT {to}; RELEASE SAVEPOINT {to}");
        // A request to cancel may be late, and hit this; once more then.
        if held.ask(&undone).is_err() {
            held.ask(&undone).map_err(|error| lost(&error))?;
        }
        if self.broken {
            held.owner = None;
            locked(&self.shared.settings).insert(self.id, Default::default());
        }
        if self.called {
            // What was undone is back as it was; if it is not, it was not this unit.
            held.verify_inside().map_err(|error| lost(&error))?;
        }
        Ok(())
    }
}
