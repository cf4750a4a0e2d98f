//! A command in a sandbox of a server, its output as it comes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Question, sandbox, split};
use super::{Remote, refuse, text};
use crate::cli::Outcome;
use crate::cli::commands::exec::{self, ours};
use crate::cli::error::{CliError, Kind};

/// One line of the answer: some output, or, last, how it ended.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Stdout(String),
    StdoutB64(String),
    Stderr(String),
    StderrB64(String),
    ExitCode(u8),
}

pub fn exec(remote: &mut Remote<'_>, args: &exec::Args) -> Outcome {
    let body = body(args)?;
    let id = split(&args.target.id).0;
    let answer =
        Question::post(sandbox(id, "/exec"), &body).and_then(|question| Ok(remote.client.ask(question)?));
    let mut lines = BufReader::new(remote.client.bytes(answer.map_err(ours)?));
    let code = follow(remote, &mut lines).map_err(ours)?;
    if remote.app.ui.json {
        remote.app.ui.document(&json!({ "exit_code": code }))?;
    }
    Ok(code)
}

fn body(args: &exec::Args) -> Result<Value, CliError> {
    let contain = &args.contain;
    contain.read()?;
    refuse(
        "exec",
        &[
            ("--isolation", contain.isolation.is_some()),
            ("--network", contain.network.is_some()),
            ("--allow-host", !contain.allow_host.is_empty()),
            ("--memory", contain.memory.is_some()),
            ("--pids", contain.pids.is_some()),
            ("--cpus", contain.cpus.is_some()),
        ],
    )?;
    let command =
        args.command.iter().map(|word| text("the argument", word)).collect::<Result<Vec<_>, _>>()?;
    let directory =
        args.directory.as_ref().map(|path| text("the directory", path.as_os_str())).transpose()?;
    let env = contain.env.iter().map(variable).collect::<Result<BTreeMap<_, _>, _>>()?;
    Ok(json!({
        "command": command, "workspace": split(&args.target.id).1, "directory": directory, "service": args.service, "env": env,
        "stdin": stdin()?, "timeout": contain.timeout,
    }))
}

/// A variable that is given. One of this machine does not go to another without being written down.
fn variable(typed: &OsString) -> Result<(String, String), CliError> {
    let typed = text("the variable", typed)?;
    match typed.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(CliError::usage(format!(
            "the variable {typed} is one of this machine; a server does not see it"
        ))
        .hint(format!("say its value: --env {typed}=\"${typed}\""))),
    }
}

/// What is to be read by the command: all of it travels with the request.
fn stdin() -> Result<Option<String>, CliError> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut input = Vec::new();
    let failed = |error| CliError::from(sandboxer_core::Error::io("read", "standard input", error));
    io::stdin().lock().read_to_end(&mut input).map_err(failed).map_err(ours)?;
    let odd = |_| {
        ours(CliError::usage("what is on standard input cannot be sent to a server: it is not UTF-8"))
            .hint("put it into a file first: `sandbox write ID PATH`")
    };
    String::from_utf8(input).map(|input| Some(input).filter(|input| !input.is_empty())).map_err(odd)
}

/// Shows what comes until the command has ended; its exit code.
fn follow(remote: &mut Remote<'_>, lines: &mut impl BufRead) -> Result<u8, CliError> {
    let mut line = String::new();
    loop {
        line.clear();
        let read = lines.read_line(&mut line).map_err(|error| remote.client.broken(&error))?;
        if read == 0 {
            let message = format!("the server {} went away before the command had ended", remote.server.name);
            return Err(CliError::new(Kind::Error, message).hint("how far it came: `sandbox diff ID`"));
        }
        match remote.client.parsed(&line)? {
            Line::ExitCode(code) => return Ok(code),
            Line::Stdout(text) => out(remote, text.as_bytes())?,
            Line::Stderr(text) => err(text.as_bytes())?,
            Line::StdoutB64(text) => out(remote, &decoded(&text)?)?,
            Line::StderrB64(text) => err(&decoded(&text)?)?,
        }
    }
}

/// Its output is data as it is; beside a document it goes to stderr, as that of a local command does.
fn out(remote: &mut Remote<'_>, bytes: &[u8]) -> Result<(), CliError> {
    if remote.app.ui.json {
        return err(bytes);
    }
    remote.app.ui.bytes(bytes)?;
    remote.app.ui.flush()
}

fn err(bytes: &[u8]) -> Result<(), CliError> {
    io::stderr().write_all(bytes).map_err(CliError::output)
}

fn decoded(text: &str) -> Result<Vec<u8>, CliError> {
    let odd = |_| CliError::new(Kind::Error, "the server sends output that is no base64");
    BASE64.decode(text.as_bytes()).map_err(odd)
}
