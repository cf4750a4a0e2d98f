//! A new workspace of a checkout.

use std::path::Path;

use sandboxer_core::contract::SandboxStrategy;
use sandboxer_core::model::{PlanId, Resource, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::root::Root;
use sandboxer_git::git;
use sandboxer_git::ledger::Ledger;
use sandboxer_git::oid::Oid;
use sandboxer_git::private::{self, Seed, StatCheck};
use sandboxer_git::repository::{Head, Repository};
use serde_json::json;

use super::spec::{GitSpec, place};
use super::{GitWorktree, PRIVATE, laying};
use crate::copies::home_of;
use crate::overlay::{Ground, is_overlay};

/// What was asked for, from the resource's properties.
pub(super) struct Wanted<'a> {
    /// The commit to begin from, instead of HEAD.
    pub from: Option<&'a str>,
    /// Whether uncommitted work is left behind.
    pub clean: bool,
    /// Whether ignored files come along.
    pub ignored: bool,
}

impl<'a> Wanted<'a> {
    fn of(resource: &'a Resource) -> Self {
        let flag = |key: &str| resource.properties.get(key).and_then(serde_json::Value::as_bool);
        Self {
            from: resource.properties.get("from").and_then(|v| v.as_str()),
            clean: flag("clean").unwrap_or(false),
            ignored: flag("ignored").unwrap_or(true),
        }
    }
}

/// What is known of a checkout before anything is made of it.
struct Checkout {
    repository: Repository,
    head: Head,
    refs: Vec<u8>,
}

impl Checkout {
    /// Asks git, as few times as will do.
    fn look(strategy: &str, path: &Path) -> Result<Self> {
        std::thread::scope(|scope| {
            let version = scope.spawn(git::version);
            let looked = Repository::find(path).and_then(|repository| {
                let head = repository.head()?;
                let refs = private::refs_of(&repository.git_dir)?;
                Ok(Self { repository, head, refs })
            });
            if let Ok(Err(reason)) = version.join() {
                let (strategy, path) = (strategy.to_owned(), path.to_path_buf());
                return Err(Error::Unavailable { strategy, path, reason });
            }
            looked
        })
    }

    /// Refuses what would be broken inside.
    fn refuse_unfit(&self) -> Result<()> {
        let shown = self.repository.work_tree.display();
        if let Some(what) = self.repository.under_way() {
            return Err(Error::Refused {
                reason: format!("a {what} is under way in {shown}"),
                hint: Some(format!("finish it, or `git {what} --abort`, or use `--strategy overlay`")),
            });
        }
        let populated = laying::populated_submodules(&self.repository)?;
        let Some(first) = populated.first() else { return Ok(()) };
        Err(Error::Refused {
            reason: format!(
                "{shown} has submodules with files in them ({first}), which share no repository of their own with a sandbox"
            ),
            hint: Some(
                "use `--strategy overlay`, or `git submodule deinit --all` in a clone of it".to_owned(),
            ),
        })
    }
}

impl GitWorktree {
    /// Makes a workspace of `resource`.
    pub(super) fn make(&self, plan: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        let checkout = Checkout::look(&self.name, resource.path())?;
        checkout.refuse_unfit()?;
        let wanted = Wanted::of(resource);
        let spec = spec_of(&checkout, &wanted, resource)?;
        let sow = |stat: StatCheck, git_dir: &Path, home: &Path| sow(&checkout, &spec, stat, git_dir, home);
        let overlaid = Ground { name: PRIVATE, sow: &|dir, home| sow(StatCheck::Full, dir, home) };
        let made = self.files.make(plan, resource, Some(&overlaid))?;
        let finished = self.finish_making(&made, &checkout, spec.clone(), &wanted, &sow);
        if let Err(error) = finished {
            let _ = self.files.cleanup(&made);
            return Err(error);
        }
        Ok(self.dressed(made, &spec))
    }

    fn finish_making(
        &self,
        made: &SandboxRef,
        checkout: &Checkout,
        mut spec: GitSpec,
        wanted: &Wanted<'_>,
        sow: &dyn Fn(StatCheck, &Path, &Path) -> Result<()>,
    ) -> Result<()> {
        let home = home_of(made)?;
        let tree = tree_of(made)?;
        if !is_overlay(&home) {
            Ground { name: PRIVATE, sow: &|dir, home| sow(StatCheck::Minimal, dir, home) }
                .lay(&tree, &home)?;
        }
        spec.index = private::index_stamp(&Root::open(&tree)?)?;
        spec.store_new(&home)?;
        self.keep_seed(&home)?;
        self.lay_over(&home, &checkout.head, &spec, wanted)
    }

    /// The ref, in this strategy's name and with what there is to tell.
    pub(super) fn dressed(&self, made: SandboxRef, spec: &GitSpec) -> SandboxRef {
        let told = json!({
            "branch": spec.branch,
            "base": spec.base,
            "target": spec.target.as_deref().map(short),
            "repository": spec.repository.common_dir,
        });
        SandboxRef { strategy_name: self.name.clone(), ..made }.with("git", told)
    }
}

/// A branch without `refs/heads/`.
pub(super) fn short(full: &str) -> &str {
    full.strip_prefix("refs/heads/").unwrap_or(full)
}

/// The tree that is worked in.
pub(super) fn tree_of(sandbox: &SandboxRef) -> Result<std::path::PathBuf> {
    let missing = || Error::corrupt(sandbox.resource_id.as_str(), "its ref has no path");
    sandbox.sandbox_path().ok_or_else(missing)
}

fn spec_of(checkout: &Checkout, wanted: &Wanted<'_>, resource: &Resource) -> Result<GitSpec> {
    let name = resource.properties.get("sandbox_name").and_then(|v| v.as_str()).unwrap_or("work");
    let base: Option<Oid> = match wanted.from {
        Some(from) => Some(checkout.repository.resolve(from)?),
        None => checkout.head.commit.clone(),
    };
    Ok(GitSpec {
        repository: checkout.repository.clone(),
        branch: private::branch_for(name, &checkout.refs),
        has_target: base == checkout.head.commit,
        base,
        target: checkout.head.branch.clone(),
        index: None,
    })
}

/// Makes what the workspace has besides its files: the ledger, and the repository inside.
fn sow(checkout: &Checkout, spec: &GitSpec, stat: StatCheck, git_dir: &Path, home: &Path) -> Result<()> {
    let place = place(home);
    std::fs::create_dir_all(&place).map_err(|e| Error::io("create directory", &place, e))?;
    Ledger::create(&place, &spec.repository)?;
    let objects = place.join("original");
    // A link, so that another view of the filesystem can put the objects in its place.
    std::os::unix::fs::symlink(spec.repository.objects(), &objects)
        .or_else(|e| if e.kind() == std::io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
        .map_err(|e| Error::io("create link", &objects, e))?;
    private::sow(
        &Seed {
            git_dir: &spec.repository.git_dir,
            common_dir: &spec.repository.common_dir,
            format: spec.repository.format,
            branch: &spec.branch,
            base: spec.base.as_ref(),
            objects: &objects,
            stat,
            refs: &checkout.refs,
        },
        git_dir,
    )
}
