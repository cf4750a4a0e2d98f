//! Statements that the proxy does itself: what they do to the held transaction is only a savepoint.

use super::super::statement::{Kind, Statement};
use super::super::wire;
use super::client::{Client, End, State, lost};
use super::extended::Prepared;
use super::reply::{self, Said};
use super::settings::Effect;

/// Gives locks back that outlive transactions.
const ADVISORY: &str = "; SELECT pg_catalog.pg_advisory_unlock_all()";

impl Client {
    /// Does one of these statements and tells the client; whether it succeeded.
    pub fn control(&mut self, sql: &[u8], statement: &Statement) -> Result<bool, End> {
        let in_failed = matches!(
            statement.kind,
            Kind::Commit { .. } | Kind::Rollback { .. } | Kind::RollbackTo | Kind::Refused(_)
        );
        if self.state == State::Failed && !in_failed {
            self.fail(&Said::failed_transaction());
            return Ok(false);
        }
        match &statement.kind {
            Kind::Begin { tag, read_only } => self.do_begin(tag, *read_only),
            Kind::Commit { chain } => self.do_commit(*chain),
            Kind::Rollback { chain } => self.do_rollback(*chain),
            Kind::Savepoint => self.in_transaction(sql, statement, "SAVEPOINT"),
            Kind::Release => self.in_transaction(sql, statement, "RELEASE SAVEPOINT"),
            Kind::RollbackTo => self.do_rollback_to(sql, statement),
            Kind::SetTransaction { read_only } => self.do_set_transaction(*read_only),
            Kind::AllConstraints { immediate } => self.do_all_constraints(*immediate),
            Kind::ResetAll => self.do_reset_all(statement),
            Kind::Ignored { tag } => self.done(tag),
            Kind::DiscardAll => self.do_discard_all(),
            Kind::DeallocateAll => self.do_deallocate_all("DEALLOCATE ALL"),
            Kind::Refused(refusal) => {
                self.fail(&refusal.into());
                Ok(false)
            }
            _ => self.run_plain(sql, std::slice::from_ref(statement), statement.range.clone()),
        }
    }

    fn done(&mut self, tag: &str) -> Result<bool, End> {
        reply::complete(&mut self.out, tag);
        Ok(true)
    }

    fn warn(&mut self, code: &str, message: &str) {
        Said::new(code, message).warning(&mut self.out);
    }

    fn do_begin(&mut self, tag: &str, read_only: bool) -> Result<bool, End> {
        if self.state == State::Open {
            self.warn("25001", "there is already a transaction in progress");
            return self.done(tag);
        }
        self.state = State::Open;
        if read_only && !self.quietly("SET TRANSACTION READ ONLY")? {
            return Ok(false);
        }
        self.done(tag)
    }

    /// Runs something in the unit that the client is told nothing of, but that it failed.
    fn quietly(&mut self, sql: &str) -> Result<bool, End> {
        if !self.enter()? {
            return Ok(false);
        }
        let shared = self.shared.clone();
        let mut held = shared.lock_held();
        match held.settle().and_then(|()| held.ask(sql)) {
            Ok(_) => Ok(true),
            Err(error) if held.lost().is_some() => Err(lost(&error)),
            Err(error) => {
                self.fail(&Said::new("XX000", error.to_string()));
                Ok(false)
            }
        }
    }

    fn do_commit(&mut self, chain: bool) -> Result<bool, End> {
        let was = self.state;
        if was == State::Idle {
            return self.end_of_nothing("COMMIT", chain, true);
        }
        self.state = if chain { State::Open } else { State::Idle };
        let kept = if self.unit {
            let shared = self.shared.clone();
            self.finish(&mut shared.lock_held(), was == State::Open)?
        } else {
            was == State::Open
        };
        // Where constraints did not hold the client was told that, and nothing else.
        if was == State::Open && !kept {
            self.state = State::Idle;
            return Ok(false);
        }
        self.done(if kept { "COMMIT" } else { "ROLLBACK" })
    }

    fn do_rollback(&mut self, chain: bool) -> Result<bool, End> {
        if self.state == State::Idle {
            return self.end_of_nothing("ROLLBACK", chain, false);
        }
        self.state = if chain { State::Open } else { State::Idle };
        if self.unit {
            let shared = self.shared.clone();
            self.finish(&mut shared.lock_held(), false)?;
        }
        self.done("ROLLBACK")
    }

    /// There is no transaction, but what came before in the same string.
    fn end_of_nothing(&mut self, tag: &str, chain: bool, keep: bool) -> Result<bool, End> {
        if chain {
            self.fail(&Said::new("25P01", format!("{tag} AND CHAIN can only be used in transaction blocks")));
            return Ok(false);
        }
        self.warn("25P01", "there is no transaction in progress");
        if self.unit {
            let shared = self.shared.clone();
            let kept = self.finish(&mut shared.lock_held(), keep)?;
            if keep && !kept {
                return Ok(false);
            }
        }
        self.done(tag)
    }

    fn in_transaction(&mut self, sql: &[u8], statement: &Statement, what: &str) -> Result<bool, End> {
        if self.state == State::Idle {
            self.fail(&Said::new("25P01", format!("{what} can only be used in transaction blocks")));
            return Ok(false);
        }
        self.pass_through(sql, statement)
    }

    fn pass_through(&mut self, sql: &[u8], statement: &Statement) -> Result<bool, End> {
        let mut message = Vec::new();
        wire::put_query(&mut message, &sql[statement.range.clone()]);
        self.unnamed_here = false;
        self.run(&message)
    }

    fn do_rollback_to(&mut self, sql: &[u8], statement: &Statement) -> Result<bool, End> {
        if self.state == State::Failed && !self.unit {
            self.fail(&Said::new(
                "3B001",
                "there is no such savepoint: the transaction failed before its first statement",
            ));
            return Ok(false);
        }
        let ok = self.in_transaction(sql, statement, "ROLLBACK TO SAVEPOINT")?;
        if ok {
            self.state = State::Open;
        }
        Ok(ok)
    }

    /// Isolation levels are the held transaction's; that one may only read is to be had.
    fn do_set_transaction(&mut self, read_only: bool) -> Result<bool, End> {
        if self.state == State::Idle {
            self.warn("25P01", "SET TRANSACTION can only be used in transaction blocks");
        } else if read_only && !self.quietly("SET TRANSACTION READ ONLY")? {
            return Ok(false);
        }
        self.done("SET")
    }

    fn do_all_constraints(&mut self, immediate: bool) -> Result<bool, End> {
        if self.state == State::Idle {
            self.warn("25P01", "SET CONSTRAINTS can only be used in transaction blocks");
            return self.done("SET CONSTRAINTS");
        }
        let Some(names) = self.constraint_names()? else { return Ok(false) };
        if names.is_empty() {
            return self.done("SET CONSTRAINTS");
        }
        let mut message = Vec::new();
        wire::put_query(
            &mut message,
            format!("SET CONSTRAINTS {names} {}", if immediate { "IMMEDIATE" } else { "DEFERRED" }),
        );
        self.unnamed_here = false;
        self.run(&message)
    }

    /// The server knows nothing of what a client came with.
    fn do_reset_all(&mut self, statement: &Statement) -> Result<bool, End> {
        if !self.apply(&Effect::of(statement))? || !self.quietly(&self.given.resetting())? {
            return Ok(false);
        }
        self.done("RESET")
    }

    fn do_discard_all(&mut self) -> Result<bool, End> {
        if self.state != State::Idle {
            self.fail(&Said::new("25001", "DISCARD ALL cannot run inside a transaction block"));
            return Ok(false);
        }
        self.apply(&Effect { session: vec![String::new()], ..Effect::default() })?;
        let unlocking = if std::mem::take(&mut self.advisory) { ADVISORY } else { "" };
        let resetting = self.given.resetting();
        if !self.quietly(&format!("SET SESSION ROLE NONE; {resetting}; UNLISTEN *{unlocking}"))? {
            return Ok(false);
        }
        self.do_deallocate_all("DISCARD ALL")
    }

    /// Only this client's.
    fn do_deallocate_all(&mut self, tag: &str) -> Result<bool, End> {
        let names: Vec<Vec<u8>> = self
            .statements
            .iter()
            .filter(|(_, it)| it.is_known_to_server())
            .map(|(n, _)| n.clone())
            .collect();
        self.statements.retain(|name, prepared| name.is_empty() && !matches!(prepared, Prepared::Sql));
        if !names.is_empty() {
            if !self.enter()? {
                return Ok(false);
            }
            let mut closed = Vec::new();
            for name in names {
                wire::put(&mut closed, b'C', |body| {
                    body.push(b'S');
                    wire::put_text(body, self.statement_name(&name));
                });
            }
            self.shared.clone().lock_held().pending.push_messages(&closed);
        }
        self.done(tag)
    }
}
