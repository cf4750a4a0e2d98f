//! Where the server is: `mysql://user@host:port/database?socket=/path`.

use std::path::PathBuf;
use std::time::Duration;

use mysql::{Conn, OptsBuilder};
use sandboxer_core::{Error, Result};

use super::errors;
use crate::engine::{Setup, decode};

const PORT: u16 = 3306;
/// How long a server may take to answer at all.
const CONNECT: Duration = Duration::from_secs(10);

/// A URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: String,
    pub(super) socket: Option<String>,
}

/// Where a server is, and how to get in.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) location: Location,
    /// The URL as it was given, for messages.
    pub(super) url: String,
    password: Option<String>,
}

impl Server {
    pub(super) fn of(setup: &Setup) -> Result<Self> {
        let mut location = parse(&setup.location)?;
        location.user.get_or_insert_with(|| setup.user.clone());
        Ok(Self { location, url: setup.location.clone(), password: setup.password.clone() })
    }

    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(&self.url)
    }

    /// A new connection to the database, which the server keeps for as long as we do.
    pub(super) fn connect(&self) -> Result<Conn> {
        let options = OptsBuilder::new()
            .user(self.location.user.clone())
            .pass(self.password.clone())
            .db_name(Some(self.location.database.clone()))
            .ip_or_hostname(Some(self.location.host.clone()))
            .tcp_port(self.location.port)
            .socket(self.location.socket.clone())
            // The server's idea of where its socket is may be wrong for us.
            .prefer_socket(false)
            .tcp_connect_timeout(Some(CONNECT))
            .tcp_keepalive_time_ms(Some(60_000))
            // What comes may be as long as it likes; what goes is measured before.
            .max_allowed_packet(Some(1 << 30))
            // A statement that is cached outlives the table it was made for.
            .stmt_cache_size(0);
        Conn::new(options).map_err(|error| errors::unreachable(self, &error))
    }
}

pub(super) fn parse(url: &str) -> Result<Location> {
    let wrong = |why: &str| Error::Usage {
        message: format!("{url} is no URL of a MariaDB or MySQL database: {why}"),
        hint: Some(
            "write mysql://user@host:3306/database, or mysql://user@localhost/database?socket=/path"
                .to_owned(),
        ),
    };
    let rest = url.strip_prefix("mysql://").or_else(|| url.strip_prefix("mariadb://"));
    let rest = rest.ok_or_else(|| wrong("it does not begin with mysql:// or mariadb://"))?;
    let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user.split(':').next().unwrap_or(user)), host),
        None => (None, authority),
    };
    let (host, port) = host_and_port(host).ok_or_else(|| wrong("the port is no number"))?;
    let decoded = |text: &str| decode(text).ok_or_else(|| wrong("its percent-encoding is malformed"));
    let database = decoded(database)?;
    if database.is_empty() {
        return Err(wrong("it names no database"));
    }
    let user = user.map(decoded).transpose()?;
    let mut location = Location { user, host: decoded(host)?, port, database, socket: None };
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name.to_ascii_lowercase().replace('_', "-").as_str() {
            "socket" => location.socket = Some(decoded(value)?),
            "ssl-mode" | "sslmode" if is_without_tls(value) => {}
            "ssl-mode" | "sslmode" | "ssl" | "require-ssl" => {
                return Err(wrong(
                    "TLS is not supported here; reach the server by a socket, on this machine or through a tunnel",
                ));
            }
            other => return Err(wrong(&format!("the parameter {other:?} is not known"))),
        }
    }
    Ok(location)
}

fn is_without_tls(mode: &str) -> bool {
    ["disabled", "preferred", "disable", "prefer"].iter().any(|known| mode.eq_ignore_ascii_case(known))
}

fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, rest)| (host, rest.strip_prefix(':')))?,
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let host = if host.is_empty() { "localhost" } else { host };
    Some((host, port.map_or(Some(PORT), |port| port.parse().ok())?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let location = parse("mysql://app@db.example:3307/shop").unwrap();
        assert_eq!((location.user.as_deref(), location.host.as_str()), (Some("app"), "db.example"));
        assert_eq!((location.port, location.database.as_str()), (3307, "shop"));
        let location = parse("mariadb://a%40b@[::1]/x%2Fy?socket=/run/my.sock&ssl-mode=DISABLED").unwrap();
        assert_eq!((location.user.as_deref(), location.host.as_str()), (Some("a@b"), "::1"));
        assert_eq!((location.port, location.database.as_str()), (PORT, "x/y"));
        assert_eq!(location.socket.as_deref(), Some("/run/my.sock"));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said() {
        for (url, why) in [
            ("postgres://a/b", "does not begin"),
            ("mysql://host", "names no database"),
            ("mysql://host:x/db", "no number"),
            ("mysql://host/db?ssl-mode=REQUIRED", "TLS is not supported"),
            ("mysql://host/db?colour=red", "\"colour\" is not known"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
