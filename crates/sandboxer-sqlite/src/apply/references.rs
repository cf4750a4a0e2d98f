//! Foreign keys: what is written must not leave references that lead nowhere and did not before.

use std::collections::BTreeSet;

use sandboxer_core::{Error, Result};

use super::Work;
use crate::Value;
use crate::clone::PATIENCE;
use crate::connection::{Connection, Mode};
use crate::difference::Difference;
use crate::schema::quoted;

/// Each as its table, rowid, the table referred to, and the number of the constraint.
type Violations = BTreeSet<String>;

/// The references that lead nowhere, in the tables that the difference touches and those that refer to them.
pub(super) fn violations(connection: &Connection, difference: &Difference) -> Result<Violations> {
    let mut found = Violations::new();
    for table in concerned(connection, difference)? {
        let rows = connection.rows(&format!("PRAGMA foreign_key_check({})", quoted(&table)), &[]);
        // A reference to a table or column that is not there at all makes the check itself fail; it did so before.
        found.extend(rows.unwrap_or_default().iter().map(|row| in_words(row)));
    }
    Ok(found)
}

fn in_words(row: &[Value]) -> String {
    let text = |value: &Value| value.as_text().unwrap_or_else(|| value.to_json().to_string());
    format!("row {} of {} refers to {}", text(&row[1]), text(&row[0]), text(&row[2]))
}

/// The tables that refer to another, where either is touched.
fn concerned(connection: &Connection, difference: &Difference) -> Result<BTreeSet<String>> {
    let mut touched: BTreeSet<String> =
        difference.tables.iter().map(|table| table.table.name.to_lowercase()).collect();
    touched.extend(difference.schema.iter().map(|change| change.table.to_lowercase()));
    let sql = "SELECT m.name, f.\"table\" FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table'";
    let mut concerned = BTreeSet::new();
    for row in connection.rows(sql, &[])? {
        let names = [row[0].as_text().unwrap_or_default(), row[1].as_text().unwrap_or_default()];
        if names.iter().any(|name| touched.contains(&name.to_lowercase())) {
            concerned.extend(names.into_iter().next());
        }
    }
    Ok(concerned)
}

/// Refuses where there are more than before, and the clone has not the same: then it is the sandbox's own doing.
pub(super) fn check(work: &Work<'_>, difference: &Difference, before: &Violations) -> Result<()> {
    let after = violations(work.original, difference)?;
    if after.is_subset(before) {
        return Ok(());
    }
    let clone = Connection::open(work.clone, Mode::Confined)?;
    clone.busy_timeout(PATIENCE)?;
    let own = violations(&clone, difference)?;
    let new: Vec<&String> =
        after.iter().filter(|one| !before.contains(*one) && !own.contains(*one)).collect();
    let Some(first) = new.first() else { return Ok(()) };
    Err(Error::Refused {
        reason: format!("{first}, which would not be there any more ({} such in all)", new.len()),
        hint: Some(
            "the original has rows that the sandbox does not know: roll it back and repeat the work"
                .to_owned(),
        ),
    })
}
