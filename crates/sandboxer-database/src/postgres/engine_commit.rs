//! How the held transaction becomes real: at once, or in two steps.

use std::sync::atomic::Ordering;

use sandboxer_core::{Error, Result};

use super::client::Connection;
use super::engine::{Inner, PostgresEngine};
use super::held::Held;
use super::settle::{Token, settle_on};
use crate::engine::{Outcome, Prepared};

/// The longest name that PostgreSQL gives a prepared transaction, in bytes.
const LONGEST_NAME: usize = 199;

/// The constraints that can be deferred, but for the guard's.
const DEFERRABLE: &str = "SELECT pg_catalog.string_agg(pg_catalog.format('%I.%I', n.nspname, c.conname), ', ') \
    FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace \
    WHERE c.condeferrable AND n.nspname !~ '^pg_' AND n.nspname !~ '^sandboxer_guard_'";

/// Why PostgreSQL would not prepare the transaction, one sentence a row. It says so itself only by throwing everything away.
/// Whether something was notified is not to be seen; so every function that could do it counts.
const UNPREPARABLE: &str = "SELECT 'temporary objects were used in it' WHERE pg_catalog.pg_my_temp_schema() <> 0 \
    UNION ALL SELECT 'it has a cursor that outlives its transaction' WHERE EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable) \
    UNION ALL SELECT 'rows of the foreign table ' || c.relname || ' were used in it' FROM pg_catalog.pg_locks l \
      JOIN pg_catalog.pg_class c ON c.oid = l.relation WHERE l.locktype = 'relation' AND l.pid = pg_catalog.pg_backend_pid() AND c.relkind = 'f' \
    UNION ALL SELECT 'the function ' || p.proname || ' may have sent notifications' FROM pg_catalog.pg_proc p \
      JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
      WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND p.prosrc ~* 'notify' LIMIT 1";

/// Makes everything real, and begins anew. The number of the transaction is on disk before, so that a crash leaves no doubt.
pub fn commit(engine: &mut PostgresEngine, operation: &str) -> Result<()> {
    engine.usable()?;
    engine.turn(|held, inner| {
        ready(held)?;
        let token = Token { operation: operation.to_owned(), xid: inner.base.xid, gid: None };
        token.note(&inner.setup.dir)?;
        commit_held(held, inner, &token)?;
        go_on(held, inner);
        Ok(())
    })
}

/// What is committed is committed: that no new transaction can be begun is told by whatever is asked next.
fn go_on(held: &mut Held, inner: &mut Inner) {
    if let Err(error) = inner.begin_again(held) {
        held.lose(&format!(
            "the last commit was made, but no new transaction could be begun after it: {error}"
        ));
    }
}

/// What is certain to fail at commit fails here, and leaves everything as it was.
fn ready(held: &mut Held) -> Result<()> {
    held.verify()?;
    held.unit(false, |held| {
        let names = held.query(DEFERRABLE)?;
        match names.single() {
            Some(names) => held.query(&format!("SET CONSTRAINTS {names} IMMEDIATE")).map(drop),
            None => Ok(()),
        }
    })
}

fn commit_held(held: &mut Held, inner: &Inner, token: &Token) -> Result<()> {
    inner.watchdog.watch(None);
    let Err(error) = held.commit() else { return Ok(()) };
    // The answer may have been lost, and not the commit.
    match settle_on(&mut connect(inner)?, token, None)? {
        Outcome::Committed => Ok(()),
        Outcome::Aborted => Err(error),
        Outcome::Waiting => {
            Err(says(inner, "the server has not decided yet whether it was committed; ask again"))
        }
    }
}

fn says(inner: &Inner, message: &str) -> Error {
    Error::Database { database: inner.target.to_string(), message: message.to_owned(), code: None }
}

fn connect(inner: &Inner) -> Result<Connection> {
    Connection::connect(&inner.target, inner.setup.password.as_deref())
}

/// What preparing would come to. A plain commit is found by the same number.
pub fn intent(engine: &mut PostgresEngine, operation: &str) -> Result<Prepared> {
    engine.usable()?;
    engine.turn(|held, inner| {
        let mut token = Token { operation: operation.to_owned(), xid: inner.base.xid, gid: None };
        if let Some(reason) = unpreparable(held, inner)? {
            return Ok(Prepared::AtDecision { reason, token: token.to_value() });
        }
        token.gid = Some(name(&inner.setup.workspace, operation)?);
        Ok(Prepared::Durable(token.to_value()))
    })
}

/// Prepares it on the server; where that cannot be, says why, and keeps it for the decision. No client gets in from here on.
pub fn prepare(engine: &mut PostgresEngine, operation: &str) -> Result<Prepared> {
    engine.usable()?;
    engine.proxy.keep_turn(true);
    let prepared = engine.turn(|held, inner| prepare_held(held, inner, operation));
    match &prepared {
        Ok(prepared) => engine.prepared = Some(Token::of(prepared)?),
        Err(_) => engine.proxy.keep_turn(false),
    }
    prepared
}

fn prepare_held(held: &mut Held, inner: &mut Inner, operation: &str) -> Result<Prepared> {
    ready(held)?;
    let mut token = Token { operation: operation.to_owned(), xid: inner.base.xid, gid: None };
    if let Some(reason) = unpreparable(held, inner)? {
        token.note(&inner.setup.dir)?;
        return Ok(Prepared::AtDecision { reason, token: token.to_value() });
    }
    let gid = name(&inner.setup.workspace, operation)?;
    token.gid = Some(gid.clone());
    token.note(&inner.setup.dir)?;
    inner.watchdog.watch(None);
    held.prepare(&gid)?;
    Ok(Prepared::Durable(token.to_value()))
}

fn name(workspace: &str, operation: &str) -> Result<String> {
    let name = format!("sandboxer_{workspace}_{operation}");
    if name.len() > LONGEST_NAME {
        return Err(Error::usage(format!(
            "{name:?} is longer than PostgreSQL lets a prepared transaction be called"
        )));
    }
    Ok(name)
}

fn unpreparable(held: &mut Held, inner: &Inner) -> Result<Option<String>> {
    if !inner.preflight.prepares {
        return Ok(Some(
            "the server keeps no prepared transactions (max_prepared_transactions = 0)".to_owned(),
        ));
    }
    if held.hidden_schema().is_none() {
        let user = &inner.target.user;
        return Ok(Some(format!(
            "{user} may not create schemas, so the sandbox guards it with a temporary object"
        )));
    }
    if inner.rules.notified.load(Ordering::SeqCst) {
        return Ok(Some("PostgreSQL cannot prepare it: NOTIFY or LISTEN was used in it".to_owned()));
    }
    let reasons = held.query(UNPREPARABLE)?;
    Ok(reasons.single().map(|reason| format!("PostgreSQL cannot prepare it: {reason}")))
}

/// Makes real what was prepared, and begins anew.
pub fn finish(engine: &mut PostgresEngine, prepared: &Prepared) -> Result<()> {
    let token = Token::of(prepared)?;
    let ours = engine.prepared.as_ref() == Some(&token);
    if token.gid.is_none() && ours {
        let committed = engine.turn(|held, inner| {
            commit_held(held, inner, &token)?;
            go_on(held, inner);
            Ok(())
        });
        engine.over();
        return committed;
    }
    match settle_on(&mut connect(&engine.inner)?, &token, Some(true))? {
        Outcome::Committed if ours => anew(engine),
        Outcome::Committed => Ok(()),
        Outcome::Waiting => {
            Err(says(&engine.inner, "the server has not decided yet whether it was committed; ask again"))
        }
        Outcome::Aborted => {
            let message = format!("what was prepared as {:?} was rolled back by somebody", token.operation);
            Err(says(&engine.inner, &message))
        }
    }
}

/// Forgets what was prepared; whether the work is still there.
pub fn abort(engine: &mut PostgresEngine, prepared: &Prepared) -> Result<bool> {
    let token = Token::of(prepared)?;
    let ours = engine.prepared.as_ref() == Some(&token);
    if token.gid.is_none() && ours {
        let there = engine.turn(|held, _| Ok(held.lost().is_none()));
        engine.over();
        return there;
    }
    match settle_on(&mut connect(&engine.inner)?, &token, Some(false))? {
        Outcome::Committed => Err(says(
            &engine.inner,
            &format!("what was prepared as {:?} is committed already", token.operation),
        )),
        Outcome::Waiting => Err(says(&engine.inner, "its session has not ended yet; ask again")),
        Outcome::Aborted if ours => anew(engine).map(|()| false),
        Outcome::Aborted => Ok(false),
    }
}

fn anew(engine: &mut PostgresEngine) -> Result<()> {
    let begun = engine.turn(|held, inner| {
        go_on(held, inner);
        Ok(())
    });
    engine.over();
    begun
}
