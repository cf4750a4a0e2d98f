//! HTTP over a Unix socket, for the agent that speaks it over TCP otherwise.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Connects to one socket, whatever a URL says.
#[derive(Debug)]
pub struct Socket(pub PathBuf);

impl Connector for Socket {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Connection>, Error> {
        let stream = UnixStream::connect(&self.0)?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Connection { stream, buffers: LazyBuffers::new(input, output) }))
    }
}

/// Looks nothing up: a socket has no address.
#[derive(Debug)]
pub struct NoNames;

impl Resolver for NoNames {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut none = self.empty();
        // One is expected, and nobody looks at it.
        none.push(SocketAddr::from(([127, 0, 0, 1], 0)));
        Ok(none)
    }
}

/// A socket that is connected.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(duration(timeout))?;
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output).map_err(|error| in_time(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(duration(timeout))?;
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match self.stream.read(input) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| in_time(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Never used for a second request: connecting to a socket costs nothing.
    fn is_open(&mut self) -> bool {
        false
    }
}

/// How long, as sockets have it; zero would be for ever.
fn duration(timeout: NextTimeout) -> Option<Duration> {
    timeout.not_zero().map(|after| *after)
}

fn in_time(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}
