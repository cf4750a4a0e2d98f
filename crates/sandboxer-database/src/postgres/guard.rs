//! The server's own refusal to commit what is held.
//!
//! A table of the sandbox's own has two equal rows and a unique constraint that is deferred: as long as both are there, the server's
//! built-in check fails at every commit and every `PREPARE TRANSACTION`, which becomes a rollback. There is no function that somebody
//! could replace, and PostgreSQL refuses to drop or to alter a table with checks that are still to be made. Whoever looks for the
//! guard with dynamic SQL can only take a row away and have the check made early; a row that is put back is another one, and
//! [`Guard::intact`] sees that, as everything else that is not what it was when it was armed.
//!
//! The schema is an ordinary one where the role may make one: a transaction that has touched temporary objects cannot be prepared.

use ulid::Ulid;

use super::client::{Connection, Failure};

/// What every name of ours on the server begins with.
pub const PREFIX: &str = "sandboxer_";

/// What the name of a guard's schema begins with.
pub const SCHEMA_PREFIX: &str = "sandboxer_guard_";

/// What both rows say: the server shows it with its refusal.
const SAYS: &str = "this transaction is held by a sandbox, and nobody asked for its commit";

/// A function may have set what ends the held transaction while nobody does anything. The second is known since version 17.
const ENDLESS: &str = "SET idle_in_transaction_session_timeout = 0; \
    SELECT pg_catalog.set_config('transaction_timeout', '0', false) \
    WHERE pg_catalog.current_setting('transaction_timeout', true) IS NOT NULL";

/// An armed guard in a transaction.
#[derive(Debug)]
pub struct Guard {
    schema: Option<String>,
    /// Everything that it consists of.
    print: String,
}

impl Guard {
    /// Arms one in the transaction of this session.
    pub fn arm(connection: &mut Connection) -> Result<Self, Failure> {
        let schema = format!("{SCHEMA_PREFIX}{}", Ulid::generate().to_string().to_lowercase());
        let guard = Self { schema: Some(schema), print: String::new() };
        connection.query("SAVEPOINT sandboxer_arming")?;
        let mut guard = match connection.query(&guard.script()) {
            Ok(_) => guard,
            Err(failure) if failure.code() == Some("42501") => {
                connection.query("ROLLBACK TO SAVEPOINT sandboxer_arming")?;
                let temporary = Self { schema: None, ..guard };
                connection.query(&temporary.script())?;
                temporary
            }
            Err(failure) => return Err(failure),
        };
        connection.query("RELEASE SAVEPOINT sandboxer_arming")?;
        guard.print = guard.look(connection)?.unwrap_or_default();
        Ok(guard)
    }

    /// The schema that is the guard's; `None` where the role may not make one, and it is the session's temporary one.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Lets the commit that follows through, and takes the guard away.
    pub fn disarm(self, connection: &mut Connection) -> Result<(), Failure> {
        let place = self.place();
        let dropped = match &self.schema {
            Some(schema) => format!("DROP SCHEMA {schema} CASCADE"),
            None => "DROP TABLE pg_temp.sandboxer_armed".to_owned(),
        };
        connection.query(&format!(
            "DELETE FROM {place}.sandboxer_armed;
             SET CONSTRAINTS {place}.sandboxer_guard IMMEDIATE;
             SET LOCAL client_min_messages = error;
             {dropped}"
        ))?;
        Ok(())
    }

    /// Whether the guard is what it was when it was armed: the same constraint of the same table with the same rows, and the check
    /// not switched off.
    pub fn intact(&self, connection: &mut Connection) -> Result<bool, Failure> {
        match self.look(connection) {
            Ok(print) => Ok(print.is_some_and(|print| print == self.print)),
            // It is gone, and so is the savepoint of the look with the failure.
            Err(Failure::Server { .. }) => {
                connection.query("ROLLBACK TO SAVEPOINT sandboxer_look; RELEASE SAVEPOINT sandboxer_look")?;
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    /// What it consists of, in the session's own role and without the names that somebody could put before the server's. A row that
    /// was deleted and put back has another place (`ctid`), and, in another unit, another number (`xmin`).
    fn look(&self, connection: &mut Connection) -> Result<Option<String>, Failure> {
        let place = self.place();
        let rows = connection.query(&format!(
            "{ENDLESS}; SAVEPOINT sandboxer_look; SET LOCAL ROLE NONE; SET LOCAL search_path = pg_catalog, pg_temp;
             SELECT concat_ws(' ', c.oid, c.relfilenode, k.oid, k.condeferrable, k.condeferred, k.convalidated, i.indimmediate,
                 t.oid, t.xmin, t.tgenabled, t.tgfoid, p.xmin, p.prosrc, current_setting('session_replication_role'),
                 (SELECT string_agg(concat_ws(' ', a.ctid, a.xmin, a.says), ',' ORDER BY a.ctid)
                  FROM {place}.sandboxer_armed a))
             FROM pg_class c JOIN pg_constraint k ON k.conrelid = c.oid JOIN pg_index i ON i.indexrelid = k.conindid
             JOIN pg_trigger t ON t.tgconstraint = k.oid JOIN pg_proc p ON p.oid = t.tgfoid
             WHERE c.oid = '{place}.sandboxer_armed'::regclass AND k.conname = 'sandboxer_guard';
             ROLLBACK TO SAVEPOINT sandboxer_look; RELEASE SAVEPOINT sandboxer_look"
        ))?;
        Ok(rows.single().filter(|_| rows.rows.len() == 1).map(str::to_owned))
    }

    fn place(&self) -> &str {
        self.schema.as_deref().unwrap_or("pg_temp")
    }

    fn script(&self) -> String {
        let columns = "(says text, CONSTRAINT sandboxer_guard UNIQUE (says) DEFERRABLE INITIALLY DEFERRED)";
        let made = match &self.schema {
            Some(schema) => {
                format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.sandboxer_armed {columns}")
            }
            None => format!("CREATE TEMPORARY TABLE sandboxer_armed {columns}"),
        };
        format!("{made}; INSERT INTO {}.sandboxer_armed VALUES ('{SAYS}'), ('{SAYS}')", self.place())
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
