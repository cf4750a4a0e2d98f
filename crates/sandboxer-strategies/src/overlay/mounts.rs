//! Which overlays are mounted, where they are reached, and that none is mounted twice.
//!
//! What was mounted is written down beside the workspace: on which boot, in which mount namespace, as which device. Before anything is mounted that is
//! compared with what is there now: a mount in another namespace, or one that was detached while somebody worked in it, still writes
//! to the same upper, and a second one beside it would corrupt both.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::mount::UnmountFlags;
use sandboxer_core::{Error, Result};
use sandboxer_fs::durable;
use sandboxer_fs::overlay::instant::Clock;
use sandboxer_fs::overlay::layer::Marks;
use sandboxer_fs::overlay::space::OverlaySpec;
use sandboxer_fs::overlay::stack::{Places, Stack};
use sandboxer_fs::overlay::taken;
use sandboxer_keeper::mount::{self, Holder};
use sandboxer_keeper::{Keeper, Keepers, Kind, Overlay, Unmounted, fresh_work};
use serde::{Deserialize, Serialize};

use super::notices;

/// How often an unmount is tried again before the overlay counts as busy.
const RETRIES: usize = 3;
const RETRY_AFTER: Duration = Duration::from_millis(3);

/// How often, and how far apart, it is looked whether somebody works in a mount that is gone.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Mounts the overlays of one state directory.
pub struct Mounts {
    keepers: Option<Keepers>,
}

/// What was mounted, by whom.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Mounted {
    boot: String,
    namespace: u64,
    device: u64,
    /// The inode of its upper. Another directory has its name after a checkpoint or a restore that was killed before the new mount.
    upper: u64,
}

/// Nobody mounts or unmounts an overlay, or moves its layers, without this.
pub struct MountLock(#[allow(dead_code)] File);

impl Mounts {
    /// For the state directory `home`; keepers are started from `program`.
    pub fn new(home: &Path, program: Option<&Path>) -> Self {
        Self { keepers: program.map(|program| Keepers::new(&home.join("keepers"), program)) }
    }

    /// For the state directory `home`, to find and end keepers, and never to start one.
    pub fn finding(home: &Path) -> Self {
        Self { keepers: Some(Keepers::new(&home.join("keepers"), Path::new("/nonexistent"))) }
    }

    /// The keepers of the state directory, if any can be started.
    pub fn keepers(&self) -> Result<&Keepers> {
        self.keepers.as_ref().ok_or_else(|| {
            Error::refused("there is no program to start a keeper from; use the `sandbox` command")
        })
    }

    /// Where the overlay of the workspace at `home` is reached, if it is mounted.
    pub fn reached(&self, home: &Path, spec: &OverlaySpec) -> Result<Option<PathBuf>> {
        let places = Places::new(home);
        let Some(reached) = self.mount_point(&places.merged(), spec)? else { return Ok(None) };
        let is_present =
            !Mounted::load(home).is_replaced(&reached, &places) && Stack::load(&places)?.is_settled(&places);
        Ok(is_present.then_some(reached))
    }

    /// Where an overlay is reached that is mounted at `merged`, also one that is to be replaced.
    fn mount_point(&self, merged: &Path, spec: &OverlaySpec) -> Result<Option<PathBuf>> {
        match self.keeper(spec)? {
            None if spec.keeper.is_some() => Ok(None),
            None => Ok(mount::is_mounted(merged)?.then(|| merged.to_path_buf())),
            Some(keeper) => Ok(keeper.is_mounted(merged)?.then(|| keeper.reach(merged))),
        }
    }

    fn keeper(&self, spec: &OverlaySpec) -> Result<Option<Keeper>> {
        match (&spec.keeper, &self.keepers) {
            (Some(id), Some(keepers)) => keepers.find(id),
            _ => Ok(None),
        }
    }

    /// The same, mounted if it was not.
    pub fn ensure(&self, home: &Path, spec: &OverlaySpec) -> Result<PathBuf> {
        if let Some(reached) = self.reached(home, spec)? {
            return Ok(reached);
        }
        let lock = Self::lock(home)?;
        self.ensure_locked(home, spec, &lock)
    }

    fn ensure_locked(&self, home: &Path, spec: &OverlaySpec, lock: &MountLock) -> Result<PathBuf> {
        if let Some(reached) = self.reached(home, spec)? {
            return Ok(reached);
        }
        // A command was killed between changing the layers and mounting them.
        while let Some(old) = self.mount_point(&Places::new(home).merged(), spec)? {
            if self.unmount(home, spec, lock)? == Unmounted::Busy {
                return Err(super::busy(home, &self.holders(&old)));
            }
        }
        self.mount(home, spec, lock)
    }

    /// The lock of the workspace at `home`.
    pub fn lock(home: &Path) -> Result<MountLock> {
        let path = home.join("mount.lock");
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(|e| Error::io("open", &path, e))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|e| Error::io("lock", &path, e))?;
        Ok(MountLock(file))
    }

    /// Mounts what is not mounted, and says where it is reached.
    pub fn mount(&self, home: &Path, spec: &OverlaySpec, _lock: &MountLock) -> Result<PathBuf> {
        let places = Places::new(home);
        refuse_strays(&places.merged())?;
        let before = Mounted::load(home);
        refuse_second_mount(&before, &places)?;
        let (overlay, was_open) = self.arrange(home, spec, &places)?;
        if was_open && before.boot != Clock::now().boot {
            notices::went_down(home, &places)?;
        }
        let reached = self.mount_as(spec, &overlay, &places)?;
        Mounted::now(&reached, &places)?.store(home);
        Ok(reached)
    }

    /// The overlay as its layers are now, with a fresh work directory; and whether the last one was left open.
    fn arrange(&self, home: &Path, spec: &OverlaySpec, places: &Places) -> Result<(Overlay, bool)> {
        let stack = Stack::open(places)?;
        taken::settle(home, spec.marks, places, &stack)?;
        let was_open = fresh_work(&places.work())?;
        let overlay = Overlay {
            lowers: spec.lowers(places, &stack)?,
            upper: places.upper(),
            work: places.work(),
            at: places.merged(),
            volatile: spec.volatile,
        };
        Ok((overlay, was_open))
    }

    /// Has `change` change the layers, and mounts them in place of the present mount: at no time is there none. Returns `None`, and
    /// changes nothing, where something works in the mount.
    pub fn replace<T>(
        &self,
        home: &Path,
        spec: &OverlaySpec,
        lock: &MountLock,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        let places = Places::new(home);
        if self.is_used_elsewhere(&places.merged(), spec)? || self.is_busy(&places.merged(), spec)? {
            return Ok(None);
        }
        let Some(reached) = self.reached(home, spec)? else {
            let changed = change();
            self.ensure_locked(home, spec, lock)?;
            return changed.map(Some);
        };
        let changed = change();
        // The present mount goes on using its own.
        sandboxer_fs::remove_tree(&places.old_work())?;
        std::fs::rename(places.work(), places.old_work())
            .map_err(|e| Error::io("rename into place", places.old_work(), e))?;
        let (overlay, _) = self.arrange(home, spec, &places)?;
        match self.keeper(spec)? {
            Some(keeper) => keeper.replace(&overlay)?,
            None => mount::replace(&overlay, kind_of(spec.marks))?,
        }
        Mounted::now(&reached, &places)?.store(home);
        changed.map(Some)
    }

    fn is_busy(&self, merged: &Path, spec: &OverlaySpec) -> Result<bool> {
        for _ in 0..RETRIES {
            let is_busy = match self.keeper(spec)? {
                Some(keeper) => keeper.is_busy(merged)?,
                None if spec.keeper.is_some() => false,
                None => mount::is_busy(merged)?,
            };
            if !is_busy {
                return Ok(false);
            }
            // A process that is just being started has our descriptors for a moment.
            std::thread::sleep(RETRY_AFTER);
        }
        Ok(true)
    }

    fn mount_as(&self, spec: &OverlaySpec, overlay: &Overlay, places: &Places) -> Result<PathBuf> {
        let Some(id) = &spec.keeper else {
            mount::mount(overlay, kind_of(spec.marks))?;
            return Ok(overlay.at.clone());
        };
        let keeper = self.keepers()?.start(id)?;
        keeper.mount(overlay)?;
        let reached = keeper.reach(&overlay.at);
        point_at(&places.tree(), &reached)?;
        Ok(reached)
    }

    /// Has a mount show what the original is by now, apart from what processes in it use: see [`mount::renew`].
    pub fn renew(&self, home: &Path, spec: &OverlaySpec) -> Result<()> {
        let merged = Places::new(home).merged();
        match (&spec.keeper, self.keeper(spec)?) {
            (None, _) if mount::is_mounted(&merged)? => mount::renew(&merged),
            (Some(_), Some(keeper)) if keeper.is_mounted(&merged)? => keeper.renew(&merged),
            _ => Ok(()),
        }
    }

    /// Unmounts it, if nobody works in it.
    pub fn unmount(&self, home: &Path, spec: &OverlaySpec, _lock: &MountLock) -> Result<Unmounted> {
        let places = Places::new(home);
        if self.is_used_elsewhere(&places.merged(), spec)? {
            return Ok(Unmounted::Busy);
        }
        let mut done = self.try_to_unmount(&places.merged(), spec)?;
        for _ in 0..RETRIES {
            if done != Unmounted::Busy {
                break;
            }
            // A process that is just being started has our descriptors for a moment.
            std::thread::sleep(RETRY_AFTER);
            done = self.try_to_unmount(&places.merged(), spec)?;
        }
        if done == Unmounted::Done {
            // What a mount leaves there means something only for as long as it may have been cut short.
            sandboxer_fs::remove_tree(&places.work())?;
            sandboxer_fs::remove_tree(&places.old_work())?;
            Mounted::forget(home);
        }
        Ok(done)
    }

    /// Unmounts it, whoever works in it: nothing of it is needed any more.
    pub fn take_away(&self, home: &Path, spec: &OverlaySpec, lock: &MountLock) -> Result<()> {
        match self.try_to_unmount(&Places::new(home).merged(), spec)? {
            Unmounted::Busy => self.detach(home, spec, lock),
            Unmounted::Done | Unmounted::NotMounted => Ok(()),
        }
    }

    /// Whether somebody works in a copy of the mount, in a mount namespace of their own: that would go on writing to the upper.
    fn is_used_elsewhere(&self, merged: &Path, spec: &OverlaySpec) -> Result<bool> {
        let (reached, namespace) = match (&spec.keeper, self.keeper(spec)?) {
            (None, _) if mount::is_mounted(merged)? => (merged.to_path_buf(), own_namespace()),
            // Where nothing is mounted yet there is the filesystem below, which everybody uses.
            (Some(_), Some(keeper)) if keeper.is_mounted(merged)? => {
                (keeper.reach(merged), namespace_of(&keeper.pid().to_string()))
            }
            _ => return Ok(false),
        };
        let Ok(device) = reached.metadata().map(|m| m.dev()) else { return Ok(false) };
        let own = std::process::id();
        Ok(mount::holders_outside(device, namespace).iter().any(|holder| holder.pid != own))
    }

    fn try_to_unmount(&self, merged: &Path, spec: &OverlaySpec) -> Result<Unmounted> {
        match (&spec.keeper, self.keeper(spec)?) {
            (None, _) => mount::unmount(merged),
            (Some(_), Some(keeper)) => keeper.unmount(merged),
            (Some(_), None) => Ok(Unmounted::NotMounted),
        }
    }

    /// Takes the mount from under whoever works in it: they keep what they have open, and it ends with them. A keeper's mount
    /// goes with its mount point, or with the keeper.
    pub fn detach(&self, home: &Path, spec: &OverlaySpec, _lock: &MountLock) -> Result<()> {
        let merged = Places::new(home).merged();
        if spec.keeper.is_some() {
            return Ok(());
        }
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        rustix::mount::unmount(&merged, flags).map_err(|e| Error::io("unmount", &merged, e))
    }

    /// Who works in it.
    pub fn holders(&self, reached: &Path) -> Vec<Holder> {
        let device = reached.metadata().map(|m| m.dev());
        let own = std::process::id();
        let holders = device.map(mount::holders).unwrap_or_default();
        holders.into_iter().filter(|holder| holder.pid != own).collect()
    }
}

/// The kernel's options for where marks are kept.
fn kind_of(marks: Marks) -> Kind {
    match marks {
        Marks::Trusted => Kind::Host,
        Marks::User => Kind::User,
    }
}

/// What was written to the bare mount point would be hidden by the mount, and lost with the sandbox.
fn refuse_strays(merged: &Path) -> Result<()> {
    // Nothing can be put there by whoever is not root.
    let _ = std::fs::set_permissions(merged, std::fs::Permissions::from_mode(0o500));
    let mut listed = std::fs::read_dir(merged).map_err(|e| Error::io("list", merged, e))?;
    match listed.next() {
        None => Ok(()),
        Some(_) => Err(Error::Refused {
            reason: format!(
                "files were put into {} while the sandbox was not mounted there",
                merged.display()
            ),
            hint: Some("move them elsewhere, then try again".to_owned()),
        }),
    }
}

fn refuse_second_mount(before: &Mounted, places: &Places) -> Result<()> {
    let merged = &places.merged();
    if before.boot.is_empty() || before.boot != Clock::now().boot {
        return Ok(());
    }
    let holders = match own_namespace() == before.namespace || !is_alive(before.namespace) {
        true => lasting_holders(before.device, &places.upper()),
        false => {
            return Err(Error::Busy {
                path: merged.to_path_buf(),
                holder: Some("it is mounted in another mount namespace; use it from there".to_owned()),
            });
        }
    };
    if holders.is_empty() {
        return Ok(());
    }
    let who: Vec<String> = holders.iter().map(|h| format!("{} ({})", h.pid, h.name)).collect();
    Err(Error::Busy {
        path: merged.to_path_buf(),
        holder: Some(format!(
            "its mount is gone, but processes still work in it: {}; end them, then try again",
            who.join(", ")
        )),
    })
}

/// Who works in a mount that is gone, and still does after a moment: one that is just being made has its device before any table
/// shows it.
fn lasting_holders(device: u64, upper: &Path) -> Vec<Holder> {
    for _ in 0..LOOKS {
        if old_holders(device, upper).is_empty() {
            return Vec::new();
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    old_holders(device, upper)
}

/// Who still works in a mount that is gone. A device number that is mounted again, here or in another namespace, belongs to
/// somebody else.
fn old_holders(device: u64, upper: &Path) -> Vec<Holder> {
    if device == 0 || mount::is_taken(device, upper) {
        return Vec::new();
    }
    let holders = mount::holders(device);
    // Looking takes a while, in which the number may have been taken.
    if mount::is_taken(device, upper) { Vec::new() } else { holders }
}

fn own_namespace() -> u64 {
    namespace_of("self")
}

fn namespace_of(process: &str) -> u64 {
    std::fs::metadata(format!("/proc/{process}/ns/mnt")).map_or(0, |m| m.ino())
}

fn is_alive(namespace: u64) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let namespaces = processes.filter_map(|p| std::fs::metadata(p.path().join("ns/mnt")).ok());
    namespace != 0 && namespaces.into_iter().any(|m| m.ino() == namespace)
}

/// Makes the link `at` point to `to`, whatever it pointed to.
fn point_at(at: &Path, to: &Path) -> Result<()> {
    let temporary = at.with_extension("new");
    let _ = std::fs::remove_file(&temporary);
    std::os::unix::fs::symlink(to, &temporary).map_err(|e| Error::io("link", &temporary, e))?;
    std::fs::rename(&temporary, at).map_err(|e| Error::io("link", at, e))
}

impl Mounted {
    fn path(home: &Path) -> PathBuf {
        home.join("mounted.json")
    }

    fn load(home: &Path) -> Self {
        let json = std::fs::read(Self::path(home)).unwrap_or_default();
        serde_json::from_slice(&json).unwrap_or_default()
    }

    fn now(reached: &Path, places: &Places) -> Result<Self> {
        let facts = |path: &Path| path.metadata().map_err(|e| Error::io("examine", path, e));
        let (device, upper) = (facts(reached)?.dev(), facts(&places.upper())?.ino());
        Ok(Self { boot: Clock::now().boot, namespace: own_namespace(), device, upper })
    }

    /// Whether the mount at `reached` is not the one of the present layers. Where nothing was written down, it is.
    fn is_replaced(&self, reached: &Path, places: &Places) -> bool {
        let is_now = |now: Self| (now.device, now.upper) == (self.device, self.upper);
        self.upper != 0 && self.boot == Clock::now().boot && !Self::now(reached, places).is_ok_and(is_now)
    }

    /// Not durably: it says nothing after the machine went down, but that it did.
    fn store(&self, home: &Path) {
        let _ = serde_json::to_vec(self).map(|json| durable::write_lazily(&Self::path(home), &json));
    }

    fn forget(home: &Path) {
        let _ = std::fs::remove_file(Self::path(home));
    }
}
