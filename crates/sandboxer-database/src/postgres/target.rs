//! Where a server is: the parts of a `postgres://` URL.

use std::fmt;
use std::path::PathBuf;

use sandboxer_core::{Error, Result};

use crate::engine::decode;

const DEFAULT_PORT: u16 = 5432;
const SOCKET_DIR: &str = "/var/run/postgresql";

/// One database of one server, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How to reach the server.
    pub host: Host,
    /// Its port; for a socket, the number in the socket's name.
    pub port: u16,
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// By TCP, a name or an address.
    Tcp(String),
    /// Through the socket in this directory.
    Socket(PathBuf),
}

impl Target {
    /// Reads `postgres://user@host:port/database?host=/socket/dir`. `default_user` is whom to be where the URL does not say; the
    /// database is called like the user where it does not say either.
    pub fn parse(url: &str, default_user: &str) -> Result<Self> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| malformed(url, "it does not begin with postgres://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut parts = Parts::of_authority(url, authority)?;
        parts.database = Some(decoded(url, path)?).filter(|name| !name.is_empty());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| malformed(url, "a parameter has no value"))?;
            parts.set(url, name, decoded(url, value)?)?;
        }
        parts.target(url, default_user)
    }

    /// The address for `connect` of a socket; `None` for TCP.
    pub fn socket(&self) -> Option<PathBuf> {
        match &self.host {
            Host::Tcp(_) => None,
            Host::Socket(dir) => Some(dir.join(format!(".s.PGSQL.{}", self.port))),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, user, database } = self;
        match host {
            Host::Tcp(name) if name.contains(':') => {
                write!(f, "postgres://{user}@[{name}]:{port}/{database}")
            }
            Host::Tcp(name) => write!(f, "postgres://{user}@{name}:{port}/{database}"),
            Host::Socket(dir) => {
                write!(f, "postgres://{user}@/{database}?host={}&port={port}", dir.display())
            }
        }
    }
}

/// What was found in the URL so far.
#[derive(Default)]
struct Parts {
    host: Option<String>,
    port: Option<String>,
    user: Option<String>,
    database: Option<String>,
}

impl Parts {
    fn of_authority(url: &str, authority: &str) -> Result<Self> {
        let (user, address) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') {
            return Err(Error::Usage {
                message: "a password in a database URL would be stored with the sandbox".to_owned(),
                hint: Some("leave it out of the URL, and name where it is to be had instead".to_owned()),
            });
        }
        let (host, port) = split_port(url, address)?;
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok(Self {
            host: given(decoded(url, host)?),
            port: given(port.to_owned()),
            user: given(decoded(url, user)?),
            database: None,
        })
    }

    fn set(&mut self, url: &str, name: &str, value: String) -> Result<()> {
        match name {
            "host" | "hostaddr" => self.host = Some(value),
            "port" => self.port = Some(value),
            "user" => self.user = Some(value),
            "dbname" => self.database = Some(value),
            "sslmode" => no_tls(&value)?,
            "password" | "sslpassword" => return Err(malformed(url, "leave passwords out of it")),
            // The others change nothing of what we do: application_name, connect_timeout, target_session_attrs.
            _ => {}
        }
        Ok(())
    }

    fn target(self, url: &str, default_user: &str) -> Result<Target> {
        let host = match self.host.unwrap_or_else(|| SOCKET_DIR.to_owned()) {
            dir if dir.starts_with('/') => Host::Socket(dir.into()),
            several if several.contains(',') => return Err(malformed(url, "it names more than one host")),
            name => Host::Tcp(name),
        };
        let port = match self.port {
            Some(text) => text.parse().map_err(|_| malformed(url, "its port is not a number"))?,
            None => DEFAULT_PORT,
        };
        let user = self.user.unwrap_or_else(|| default_user.to_owned());
        let database = self.database.unwrap_or_else(|| user.clone());
        Ok(Target { host, port, user, database })
    }
}

/// Host and port; an IPv6 address stands in brackets.
fn split_port<'a>(url: &str, address: &'a str) -> Result<(&'a str, &'a str)> {
    let Some(rest) = address.strip_prefix('[') else {
        return Ok(address.rsplit_once(':').unwrap_or((address, "")));
    };
    let (host, rest) = rest.split_once(']').ok_or_else(|| malformed(url, "a bracket is not closed"))?;
    Ok((host, rest.strip_prefix(':').unwrap_or(rest)))
}

fn no_tls(mode: &str) -> Result<()> {
    if matches!(mode, "disable" | "allow" | "prefer") {
        return Ok(());
    }
    Err(Error::Usage {
        message: format!("TLS is not supported yet, and sslmode={mode} asks for it"),
        hint: Some("use a tunnel or the server's socket".to_owned()),
    })
}

fn decoded(url: &str, text: &str) -> Result<String> {
    decode(text).ok_or_else(|| malformed(url, "a percent sign is not followed by two digits of a byte"))
}

fn malformed(url: &str, reason: &str) -> Error {
    // What stands before an `@` may be a password.
    let shown = url.rsplit_once('@').map_or(url, |(_, rest)| rest);
    Error::Usage {
        message: format!("{shown:?} is not a URL of a PostgreSQL database: {reason}"),
        hint: Some(
            "postgres://user@host:5432/database, or postgres:///database?host=/run/postgresql".to_owned(),
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, user: &str, database: &str) -> Target {
        Target { host: Host::Tcp(host.into()), port, user: user.into(), database: database.into() }
    }

    fn socket(dir: &str, port: u16, user: &str, database: &str) -> Target {
        Target { host: Host::Socket(dir.into()), ..tcp("", port, user, database) }
    }

    #[test]
    fn every_part_may_be_left_out() {
        for (url, target) in [
            ("postgres://ann@db.example:6000/shop", tcp("db.example", 6000, "ann", "shop")),
            ("postgresql://db.example", tcp("db.example", 5432, "me", "me")),
            ("postgres://ann@[::1]:6000/shop?sslmode=prefer", tcp("::1", 6000, "ann", "shop")),
            ("postgres://[::1]/shop", tcp("::1", 5432, "me", "shop")),
            ("postgres:///shop", socket("/var/run/postgresql", 5432, "me", "shop")),
            ("postgres://", socket("/var/run/postgresql", 5432, "me", "me")),
            ("postgres://a%40b@/s%20x?host=/tmp/d%20e&port=7", socket("/tmp/d e", 7, "a@b", "s x")),
            ("postgres://%2Ftmp%2Fd/shop?user=ann", socket("/tmp/d", 5432, "ann", "shop")),
            ("postgres://h/?dbname=x&application_name=y", tcp("h", 5432, "me", "x")),
        ] {
            assert_eq!(Target::parse(url, "me").unwrap(), target, "{url}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for url in ["postgres://a@h:1/d", "postgres://a@[::1]:1/d", "postgres://a@/d?host=/run/x&port=3"] {
            let target = Target::parse(url, "me").unwrap();
            assert_eq!(target.to_string(), url);
            assert_eq!(Target::parse(&target.to_string(), "you").unwrap(), target);
        }
    }

    #[test]
    fn what_cannot_be_is_named_and_passwords_are_not_repeated() {
        for (url, words) in [
            ("mysql://h/d", "does not begin"),
            ("postgres://a@h:x/d", "port"),
            ("postgres://a@h:1/d?sslmode=require", "TLS is not supported yet"),
            ("postgres://a@h:1/d?sslmode=verify-full", "TLS is not supported yet"),
            ("postgres://a:secret@h/d", "password"),
            ("postgres://h/d?password=secret", "passwords"),
            ("postgres://h,i/d", "more than one host"),
            ("postgres://h/%zz", "percent"),
        ] {
            let error = Target::parse(url, "me").unwrap_err().to_string();
            assert!(error.contains(words), "{url}: {error}");
            assert!(!error.contains("secret@"), "{error}");
        }
    }
}
