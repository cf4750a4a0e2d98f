//! Where a tree is measured: tmpfs, an XFS or ext4 image on a loop device, a directory on disk. A place is a guard: whatever it
//! made (directory, image, mounts) goes when it goes, on errors and on Ctrl-C too. Before it makes anything it looks
//! whether there is room, and says how much is needed where there is not.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::failure::{During, Failure, Result};

/// An empty directory on some filesystem, with everything that has to be undone.
#[derive(Debug)]
pub struct Place {
    /// What the table calls it.
    pub name: &'static str,
    root: PathBuf,
    // Dropped in this order: what others mounted here, the innermost mount first, the directory that holds all of it last.
    _sweep: Sweep,
    _mounts: Vec<Mount>,
    directory: TempDir,
}

impl Place {
    /// A tmpfs with room for `bytes`: a mount of our own where we are root, else a directory in `/dev/shm`.
    pub fn tmpfs(bytes: u64) -> Result<Self> {
        if !is_root() {
            let directory = temp_dir(Path::new("/dev/shm"))?;
            need_free("tmpfs", directory.path(), bytes)?;
            return Ok(Self::plain("tmpfs", directory));
        }
        need_memory(bytes)?;
        let directory = temp_dir(&std::env::temp_dir())?;
        let root = subdirectory(&directory, "tmpfs")?;
        let mount = Mount::tmpfs(&root, bytes)?;
        Ok(Self { name: "tmpfs", _sweep: Sweep::below(&root), root, _mounts: vec![mount], directory })
    }

    /// A directory below `parent`, which is to be on a disk.
    pub fn disk(parent: &Path, bytes: u64) -> Result<Self> {
        let directory = temp_dir(parent)?;
        need_free("disk", directory.path(), bytes)?;
        Ok(Self::plain("disk", directory))
    }

    /// A new XFS with reflinks on a loop device whose image is kept in memory, so that the disk's moods do not count.
    pub fn xfs(bytes: u64) -> Result<Self> {
        if !is_root() {
            return Err(Failure::Skipped("an XFS loop mount needs root".to_owned()));
        }
        need_memory(bytes)?;
        let directory = temp_dir(&std::env::temp_dir())?;
        let (backing, root) = (subdirectory(&directory, "image")?, subdirectory(&directory, "xfs")?);
        let outer = Mount::tmpfs(&backing, bytes)?;
        let image = backing.join("xfs.img");
        make_xfs(&image, bytes)?;
        let inner = Mount::attach(&["-o", "loop"], &image, &root)
            .map_err(|why| Failure::Skipped(format!("no loop mount here ({why})")))?;
        let mounts = vec![inner, outer];
        Ok(Self { name: "xfs", _sweep: Sweep::below(&root), root, _mounts: mounts, directory })
    }

    /// A new ext4 with room for `bytes` and `inodes`, on a loop device whose sparse image is below `parent`, which is to be
    /// on a disk: flushes reach the disk, and half a million files go at once, as one image. Without root a directory.
    pub fn ext4(parent: &Path, bytes: u64, inodes: u64) -> Result<Self> {
        if !is_root() {
            return Self::disk(parent, bytes);
        }
        let directory = temp_dir(parent)?;
        need_free("disk", directory.path(), bytes)?;
        let (image, root) = (directory.path().join("ext4.img"), subdirectory(&directory, "ext4")?);
        make_ext4(&image, bytes * 2, inodes)?;
        // The kernel would fill the inode tables in the background of what is measured.
        let mount = Mount::attach(&["-o", "loop,noinit_itable"], &image, &root)
            .map_err(|why| Failure::new(format!("no loop mount here ({why})")))?;
        Ok(Self { name: "ext4", _sweep: Sweep::below(&root), root, _mounts: vec![mount], directory })
    }

    /// The empty directory to work in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes out what is dirty, so that neither side of a comparison pays for the other's writes.
    pub fn settle(&self) -> Result<()> {
        let root = File::open(&self.root).during("open", &self.root)?;
        rustix::fs::syncfs(root).during("sync", &self.root)
    }

    fn plain(name: &'static str, directory: TempDir) -> Self {
        let root = directory.path().to_owned();
        Self { name, _sweep: Sweep::below(&root), root, _mounts: Vec::new(), directory }
    }

    /// Skips what needs more room or inodes than there are.
    pub fn need(&self, bytes: u64, inodes: u64) -> Result<()> {
        let stat = rustix::fs::statvfs(&self.root).during("look for room on", &self.root)?;
        let (free, left) = (stat.f_bavail * stat.f_frsize, stat.f_favail);
        if free < bytes {
            let (needed, free) = (bytes / 1_000_000, free / 1_000_000);
            return Err(Failure::Skipped(format!("{needed} MB needed on {}, {free} MB free", self.name)));
        }
        // A filesystem that does not count its inodes says that it has none at all.
        if stat.f_files > 0 && left < inodes {
            return Err(Failure::Skipped(format!("{inodes} inodes needed on {}, {left} free", self.name)));
        }
        Ok(())
    }

    /// Lets every user pass through, for a command that runs as another one.
    pub fn open_to_all(&self) -> Result<()> {
        [self.directory.path(), &self.root].into_iter().try_for_each(|path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o711)).during("open to all", path)
        })
    }
}

/// Refuses at once where the largest place would not fit: better than after a minute of work.
pub fn preflight(disk: &Path, bytes: u64) -> Result<()> {
    need_free("disk", disk, bytes)?;
    if is_root() { need_memory(bytes) } else { need_free("tmpfs", Path::new("/dev/shm"), bytes) }
}

/// A mount that goes when this value goes.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    fn tmpfs(at: &Path, bytes: u64) -> Result<Self> {
        let size = format!("size={bytes},nr_inodes=1000000");
        Self::attach(&["-t", "tmpfs", "-o", &size], Path::new("sandboxer-bench"), at)
    }

    /// What is at `at` already; it was mounted by a command that was measured.
    pub fn made_at(at: &Path) -> Self {
        Self { at: at.to_owned() }
    }

    fn attach(options: &[&str], source: &Path, at: &Path) -> Result<Self> {
        tool(Command::new("mount").args(options).arg(source).arg(at))?;
        Ok(Self { at: at.to_owned() })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(&self.at);
    }
}

/// Unmounts whatever a measured command left mounted below a directory, so that removing the directory meets no mount.
#[derive(Debug)]
struct Sweep {
    below: PathBuf,
}

impl Sweep {
    fn below(directory: &Path) -> Self {
        Self { below: directory.to_owned() }
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        // The youngest first: it may be on top of an older one.
        mounts_below(&table, &self.below).iter().rev().for_each(|at| unmount(at));
    }
}

/// Where something is mounted below `directory`, by a table in the format of `/proc/self/mountinfo`. Our own paths
/// have no letters that it would escape.
fn mounts_below(table: &str, directory: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(directory) && point != directory).collect()
}

/// A lazy unmount is better than a mount that stays for ever because something still looks at it.
fn unmount(at: &Path) {
    let undone =
        tool(Command::new("umount").arg(at)).or_else(|_| tool(Command::new("umount").arg("--lazy").arg(at)));
    if let Err(why) = undone {
        crate::say(&format!("{why}; please unmount {} by hand", at.display()));
    }
}

fn make_xfs(image: &Path, bytes: u64) -> Result<()> {
    // mkfs.xfs refuses less than 300 MB; the image is sparse, so its length costs nothing.
    let length = bytes.max(2 << 30);
    File::create(image).and_then(|file| file.set_len(length)).during("make image", image)?;
    tool(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(image))
        .map_err(|why| Failure::Skipped(format!("no XFS to be had ({why}; package xfsprogs)")))
}

fn make_ext4(image: &Path, bytes: u64, inodes: u64) -> Result<()> {
    File::create(image).and_then(|file| file.set_len(bytes)).during("make image", image)?;
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=1", "-N"]);
    tool(mkfs.arg(inodes.to_string()).arg(image))
}

/// Runs a tool for its effect; the error holds what it said.
pub fn tool(command: &mut Command) -> Result<()> {
    let program = PathBuf::from(command.get_program());
    let output = command.stdin(Stdio::null()).output().during("run", &program)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{} ended with {}: {}", program.display(), output.status, said.trim())))
}

fn temp_dir(parent: &Path) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("sandboxer-bench-")
        .tempdir_in(parent)
        .during("make a directory in", parent)
}

fn subdirectory(directory: &TempDir, name: &str) -> Result<PathBuf> {
    let path = directory.path().join(name);
    fs::create_dir(&path).during("create directory", &path)?;
    Ok(path)
}

fn need_free(what: &str, path: &Path, bytes: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(path).during("look for room on", path)?;
    enough(&format!("{what} ({})", path.display()), stat.f_bavail * stat.f_frsize, bytes)
}

fn need_memory(bytes: u64) -> Result<()> {
    let path = Path::new("/proc/meminfo");
    let meminfo = fs::read_to_string(path).during("read", path)?;
    let available =
        available_memory(&meminfo).ok_or_else(|| Failure::new("no MemAvailable in /proc/meminfo"))?;
    enough("memory for a tmpfs", available, bytes)
}

fn available_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

fn enough(what: &str, free: u64, needed: u64) -> Result<()> {
    if free >= needed {
        return Ok(());
    }
    let mb = |bytes: u64| bytes / 1_000_000;
    let missing = format!("too little room on {what}: {} MB needed, {} MB free", mb(needed), mb(free));
    Err(Failure::new(format!("{missing}; --quick needs a tenth, --disk DIR chooses another disk")))
}

/// Whether we may mount on the host and run commands as other users.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_place_on_disk_is_gone_when_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::disk(parent.path(), 1).unwrap();
        fs::write(place.root().join("file"), "x").unwrap();
        place.settle().unwrap();
        drop(place);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_little_room_says_how_much_is_needed_and_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let message = Place::disk(parent.path(), u64::MAX).unwrap_err().to_string();
        assert!(message.contains("18446744073709 MB needed"), "{message}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_needs_too_much_room_or_too_many_inodes_is_skipped() {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::disk(parent.path(), 1).unwrap();
        place.need(1, 1).unwrap();
        for (bytes, inodes) in [(u64::MAX, 1), (1, u64::MAX)] {
            assert!(
                matches!(place.need(bytes, inodes), Err(Failure::Skipped(why)) if why.contains("needed"))
            );
        }
    }

    #[test]
    fn mounts_below_a_directory_are_found_in_their_order() {
        let table = "30 1 0:1 / /b rw - tmpfs x rw\n31 1 0:2 / /b/home/merged rw - overlay o rw\n\
                     32 1 0:3 / /bb/x rw - tmpfs x rw\n33 1 0:4 / /b/home/merged/in rw - tmpfs x rw\n";
        let found = mounts_below(table, Path::new("/b"));
        assert_eq!(found, [PathBuf::from("/b/home/merged"), PathBuf::from("/b/home/merged/in")]);
    }

    #[test]
    fn available_memory_is_read_in_kilobytes() {
        assert_eq!(available_memory("MemTotal: 9 kB\nMemAvailable:     12 kB\n"), Some(12 * 1024));
        assert_eq!(available_memory("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn a_failing_tool_is_quoted() {
        let message =
            tool(Command::new("/bin/sh").args(["-c", "echo no luck >&2; exit 2"])).unwrap_err().to_string();
        assert!(message.ends_with("no luck") && message.contains("/bin/sh"), "{message}");
    }
}
