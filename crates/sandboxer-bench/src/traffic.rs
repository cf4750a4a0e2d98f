//! A server of zeros and a client that counts them, as processes of their own: two hidden subcommands of this program, so that both
//! sides of a comparison use the same two.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::failure::{Failure, Result};

/// One read or write; larger ones are no quicker over loopback.
const CHUNK: usize = 256 * 1024;
/// Nobody waits for a peer that is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a SOCKS5 server says when it has connected, without the address that follows.
const CONNECTED: [u8; 4] = [5, 0, 0, 1];

/// One end of a connection that is measured.
#[derive(Args)]
pub struct TrafficArguments {
    #[command(subcommand)]
    end: End,
}

#[derive(Subcommand)]
enum End {
    /// Print a port of loopback, then send zeros to whoever connects there; ends with its standard input.
    Serve,
    /// Fetch zeros and print how many nanoseconds that took.
    Fetch {
        /// The server's port on loopback.
        port: u16,
        /// How many.
        bytes: u64,
        /// Through the SOCKS5 proxy that `ALL_PROXY` names.
        #[arg(long)]
        proxied: bool,
    },
}

/// Is that end.
pub fn be(arguments: &TrafficArguments) -> Result<bool> {
    let done = match arguments.end {
        End::Serve => serve(),
        End::Fetch { port, bytes, proxied } => fetch(port, bytes, proxied),
    };
    done.map(|()| true).map_err(|why| Failure::new(format!("traffic: {why}")))
}

fn serve() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away early is its own failure.
            std::thread::spawn(move || send_zeros(stream));
        }
    });
    // Nothing is ever written there: it ends with the process that holds the other end.
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

fn send_zeros(mut stream: TcpStream) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut count = [0; 8];
    stream.read_exact(&mut count)?;
    let (mut left, zeros) = (u64::from_be_bytes(count), vec![0; CHUNK]);
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        stream.write_all(&zeros[..now])?;
        left -= now as u64;
    }
    Ok(())
}

fn fetch(port: u16, bytes: u64, proxied: bool) -> io::Result<()> {
    let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let started = Instant::now();
    let mut stream = if proxied { through(&proxy()?, server)? } else { TcpStream::connect(server)? };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&bytes.to_be_bytes())?;
    let (mut left, mut room) = (bytes, vec![0; CHUNK]);
    while left > 0 {
        match stream.read(&mut room)? {
            0 => return Err(io::Error::other(format!("the connection ended {left} bytes early"))),
            read => left -= read as u64,
        }
    }
    writeln!(io::stdout(), "{}", started.elapsed().as_nanos())
}

/// The address that the environment names.
fn proxy() -> io::Result<String> {
    let named =
        std::env::var("ALL_PROXY").map_err(|_| io::Error::other("no ALL_PROXY in the environment"))?;
    Ok(address_in(&named).to_owned())
}

/// `socks5h://HOST:PORT/` without what is around it.
fn address_in(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.trim_end_matches('/')
}

/// A connection to `server` by way of a SOCKS5 proxy, which asks for no name.
fn through(proxy: &str, server: SocketAddrV4) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    stream.read_exact(&mut method)?;
    let mut request = vec![5, 1, 0, 1];
    request.extend(server.ip().octets());
    request.extend(server.port().to_be_bytes());
    stream.write_all(&request)?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply)?;
    if method == [5, 0] && reply.starts_with(&CONNECTED) {
        return Ok(stream);
    }
    Err(io::Error::other(format!("the proxy refused: {:?}", &reply[..2])))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn as_many_zeros_come_as_were_asked_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || send_zeros(listener.accept().unwrap().0));
        let mut stream = TcpStream::connect(address).unwrap();
        let asked = CHUNK as u64 + 5;
        stream.write_all(&asked.to_be_bytes()).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got.len() as u64 == asked && got.iter().all(|byte| *byte == 0));
        server.join().unwrap().unwrap();
    }

    #[test]
    fn a_proxy_is_asked_for_the_address_and_may_refuse() {
        for (code, accepted) in [(0, true), (2, false)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let proxy = listener.local_addr().unwrap().to_string();
            let server = std::thread::spawn(move || {
                let (mut stream, mut request) = (listener.accept().unwrap().0, [0; 13]);
                stream.write_all(&[5, 0]).unwrap();
                stream.read_exact(&mut request).unwrap();
                stream.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
                request
            });
            let connected = through(&proxy, "127.0.0.1:258".parse().unwrap());
            assert_eq!(connected.is_ok(), accepted);
            assert_eq!(server.join().unwrap(), [5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 1, 2]);
        }
    }

    #[test]
    fn a_proxys_address_is_taken_out_of_its_url() {
        for url in ["socks5h://127.0.0.1:3128", "http://127.0.0.1:3128/", "127.0.0.1:3128"] {
            assert_eq!(address_in(url), "127.0.0.1:3128");
        }
    }
}
