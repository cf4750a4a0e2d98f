//! Lines over a Unix socket, with a deadline for the whole line and a limit to its length.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{self, Mode, OFlags};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long the other side may take to say or take a line that needs no work.
pub const PROMPT: Duration = Duration::from_secs(5);

/// 500 layers with paths of 4 KB, each byte escaped.
const MAX_LINE: usize = 16 << 20;

/// The socket in a keeper's directory. Its path may be longer than an address can be, so it is named through the
/// directory's descriptor.
pub fn address(dir: &OwnedFd) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/socket", dir.as_raw_fd()))?)
}

/// Connects to the socket in `dir`.
pub fn connect(dir: &Path) -> io::Result<UnixStream> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = fs::open(dir, flags, Mode::empty())?;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Somebody who listens and does not accept makes connecting block, too.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PROMPT))?;
    net::connect(&socket, &address(&dir)?)?;
    Ok(socket.into())
}

/// Who is on the other side: process and user.
pub fn peer(socket: impl AsFd) -> io::Result<(u32, u32)> {
    let peer = sockopt::socket_peercred(socket)?;
    Ok((peer.pid.as_raw_nonzero().get().cast_unsigned(), peer.uid.as_raw()))
}

/// Says a line.
pub fn say(stream: &mut UnixStream, what: &impl Serialize, deadline: Instant) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut rest = &line[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(e) => again(e)?,
        }
    }
    Ok(())
}

/// Hears a line. What comes after it is not looked at.
pub fn hear<T: DeserializeOwned>(stream: &mut UnixStream, deadline: Instant) -> io::Result<T> {
    let mut line = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let chunk = match stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => &chunk[..length],
            Err(e) => {
                again(e)?;
                continue;
            }
        };
        if let Some(end) = chunk.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&chunk[..end]);
            return Ok(serde_json::from_slice(&line)?);
        }
        line.extend_from_slice(chunk);
        if line.len() > MAX_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
        }
    }
}

/// What is left until the deadline; a timeout of nothing would mean none at all.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A timeout of the socket is judged by the deadline, and an interruption is none.
fn again(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn heard(bytes: &'static [u8]) -> io::Result<String> {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || theirs.write_all(bytes));
        let heard = hear(&mut ours, later());
        drop(ours);
        let _ = writer.join().unwrap();
        heard
    }

    #[test]
    fn a_line_arrives_as_it_was_said() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let long = "x\n".repeat(1 << 20);
        let said = long.clone();
        let speaker = std::thread::spawn(move || say(&mut theirs, &said, later()));
        assert_eq!(hear::<String>(&mut ours, later()).unwrap(), long);
        speaker.join().unwrap().unwrap();
        assert_eq!(peer(&ours).unwrap(), (std::process::id(), rustix::process::geteuid().as_raw()));
    }

    #[test]
    fn what_is_no_line_is_an_error() {
        assert_eq!(heard(b"\"a\"\n rest").unwrap(), "a");
        assert_eq!(heard(b"garbage\n").unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(heard(b"\"half").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let endless = vec![b'x'; MAX_LINE + 10_000].leak();
        assert_eq!(heard(endless).unwrap_err().to_string(), "the line is too long");
    }

    #[test]
    fn nobody_waits_for_the_silent_or_the_deaf() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(hear::<String>(&mut ours, soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let drip = std::thread::spawn(move || while theirs.write_all(b"x").is_ok() {});
        assert!(hear::<String>(&mut ours, soon()).is_err());
        drop(ours);
        drip.join().unwrap();
        let (mut ours, _deaf) = UnixStream::pair().unwrap();
        let long = "x".repeat(4 << 20);
        assert_eq!(say(&mut ours, &long, soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
