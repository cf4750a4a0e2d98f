//! The other ends of the pipes: this program again. It is a plugin, or it gives bytes back, where a variable says so: a plugin is
//! started without arguments.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use sandboxer_core::registry::StrategyContext;
use sandboxer_plugin::Served;
use sandboxer_strategies::filesystem_copy;

use crate::failure::{During, Failure, Result};

/// Says what to be.
pub const VARIABLE: &str = "SANDBOXER_BENCH_IS";
/// A plugin that serves `filesystem_copy`.
pub const PLUGIN: &str = "plugin";
/// The end of a bare pipe.
const ECHO: &str = "echo";

/// Is the other end of a pipe where it was started to be one.
pub fn be_if_asked() -> Option<ExitCode> {
    match std::env::var(VARIABLE).ok()?.as_str() {
        PLUGIN => Some(be_plugin()),
        ECHO => Some(if be_echo().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        _ => None,
    }
}

fn be_plugin() -> ExitCode {
    sandboxer_plugin::serve_with(|start| {
        let entry = filesystem_copy::entry();
        let context = StrategyContext::quiet(&start.state);
        let strategy = (entry.factory)(&start.name, &start.options, &context)?;
        Ok(Served {
            strategy,
            capabilities: entry.capabilities,
            summary: entry.summary,
            concurrency: 1,
            locks: true,
        })
    })
}

/// A request is two numbers: how many bytes follow, and how many to give back.
fn be_echo() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), rustix::stdio::stdout());
    let mut bytes = vec![0; 8 << 20];
    let mut request = [0; 16];
    while input.read_exact(&mut request).is_ok() {
        let [taken, given] = numbers(&request);
        input.read_exact(&mut bytes[..taken])?;
        write_all(&mut output, &bytes[..given])?;
    }
    Ok(())
}

/// Past the buffer that standard output has in Rust: it would be one copy more than a bare pipe needs.
fn write_all(output: &mut impl std::os::fd::AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::write(&*output, bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

fn numbers(request: &[u8; 16]) -> [usize; 2] {
    let (taken, given) = request.split_at(8);
    [taken, given].map(|half| half.try_into().map_or(0, |bytes| u64::from_le_bytes(bytes) as usize))
}

/// A bare pipe to another process, and one back.
pub struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
}

impl Pipe {
    /// Starts the other end.
    pub fn start() -> Result<Self> {
        let own = std::env::current_exe().during("find", Path::new("the benchmark's own file"))?;
        let mut command = Command::new(own);
        command.env(VARIABLE, ECHO).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().during("start", Path::new("the other end of a pipe"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| Failure::new("a pipe was not made"))?;
        // As large as the plugins' own.
        let _ = rustix::pipe::fcntl_setpipe_size(&output, 1 << 20);
        Ok(Self { child, input, output })
    }

    /// Sends so many bytes, and takes as many back.
    pub fn echo(&mut self, bytes: u64) -> Result<Vec<u8>> {
        self.exchange(&vec![7; bytes as usize], bytes)
    }

    /// Takes so many bytes.
    pub fn fetch(&mut self, bytes: u64) -> Result<Vec<u8>> {
        self.exchange(&[], bytes)
    }

    fn exchange(&mut self, sent: &[u8], wanted: u64) -> Result<Vec<u8>> {
        let request = [&(sent.len() as u64).to_le_bytes()[..], &wanted.to_le_bytes(), sent].concat();
        let mut answer = Vec::with_capacity(wanted as usize);
        let mut input = self.input.as_ref().ok_or_else(|| Failure::new("the pipe is closed"))?;
        let done =
            input.write_all(&request).and_then(|()| (&mut self.output).take(wanted).read_to_end(&mut answer));
        done.during("use", Path::new("a bare pipe"))?;
        if answer.len() as u64 == wanted { Ok(answer) } else { Err(Failure::new("a bare pipe ended early")) }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.input = None;
        let _ = self.child.wait();
    }
}
