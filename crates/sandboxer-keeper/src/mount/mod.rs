//! Overlays in the mount namespace of this process.
//!
//! Every directory is opened first and handed to the kernel as a descriptor, so that no name can be taken for an option
//! and none is too long. What the kernel says when it refuses ends up in the error. Nothing here is lazy: an unmount
//! either happened when it returns, or did not happen.

mod guess;
mod holders;
mod table;
mod trial;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{
    self as syscall, FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, UnmountFlags,
};
use sandboxer_core::{Error, Result};

use crate::{Kind, Overlay, Unmounted};

pub use crate::work::fresh_work;
pub use holders::{Holder, holders, holders_outside, is_taken};
pub use table::submounts;
pub use trial::try_host;
pub(crate) use trial::{Trial, unique};

pub(crate) const OPEN: &str = "open directory";
const MOUNT: &str = "mount overlay at";
const UNMOUNT: &str = "unmount";
const RENEW: &str = "renew the overlay at";
const LOOK: &str = "look at";

/// The steps that errors of this module name.
pub(crate) const STEPS: [&str; 5] = [OPEN, MOUNT, UNMOUNT, RENEW, LOOK];

/// Attaches a mount beneath the topmost one, since Linux 6.5.
const BENEATH: MoveMountFlags = MoveMountFlags::from_bits_retain(0x200);

/// How often it is tried to unmount an overlay in which a system call is at work.
const UNMOUNT_ATTEMPTS: usize = 20;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(1);

const OVERLAY_MAGIC: u64 = 0x794c_7630;

/// Mounts an overlay.
///
/// The last name of each path is not followed if it is a link. `work` has to be fresh. Nothing may be mounted at `at`
/// yet; that nobody else uses `upper` is the caller's to see to, since the kernel does not: two mounts of one upper
/// break each other. A mount that the kernel refuses may leave its mark in `work` all the same.
///
/// The mount is `nosuid` and `nodev`: what is in a sandbox was written by somebody who is not trusted, so a setuid program or
/// a device node inside gives nobody anything. Directories cannot be renamed by redirection, there are no metadata-only
/// copies and there is no index, so that an upper can be read by its names alone.
pub fn mount(overlay: &Overlay, kind: Kind) -> Result<()> {
    let at = directory(&overlay.at)?;
    if is_overlay_root(&at, Path::new("")).map_err(|e| Error::io(LOOK, &overlay.at, e))? {
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "an overlay is mounted there already");
        return Err(Error::io(MOUNT, &overlay.at, source));
    }
    let mounted = detached(overlay, kind)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    syscall::move_mount(&mounted, "", &at, "", flags).map_err(|e| Error::io(MOUNT, &overlay.at, e))
}

/// Mounts an overlay in place of the one at its mount point. There is no instant without a mount: the new one is attached beneath the old
/// one, which is unmounted then. What began to work in the old one meanwhile keeps it, detached.
///
/// Before Linux 6.5 nothing can be attached beneath: then there is such an instant.
pub fn replace(overlay: &Overlay, kind: Kind) -> Result<()> {
    if !is_mounted(&overlay.at)? {
        return mount(overlay, kind);
    }
    let new = detached(overlay, kind)?;
    let attach = |flags| {
        let at = directory(&overlay.at)?;
        let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        match syscall::move_mount(&new, "", &at, "", empty | flags) {
            Err(Errno::INVAL) if flags == BENEATH => Ok(false),
            attached => attached.map(|()| true).map_err(|e| Error::io(MOUNT, &overlay.at, e)),
        }
    };
    let is_attached = attach(BENEATH)?;
    unmount_or_detach(&overlay.at)?;
    if is_attached { Ok(()) } else { attach(MoveMountFlags::empty()).map(drop) }
}

/// Unmounts the topmost overlay at `at` as soon as no system call is at work in it, or detaches it.
fn unmount_or_detach(at: &Path) -> Result<()> {
    for _ in 0..UNMOUNT_ATTEMPTS {
        match syscall::unmount(at, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) => std::thread::sleep(UNMOUNT_PAUSE),
            unmounted => return unmounted.map_err(|e| Error::io(UNMOUNT, at, e)),
        }
    }
    syscall::unmount(at, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH).map_err(|e| Error::io(UNMOUNT, at, e))
}

/// Whether something works in the overlay at `at`. One that nothing has used since it was last asked is unmounted by the kernel.
pub fn is_busy(at: &Path) -> Result<bool> {
    match syscall::unmount(at, UnmountFlags::NOFOLLOW | UnmountFlags::EXPIRE) {
        Err(Errno::BUSY) => Ok(true),
        Ok(()) | Err(Errno::AGAIN | Errno::INVAL | Errno::NOENT) => Ok(false),
        Err(e) => Err(Error::io(UNMOUNT, at, e)),
    }
}

/// Unmounts the overlay at `at`, if nobody works in it.
pub fn unmount(at: &Path) -> Result<Unmounted> {
    if !is_mounted(at)? {
        return Ok(Unmounted::NotMounted);
    }
    match syscall::unmount(at, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Unmounted::Done),
        Err(Errno::BUSY) => Ok(Unmounted::Busy),
        Err(Errno::INVAL | Errno::NOENT) => Ok(Unmounted::NotMounted),
        Err(e) => Err(Error::io(UNMOUNT, at, e)),
    }
}

/// Has the kernel look again at what the overlay at `at` shows: names and directories that it remembers from a lower layer are
/// forgotten, unless a process uses them right now. Open files and working directories stay as they are.
pub fn renew(at: &Path) -> Result<()> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_SYMLINK_NOFOLLOW;
    let picked = syscall::fspick(CWD, at, flags);
    picked.and_then(syscall::fsconfig_reconfigure).map_err(|e| Error::io(RENEW, at, e))
}

/// Whether an overlay is mounted right at `at`. Nothing being there is `false`.
pub fn is_mounted(at: &Path) -> Result<bool> {
    is_mounted_below(CWD, at)
}

/// The same for a path that is relative to an open directory.
pub(crate) fn is_mounted_below(dir: impl rustix::fd::AsFd, at: &Path) -> Result<bool> {
    match is_overlay_root(dir, at) {
        Ok(answer) => Ok(answer),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(e) => Err(Error::io(LOOK, at, e)),
    }
}

fn is_overlay_root(dir: impl rustix::fd::AsFd, path: &Path) -> rustix::io::Result<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let facts = fs::statx(&dir, path, flags, StatxFlags::TYPE)?;
    if !facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(false);
    }
    let fd =
        fs::openat(&dir, nonempty(path), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fs::fstatfs(&fd)?.f_type as u64 == OVERLAY_MAGIC)
}

/// `openat` has no empty path.
fn nonempty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// The overlay as a mount that is nowhere yet, and gone when the descriptor is closed.
fn detached(overlay: &Overlay, kind: Kind) -> Result<OwnedFd> {
    let layers = Layers::open(overlay)?;
    let refused = |refusal: Refusal| {
        Error::io(MOUNT, &overlay.at, refusal.explained(overlay, kind, layers.used).in_words())
    };
    match layers.mount(overlay, kind, Way::Descriptor) {
        Err(refusal) if refusal.not_understood => {}
        answer => return answer.map_err(refused),
    }
    match layers.mount(overlay, kind, Way::Name) {
        Err(refusal) if refusal.errno == Errno::INVAL => {}
        answer => return answer.map_err(refused),
    }
    layers.mount(overlay, kind, Way::List).map_err(refused)
}

/// How the kernel is told of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By descriptor, since Linux 6.13.
    Descriptor,
    /// By the descriptor's name in `/proc`, each lower on its own, since Linux 6.7. A name itself may be too long: the
    /// kernel takes values of up to 255 bytes.
    Name,
    /// By such names, all lowers in one value, for what is older.
    List,
}

/// The directories of an overlay, held open.
struct Layers {
    lowers: Vec<OwnedFd>,
    upper: OwnedFd,
    work: OwnedFd,
    /// The work directory has been used before.
    used: bool,
}

/// Why the kernel would not have it.
struct Refusal {
    errno: Errno,
    said: String,
    /// It does not know this way of naming a directory.
    not_understood: bool,
}

impl Layers {
    fn open(overlay: &Overlay) -> Result<Self> {
        let lowers = overlay.lowers.iter().map(|lower| directory(lower)).collect::<Result<_>>()?;
        let (upper, work) = (directory(&overlay.upper)?, directory(&overlay.work)?);
        let used = fs::statat(&work, "work", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        Ok(Self { lowers, upper, work, used })
    }

    fn mount(&self, overlay: &Overlay, kind: Kind, way: Way) -> Result<OwnedFd, Refusal> {
        let context =
            syscall::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(Refusal::of_no_overlayfs)?;
        let refused = |errno| Refusal { errno, said: said_by(&context), not_understood: false };
        self.name_lowers(&context, way).map_err(|errno| Refusal {
            not_understood: way == Way::Descriptor && errno == Errno::INVAL,
            ..refused(errno)
        })?;
        self.configure(&context, overlay, kind, way).map_err(refused)?;
        syscall::fsconfig_create(&context).map_err(refused)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        syscall::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(refused)
    }

    fn name_lowers(&self, context: &OwnedFd, way: Way) -> rustix::io::Result<()> {
        if way == Way::List {
            let names: Vec<String> = self.lowers.iter().map(name_of).collect();
            return syscall::fsconfig_set_string(context, "lowerdir", names.join(":"));
        }
        self.lowers.iter().try_for_each(|lower| name(context, "lowerdir+", lower, way))
    }

    fn configure(
        &self,
        context: &OwnedFd,
        overlay: &Overlay,
        kind: Kind,
        way: Way,
    ) -> rustix::io::Result<()> {
        name(context, "upperdir", &self.upper, way)?;
        name(context, "workdir", &self.work, way)?;
        // `nofollow` and not `off`: some kernels are built to follow redirections that they would not make, and
        // `userxattr` takes no other value.
        for (key, value) in
            [("source", "sandbox"), ("redirect_dir", "nofollow"), ("metacopy", "off"), ("index", "off")]
        {
            syscall::fsconfig_set_string(context, key, value)?;
        }
        if kind == Kind::User {
            syscall::fsconfig_set_flag(context, "userxattr")?;
        }
        if overlay.volatile {
            syscall::fsconfig_set_flag(context, "volatile")?;
        }
        Ok(())
    }
}

impl Refusal {
    fn of_no_overlayfs(errno: Errno) -> Self {
        let said = match errno {
            Errno::NODEV => "this kernel has no overlay filesystem (try `modprobe overlay`)".to_owned(),
            Errno::PERM => "this process may not mount overlays".to_owned(),
            _ => String::new(),
        };
        Self { errno, said, not_understood: false }
    }

    /// With a guess: the kernel often says nothing.
    fn explained(mut self, overlay: &Overlay, kind: Kind, used: bool) -> Self {
        let wrong = guess::what_is_wrong(overlay, kind, used);
        let said = std::mem::take(&mut self.said);
        let parts: Vec<String> =
            wrong.into_iter().chain(Some(said).filter(|said| !said.is_empty())).collect();
        Self { said: parts.join("; "), ..self }
    }

    fn in_words(&self) -> io::Error {
        let plain = io::Error::from(self.errno);
        if self.said.is_empty() {
            return plain;
        }
        io::Error::new(plain.kind(), format!("{plain}: {}", self.said))
    }
}

fn directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty()).map_err(|e| Error::io(OPEN, path, e))
}

fn name(context: &OwnedFd, key: &str, directory: &OwnedFd, way: Way) -> rustix::io::Result<()> {
    match way {
        Way::Descriptor => syscall::fsconfig_set_fd(context, key, directory),
        Way::Name | Way::List => syscall::fsconfig_set_string(context, key, name_of(directory)),
    }
}

fn name_of(directory: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", directory.as_raw_fd())
}

/// What the kernel has to say about a mount that is being made; one message a read, until there are none.
fn said_by(context: &OwnedFd) -> String {
    let mut said = Vec::new();
    let mut message = [0; 1024];
    while let Ok(length @ 1..) = rustix::io::read(context, &mut message) {
        let message = String::from_utf8_lossy(&message[..length]);
        // `e overlay: …`: the letter is the severity.
        said.push(message.trim_end().get(2..).unwrap_or_default().to_owned());
    }
    said.join("; ")
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
