//! A new workspace of a checkout.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use sandboxer_core::contract::SandboxStrategy;
use sandboxer_core::model::{PlanId, Resource, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::manifest::Edits;
use sandboxer_fs::overlay::layer::{Layer, Marks};
use sandboxer_fs::overlay::space::OverlaySpec;
use sandboxer_fs::overlay::stack::Places;
use sandboxer_fs::root::Root;
use sandboxer_git::git;
use sandboxer_git::ledger::Ledger;
use sandboxer_git::oid::Oid;
use sandboxer_git::private::{self, Seed, Setting, StatCheck};
use sandboxer_git::repository::{Head, Repository};
use serde_json::json;

use super::knowledge::recalled;
use super::laying::{self, Onto, Otherwise};
use super::spec::{GitSpec, place, store_laid};
use super::{GitWorktree, PRIVATE};
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

    /// Whether tracked files are to be those of a commit, whatever the checkout has.
    pub fn other_files(&self) -> bool {
        self.clean || self.from.is_some()
    }

    /// Whether the checkout's files are what is wanted.
    fn is_what_is_there(&self) -> bool {
        !self.other_files() && self.ignored
    }
}

/// What is known of a checkout before anything is made of it.
struct Checkout {
    repository: Repository,
    head: Head,
    refs: Vec<u8>,
    settings: Vec<Setting>,
}

impl Checkout {
    /// Asks git, as few times as will do.
    fn look(strategy: &str, path: &Path) -> Result<Self> {
        std::thread::scope(|scope| {
            let version = scope.spawn(git::version);
            let looked = Repository::find(path).and_then(Self::of);
            if let Ok(Err(reason)) = version.join() {
                let (strategy, path) = (strategy.to_owned(), path.to_path_buf());
                return Err(Error::Unavailable { strategy, path, reason });
            }
            looked
        })
    }

    fn of(repository: Repository) -> Result<Self> {
        let (settings, refs) = std::thread::scope(|scope| {
            let settings = scope.spawn(|| private::settings_of(&repository.git_dir));
            let refs = private::refs_of(&repository.git_dir);
            (settings.join(), refs)
        });
        let lost = |_| Error::io("run git on", &repository.git_dir, std::io::ErrorKind::BrokenPipe);
        let (refs, head) = refs?;
        let head = head.map_or_else(|| repository.head(), Ok)?;
        Ok(Self { head, refs, settings: settings.map_err(lost)??, repository })
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
        let path = resource.require_path()?;
        let checkout = Checkout::look(&self.name, path)?;
        checkout.refuse_unfit()?;
        let mut wanted = Wanted::of(resource);
        let spec = spec_of(&checkout, &wanted, resource)?;
        // By another name it is still what is checked out.
        wanted.from = wanted.from.filter(|_| !spec.has_target);
        let sowing = Sowing { checkout: &checkout, spec: &spec, wanted: &wanted };
        let laid = RefCell::new(Edits::new());
        let sow = |dir: &Path, home: &Path| {
            let marks = OverlaySpec::load(home)?.map_or(Marks::User, |spec| spec.marks);
            // Where an overlay keeps what its base has and the original has not.
            let layer = Layer::open(&Places::new(home).preserve(), marks)?;
            let original = Root::open(path)?;
            *laid.borrow_mut() = sowing.sow(StatCheck::Full, dir, home, &Onto::Layer(&layer, &original))?;
            Ok(())
        };
        let made = self.files.make(plan, resource, Some(&Ground { name: PRIVATE, sow: &sow }))?;
        if let Err(error) = self.finish_making(&made, &sowing, laid.into_inner()) {
            let _ = self.files.cleanup(&made);
            return Err(error);
        }
        Ok(self.dressed(made, &spec))
    }

    fn finish_making(&self, made: &SandboxRef, sowing: &Sowing<'_>, mut laid: Edits) -> Result<()> {
        let home = home_of(made)?;
        let tree = Root::open(tree_of(made)?)?;
        if !is_overlay(&home) {
            let dir = tree.path().join(PRIVATE);
            std::fs::create_dir(&dir).map_err(|e| Error::io("create directory", &dir, e))?;
            laid = sowing.sow(StatCheck::Minimal, &dir, &home, &Onto::Copy(&tree))?;
        }
        sowing.spec.store_new(&home)?;
        self.keep_seed(&home)?;
        if laid.is_empty() {
            return Ok(());
        }
        self.files.open_space(&home, self.files.means())?.base()?.rewrite(laid)
    }

    /// The ref, in this strategy's name and with what there is to tell.
    pub(super) fn dressed(&self, made: SandboxRef, spec: &GitSpec) -> SandboxRef {
        let recalled = home_of(&made).map(|home| recalled(&home)).unwrap_or_default();
        let objects = home_of(&made).map(|home| place(&home).join(ORIGINAL)).unwrap_or_default();
        let told = json!({
            "branch": spec.branch,
            "base": spec.base,
            "target": spec.target.as_deref().map(short),
            "repository": spec.repository.common_dir,
        });
        SandboxRef { strategy_name: self.name.clone(), ..made }
            .with("git", told)
            .with_path("recalled", &recalled)
            .with_path("exposes", &objects)
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
        left: BTreeMap::new(),
    })
}

/// The link to the objects of the user's repository, which the private one goes through. Whoever shows a workspace elsewhere shows it too.
const ORIGINAL: &str = "original";

/// What a private repository is made from.
struct Sowing<'a> {
    checkout: &'a Checkout,
    spec: &'a GitSpec,
    wanted: &'a Wanted<'a>,
}

impl Sowing<'_> {
    /// Makes what the workspace has besides its files: the ledger, and the repository inside. Where other files are wanted than the checkout has,
    /// they are laid `onto` it.
    fn sow(&self, stat: StatCheck, git_dir: &Path, home: &Path, onto: &Onto<'_>) -> Result<Edits> {
        let (spec, place) = (self.spec, place(home));
        std::fs::create_dir_all(&place).map_err(|e| Error::io("create directory", &place, e))?;
        let ledger = Ledger::create(&place, &spec.repository)?;
        let objects = place.join(ORIGINAL);
        // A link, so that another view of the filesystem can put the objects in its place.
        std::os::unix::fs::symlink(spec.repository.objects(), &objects)
            .or_else(|e| if e.kind() == std::io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
            .map_err(|e| Error::io("create link", &objects, e))?;
        let seed = || Seed {
            git_dir: &spec.repository.git_dir,
            common_dir: &spec.repository.common_dir,
            format: spec.repository.format,
            branch: &spec.branch,
            base: spec.base.as_ref(),
            objects: &objects,
            stat,
            refs: &self.checkout.refs,
            settings: &self.checkout.settings,
        };
        private::sow(&seed(), git_dir)?;
        if self.wanted.is_what_is_there() {
            return Ok(Edits::new());
        }
        let work_tree = &spec.repository.work_tree;
        if let Some(base) = spec.base.as_ref().filter(|_| self.wanted.other_files()) {
            private::reset_index(git_dir, work_tree, base)?;
        }
        let otherwise = Otherwise::find(&spec.repository, self.wanted, spec.base.as_ref(), seed(), &place)?;
        if matches!(onto, Onto::Copy(_)) && !otherwise.is_empty() {
            store_laid(home, &otherwise)?;
        }
        otherwise.lay(&ledger, onto)
    }
}
