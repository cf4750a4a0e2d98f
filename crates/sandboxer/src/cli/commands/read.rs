use std::ffi::OsString;

use data_encoding::BASE64;
use sandboxer_documents::PathText;
use serde_json::json;

use super::{TargetArg, rel_path};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Print a file as the sandbox sees it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox read try src/main.rs
  sandbox read try logo.png > logo.png
  sandbox read try notes.txt --json          Content as text, or in base64 if it is not UTF-8")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Path inside the workspace
    pub path: OsString,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let path = rel_path(&args.path)?;
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    if !app.ui.json {
        app.ui.stream(|sink| session.manager.read_to(&target, &path, sink))?;
        return Ok(exit::OK);
    }
    let content = session.manager.read(&target, &path)?;
    let PathText { path, path_b64 } = PathText::of(&path);
    let (encoding, text) = match std::str::from_utf8(&content) {
        Ok(text) => ("utf-8", text.to_owned()),
        Err(_) => ("base64", BASE64.encode(&content)),
    };
    let mut document = json!({ "sandbox_id": target.sandbox.id, "path": path, "size": content.len() });
    document["encoding"] = encoding.into();
    document["content"] = text.into();
    if let Some(exact) = path_b64 {
        document["path_b64"] = exact.into();
    }
    app.ui.document(&document)?;
    Ok(exit::OK)
}
