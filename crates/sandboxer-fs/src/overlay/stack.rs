//! The layers of an overlay, and which of them make up the present state and each checkpoint.
//!
//! A state is a list of frozen layers. Freezing the upper, going back and forgetting only change lists and rename directories, so they cost the
//! same however much was changed. The list is written first; what is left to be done is told by what is there, and [`Stack::settle`]
//! does it. None of this happens while the overlay is mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::layer::{Layer, Marks};
use super::transfer;
use crate::durable;

/// More layers than this are made one: the kernel takes 500.
pub const MOST_LAYERS: usize = 400;

/// The number of a frozen layer.
pub type LayerId = u64;

/// Which layers make up what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The frozen layers of the present state, lowest first.
    pub layers: Vec<LayerId>,
    /// Those of each checkpoint.
    pub checkpoints: BTreeMap<String, Vec<LayerId>>,
    /// The layers that belong to the base: every state begins with them, and they are what a rollback goes back to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ground: Vec<LayerId>,
    /// The next number.
    next: LayerId,
    /// The upper belongs to a state that was left, and has yet to go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaves_upper: bool,
}

/// The directories of an overlay.
#[derive(Clone, Debug)]
pub struct Places {
    home: PathBuf,
}

impl Places {
    /// Those of the workspace at `home`.
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_path_buf() }
    }

    /// What was changed since the last checkpoint.
    pub fn upper(&self) -> PathBuf {
        self.home.join("upper")
    }

    /// The kernel's.
    pub fn work(&self) -> PathBuf {
        self.home.join("work")
    }

    /// The kernel's, of a mount that was replaced.
    pub fn old_work(&self) -> PathBuf {
        self.home.join("work.old")
    }

    /// The mount point.
    pub fn merged(&self) -> PathBuf {
        self.home.join("merged")
    }

    /// A link that follows the keeper.
    pub fn tree(&self) -> PathBuf {
        self.home.join("tree")
    }

    /// What others have replaced in the original.
    pub fn preserve(&self) -> PathBuf {
        self.home.join("preserve")
    }

    /// What is to be removed when there is time: beside the workspace, so that it goes on after the workspace is gone.
    pub fn leavings(&self) -> Vec<PathBuf> {
        let prefix = self.leaving_prefix();
        let beside = self.home.parent().and_then(|root| std::fs::read_dir(root).ok());
        let all = beside.into_iter().flatten().flatten();
        let is_ours = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(&prefix);
        all.filter(|entry| is_ours(&entry.file_name())).map(|entry| entry.path()).collect()
    }

    fn leaving_prefix(&self) -> String {
        format!("gone-{}-", self.home.file_name().unwrap_or_default().to_string_lossy())
    }

    /// A frozen layer.
    pub fn layer(&self, id: LayerId) -> PathBuf {
        self.layers().join(id.to_string())
    }

    fn layers(&self) -> PathBuf {
        self.home.join("layers")
    }

    fn stack(&self) -> PathBuf {
        self.home.join("stack.json")
    }

    /// Makes those that a new overlay has.
    pub fn make(&self) -> Result<()> {
        for dir in [self.upper(), self.preserve(), self.layers(), self.merged()] {
            make_dir(&dir)?;
        }
        Ok(())
    }
}

fn make_dir(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(Error::io("create directory", dir, e)),
        _ => Ok(()),
    }
}

impl Stack {
    /// The stack of the overlay at `places`, with everything in its place.
    pub fn open(places: &Places) -> Result<Self> {
        let mut stack = Self::load(places)?;
        stack.settle(places)?;
        Ok(stack)
    }

    /// As it is written down.
    pub fn load(places: &Places) -> Result<Self> {
        let path = places.stack();
        match std::fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json).map_err(|e| Error::corrupt(&path, e.to_string())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(Error::io("read", path, e)),
        }
    }

    fn store(&self, places: &Places) -> Result<()> {
        durable::write(&places.stack(), &self.to_json(places)?)
    }

    /// Whether everything that was written down is done.
    pub fn is_settled(&self, places: &Places) -> bool {
        !self.leaves_upper && self.layers.last().is_none_or(|top| places.layer(*top).exists())
    }

    /// Does what was written down and not done yet.
    pub fn settle(&mut self, places: &Places) -> Result<()> {
        if let Some(top) = self.layers.last().map(|id| places.layer(*id)).filter(|top| !top.exists()) {
            rename(&places.upper(), &top)?;
        }
        if self.leaves_upper {
            self.throw_away(places, &places.upper())?;
            make_upper(self, places)?;
            self.leaves_upper = false;
            self.store(places)?;
        }
        make_upper(self, places)
    }

    /// Makes the upper the topmost frozen layer, and that state the checkpoint `name`.
    pub fn freeze(&mut self, name: &str, places: &Places) -> Result<()> {
        let id = self.take_number(places);
        self.layers.push(id);
        self.checkpoints.insert(name.to_owned(), self.layers.clone());
        self.store(places)?;
        self.settle(places)
    }

    /// Makes what is in the upper of a new overlay a part of the base; as durably as what will be in it.
    pub fn settle_ground(&mut self, volatile: bool, places: &Places) -> Result<()> {
        let id = self.take_number(places);
        self.layers.push(id);
        self.ground = self.layers.clone();
        if volatile {
            durable::write_lazily(&places.stack(), &self.to_json(places)?)?;
        } else {
            self.store(places)?;
        }
        self.settle(places)
    }

    fn to_json(&self, places: &Places) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::corrupt(places.stack(), e.to_string()))
    }

    /// A number for a layer that is copied from a state that stays; see [`Stack::adopt`].
    pub fn take_number(&mut self, places: &Places) -> LayerId {
        self.next += 1;
        // What a crash, or a failure, left under a number would be taken for the layer.
        while places.layer(self.next).exists() {
            self.next += 1;
        }
        self.next
    }

    /// A number and an empty directory for a layer that no state has yet.
    pub fn new_layer(&mut self, places: &Places) -> Result<(LayerId, PathBuf)> {
        let id = self.take_number(places);
        let layer = places.layer(id);
        make_dir(&layer)?;
        Ok((id, layer))
    }

    /// Lays `id` below all that every checkpoint has.
    pub fn put_below_checkpoints(&mut self, id: LayerId, places: &Places) -> Result<()> {
        self.checkpoints.values_mut().for_each(|layers| layers.insert(0, id));
        self.store(places)
    }

    /// Makes the present layers with `id`, which is in place, the checkpoint `name`.
    pub fn adopt(&mut self, name: &str, id: LayerId, places: &Places) -> Result<()> {
        let layers = self.layers.iter().copied().chain([id]).collect();
        self.checkpoints.insert(name.to_owned(), layers);
        self.store(places)
    }

    /// The layers of the checkpoint `name`.
    pub fn checkpoint(&self, name: &str) -> Result<&Vec<LayerId>> {
        self.checkpoints.get(name).ok_or_else(|| Error::not_found("checkpoint", name))
    }

    /// Leaves the present state for one of the layers `to`.
    pub fn switch(&mut self, to: Vec<LayerId>, places: &Places) -> Result<()> {
        self.layers = to;
        self.leaves_upper = true;
        self.store(places)?;
        self.settle(places)?;
        self.sweep(places)
    }

    /// Forgets the checkpoint `name`, with what it alone holds.
    pub fn forget(&mut self, name: &str, places: &Places) -> Result<()> {
        if self.checkpoints.remove(name).is_some() {
            self.store(places)?;
        }
        self.sweep(places)
    }

    /// Puts the layers that nothing needs with what is to be removed.
    fn sweep(&mut self, places: &Places) -> Result<()> {
        let needed: BTreeSet<LayerId> =
            self.checkpoints.values().flatten().chain(&self.layers).chain(&self.ground).copied().collect();
        let there = std::fs::read_dir(places.layers()).map_err(|e| Error::io("list", places.layers(), e))?;
        for entry in there.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<LayerId>().ok());
            if !id.is_some_and(|id| needed.contains(&id)) {
                self.throw_away(places, &entry.path())?;
            }
        }
        Ok(())
    }

    fn throw_away(&self, places: &Places, dir: &Path) -> Result<()> {
        if !dir.exists() {
            return Ok(());
        }
        let prefix = places.leaving_prefix();
        let place = |number: u64| places.home.with_file_name(format!("{prefix}{number}"));
        let to = (0..).map(place).find(|to| !to.exists()).unwrap_or_else(|| place(0));
        rename(dir, &to)
    }

    /// Where there are too many layers, makes one of them for the present state; the checkpoint `name` is that state too.
    pub fn squash(&mut self, name: &str, marks: Marks, places: &Places, cancel: &CancelFlag) -> Result<()> {
        if self.layers.len() <= MOST_LAYERS {
            return Ok(());
        }
        let id = self.take_number(places);
        let temporary = places.layers().join(format!("{id}.new"));
        crate::remove_tree(&temporary)?;
        make_dir(&temporary)?;
        let layers = self.layers.iter().rev().map(|id| Layer::open(&places.layer(*id), marks));
        let layers = layers.collect::<Result<Vec<_>>>()?;
        transfer::squash(&layers.iter().collect::<Vec<_>>(), &temporary, cancel)?;
        // The layers that it stands for go: it has to be there after a power cut.
        rustix::fs::syncfs(crate::root::Root::open(&temporary)?)
            .map_err(|e| Error::io("flush", &temporary, e))?;
        rename(&temporary, &places.layer(id))?;
        self.layers = vec![id];
        self.checkpoints.insert(name.to_owned(), vec![id]);
        self.store(places)?;
        self.sweep(places)
    }

    /// The directories to mount below the upper, topmost first, without the original.
    pub fn lowers(&self, places: &Places) -> Vec<PathBuf> {
        self.layers.iter().rev().map(|id| places.layer(*id)).collect()
    }
}

/// An upper shows through its own mode and owner at the root of the mount: they are those of the layer below it.
fn make_upper(stack: &Stack, places: &Places) -> Result<()> {
    let upper = places.upper();
    if upper.exists() {
        return Ok(());
    }
    // Published by the rename: after a crash, an upper that exists has its mode and owner.
    let unfinished = upper.with_extension("new");
    make_dir(&unfinished)?;
    match stack.layers.last() {
        Some(id) => dress_like(&unfinished, &places.layer(*id))?,
        None => dress_like(&unfinished, &places.preserve())?,
    }
    rename(&unfinished, &upper)
}

/// Gives a directory the mode, owner, times and attributes of another.
pub fn dress_like(dir: &Path, like: &Path) -> Result<()> {
    let (dir, like) = (crate::root::Root::open(dir)?.as_dir()?, crate::root::Root::open(like)?.as_dir()?);
    let attributes =
        crate::xattrs::read(&like).map_err(|e| Error::io("read attributes of", like.shown_self(), e))?;
    let meta = crate::copy::Meta::of(&like.stamp_self()?, attributes);
    crate::clone::dress_dir(&dir, &meta).map(drop)
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|e| Error::io("rename into place", to, e))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_ground_is_below_every_state_and_stays() {
        let temp = tempfile::tempdir().unwrap();
        // Layers that are thrown away are moved beside the directory.
        let home = temp.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let places = Places::new(&home);
        places.make().unwrap();
        std::fs::write(places.upper().join("own"), "ground").unwrap();
        let mut stack = Stack::default();
        stack.settle_ground(true, &places).unwrap();
        assert_eq!(stack, Stack::load(&places).unwrap());
        let ground = stack.ground.clone();
        assert!(places.layer(ground[0]).join("own").exists() && !places.upper().join("own").exists());
        std::fs::write(places.upper().join("more"), "x").unwrap();
        stack.freeze("one", &places).unwrap();
        assert_eq!(stack.checkpoint("one").unwrap()[..1], ground);
        stack.switch(ground.clone(), &places).unwrap();
        stack.forget("one", &places).unwrap();
        assert_eq!((stack.lowers(&places), stack.layers), (vec![places.layer(ground[0])], ground.clone()));
        assert!(places.layer(ground[0]).join("own").exists());
        assert!(!places.layer(ground[0] + 1).exists());
    }

    #[test]
    fn an_upper_that_a_crash_left_unfinished_gets_the_mode_of_the_layer_below() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let places = Places::new(temp.path());
        places.make().unwrap();
        std::fs::set_permissions(places.upper(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut stack = Stack::default();
        stack.freeze("one", &places).unwrap();
        std::fs::remove_dir(places.upper()).unwrap();
        make_dir(&places.upper().with_extension("new")).unwrap();
        Stack::open(&places).unwrap();
        assert_eq!(std::fs::metadata(places.upper()).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(!places.upper().with_extension("new").exists());
    }
}
