//! A command in a sandbox, its output as it comes.
//!
//! The command runs as `sandbox exec` runs it: by this program itself, started anew, so that what a client asks for lives and dies apart from
//! the server. A client that goes away ends its command.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use data_encoding::BASE64;
use futures_util::stream;
use rustix::process::{Pid, Signal, kill_process_group};
use sandboxer_core::environment::IsolationLevel;
use sandboxer_core::service::Sandbox;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::input::{Document, Named, rel_path};
use crate::app::{App, Who};
use crate::metrics::Gauge;
use crate::problem::Problem;

/// How much output is one line of the answer.
const PIECE: usize = 16 << 10;
/// How many lines may wait for the client before the command has to.
const LINES: usize = 16;
/// How long a command has to end once nobody listens.
const LAST_MOMENTS: Duration = Duration::from_secs(3);
/// A command and its variables, together: the kernel takes no more than 128 KiB in one piece.
const LONGEST_COMMAND: usize = 100 << 10;
/// The media type: a JSON document a line.
const LINES_OF_JSON: &str = "application/x-ndjson";

/// The variable in which `sandbox exec` is handed the variables of a command, as a JSON object.
pub const HANDED_VARIABLES: &str = "SANDBOXER_EXEC_ENV";

/// A command.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecBody {
    /// The program and its arguments; no shell is in between.
    #[schemars(length(min = 1))]
    command: Vec<String>,
    /// In this workspace; the first one without it.
    workspace: Option<String>,
    /// In this directory of the workspace.
    directory: Option<String>,
    /// In this service of a stack.
    service: Option<String>,
    /// Variables to set.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// What it reads on its standard input; nothing without it.
    stdin: Option<String>,
    /// Ended after this time, such as `90s`.
    timeout: Option<String>,
}

/// One line of the answer: some output, or, last, how it ended.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecLine {
    /// Output.
    Stdout(String),
    /// Output that is no text, in base64.
    StdoutB64(String),
    /// Errors.
    Stderr(String),
    /// Errors that are no text, in base64.
    StderrB64(String),
    /// The end: its exit code, 128 and the signal's number if it was one. As `sandbox exec` has it, 125 is a failure of sandboxer's own, 126 and 127 a command
    /// that cannot be run or is not there, and 124 the end of its time.
    ExitCode(i32),
}

impl ExecLine {
    fn of(error: bool, bytes: &[u8]) -> Self {
        match (error, std::str::from_utf8(bytes)) {
            (false, Ok(text)) => Self::Stdout(text.to_owned()),
            (false, Err(_)) => Self::StdoutB64(BASE64.encode(bytes)),
            (true, Ok(text)) => Self::Stderr(text.to_owned()),
            (true, Err(_)) => Self::StderrB64(BASE64.encode(bytes)),
        }
    }

    fn line(&self) -> Bytes {
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text.into()
    }
}

pub async fn exec(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Document(body): Document<ExecBody>,
) -> Result<Response, Problem> {
    check(&body)?;
    let (wanted, workspace) = (named.id.clone(), body.workspace.clone());
    // Whether they may, and which sandbox it is, before a program is started that nobody asks.
    let place = app.running()?;
    let held = !matches!(who, Who::Local);
    let selector = app
        .work(&who, move |manager| {
            let target = Named { id: wanted, name: String::new() }.find(manager, workspace.as_deref())?;
            drop(manager.use_sandbox(&target)?);
            if held {
                refuse_uncontained(&target.sandbox)?;
            }
            let id = &target.sandbox.id;
            Ok(match &target.workspaces[..] {
                [one] if target.sandbox.workspaces.len() > 1 => format!("{id}:{}", one.name),
                _ => id.to_string(),
            })
        })
        .await?;
    let mut child = start(&app, &selector, &body)?;
    let (lines, mut coming) = mpsc::channel(LINES);
    let input = body.stdin;
    tokio::spawn(async move {
        let _running = (place, Gauge::up(&app.metrics.commands));
        feed_in(&mut child, input);
        run(&app, child, lines).await;
    });
    let body = Body::from_stream(stream::poll_fn(move |context| {
        coming.poll_recv(context).map(|line: Option<Bytes>| line.map(Ok::<_, std::convert::Infallible>))
    }));
    Ok(([(header::CONTENT_TYPE, LINES_OF_JSON)], body).into_response())
}

/// A command that nothing holds is one of the server's user, and not for whoever has a token.
fn refuse_uncontained(sandbox: &Sandbox) -> Result<(), Problem> {
    match sandbox.environment.as_deref() {
        Some(environment) if environment.isolation != IsolationLevel::Files => Ok(()),
        _ => {
            Err(Problem::refused(format!("commands in {} are not contained: not over a token", sandbox.name)))
        }
    }
}

fn check(body: &ExecBody) -> Result<(), Problem> {
    if body.command.first().is_none_or(String::is_empty) {
        return Err(Problem::usage("there is no command to run").hint("\"command\": [\"make\", \"test\"]"));
    }
    let has_nul = |text: &String| text.contains('\0');
    let texts = body.command.iter().chain(body.env.keys()).chain(body.env.values());
    if texts.chain(&body.directory).chain(&body.service).chain(&body.timeout).any(has_nul) {
        return Err(Problem::usage("a command, its variables and its place have no zero bytes in them"));
    }
    let length: usize =
        body.command.iter().chain(body.env.keys()).chain(body.env.values()).map(String::len).sum();
    if length > LONGEST_COMMAND {
        let message = format!("a command and its variables have up to {LONGEST_COMMAND} bytes together");
        return Err(Problem::usage(message).hint("what is longer comes on its standard input, or as a file"));
    }
    if let Some(directory) = &body.directory {
        rel_path(directory.as_bytes())?;
    }
    match body.env.keys().find(|name| name.is_empty() || name.contains('=')) {
        Some(name) => Err(Problem::usage(format!("{name:?} is no name for a variable"))),
        None => Ok(()),
    }
}

/// In a process group of its own: what ends the server does not end it before it has been told to.
fn start(app: &App, selector: &str, body: &ExecBody) -> Result<Child, Problem> {
    let mut command = app.backend.program();
    command.args(["--quiet", "exec", selector]).process_group(0);
    if let Some(directory) = &body.directory {
        command.arg(format!("--directory={directory}"));
    }
    if let Some(service) = &body.service {
        command.arg(format!("--service={service}"));
    }
    if let Some(timeout) = &body.timeout {
        command.arg(format!("--timeout={timeout}"));
    }
    // Not as arguments, which everybody on the machine can read; nor as variables of the program itself, which some of them would take over.
    if let Ok(variables) = serde_json::to_string(&body.env) {
        command.env(HANDED_VARIABLES, variables);
    }
    command.arg("--").args(&body.command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error| Problem::from(sandboxer_core::Error::io("start", "the sandbox program", error));
    Command::from(command).spawn().map_err(failed)
}

/// Sends the input beside everything else: a command that reads none must not stop its own output.
fn feed_in(child: &mut Child, input: Option<String>) {
    if let Some(mut stdin) = child.stdin.take() {
        tokio::spawn(async move {
            if let Some(input) = input {
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        });
    }
}

/// Hands the output on until the command ends, or nobody takes it any more.
async fn run(app: &App, mut child: Child, lines: mpsc::Sender<Bytes>) {
    let outputs = (child.stdout.take(), child.stderr.take());
    let hand_on = async {
        tokio::join!(pump(outputs.0, false, &lines), pump(outputs.1, true, &lines));
    };
    tokio::select! {
        () = hand_on => {}
        () = lines.closed() => end(&mut child).await,
        () = app.over() => end(&mut child).await,
    }
    if let Ok(status) = child.wait().await {
        use std::os::unix::process::ExitStatusExt;
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(125);
        let _ = lines.send(ExecLine::ExitCode(code).line()).await;
    }
}

async fn pump(output: Option<impl AsyncRead + Send + Unpin>, error: bool, lines: &mpsc::Sender<Bytes>) {
    let Some(mut output) = output else { return };
    let mut buffer = vec![0; PIECE];
    // What is left of a character that the piece before ended in.
    let mut held = 0;
    while let Ok(count @ 1..) = output.read(&mut buffer[held..]).await {
        let filled = held + count;
        let whole = complete(&buffer[..filled]);
        if whole > 0 && lines.send(ExecLine::of(error, &buffer[..whole]).line()).await.is_err() {
            return;
        }
        buffer.copy_within(whole..filled, 0);
        held = filled - whole;
    }
    if held > 0 {
        let _ = lines.send(ExecLine::of(error, &buffer[..held]).line()).await;
    }
}

/// How much of it is whole characters; all of it where it is no text anyway.
fn complete(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Asks a command to end, and makes it if it does not.
async fn end(child: &mut Child) {
    let signal = |child: &Child, signal| {
        let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        if let Some(pid) = pid {
            let _ = kill_process_group(pid, signal);
        }
    };
    signal(child, Signal::TERM);
    if tokio::time::timeout(LAST_MOMENTS, child.wait()).await.is_err() {
        signal(child, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_are_text_where_they_can_be() {
        assert_eq!(&ExecLine::of(false, b"a\n").line()[..], b"{\"stdout\":\"a\\n\"}\n");
        assert_eq!(&ExecLine::of(true, b"\xff").line()[..], b"{\"stderr_b64\":\"/w==\"}\n");
        assert_eq!(&ExecLine::ExitCode(3).line()[..], b"{\"exit_code\":3}\n");
    }

    #[test]
    fn characters_are_not_cut() {
        let text = "aé".as_bytes();
        assert_eq!(
            [complete(text), complete(&text[..2]), complete(b"\xff\xfe"), complete(&text[1..2])],
            [3, 1, 2, 1]
        );
    }

    #[test]
    fn what_is_no_command_is_refused() {
        let odd = |json: &str| check(&serde_json::from_str(json).unwrap()).is_err();
        assert!(
            odd(r#"{"command": []}"#) && odd(r#"{"command": [""]}"#) && odd(r#"{"command": ["a\u0000"]}"#)
        );
        assert!(
            odd(r#"{"command": ["a"], "directory": "../.."}"#)
                && odd(r#"{"command": ["a"], "directory": "/"}"#)
        );
        assert!(odd(r#"{"command": ["a"], "env": {"A=B": ""}}"#) && !odd(r#"{"command": ["a"]}"#));
        assert!(serde_json::from_str::<ExecBody>(r#"{"command": ["a"], "shell": true}"#).is_err());
    }
}
