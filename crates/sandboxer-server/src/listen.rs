//! Where the server is reached: a Unix socket that is nobody else's, an address, or sockets that systemd has opened.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sandboxer_core::{Error, Result};
use tokio::net::{TcpListener, UnixListener};

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A socket file, for its owner alone.
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String, u16),
}

impl FromStr for Listen {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let odd = || Error::Usage {
            message: format!("{text:?} is nowhere to listen"),
            hint: Some("unix:PATH, or tcp:HOST:PORT such as tcp:127.0.0.1:7070".to_owned()),
        };
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let (host, port) =
            text.strip_prefix("tcp:").and_then(|rest| rest.rsplit_once(':')).ok_or_else(odd)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match port.parse() {
            Ok(port) if !host.is_empty() => Ok(Self::Tcp(host.to_owned(), port)),
            _ => Err(odd()),
        }
    }
}

/// A socket that is listened on.
pub enum Listening {
    /// A socket file; removed at the end where it is ours.
    Unix(UnixListener, Option<SocketFile>),
    /// An address.
    Tcp(TcpListener),
}

/// A socket file that goes when it is dropped, unless somebody has put another there.
pub struct SocketFile {
    path: PathBuf,
    inode: Option<u64>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path) == self.inode {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listening {
    /// In words, as it is typed.
    pub fn name(&self) -> String {
        match self {
            // Not where it was bound, but where it was put.
            Self::Unix(_, Some(file)) => format!("unix:{}", file.path.display()),
            Self::Unix(listener, None) => {
                match listener.local_addr().ok().and_then(|a| a.as_pathname().map(Path::to_path_buf)) {
                    Some(path) => format!("unix:{}", path.display()),
                    None => "unix:(unnamed)".to_owned(),
                }
            }
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("tcp:{address}"),
                Err(_) => "tcp:(unknown)".to_owned(),
            },
        }
    }

    /// The host that clients name, where it is an address.
    pub fn host(&self) -> Option<String> {
        match self {
            Self::Unix(..) => None,
            Self::Tcp(listener) => listener.local_addr().ok().map(|address| address.ip().to_string()),
        }
    }
}

impl Listen {
    /// Begins to listen. Has to be called within the runtime.
    pub fn open(&self, plain_http: bool) -> Result<Listening> {
        match self {
            Self::Unix(path) => open_unix(path),
            Self::Tcp(host, port) => open_tcp(host, *port, plain_http),
        }
    }
}

/// Bound under another name, made its owner's, then put in place: there is no moment at which anybody else could connect.
fn open_unix(path: &Path) -> Result<Listening> {
    free(path)?;
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let failed = |step: &'static str| move |error: io::Error| Error::io(step, path, error);
    let listener = std::os::unix::net::UnixListener::bind(&fresh).map_err(failed("listen on"))?;
    let file = SocketFile { inode: inode(&fresh), path: fresh.clone() };
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).map_err(failed("protect"))?;
    fs::rename(&fresh, path).map_err(failed("put in place"))?;
    let file = SocketFile { inode: file.inode, path: path.to_path_buf() };
    listener.set_nonblocking(true).map_err(failed("listen on"))?;
    let listener = UnixListener::from_std(listener).map_err(failed("listen on"))?;
    Ok(Listening::Unix(listener, Some(file)))
}

/// Removes a socket that nobody listens on any more, and nothing else.
fn free(path: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(Error::refused(format!("{} is there, and is no socket", path.display())));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(Error::refused(format!("somebody listens on {} already", path.display())));
    }
    fs::remove_file(path).map_err(|error| Error::io("remove", path, error))
}

fn inode(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).ok().map(|found| found.ino())
}

fn open_tcp(host: &str, port: u16, plain_http: bool) -> Result<Listening> {
    let failed = |error: io::Error| Error::io("listen on", format!("{host}:{port}"), error);
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    if let Some(open) = addresses.iter().find(|address| !is_loopback(address.ip()) && !plain_http) {
        return Err(Error::Refused {
            reason: format!(
                "{open} can be reached from other machines, and tokens would travel there unencrypted"
            ),
            hint: Some("listen on 127.0.0.1 behind a proxy that speaks TLS, or say --plain-http".to_owned()),
        });
    }
    let listener = std::net::TcpListener::bind(&addresses[..]).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Listening::Tcp(TcpListener::from_std(listener).map_err(failed)?))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The sockets that systemd has opened for this process, by its protocol: so many, from descriptor 3 on.
pub fn inherited(pid: Option<&str>, count: Option<&str>) -> Result<Vec<Listening>> {
    let own = pid.and_then(|pid| pid.parse().ok()) == Some(std::process::id());
    let count: i32 = count.filter(|_| own).and_then(|count| count.parse().ok()).unwrap_or(0);
    (3..3 + count).map(adopt).collect()
}

fn adopt(descriptor: i32) -> Result<Listening> {
    let failed = |error: io::Error| Error::io("listen on", format!("descriptor {descriptor}"), error);
    #[allow(unsafe_code)]
    // SAFETY: systemd has opened it for this process and nobody else here knows of it.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let address = rustix::net::getsockname(&socket).map_err(|error| failed(error.into()))?;
    match address.address_family() {
        rustix::net::AddressFamily::UNIX => {
            let listener = std::os::unix::net::UnixListener::from(socket);
            listener.set_nonblocking(true).map_err(failed)?;
            Ok(Listening::Unix(UnixListener::from_std(listener).map_err(failed)?, None))
        }
        _ => {
            let listener = std::net::TcpListener::from(socket);
            listener.set_nonblocking(true).map_err(failed)?;
            Ok(Listening::Tcp(TcpListener::from_std(listener).map_err(failed)?))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!("unix:/run/s".parse::<Listen>().unwrap(), Listen::Unix("/run/s".into()));
        assert_eq!("tcp:127.0.0.1:80".parse::<Listen>().unwrap(), Listen::Tcp("127.0.0.1".into(), 80));
        assert_eq!("tcp:[::1]:80".parse::<Listen>().unwrap(), Listen::Tcp("::1".into(), 80));
        for bad in ["", "unix:", "tcp:", "tcp:80", "tcp:host:", "tcp:host:99999", "/run/s", "http://x"] {
            assert!(bad.parse::<Listen>().is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_socket_is_its_owners_and_goes_with_its_server() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s.sock");
        let listening = Listen::Unix(path.clone()).open(false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Listen::Unix(path.clone()).open(false).is_err(), "somebody listens there");
        drop(listening);
        assert!(!path.exists());
        let stale = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(stale);
        assert!(Listen::Unix(path.clone()).open(false).is_ok(), "nobody listens there any more");
        fs::write(&path, "mine").unwrap();
        assert!(Listen::Unix(path.clone()).open(false).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[tokio::test]
    async fn other_machines_are_asked_for() {
        let open = Listen::Tcp("0.0.0.0".into(), 0);
        assert!(matches!(open.open(false), Err(Error::Refused { hint: Some(_), .. })));
        assert!(open.open(true).is_ok());
        assert!(Listen::Tcp("127.0.0.1".into(), 0).open(false).is_ok());
    }
}
