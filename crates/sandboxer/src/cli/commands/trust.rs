use std::path::{Path, PathBuf};

use sandboxer_core::config::{PROJECT_FILE, TrustStore, TrustedProject};
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::output::{self, moment, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Trust a project's sandboxer.yaml as it is now
///
/// A project's file came with the project. Until you trust it, it may make things stricter and nothing else. It is
/// trusted with exactly its present content: once it has changed, it is untrusted again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox trust                  This directory's file
  sandbox trust ~/proj
  sandbox trust --list
  sandbox trust --revoke ~/proj")]
pub struct Args {
    /// The project's directory [default: the current one]
    dir: Option<PathBuf>,
    /// Show what is trusted
    #[arg(long, conflicts_with_all = ["revoke", "dir"])]
    list: bool,
    /// Take the trust back
    #[arg(long)]
    revoke: bool,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let store = TrustStore::new(&app.places.home);
    let directory = args.dir.as_deref().unwrap_or(Path::new("."));
    match (args.list, args.revoke) {
        (true, _) => list(app, &store),
        (_, true) => revoke(app, &store, directory),
        _ => trust(app, &store, directory),
    }
}

fn trust(app: &mut App, store: &TrustStore, directory: &Path) -> Outcome {
    let file = directory.join(PROJECT_FILE);
    if file.symlink_metadata().is_err() {
        return Err(CliError::new(
            crate::cli::error::Kind::NotFound,
            format!("there is no {}", file.display()),
        )
        .on(&file)
        .hint("name the directory that holds it: `sandbox trust DIR`"));
    }
    let trusted = store.trust(directory)?;
    if app.ui.json {
        app.ui.document(&json!({ "trusted": trusted }))?;
    } else {
        app.ui.line(format_args!("trusted {}", shown(&trusted.directory)))?;
    }
    Ok(exit::OK)
}

fn revoke(app: &mut App, store: &TrustStore, directory: &Path) -> Outcome {
    let revoked = store.untrust(directory)?;
    if app.ui.json {
        app.ui.document(&json!({ "directory": directory.to_string_lossy(), "revoked": revoked }))?;
    } else if revoked {
        app.ui.line(format_args!("{} is no longer trusted", shown(directory)))?;
    } else {
        app.ui.note(format_args!("{} was not trusted", shown(directory)));
    }
    Ok(exit::OK)
}

fn list(app: &mut App, store: &TrustStore) -> Outcome {
    let projects = store.list()?;
    if app.ui.json {
        app.ui.document(&json!({ "projects": projects }))?;
    } else if projects.is_empty() {
        app.ui.note("no project is trusted");
    } else {
        let rows: Vec<Vec<String>> = projects.iter().map(|project| row(store, project)).collect();
        app.ui.bytes(table(&["SINCE", "FILE", "DIRECTORY"], &rows).as_bytes())?;
    }
    Ok(exit::OK)
}

fn row(store: &TrustStore, project: &TrustedProject) -> Vec<String> {
    let present = match store.is_trusted(&project.directory.join(PROJECT_FILE)) {
        Ok(true) => "unchanged",
        Ok(false) => "changed since",
        Err(_) => "missing",
    };
    vec![moment(project.since), present.to_owned(), shown(&project.directory)]
}

fn shown(path: &Path) -> String {
    output::name(path.as_os_str().as_encoded_bytes())
}
