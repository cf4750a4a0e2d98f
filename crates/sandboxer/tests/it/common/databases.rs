//! Databases for tests of the command.

use sandboxer_testkit::databases::Production;
use serde_json::Value;

use crate::common::{Ran, World};

/// What every database has at first.
const SCHEMA: &str = "CREATE TABLE users(id INTEGER PRIMARY KEY, name VARCHAR(100), age INTEGER); \
    INSERT INTO users VALUES (1, 'ann', 10), (2, 'bob', 20), (3, 'cy', 30)";

/// Work that inserts, updates and deletes.
pub const WORK: &str = "UPDATE users SET name = 'eve' WHERE id = 1; DELETE FROM users WHERE id = 2; \
    INSERT INTO users VALUES (4, 'dan', 40)";

/// Fills a database.
pub fn filled(production: Production) -> Production {
    production.run(SCHEMA);
    production
}

/// An SQLite database in the world's directory `project`.
pub fn sqlite(world: &World, name: &str) -> Production {
    filled(Production::Sqlite(world.project().join(name)))
}

/// The names of the users, for everybody.
pub fn names(production: &Production) -> String {
    production.ask("SELECT name FROM users ORDER BY id")
}

impl World {
    /// Runs a script in a sandbox.
    pub fn sql(&self, selector: &str, script: &str) -> Ran {
        self.run_with_input(&["write", selector, "exec"], script.as_bytes())
    }

    /// The same, and expects success.
    pub fn sql_ok(&self, selector: &str, script: &str) {
        let ran = self.sql(selector, script);
        assert_eq!(ran.code, 0, "{script}: {}{}", ran.stdout, ran.stderr);
    }

    /// The rows of a query in a sandbox.
    pub fn rows(&self, selector: &str, query: &str) -> Vec<Value> {
        let text = self.ok(&["read", selector, &format!("query?sql={query}")]);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The names of the users in a sandbox.
    pub fn names(&self, selector: &str) -> String {
        let rows = self.rows(selector, "SELECT name FROM users ORDER BY id");
        rows.iter().map(|row| row["name"].as_str().unwrap_or("-")).collect::<Vec<_>>().join(",")
    }

    /// Panics where `secret` is in the state, or in the command line or environment of a process.
    pub fn assert_nowhere(&self, secret: &str) {
        let grep = std::process::Command::new("grep")
            .arg("-rlaF")
            .arg(secret)
            .arg(self.path("home"))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&grep.stdout), "", "{secret} is in the state");
        for keeper in crate::common::remains::keepers(&std::fs::canonicalize(self.path("home")).unwrap()) {
            for part in ["cmdline", "environ"] {
                let text = std::fs::read(format!("/proc/{keeper}/{part}")).unwrap_or_default();
                assert!(
                    !String::from_utf8_lossy(&text).contains(secret),
                    "{secret} is in the {part} of {keeper}"
                );
            }
        }
        let ps = std::process::Command::new("ps").args(["axww", "-o", "args"]).output();
        if let Ok(ps) = ps {
            assert!(!String::from_utf8_lossy(&ps.stdout).contains(secret), "{secret} is in the output of ps");
        }
    }

    /// The keepers of this world.
    pub fn keepers(&self) -> Vec<i32> {
        let home = std::fs::canonicalize(self.path("home"));
        home.map(|home| crate::common::remains::keepers(&home)).unwrap_or_default()
    }
}
