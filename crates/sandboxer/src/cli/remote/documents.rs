//! Documents of a server as what they are documents of, as far as that is shown.

use sandboxer_core::model::{
    CommitResult, Conflict, DiffEntry, DiffKind, Node, NodeType, Notice, OpId, RelPath, Revision, RowChange,
};
use sandboxer_core::service::TargetCommit;
use sandboxer_documents::{Detail, PathText};
use serde::Deserialize;

use super::problem::{Path, Place};
use crate::cli::error::{CliError, Kind};

/// A difference.
#[derive(Deserialize)]
pub struct Diff {
    /// The sandbox.
    pub name: String,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    workspace: String,
    #[serde(flatten)]
    path: Path,
    kind: DiffKind,
    from: Option<String>,
    from_b64: Option<String>,
    #[serde(default)]
    binary: bool,
    old: Option<Side>,
    new: Option<Side>,
    #[serde(default)]
    moved: bool,
    text: Option<String>,
    row: Option<RowChange>,
    refused: Option<String>,
    #[serde(default)]
    flags: Vec<String>,
}

#[derive(Deserialize)]
struct Side {
    #[serde(rename = "type")]
    node_type: NodeType,
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    digest: Option<String>,
    target: Option<String>,
    xattrs: Option<String>,
}

/// A commit, or what an undo did.
#[derive(Deserialize)]
pub struct Commit {
    /// The sandbox.
    pub name: String,
    /// What an undo took back.
    #[serde(default)]
    pub undone: String,
    op_id: String,
    digest: String,
    entries: Vec<Entry>,
    notices: Vec<Told>,
    #[serde(default)]
    at_decision: Vec<Decision>,
    #[serde(default)]
    conflicts: Vec<Place>,
    undo_bytes: Option<u64>,
    #[serde(default)]
    revisions: Vec<Made>,
}

#[derive(Deserialize)]
struct Told {
    workspace: String,
    #[serde(flatten)]
    path: Path,
    message: String,
}

#[derive(Deserialize)]
struct Decision {
    workspace: String,
    reason: String,
}

#[derive(Deserialize)]
struct Made {
    workspace: String,
    #[serde(flatten)]
    revision: Revision,
}

/// Something for each workspace, in the order in which they come.
type ByWorkspace<T> = Vec<(String, T)>;

fn slot<'a, T: Default>(all: &'a mut ByWorkspace<T>, workspace: &str) -> &'a mut T {
    let at = match all.iter().position(|(name, _)| name == workspace) {
        Some(at) => at,
        None => {
            all.push((workspace.to_owned(), T::default()));
            all.len() - 1
        }
    };
    &mut all[at].1
}

impl Diff {
    /// The entries of each workspace that has some.
    pub fn entries(self) -> Result<ByWorkspace<Vec<DiffEntry>>, CliError> {
        let mut all = ByWorkspace::new();
        for entry in self.entries {
            let workspace = entry.workspace.clone();
            slot::<Vec<DiffEntry>>(&mut all, &workspace).push(entry.read()?);
        }
        Ok(all)
    }
}

impl Commit {
    /// What was committed.
    pub fn read(self) -> Result<TargetCommit, CliError> {
        let mut workspaces = ByWorkspace::<CommitResult>::new();
        for entry in self.entries {
            let workspace = entry.workspace.clone();
            slot(&mut workspaces, &workspace).entries.push(entry.read()?);
        }
        for Told { workspace, path, message } in self.notices {
            let path = rel_path(path.into())?;
            slot(&mut workspaces, &workspace).notices.push(Notice { path, message });
        }
        for Decision { workspace, reason } in self.at_decision {
            slot(&mut workspaces, &workspace).at_decision = Some(reason);
        }
        for Made { workspace, revision } in self.revisions {
            slot(&mut workspaces, &workspace).revision = Some(revision);
        }
        // The document does not say in which workspace they are, nor how much each keeps.
        if let Some((_, first)) = workspaces.first_mut() {
            first.conflicts = self.conflicts.into_iter().map(conflict).collect::<Result<_, _>>()?;
        }
        workspaces.iter_mut().for_each(|(_, result)| result.undo_bytes = self.undo_bytes);
        Ok(TargetCommit {
            op_id: OpId::from_string(self.op_id),
            digest: self.digest,
            workspaces,
            unsent: None,
        })
    }
}

impl Entry {
    fn read(self) -> Result<DiffEntry, CliError> {
        let from = self.from.map(|path| rel_path(PathText { path, path_b64: self.from_b64 })).transpose()?;
        Ok(DiffEntry {
            from,
            old: self.old.map(Side::read),
            new: self.new.map(Side::read),
            binary: self.binary,
            moved: self.moved,
            text: self.text,
            row: self.row,
            refused: self.refused,
            flags: self.flags,
            ..DiffEntry::new(rel_path(self.path.into())?, self.kind)
        })
    }
}

impl Side {
    fn read(self) -> Node {
        Node {
            node_type: self.node_type,
            mode: u32::from_str_radix(&self.mode, 8).unwrap_or(0),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            digest: self.digest,
            target: self.target,
            xattrs: self.xattrs,
        }
    }
}

fn conflict(place: Place) -> Result<Conflict, CliError> {
    let Detail { path, reason, parked, hunks } = place.into();
    Ok(Conflict { parked, hunks, ..Conflict::new(rel_path(path)?, reason) })
}

/// A path as the server tells it.
fn rel_path(text: PathText) -> Result<RelPath, CliError> {
    let odd = |_| CliError::new(Kind::Error, "the server names a path that leads outside the workspace");
    RelPath::from_bytes(text.bytes()).map_err(odd)
}
