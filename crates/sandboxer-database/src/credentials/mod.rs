//! Where passwords come from: references are stored, passwords never are.
//!
//! | reference | the password is |
//! |---|---|
//! | `env:NAME` | the value of that variable, or the password in it where it is a URL |
//! | `file:PATH` | the first line of that file, or the password in it where it is a URL |
//! | `pgpass`, `pgpass:PATH` | in the line of that file that fits, as libpq finds it |
//! | `my.cnf`, `my.cnf:PATH` | in the group `client` of that file |
//!
//! Without one: `PGPASSWORD` and `~/.pgpass` (or `PGPASSFILE`), `MYSQL_PWD` and `~/.my.cnf`; a server that asks for none needs none.

mod files;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::{Error, Result};

use crate::engine::decode;

/// Gives the value of a variable.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What the environment is asked for. The library reads none of it by itself.
#[derive(Clone)]
pub struct Environment {
    /// The value of a variable.
    pub variable: Variables,
    /// The user's home directory.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// One in which nothing is set.
    pub fn empty() -> Self {
        Self { variable: Arc::new(|_| None), home: None }
    }

    /// Who calls, as far as it is known.
    pub fn user(&self) -> String {
        let named = ["USER", "LOGNAME"].into_iter().find_map(|name| self.get(name));
        named.unwrap_or_else(|| "root".to_owned())
    }

    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }
}

/// Where a password comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `env:NAME`
    Environment(String),
    /// `file:PATH`
    File(PathBuf),
    /// `pgpass[:PATH]`
    Pgpass(Option<PathBuf>),
    /// `my.cnf[:PATH]`
    MyCnf(Option<PathBuf>),
}

impl Reference {
    /// Reads a reference.
    pub fn parse(text: &str) -> Result<Self> {
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        let path = rest.filter(|rest| !rest.is_empty()).map(PathBuf::from);
        match (kind, path) {
            ("env", Some(name)) => Ok(Self::Environment(name.to_string_lossy().into_owned())),
            ("file", Some(path)) => Ok(Self::File(path)),
            ("pgpass", path) => Ok(Self::Pgpass(path)),
            ("my.cnf", path) => Ok(Self::MyCnf(path)),
            // It may be a password, so it is not repeated.
            _ => Err(Error::Usage {
                message: "that is no reference to credentials".to_owned(),
                hint: Some(
                    "write env:NAME, file:PATH, pgpass, pgpass:PATH, my.cnf or my.cnf:PATH".to_owned(),
                ),
            }),
        }
    }
}

/// Whose password is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// `postgres` or `mysql`.
    pub kind: String,
    /// The host; for a socket, what libpq calls `localhost`.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The database.
    pub database: String,
    /// The user.
    pub user: String,
}

/// The password of an account; `None` where nobody says one.
pub fn password(
    account: &Account,
    reference: Option<&Reference>,
    around: &Environment,
) -> Result<Option<String>> {
    match reference {
        Some(Reference::Environment(name)) => {
            let value = around.get(name).ok_or_else(|| unset(name))?;
            Ok(Some(in_url(&value).unwrap_or(value)))
        }
        Some(Reference::File(path)) => {
            let line = files::first_line(path)?;
            Ok(Some(in_url(&line).unwrap_or(line)))
        }
        Some(Reference::Pgpass(path)) => from_pgpass(account, path.as_deref(), around, true),
        Some(Reference::MyCnf(path)) => from_my_cnf(path.as_deref(), around, true),
        None if account.kind == "postgres" => match around.get("PGPASSWORD") {
            Some(password) => Ok(Some(password)),
            None => from_pgpass(account, None, around, false),
        },
        None => match around.get("MYSQL_PWD") {
            Some(password) => Ok(Some(password)),
            None => from_my_cnf(None, around, false),
        },
    }
}

fn from_pgpass(
    account: &Account,
    path: Option<&Path>,
    around: &Environment,
    named: bool,
) -> Result<Option<String>> {
    let usual = || {
        around.get("PGPASSFILE").map(PathBuf::from).or_else(|| Some(around.home.as_ref()?.join(".pgpass")))
    };
    let Some(path) = path.map(Path::to_path_buf).or_else(usual) else { return Ok(None) };
    match files::pgpass(&path, account, named)? {
        None if named => Err(Error::Usage {
            message: format!(
                "{} has no line for {}@{}:{}/{}",
                path.display(),
                account.user,
                account.host,
                account.port,
                account.database
            ),
            hint: Some("a line is host:port:database:user:password".to_owned()),
        }),
        found => Ok(found),
    }
}

fn from_my_cnf(path: Option<&Path>, around: &Environment, named: bool) -> Result<Option<String>> {
    let usual = || Some(around.home.as_ref()?.join(".my.cnf"));
    let Some(path) = path.map(Path::to_path_buf).or_else(usual) else { return Ok(None) };
    match files::my_cnf(&path, named)? {
        None if named => Err(Error::Usage {
            message: format!("{} has no password in its group [client]", path.display()),
            hint: None,
        }),
        found => Ok(found),
    }
}

fn unset(name: &str) -> Error {
    Error::Usage {
        message: format!("the credentials are in the variable {name}, which is not set"),
        hint: Some(format!("set {name} for this command")),
    }
}

/// A URL and what it would give away: the URL without its password, and the password.
pub fn split_url(url: &str) -> Option<(String, Option<String>)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some((account, host)) = rest[..end].rsplit_once('@') else { return Some((url.to_owned(), None)) };
    let (user, password) = account.split_once(':').map_or((account, None), |(user, word)| (user, Some(word)));
    let password = password.map(|word| decode(word).unwrap_or_else(|| word.to_owned()));
    Some((format!("{scheme}://{user}@{host}{}", &rest[end..]), password))
}

fn in_url(text: &str) -> Option<String> {
    split_url(text.trim())?.1
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
