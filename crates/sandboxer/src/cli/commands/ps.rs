use sandboxer_extensions::local::Process;
use serde_json::json;

use super::TargetArg;
use crate::cli::contain::{runtimes, told};
use crate::cli::output::{self, size, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Show what runs in a sandbox
///
/// Process ids are those inside; JSON has those of the host too.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox ps try
  sandbox ps try --json")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let sandbox = session.find(&args.target.id)?.sandbox;
    let attached = runtimes(&session)?.find(sandbox.id.as_str())?;
    let processes = attached.as_ref().map(|runs| runs.processes()).transpose()?.unwrap_or_default();
    let spec = attached.as_ref().map(|runs| &runs.ready().spec);
    if app.ui.json {
        app.ui.document(&json!({
            "sandbox_id": sandbox.id,
            "name": sandbox.name,
            "running": spec.is_some(),
            "isolation": spec.map(|spec| spec.isolation),
            "network": spec.map(|spec| &spec.network),
            "processes": processes.iter().map(document).collect::<Vec<_>>(),
        }))?;
        return Ok(exit::OK);
    }
    if processes.is_empty() {
        app.ui.line(format_args!("nothing runs in {}", output::name(&sandbox.name)))?;
        return Ok(exit::OK);
    }
    let rows: Vec<Vec<String>> = processes.iter().map(row).collect();
    app.ui.bytes(table(&["PID", "STATE", "CPU", "MEM", "COMMAND"], &rows).as_bytes())?;
    app.ui.flush()?;
    if let Some(spec) = spec {
        app.ui.note(format_args!("with {}", told::held(spec)));
    }
    Ok(exit::OK)
}

fn row(process: &Process) -> Vec<String> {
    vec![
        process.pid.to_string(),
        state(process.state).to_owned(),
        format!("{:.1}s", process.cpu.as_secs_f64()),
        size(process.memory),
        output::sentence(&process.command),
    ]
}

/// The kernel's letter in words.
fn state(letter: char) -> &'static str {
    match letter {
        'R' => "running",
        'S' | 'I' => "sleeping",
        'D' => "waiting",
        'T' | 't' => "stopped",
        'Z' | 'X' => "dead",
        _ => "unknown",
    }
}

fn document(process: &Process) -> serde_json::Value {
    json!({
        "pid": process.pid,
        "parent": process.parent,
        "host_pid": process.host_pid,
        "state": state(process.state),
        "cpu_ms": process.cpu.as_millis() as u64,
        "memory": process.memory,
        "command": process.command,
    })
}
