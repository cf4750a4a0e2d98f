//! A new overlay: whichever way of mounting works, found by trying; else a copy, with the reasons.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sandboxer_core::model::{PlanId, RelPath, Resource, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::filter::{Filter, Patterns};
use sandboxer_fs::identity::DirectoryIdentity;
use sandboxer_fs::overlay::instant::Instant;
use sandboxer_fs::overlay::layer::{Layer, MARKING, Marks};
use sandboxer_fs::overlay::space::OverlaySpec;
use sandboxer_fs::overlay::stack::{Places, Stack};
use sandboxer_fs::root::Root;
use sandboxer_fs::scratch::{self, NewWorkspace};
use sandboxer_fs::tree::Spec;
use sandboxer_keeper::mount;

use super::mounts::Mounts;
use super::{OverlayStrategy, SandboxStrategy};
use crate::copies::{no_fallback, spec_of};

/// The property that names the sandbox which a workspace is made for.
const SANDBOX: &str = "sandbox";

/// A directory at the top of the original that a workspace has in a version of its own from the beginning, and as part of its base.
pub(crate) struct Ground<'a> {
    /// Its name.
    pub name: &'a str,
    /// Fills the new directory at the path, for the workspace whose own directory is given too.
    pub sow: &'a dyn Fn(&Path, &Path) -> Result<()>,
}

impl Ground<'_> {
    /// Lays it as the lowest layer of an overlay that is not mounted yet.
    fn lay(&self, spec: &OverlaySpec, home: &Path) -> Result<()> {
        let places = Places::new(home);
        let dir = places.upper().join(self.name);
        std::fs::create_dir(&dir).map_err(|e| Error::io("create directory", &dir, e))?;
        // First of all: not everybody may.
        Layer::open(&places.upper(), spec.marks)?.make_opaque(self.name)?;
        (self.sow)(&dir, home)?;
        Stack::default().settle_ground(spec.volatile, &places)
    }
}

impl OverlayStrategy {
    /// Makes a workspace of `resource`. Where that is a copy, `ground` is left out of it and for the caller to lay.
    pub(crate) fn make(
        &self,
        plan: &PlanId,
        resource: &Resource,
        ground: Option<&Ground<'_>>,
    ) -> Result<SandboxRef> {
        let original = resource.require_path()?;
        scratch::require(original)?;
        if !original.is_dir() {
            return self.single_files.create(plan, resource);
        }
        let ours = [self.context.home.clone()];
        let spec = spec_of(resource, self.options.patterns(resource), &ours)?;
        refuse_submounts(&spec.original, &spec.patterns)?;
        let mut ways = vec![Marks::Trusted, Marks::User];
        let mut reasons = Vec::new();
        if !self.mounts_anything {
            ways.clear();
            reasons.push("a copy is asked for".to_owned());
        }
        for root in self.scratch_roots(&spec.original) {
            let mut left = Vec::new();
            for marks in ways {
                match self.try_in(&root, plan, resource, &spec, marks, ground)? {
                    Ok(made) => return Ok(made),
                    Err(failed) => {
                        let reason = format!("{}: {}", way(marks), failed.reason);
                        reasons.extend((!reasons.contains(&reason)).then_some(reason));
                        left.extend(failed.of_the_place.then_some(marks));
                    }
                }
            }
            ways = left;
        }
        match ground {
            Some(ground) => self.fall_back(plan, &leaving_out(resource, ground.name), reasons.join("; ")),
            None => self.fall_back(plan, resource, reasons.join("; ")),
        }
    }

    /// Where workspaces are kept unless that does not work.
    fn own_root(&self) -> PathBuf {
        self.options.scratch.clone().unwrap_or_else(|| scratch::in_state(&self.context.home))
    }

    /// Where the upper could be: not inside the original, which would be its own lower layer.
    fn scratch_roots(&self, original: &Path) -> Vec<PathBuf> {
        let mut roots = vec![self.own_root()];
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
    fn try_in(
        &self,
        root: &Path,
        plan: &PlanId,
        resource: &Resource,
        spec: &Spec,
        marks: Marks,
        ground: Option<&Ground<'_>>,
    ) -> Result<Result<SandboxRef, NoWay>> {
        let was_there = root.exists();
        let new = match NewWorkspace::create(&self.context.home, root, plan, resource) {
            // A place that is only one of several need not be ours to write to.
            Err(error) if root != self.own_root() => return Ok(Err(NoWay::of(&error, root))),
            new => new?,
        };
        let made = self.try_to_make(new, plan, resource, spec, marks, ground);
        if !was_there && !matches!(made, Ok(Ok(_))) {
            let _ = std::fs::remove_dir(root);
        }
        made
    }

    fn try_to_make(
        &self,
        new: NewWorkspace,
        plan: &PlanId,
        resource: &Resource,
        Spec { original, patterns, .. }: &Spec,
        marks: Marks,
        ground: Option<&Ground<'_>>,
    ) -> Result<Result<SandboxRef, NoWay>> {
        let home = new.path().to_path_buf();
        OverlaySpec::lay_out(original, &home)?;
        let keeper = (marks == Marks::User).then(|| keeper_of(resource, &home));
        let root = Root::open(original)?;
        let spec = OverlaySpec {
            original: original.to_path_buf(),
            patterns: patterns.clone(),
            marks,
            volatile: self.options.volatile,
            keeper,
            root: DirectoryIdentity::read(&root)?,
            instant: Instant::take(&root, &home)?,
            keep_base: self.options.keep_base,
            ground: ground.map(|ground| RelPath::parse(ground.name)).transpose()?,
        };
        spec.store_new(&home)?;
        match ground.map_or(Ok(()), |ground| ground.lay(&spec, &home)) {
            Err(error @ Error::Io { step: MARKING, .. }) => return Ok(Err(NoWay::of(&error, &home))),
            laid => laid?,
        }
        let lock = Mounts::lock(&home)?;
        if let Err(error) = self.mounts.mount(&home, &spec, &lock) {
            let _ = self.end_keeper(&home, &spec);
            return Ok(Err(NoWay::of(&error, &home)));
        }
        Ok(Ok(self.reference(plan, resource, &new.keep(), &spec)))
    }

    fn fall_back(&self, plan: &PlanId, resource: &Resource, reason: String) -> Result<SandboxRef> {
        if no_fallback(resource) {
            let (strategy, path) = (self.name.clone(), (&resource.location).into());
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

/// The resource without the directory `name` at its top.
fn leaving_out(resource: &Resource, name: &str) -> Resource {
    let mut without = resource.clone();
    let mut exclude = resource.string_list("exclude");
    exclude.push(format!("/{name}"));
    without.properties.insert("exclude".to_owned(), exclude.into());
    without
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

/// Why an overlay could not be made by some way in some place.
#[derive(Debug, PartialEq)]
struct NoWay {
    reason: String,
    /// Whether another place might do.
    of_the_place: bool,
}

impl NoWay {
    /// What an error says of the workspace at `home`, whose name tells nobody anything.
    fn of(error: &Error, home: &Path) -> Self {
        let (reason, of_the_place) = match error {
            Error::Unavailable { reason, .. } => (reason.clone(), false),
            Error::Io { step: "mount overlay at" | MARKING, source, .. } => {
                (source.to_string(), source.kind() != std::io::ErrorKind::PermissionDenied)
            }
            other => (in_words(other), true),
        };
        Self { reason: reason.replace(&home.display().to_string(), "\u{2026}"), of_the_place }
    }
}

/// An error with its causes, on one line.
fn in_words(error: &Error) -> String {
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
        Ok(place) => {
            let shortly = |reason: String| shortly(&reason, &place.0);
            (mount::try_host(&place.0).map_err(shortly), try_user(&place.0, program).map_err(shortly))
        }
        Err(reason) => (Err(reason.clone()), Err(reason)),
    };
    [("on the host", tried.0), ("in a user namespace", tried.1)]
}

/// A reason without the names of directories that are gone by now.
fn shortly(reason: &str, place: &Path) -> String {
    let mounting = reason.strip_prefix("cannot mount overlay at ").and_then(|rest| rest.split_once("/at: "));
    mounting.map_or(reason, |(_, why)| why).replace(&place.display().to_string(), "\u{2026}")
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_about_the_place_or_about_the_way() {
        let home = Path::new("/s/ws_1");
        let mount = |kind, text: &str| {
            let at = home.join("merged");
            NoWay::of(&Error::io("mount overlay at", at, std::io::Error::new(kind, text)), home)
        };
        let upper = mount(std::io::ErrorKind::InvalidInput, "filesystem on /s/ws_1/upper not supported");
        assert_eq!(upper.reason, "filesystem on \u{2026}/upper not supported");
        assert!(upper.of_the_place);
        assert!(!mount(std::io::ErrorKind::PermissionDenied, "no").of_the_place);
        let (strategy, path) = ("overlay".to_owned(), home.to_path_buf());
        let off = Error::Unavailable { strategy, path, reason: "switched off".to_owned() };
        assert_eq!(NoWay::of(&off, home), NoWay { reason: "switched off".to_owned(), of_the_place: false });
        let other = NoWay::of(&Error::refused("it belongs to another user"), home);
        assert!(other.of_the_place && other.reason.contains("another user"));
    }

    #[test]
    fn a_trial_is_told_of_without_its_directories() {
        let told = |reason| shortly(reason, Path::new("/x/.sandboxer-try-1"));
        assert_eq!(told("cannot mount overlay at /x/.sandboxer-try-1/try-2/at: No: why"), "No: why");
        assert_eq!(told("cannot write /x/.sandboxer-try-1/y: No"), "cannot write \u{2026}/y: No");
    }

    #[test]
    fn trials_leave_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let tried = probe(&temp.path().join("not/there"), Some(Path::new("/bin/true")));
        assert!(tried[1].1.as_ref().unwrap_err().contains("/bin/true"));
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
        let reasons = probe(Path::new("/proc"), None).map(|(_, tried)| tried.unwrap_err());
        assert!(reasons.iter().all(|reason| reason.contains("cannot be written")), "{reasons:?}");
    }
}
