//! Files of a sandbox.

use std::io::{self, Read};

use data_encoding::BASE64;
use sandboxer_core::environment::SandboxStatus;
use sandboxer_core::model::{DiffKind, RelPath};
use sandboxer_documents::PathText;
use serde::Deserialize;
use serde_json::json;

use super::client::{Question, encoded, query, sandbox, split};
use super::problem::Path;
use super::{Remote, done};
use crate::cli::Outcome;
use crate::cli::commands::{read, rel_path, write};
use crate::cli::output::shell_word;

fn place(selector: &str, path: &RelPath) -> String {
    let (id, workspace) = split(selector);
    let query = query(&[("workspace", workspace)]);
    sandbox(id, &format!("/files/{}{query}", encoded(path.as_bytes(), b"/")))
}

pub fn read(remote: &mut Remote<'_>, args: &read::Args) -> Outcome {
    let path = rel_path(&args.path)?;
    let answer = remote.client.ask(Question::get(place(&args.target.id, &path)))?;
    let mut content = remote.client.bytes(answer);
    if !remote.app.ui.json {
        let copied = remote.app.ui.stream(|sink| Ok(io::copy(&mut content, sink)))?;
        copied.map_err(|error| remote.client.broken(&error))?;
        return done();
    }
    let mut bytes = Vec::new();
    content.read_to_end(&mut bytes).map_err(|error| remote.client.broken(&error))?;
    // A server answers with bytes: the document is made here.
    let of = remote.client.document(Question::get(sandbox(&args.target.id, "")))?;
    let of: SandboxStatus = remote.client.shaped(&of)?;
    let PathText { path, path_b64 } = PathText::of(&path);
    let (encoding, text) = match std::str::from_utf8(&bytes) {
        Ok(text) => ("utf-8", text.to_owned()),
        Err(_) => ("base64", BASE64.encode(&bytes)),
    };
    let mut document = json!({ "sandbox_id": of.sandbox_id, "path": path, "size": bytes.len() });
    document["encoding"] = encoding.into();
    document["content"] = text.into();
    if let Some(exact) = path_b64 {
        document["path_b64"] = exact.into();
    }
    remote.app.ui.document(&document)?;
    done()
}

#[derive(Deserialize)]
struct Written {
    #[serde(flatten)]
    path: Path,
    kind: DiffKind,
    new_size: u64,
}

pub fn write(remote: &mut Remote<'_>, args: &write::Args) -> Outcome {
    let path = rel_path(&args.path)?;
    let content = write::read_stdin(remote.app)?;
    let document = remote.client.document(Question::put(place(&args.target.id, &path), content))?;
    if remote.shown(&document)? {
        return done();
    }
    let written: Written = remote.client.shaped(&document)?;
    let path = PathText::from(written.path);
    write::tell(&remote.app.ui, &path.bytes(), written.kind, written.new_size, &shell_word(&args.target.id));
    done()
}
