//! A new overlay: whichever way of mounting works, found by trying; else a copy, with the reasons.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sandboxer_core::model::{PlanId, RelPath, Resource, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::filter::{Filter, Patterns};
use sandboxer_fs::overlay::instant::Instant;
use sandboxer_fs::overlay::layer::Marks;
use sandboxer_fs::overlay::space::OverlaySpec;
use sandboxer_fs::root::Root;
use sandboxer_keeper::mount;

use super::mounts::Mounts;
use super::{OverlayStrategy, SandboxStrategy};
use crate::copies::{no_fallback, spec_of};
use crate::scratch::{self, NewWorkspace};

/// The property that names the sandbox which a workspace is made for.
const SANDBOX: &str = "sandbox";

impl OverlayStrategy {
    /// Makes a workspace of `resource`.
    pub(super) fn make(&self, plan: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        scratch::require(resource.path())?;
        if !resource.path().is_dir() {
            return self.single_files.create(plan, resource);
        }
        let ours = [self.context.home.clone()];
        let spec = spec_of(resource, self.options.patterns(resource), &ours)?;
        refuse_submounts(&spec.original, &spec.patterns)?;
        let mut reasons = Vec::new();
        for root in self.scratch_roots(&spec.original) {
            for marks in [Marks::Trusted, Marks::User] {
                match self.try_to_make(plan, resource, &root, &spec.original, &spec.patterns, marks)? {
                    Ok(made) => return Ok(made),
                    Err(reason) if !reasons.contains(&reason) => reasons.push(reason),
                    Err(_) => {}
                }
            }
        }
        self.fall_back(plan, resource, reasons.join("; "))
    }

    /// Where the upper could be: not inside the original, which would be its own lower layer.
    fn scratch_roots(&self, original: &Path) -> Vec<PathBuf> {
        let plain = self.options.scratch.clone().unwrap_or_else(|| scratch::in_state(&self.context.home));
        let mut roots = vec![plain];
        roots.extend(scratch::on_filesystem_of(
            &self.context.home,
            original,
            self.options.scratch.as_deref(),
        ));
        roots.retain(|root| !root.starts_with(original));
        let mut seen = std::collections::BTreeSet::new();
        roots.retain(|root| seen.insert(root.clone()));
        roots
    }

    /// One attempt. The inner error is the reason why it does not work here; the outer one ends it all.
    fn try_to_make(
        &self,
        plan: &PlanId,
        resource: &Resource,
        root: &Path,
        original: &Path,
        patterns: &Patterns,
        marks: Marks,
    ) -> Result<Result<SandboxRef, String>> {
        let new = NewWorkspace::create(&self.context.home, root, plan, resource)?;
        let home = new.path().to_path_buf();
        OverlaySpec::lay_out(original, &home)?;
        let keeper = (marks == Marks::User).then(|| keeper_of(resource, &home));
        let spec = OverlaySpec {
            original: original.to_path_buf(),
            patterns: patterns.clone(),
            marks,
            volatile: self.options.volatile,
            keeper,
            instant: Instant::take(&Root::open(original)?, &home)?,
            keep_base: self.options.keep_base,
        };
        spec.store(&home)?;
        let lock = Mounts::lock(&home)?;
        if let Err(error) = self.mounts.mount(&home, &spec, &lock) {
            let _ = self.end_keeper(&home, &spec);
            return Ok(Err(format!("{}: {}", way(marks), explain(&error))));
        }
        Ok(Ok(self.reference(plan, resource, &new.keep(), &spec)))
    }

    fn fall_back(&self, plan: &PlanId, resource: &Resource, reason: String) -> Result<SandboxRef> {
        if no_fallback(resource) {
            let (strategy, path) = (self.name.clone(), resource.path().to_path_buf());
            return Err(Error::Unavailable { strategy, path, reason });
        }
        let made = self.fallback.create(plan, resource)?;
        let reason = match made.text("fallback_reason") {
            Some(more) => format!("{reason}; {more}"),
            None => reason,
        };
        Ok(made.with("fallback_reason", reason))
    }
}

/// One keeper serves all workspaces of a sandbox.
fn keeper_of(resource: &Resource, home: &Path) -> String {
    let sandbox = resource.properties.get(SANDBOX).and_then(|v| v.as_str()).map(str::to_owned);
    let own = || home.file_name().unwrap_or_default().to_string_lossy().into_owned();
    sandbox.unwrap_or_else(own)
}

fn way(marks: Marks) -> &'static str {
    match marks {
        Marks::Trusted => "overlay on the host",
        Marks::User => "overlay in a user namespace",
    }
}

/// An error with its causes, on one line.
fn explain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// What is mounted inside the original would be missing from the overlay: an empty directory in its place.
fn refuse_submounts(original: &Path, patterns: &Patterns) -> Result<()> {
    let filter = Filter::new(patterns)?;
    let inside = |mount: &PathBuf| {
        let path = mount.strip_prefix(original).ok().and_then(|path| RelPath::parse(path).ok());
        path.is_some_and(|path| filter.passes_all(&path, true))
    };
    let found: Vec<String> =
        mount::submounts(original)?.iter().filter(|m| inside(m)).map(|m| m.display().to_string()).collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(Error::Refused {
        reason: format!("other filesystems are mounted in {}: {}", original.display(), found.join(", ")),
        hint: Some("leave them out with `--exclude`, or make sandboxes of them alone".to_owned()),
    })
}

/// Whether overlays can be mounted with their changes in `scratch` (or, if it is not there yet, in the directory that it would
/// be made in), by each way; or why not. Keepers are started from `program`. Nothing stays behind.
pub fn probe(scratch: &Path, program: Option<&Path>) -> [(&'static str, Result<(), String>); 2] {
    let scratch = scratch.ancestors().find(|d| d.is_dir()).unwrap_or(scratch);
    let tried = match ThrowAway::new(scratch) {
        Ok(place) => (mount::try_host(&place.0), try_user(&place.0, program)),
        Err(reason) => (Err(reason.clone()), Err(reason)),
    };
    [("on the host", tried.0), ("in a user namespace", tried.1)]
}

fn try_user(place: &Path, program: Option<&Path>) -> Result<(), String> {
    match program {
        Some(program) => sandboxer_keeper::Keepers::new(place, program).try_user(),
        None => Err("there is no program to start a keeper from".to_owned()),
    }
}

/// A directory for trials; removed with what is in it when this is dropped.
struct ThrowAway(PathBuf);

impl ThrowAway {
    fn new(parent: &Path) -> Result<Self, String> {
        let path =
            parent.join(format!(".sandboxer-try-{}", ulid::Ulid::generate().to_string().to_lowercase()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| format!("{} cannot be written ({e})", parent.display())).map(|()| Self(path))
    }
}

impl Drop for ThrowAway {
    fn drop(&mut self) {
        let _ = sandboxer_fs::remove_tree(&self.0);
    }
}
