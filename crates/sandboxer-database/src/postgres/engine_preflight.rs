//! A look at the server and the role before anything is begun.

use sandboxer_core::{Error, Result};

use super::client::Connection;
use super::ddl;
use super::rows::{number, text};
use crate::engine::Options;

/// What is known of the server.
#[derive(Clone, Debug, Default)]
pub struct Preflight {
    /// Whether the server keeps prepared transactions.
    pub prepares: bool,
    /// What a careful person has to know.
    pub notices: Vec<String>,
}

const OLDEST: u32 = 120_000;

const FACTS: &str = "SELECT current_setting('server_version_num'), pg_is_in_recovery(), \
    current_setting('max_prepared_transactions'), r.rolsuper, \
    pg_has_role('pg_execute_server_program', 'member') OR pg_has_role('pg_write_server_files', 'member'), \
    current_setting('server_version') \
    FROM pg_roles r WHERE r.rolname = current_user";

const DBLINK: &str = "SELECT 1 FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass \
    AND d.refobjid = e.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' \
    JOIN pg_proc p ON p.oid = d.objid \
    WHERE e.extname = 'dblink' AND p.proname = 'dblink_exec' AND has_function_privilege(p.oid, 'EXECUTE') \
    AND has_schema_privilege(p.pronamespace, 'USAGE')";

/// Refuses what cannot be held safely.
pub fn preflight(connection: &mut Connection, options: &Options) -> Result<Preflight> {
    connection.query("SET search_path = pg_catalog")?;
    let facts = connection.query(FACTS)?;
    let facts = facts.rows.first().map(Vec::as_slice).unwrap_or_default();
    let unfit =
        |message: String| Error::Database { database: connection.target().to_string(), message, code: None };
    if number::<u32>(facts, 0)? < OLDEST {
        return Err(unfit(format!(
            "the server is version {}; 12 is the oldest that will do",
            text(facts, 5)
        )));
    }
    if text(facts, 1) == "t" {
        return Err(unfit("the server is a standby, which only reads; use its primary".to_owned()));
    }
    let prepares = text(facts, 2) != "0";
    let mut notices = Vec::new();
    if !prepares {
        notices.push(
            "the server keeps no prepared transactions (max_prepared_transactions = 0): together with others this \
             sandbox is committed at the decision"
                .to_owned(),
        );
    }
    notices.extend(powers(&connection.target().user, text(facts, 3) == "t", text(facts, 4) == "t"));
    refuse_dblink(connection, options)?;
    Ok(Preflight { prepares, notices })
}

fn powers(user: &str, superuser: bool, programs: bool) -> Option<String> {
    let what = match (superuser, programs) {
        (true, _) => "is a superuser",
        (_, true) => "may run programs or write files on the server",
        _ => return None,
    };
    Some(format!(
        "{user} {what}: what it does beside the tables (COPY … TO PROGRAM) is not held back; use a role with fewer rights"
    ))
}

fn refuse_dblink(connection: &mut Connection, options: &Options) -> Result<()> {
    if ddl::allowed("dblink", options) || connection.query(DBLINK)?.rows.is_empty() {
        return Ok(());
    }
    Err(Error::Refused {
        reason: format!(
            "{} may use dblink in {}, which writes past any transaction that is held here",
            connection.target().user,
            connection.target()
        ),
        hint: Some(
            "take the right away (REVOKE EXECUTE), use another role, or allow it (allow_ddl: [\"dblink\"])"
                .to_owned(),
        ),
    })
}
