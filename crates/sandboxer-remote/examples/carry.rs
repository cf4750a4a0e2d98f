//! Sends or fetches a tree once and says how long it took: `carry send|fetch URL CONFIG LOCAL REMOTE STATE [gzip]`.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandboxer_core::Result;
use sandboxer_core::contract::{CancelFlag, NoProgress};
use sandboxer_remote::{Address, Answer, Call, Mirror, Running, Settings, Shell, Ssh};

/// Says of every call when it began and how long it took.
struct Timed(Ssh, Instant);

impl Shell for Timed {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        let begun = self.1.elapsed().as_millis();
        let answer = self.0.run(call)?;
        eprintln!("at {begun} ms, a call of {} ms", self.1.elapsed().as_millis() - begun);
        Ok(answer)
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        eprintln!("at {} ms, a stream", self.1.elapsed().as_millis());
        self.0.start(script, arguments)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [act, url, config, local, remote, state, rest @ ..] = words.as_slice() else {
        panic!("too few words")
    };
    let state = PathBuf::from(state);
    let settings = Settings {
        config: Some(config.into()),
        control: state.join("c"),
        connect_timeout: Duration::from_secs(10),
    };
    let ssh = Ssh::new(Address::parse(url).unwrap(), settings).unwrap();
    ssh.connect().unwrap();
    let start = Instant::now();
    let shell = Timed(ssh, start);
    let mirror = Mirror {
        shell: &shell,
        local: Path::new(local),
        remote,
        lists: &format!("{remote}.lists"),
        record: &state.join("record"),
        compress: rest.iter().any(|word| word == "gzip"),
        progress: &NoProgress,
        cancel: &CancelFlag::default(),
    };
    let moved = if act == "send" { mirror.send() } else { mirror.fetch() }.unwrap();
    println!(
        "{:.3} s: {} entries, {} removed, {} bytes",
        start.elapsed().as_secs_f64(),
        moved.entries,
        moved.removed,
        moved.bytes
    );
}
