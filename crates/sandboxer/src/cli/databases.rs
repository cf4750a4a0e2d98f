//! Databases on the command line: where they are, who may in, and how programs get to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sandboxer_core::model::{RelPath, Row};
use sandboxer_core::service::{SandboxManager, Target, Workspace};
use sandboxer_core::types::is_url;
use sandboxer_extensions::local::Bind;
use serde::Deserialize;
use serde_json::Value;

use super::error::CliError;

/// Where a contained command finds the sockets and files of databases.
const INSIDE: &str = "/run/sandboxer";

/// What a location begins with that is in a variable.
const VARIABLE: &str = "env:";

/// How a database is opened.
#[derive(clap::Args)]
pub struct DatabaseArgs {
    /// Where the password of a database is: env:NAME, file:PATH, pgpass or my.cnf
    #[arg(long, value_name = "REFERENCE", help_heading = "Databases")]
    pub credentials: Option<String>,
    /// Statements with strong locks to allow, such as 'alter table'; can be repeated
    #[arg(long, value_name = "STATEMENT", help_heading = "Databases")]
    pub allow_ddl: Vec<String>,
}

impl DatabaseArgs {
    /// As properties of the resource at `location`; `reference` is where its URL came from.
    pub fn properties(
        &self,
        location: &str,
        reference: Option<String>,
    ) -> Result<BTreeMap<String, Value>, CliError> {
        let mut properties = BTreeMap::new();
        if let Some(typed) = &self.credentials {
            credentials::check_reference(typed)?;
        }
        if !is_url(location) {
            return Ok(properties);
        }
        if let Some(credentials) = self.credentials.clone().or(reference) {
            properties.insert("credentials".to_owned(), Value::String(credentials));
        }
        if !self.allow_ddl.is_empty() {
            let lower: Vec<String> = self.allow_ddl.iter().map(|name| name.to_lowercase()).collect();
            properties.insert("allow_ddl".to_owned(), Value::from(lower));
        }
        Ok(properties)
    }
}

/// A location as it was typed: `env:NAME` stands for the URL in that variable, which is then where the password comes from.
pub fn located(typed: &str) -> Result<(String, Option<String>), CliError> {
    let Some(name) =
        typed.strip_prefix(VARIABLE).filter(|name| !name.is_empty() && !Path::new(typed).exists())
    else {
        return Ok((typed.to_owned(), None));
    };
    let value = std::env::var(name).map_err(|_| {
        CliError::usage(format!("the variable {name} is not set, and should have the URL of a database"))
            .hint(format!("such as {name}=postgres://user:password@host/database"))
    })?;
    let (url, password) = credentials::split_url(&value)?.ok_or_else(|| {
        CliError::usage(format!("the variable {name} has no URL in it"))
            .hint("such as postgres://user:password@host/database")
    })?;
    Ok((url, password.map(|_| typed.to_owned())))
}

/// What a database answers when it is asked for its connection.
#[derive(Deserialize)]
pub struct Connection {
    /// With the password.
    pub url: String,
    /// The directory of its socket.
    socket_dir: Option<PathBuf>,
    /// For programs; `{socket_dir}` in a value stands for that directory.
    variables: Row,
}

/// How programs connect to a workspace; `None` where there is no such way.
pub fn connection(
    manager: &SandboxManager,
    target: &Target,
    workspace: &Workspace,
) -> Result<Option<Connection>, CliError> {
    if !connects(workspace) {
        return Ok(None);
    }
    read(manager, target, workspace, "connection").map(Some)
}

fn read<T: serde::de::DeserializeOwned>(
    manager: &SandboxManager,
    target: &Target,
    workspace: &Workspace,
    path: &str,
) -> Result<T, CliError> {
    let one = Target { sandbox: target.sandbox.clone(), workspaces: vec![workspace.clone()] };
    let text = manager.read(&one, &RelPath::parse(path).map_err(sandboxer_core::Error::from)?)?;
    serde_json::from_slice(&text)
        .map_err(|e| CliError::usage(format!("the database answered {path} with nonsense: {e}")))
}

/// How a command gets at a database.
pub struct Way {
    connection: Connection,
    inside: PathBuf,
}

impl Way {
    /// The directory of the socket, and where a contained command sees it.
    pub fn bind(&self) -> Option<Bind> {
        let from = self.connection.socket_dir.clone();
        from.map(|from| Bind { from, at: self.inside.clone() })
    }

    /// The variables that lead there, for a command that is contained or not.
    pub fn variables(&self, contained: bool) -> Vec<(String, String)> {
        let outside = self.connection.socket_dir.clone().unwrap_or_default();
        let at = if contained { &self.inside } else { &outside };
        let at = at.display().to_string();
        let text = |value: &Value| value.as_str().unwrap_or_default().replace("{socket_dir}", &at);
        self.connection.variables.0.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }
}

/// The ways to all databases of a sandbox.
pub fn ways(manager: &SandboxManager, target: &Target) -> Result<Vec<Way>, CliError> {
    let mut ways = Vec::new();
    for workspace in &target.sandbox.workspaces {
        if let Some(connection) = connection(manager, target, workspace)? {
            ways.push(Way { connection, inside: inside(workspace) });
        }
    }
    Ok(ways)
}

/// Whether programs connect to a workspace instead of working in it.
pub fn connects(workspace: &Workspace) -> bool {
    workspace.sandbox_ref.metadata.contains_key("connects")
}

/// Where something of a workspace is seen that has no path of its own.
pub fn inside(workspace: &Workspace) -> PathBuf {
    Path::new(INSIDE).join(&workspace.name)
}

#[cfg(feature = "databases")]
mod credentials {
    use sandboxer_database::credentials::{self, Reference};

    use crate::cli::error::CliError;

    pub fn check_reference(text: &str) -> Result<(), CliError> {
        Ok(Reference::parse(text).map(|_| ())?)
    }

    /// The URL without its password, and the password; `None` if `text` is not a URL.
    pub fn split_url(text: &str) -> Result<Option<(String, Option<String>)>, CliError> {
        Ok(credentials::split_url(text))
    }
}

#[cfg(not(feature = "databases"))]
mod credentials {
    use sandboxer::wiring::left_out;

    use crate::cli::error::CliError;

    pub fn check_reference(_text: &str) -> Result<(), CliError> {
        Err(left_out::error("database strategies").into())
    }

    pub fn split_url(_text: &str) -> Result<Option<(String, Option<String>)>, CliError> {
        Err(left_out::error("database strategies").into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_path_stays_a_path() {
        assert_eq!(located("./x").unwrap(), ("./x".to_owned(), None));
        assert_eq!(located("env:").unwrap(), ("env:".to_owned(), None));
        let error = located("env:NO_SUCH_VARIABLE_HERE").unwrap_err();
        assert!(error.message.contains("NO_SUCH_VARIABLE_HERE"));
    }

    #[cfg(feature = "databases")]
    #[test]
    fn only_what_is_at_a_url_has_credentials() {
        let args = DatabaseArgs { credentials: Some("pgpass".into()), allow_ddl: vec!["ALTER TABLE".into()] };
        assert!(args.properties("/x", None).unwrap().is_empty());
        let properties = args.properties("postgres://h/d", Some("env:X".into())).unwrap();
        assert_eq!(properties["credentials"], "pgpass");
        assert_eq!(properties["allow_ddl"][0], "alter table");
        let odd = DatabaseArgs { credentials: Some("hunter2".into()), allow_ddl: Vec::new() };
        assert!(!odd.properties("postgres://h/d", None).unwrap_err().message.contains("hunter2"));
    }
}
