//! The server's own refusal to commit what is held.
//!
//! A table of the sandbox's own has one row, and a deferred constraint trigger that looks at commit whether a setting has the
//! token; without it, it raises, and the commit becomes a rollback. The function has only a hash of the token, which is set for the
//! commit that somebody asked for and never before. PostgreSQL refuses to drop or to alter a table with events that are still
//! to fire, and a deferred trigger fires also for a row that is gone. What is left to somebody who looks for the guard with dynamic SQL
//! is to drop the trigger or to replace its function: [`Guard::intact`] sees that.
//!
//! The schema is an ordinary one where the role may make one: a transaction that has touched temporary objects cannot be prepared.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use ulid::Ulid;

use super::client::{Connection, Failure};

/// What every name of ours on the server begins with.
pub const PREFIX: &str = "sandboxer_";

/// What the name of a guard's schema begins with.
pub const SCHEMA_PREFIX: &str = "sandboxer_guard_";

const SETTING: &str = "sandboxer.token";

/// An armed guard in a transaction.
#[derive(Debug)]
pub struct Guard {
    schema: Option<String>,
    token: String,
}

impl Guard {
    /// Arms one in the transaction of this session.
    pub fn arm(connection: &mut Connection) -> Result<Self, Failure> {
        let token = format!("{}{}", Ulid::generate(), Ulid::generate());
        let schema = format!("{SCHEMA_PREFIX}{}", Ulid::generate().to_string().to_lowercase());
        let guard = Self { schema: Some(schema), token };
        connection.query("SAVEPOINT sandboxer_arming")?;
        let guard = match connection.query(&guard.script()) {
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
        Ok(guard)
    }

    /// The schema that is the guard's; `None` where the role may not make one, and it is the session's temporary one.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Lets the commit that follows through, and takes the guard away.
    pub fn disarm(self, connection: &mut Connection) -> Result<(), Failure> {
        let (schema, token) = (self.place(), &self.token);
        let dropped = match &self.schema {
            Some(schema) => format!("DROP SCHEMA {schema} CASCADE"),
            None => "DROP FUNCTION pg_temp.sandboxer_fire() CASCADE; DROP TABLE pg_temp.sandboxer_armed"
                .to_owned(),
        };
        connection.query(&format!(
            "SELECT pg_catalog.set_config('{SETTING}', '{token}', true);
             SET CONSTRAINTS {schema}.sandboxer_guard IMMEDIATE;
             SET LOCAL client_min_messages = error;
             {dropped};
             SELECT pg_catalog.set_config('{SETTING}', '', true)"
        ))?;
        Ok(())
    }

    /// Whether the guard is what it was when it was armed: nobody has replaced its function.
    pub fn intact(&self, connection: &mut Connection) -> Result<bool, Failure> {
        let (schema, hash) = (self.place(), self.hash());
        let rows = connection.query(&format!(
            "SELECT count(*) FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
             WHERE t.tgname = 'sandboxer_guard' AND t.tgrelid = '{schema}.sandboxer_armed'::pg_catalog.regclass
             AND pg_catalog.strpos(p.prosrc, '{hash}') > 0 AND pg_catalog.strpos(p.prosrc, 'RAISE EXCEPTION') > 0"
        ))?;
        Ok(rows.single() == Some("1"))
    }

    fn place(&self) -> &str {
        self.schema.as_deref().unwrap_or("pg_temp")
    }

    fn hash(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(self.token.as_bytes()))
    }

    fn script(&self) -> String {
        let (place, hash) = (self.place(), self.hash());
        let made = match &self.schema {
            Some(schema) => {
                format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.sandboxer_armed (fires int)")
            }
            None => "CREATE TEMPORARY TABLE sandboxer_armed (fires int)".to_owned(),
        };
        format!(
            "{made};
             CREATE FUNCTION {place}.sandboxer_fire() RETURNS trigger LANGUAGE plpgsql
             SET search_path = pg_catalog, pg_temp AS $sandboxer$
             BEGIN
                 IF encode(sha256(convert_to(current_setting('{SETTING}', true), 'UTF8')), 'hex') IS DISTINCT FROM '{hash}' THEN
                     RAISE EXCEPTION 'this transaction is held by a sandbox, and nobody asked for its commit'
                     USING ERRCODE = 'object_not_in_prerequisite_state';
                 END IF;
                 RETURN NULL;
             END $sandboxer$;
             CREATE CONSTRAINT TRIGGER sandboxer_guard AFTER INSERT ON {place}.sandboxer_armed
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {place}.sandboxer_fire();
             INSERT INTO {place}.sandboxer_armed VALUES (1)"
        )
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
