//! Where a transaction is held, and of what: all that a ref says.

use std::path::PathBuf;

use sandboxer_core::model::SandboxRef;
use sandboxer_core::{Error, Result};
use serde_json::json;

use crate::credentials::{self, Environment, Reference};
use crate::engine::{Options, Setup};
use crate::engines;

/// What became of a transaction whose keeper is no more: the server rolls back what nobody holds.
pub(super) const GONE: &str = "the process that held it has ended, and nothing of it was committed";

/// Where a transaction is held, and of what.
pub(super) struct Place {
    pub dir: PathBuf,
    pub kind: String,
    pub location: String,
    /// Where the password comes from.
    pub credentials: Option<String>,
    pub options: Options,
}

impl Place {
    /// What a ref says.
    pub fn of(sandbox: &SandboxRef) -> Result<Self> {
        let text = |key: &'static str| {
            let missing = || Error::corrupt(sandbox.resource_id.as_str(), format!("its ref has no {key}"));
            sandbox.text(key).map(str::to_owned).ok_or_else(missing)
        };
        let options = sandbox.metadata.get("options").cloned().unwrap_or_default();
        let damaged = |e: serde_json::Error| Error::corrupt(sandbox.resource_id.as_str(), e.to_string());
        Ok(Self {
            dir: text("dir")?.into(),
            kind: text("kind")?,
            location: text("location")?,
            credentials: sandbox.text("credentials").map(str::to_owned),
            options: serde_json::from_value(options).map_err(damaged)?,
        })
    }

    /// The ref that says it.
    pub fn written_to(&self, reference: SandboxRef) -> SandboxRef {
        let written = reference
            .with_path("dir", &self.dir)
            .with("kind", self.kind.as_str())
            .with("location", self.location.as_str())
            .with("options", json!(self.options));
        let written = if self.kind == "postgres" { written.with("connects", true) } else { written };
        match &self.credentials {
            Some(credentials) => written.with("credentials", credentials.as_str()),
            None => written,
        }
    }

    /// The directory of the keeper.
    pub fn keeper(&self) -> PathBuf {
        self.dir.join("keeper")
    }

    /// What the keeper, or whoever takes its place, opens.
    pub fn setup(&self, around: &Environment) -> Result<Setup> {
        let reference = self.credentials.as_deref().map(Reference::parse).transpose()?;
        let password = match engines::account(&self.kind, &self.location, &around.user())? {
            Some(account) => credentials::password(&account, reference.as_ref(), around)?,
            None => None,
        };
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        Ok(Setup {
            kind: self.kind.clone(),
            location: self.location.clone(),
            workspace: name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect(),
            dir: self.keeper(),
            user: around.user(),
            password,
            options: self.options.clone(),
        })
    }

    /// What whoever wants to go on is told.
    pub fn lost(&self, why: &str) -> Error {
        Error::Refused {
            reason: format!("the transaction on {} is lost: {why}", self.location),
            hint: Some("`sandbox rollback ID` begins a new one".to_owned()),
        }
    }
}
