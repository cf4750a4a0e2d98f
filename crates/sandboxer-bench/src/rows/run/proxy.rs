//! A download through the proxy of a runtime, by a client inside from a server on the host's loopback, against the same client and
//! server without anything between them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::yard::{Project, Who, Yard, copy_program};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, Sides, interleave, run};
use crate::report::Row;

const GOAL: f64 = 0.35;

/// The comparison. More is better also where there is no number.
pub fn row(yard: &Yard<'_>, bytes: u64) -> Result<Row> {
    let name = format!("download of {} MB through the proxy vs direct", bytes / 1_000_000);
    yard.bench.row(&name, Some(GOAL), || {
        let without = |why| Row { at_least: true, ..Row::without(&name, Some(GOAL), "MB/s", &why) };
        let sides = compare(yard, bytes);
        Ok(sides.map_or_else(without, |sides| Row::throughput(&name, GOAL, bytes, &sides)))
    })
}

fn compare(yard: &Yard<'_>, bytes: u64) -> Result<Sides> {
    let project = yard.project("proxy", Who::ourselves())?;
    project.need_strategy()?;
    let client = client(&project)?;
    let server = Server::start(&client)?;
    let (port, bytes) = (server.port.to_string(), bytes.to_string());
    let fetch = ["traffic", "fetch", &port, &bytes];
    let (program, allowed) = (client.display().to_string(), format!("127.0.0.1:{port}"));
    let inside = [&[program.as_str()], fetch.as_slice(), &["--proxied"]].concat();
    let ours = || timed(&project, project.run(&["--allow-host", &allowed], &inside));
    let theirs = || {
        let mut direct = project.plainly(&client);
        direct.args(fetch);
        timed(&project, direct)
    };
    interleave(yard.bench.rounds, &yard.bench.interrupt, ours, theirs)
}

/// This program inside the project, where whatever is contained can see it.
fn client(project: &Project<'_>) -> Result<PathBuf> {
    let own = std::env::current_exe().during("find", Path::new("the benchmark's own file"))?;
    let client = project.directory.join("client");
    copy_program(&own, &client)?;
    Ok(client)
}

/// What the client measured itself: the start of its process does not count.
fn timed(project: &Project<'_>, mut command: Command) -> Result<Sample> {
    let output = project.beside("output");
    let sample = run(&mut command, &output, &[0])?;
    let text = fs::read_to_string(&output).during("read", &output)?;
    let nanoseconds = text.trim().parse().during("understand what the client says in", &output)?;
    Ok(Sample { wall: Duration::from_nanos(nanoseconds), ..sample })
}

/// A server on loopback; it ends with this value, whose end of its standard input it holds on to.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(program: &Path) -> Result<Self> {
        let mut serve = Command::new(program);
        serve.args(["traffic", "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = serve.spawn().during("start", program)?;
        let port = child.stdout.take().and_then(|said| {
            let mut line = String::new();
            BufReader::new(said).read_line(&mut line).ok()?;
            line.trim().parse().ok()
        });
        let server = Self { child, port: port.unwrap_or_default() };
        if server.port == 0 { Err(Failure::new("the server of zeros did not start")) } else { Ok(server) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
