//! Which server is meant, and what shows it who asks.

use std::path::{Path, PathBuf};

use sandboxer_hub::Secret;
use sandboxer_hub::http::keeps_a_secret;

use crate::cli::error::{CliError, Kind};

/// A server that commands are sent to.
#[derive(Clone, Debug)]
pub struct Server {
    /// As it was typed.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// What it asks for.
    pub token: Option<Secret>,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind a socket file.
    Unix(PathBuf),
    /// At a URL: scheme and authority, nothing else.
    Url(String),
}

impl Server {
    /// Reads an address, and takes the token from a file, or else as it was in the environment.
    pub fn new(name: &str, token_file: Option<&Path>, variable: Option<&str>) -> Result<Self, CliError> {
        let place = Place::parse(name)?;
        let token = match (token_file, variable) {
            (Some(file), _) => Some(Secret::read(file).map_err(|why| CliError::usage(why).on(file))?),
            (None, Some(text)) => {
                Some(Secret::new(text, "the variable SANDBOXER_TOKEN").map_err(CliError::usage)?)
            }
            (None, None) => None,
        };
        if token.is_some() && !keeps_a_secret(place.base()) {
            let message = format!("a token is not sent to {name} without encryption");
            return Err(CliError::new(Kind::Refused, message)
                .hint("use https, or a tunnel that ends on this machine: http://127.0.0.1:PORT"));
        }
        Ok(Self { name: name.to_owned(), place, token })
    }

    /// How to have a server there, as it is typed.
    pub fn how_to_start(&self) -> String {
        match &self.place {
            Place::Unix(path) => format!("sandbox serve --listen unix:{}", path.display()),
            Place::Url(url) if url.starts_with("http://") => {
                format!("sandbox serve --listen tcp:{}", &url["http://".len()..])
            }
            Place::Url(_) => "sandbox serve".to_owned(),
        }
    }
}

impl Place {
    fn parse(text: &str) -> Result<Self, CliError> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
            return Ok(Self::Unix(path));
        }
        let bare = text.strip_suffix('/').unwrap_or(text);
        let authority = bare.strip_prefix("http://").or_else(|| bare.strip_prefix("https://"));
        match authority {
            Some(authority) if is_authority(authority) => Ok(Self::Url(bare.to_owned())),
            // What is before an @ may be a password: nothing of it is repeated.
            Some(authority) if authority.contains('@') => {
                Err(CliError::usage("the URL of a server has no user and no password in it")
                    .hint("a token is in the variable SANDBOXER_TOKEN, or in a file: --token-file FILE"))
            }
            _ => Err(CliError::usage(format!("{text:?} is no server"))
                .hint("unix:PATH, http://HOST:PORT or https://HOST[:PORT]")),
        }
    }

    /// What comes before the path of each request.
    pub fn base(&self) -> &str {
        match self {
            // Nobody looks at the name: the socket says who is meant.
            Self::Unix(_) => "http://localhost",
            Self::Url(url) => url,
        }
    }
}

/// `HOST` or `HOST:PORT`, and nothing around it.
fn is_authority(text: &str) -> bool {
    let host = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            if port.parse::<u16>().is_err() {
                return false;
            }
            host
        }
        _ => text,
    };
    let is_literal = host.starts_with('[') && host.ends_with(']');
    let inner = if is_literal { &host[1..host.len() - 1] } else { host };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || (is_literal && ":%".contains(c));
    !inner.is_empty() && inner.chars().all(plain)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_a_socket_or_a_url() {
        assert_eq!(Place::parse("unix:/run/s").unwrap(), Place::Unix("/run/s".into()));
        for good in ["http://127.0.0.1:7070", "https://sandboxes.example", "http://[::1]:80", "https://[::1]"]
        {
            assert_eq!(Place::parse(good).unwrap().base(), good);
        }
        assert_eq!(Place::parse("https://host/").unwrap().base(), "https://host");
        for bad in [
            "",
            "unix:",
            "tcp:127.0.0.1:1",
            "http://",
            "http://host:port",
            "http://host/path",
            "http://host?x",
            "ftp://host",
            "http://:80",
            "http://a b",
        ] {
            assert_eq!(Place::parse(bad).unwrap_err().exit, 2, "{bad:?}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_not_repeated() {
        let error = Place::parse("http://me:hunter2@host:80").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }

    #[test]
    fn a_token_goes_nowhere_in_the_clear() {
        let refused = Server::new("http://sandboxes.example:80", None, Some("hunter2")).unwrap_err();
        assert_eq!(refused.exit, 5);
        assert!(!format!("{refused:?}").contains("hunter2"));
        for place in ["http://127.0.0.1:80", "https://sandboxes.example", "unix:/run/s"] {
            let server = Server::new(place, None, Some("hunter2")).unwrap();
            assert!(!format!("{server:?}").contains("hunter2"));
        }
        let odd = Server::new("unix:/run/s", None, Some("hunter2 and more")).unwrap_err();
        assert!(odd.exit == 2 && !odd.message.contains("hunter2"), "{odd:?}");
    }

    #[test]
    fn a_file_goes_before_the_variable() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        assert_eq!(Server::new("unix:/s", Some(&file), None).unwrap_err().exit, 2);
        std::fs::write(&file, "from-file\n").unwrap();
        let server = Server::new("unix:/s", Some(&file), Some("from-variable")).unwrap();
        assert_eq!(server.token.unwrap().reveal(), "from-file");
    }
}
