//! Filesystems of a chosen kind and size, for as long as a guard lives.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const IMAGE: &str = "image";

/// A mounted filesystem; dropped, it is unmounted and its image deleted.
#[derive(Debug)]
#[must_use = "the filesystem is unmounted when the guard is dropped"]
pub struct Mounted {
    point: PathBuf,
    arguments: Vec<String>,
    dir: TempDir,
    /// The filesystem that holds the image, if it is one of its own. It goes after what is mounted on it.
    backing: Option<Box<Mounted>>,
}

impl Mounted {
    /// A tmpfs of `bytes` bytes, or why there is none.
    pub fn tmpfs(bytes: u64) -> Result<Self, String> {
        Self::mount(std::env::temp_dir(), |_| {
            Ok(vec!["-t".into(), "tmpfs".into(), "-o".into(), format!("size={bytes}"), "tmpfs".into()])
        })
    }

    /// An ext4 filesystem on an image of `bytes` bytes, or why there is none. Full is full: root has no blocks of its own.
    pub fn ext4(bytes: u64) -> Result<Self, String> {
        Self::mount(crate::in_memory(), |dir| image(dir, bytes, &["mkfs.ext4", "-q", "-F", "-m", "0"]))
    }

    /// An XFS filesystem with reflinks on an image of `bytes` bytes (300 MB is its least), or why there is none.
    pub fn xfs(bytes: u64) -> Result<Self, String> {
        Self::mount(crate::in_memory(), |dir| image(dir, bytes, &["mkfs.xfs", "-q", "-f", "-m", "reflink=1"]))
    }

    /// A btrfs filesystem on an image of `bytes` bytes (110 MB is its least), or why there is none.
    pub fn btrfs(bytes: u64) -> Result<Self, String> {
        Self::mount(crate::in_memory(), |dir| image(dir, bytes, &["mkfs.btrfs", "-q", "-f"]))
    }

    /// An overlay, which cannot be the upper of another one, or why there is none.
    pub fn overlay() -> Result<Self, String> {
        Self::overlay_over(|_| ())
    }

    /// The same over a layer that `fill` has filled, as a container's root is over its image.
    pub fn overlay_over(fill: impl Fn(&Path)) -> Result<Self, String> {
        Self::mount(std::env::temp_dir(), |dir| {
            let [lower, upper, work] = ["lower", "upper", "work"].map(|name| dir.join(name));
            [&lower, &upper, &work].into_iter().for_each(|made| fs::create_dir(made).unwrap());
            fill(&lower);
            let layers = [("lowerdir", lower), ("upperdir", upper), ("workdir", work)];
            let options: Vec<String> =
                layers.iter().map(|(key, path)| format!("{key}={}", path.display())).collect();
            Ok(vec!["-t".into(), "overlay".into(), "-o".into(), options.join(","), "overlay".into()])
        })
    }

    /// An ext4 filesystem of `bytes` bytes whose image lies on a tmpfs of `backing` bytes, or why there is none. Once that is full
    /// writes fail with a real `EIO`, as on a disk that breaks; [`Mounted::backing`] is the place to fill it up.
    pub fn undersized(bytes: u64, backing: u64) -> Result<Self, String> {
        let backing = Self::tmpfs(backing)?;
        let mut mounted =
            Self::mount(std::env::temp_dir(), |_| image(backing.path(), bytes, &["mkfs.ext4", "-q", "-F"]))?;
        mounted.backing = Some(Box::new(backing));
        Ok(mounted)
    }

    /// Where the filesystem is mounted that holds the image.
    pub fn backing(&self) -> Option<&Path> {
        self.backing.as_ref().map(|backing| backing.path())
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Unmounts an image, hands its path to `work`, and mounts it again.
    pub fn while_unmounted(&self, work: impl FnOnce(&Path)) -> Result<(), String> {
        run(Command::new("umount").arg(&self.point))?;
        work(&self.dir.path().join(IMAGE));
        self.attach()
    }

    /// Writes everything to the image: what is there now survives a power cut.
    pub fn settle(&self) {
        run(Command::new("sync").arg("-f").arg(&self.point)).unwrap();
    }

    /// Cuts the power: whatever was not flushed is gone. Mounts the image again, which replays its journal.
    pub fn power_cut(&self) -> Result<(), String> {
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&self.point))?;
        self.while_unmounted(|_| ())
    }

    fn mount(place: PathBuf, source: impl Fn(&Path) -> Result<Vec<String>, String>) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting needs root".to_owned());
        }
        let dir = TempDir::with_prefix_in("sandboxer-mount-", place).unwrap();
        let point = dir.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let arguments = source(dir.path())?;
        let mounted = Self { point, arguments, dir, backing: None };
        mounted.attach()?;
        fs::set_permissions(&mounted.point, fs::Permissions::from_mode(0o755)).unwrap();
        Ok(mounted)
    }

    fn attach(&self) -> Result<(), String> {
        run(Command::new("mount").args(&self.arguments).arg(&self.point)).map(drop)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if mounts_below(&self.point).is_empty() {
            return;
        }
        // Lazily as a last resort: a test that failed half-way may still have a file open below.
        let unmounted = run(Command::new("umount").arg(&self.point));
        if unmounted.is_err() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.point));
        }
    }
}

/// Detaches whatever is mounted below a directory when it is dropped: a test that failed must not keep its directory.
#[derive(Debug)]
pub struct DetachBelow(pub PathBuf);

impl Drop for DetachBelow {
    fn drop(&mut self) {
        let mut mounts = sandboxer_keeper::mount::submounts(&self.0).unwrap_or_default();
        mounts.sort();
        for mount in mounts.iter().rev() {
            let _ = rustix::mount::unmount(mount, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn image(dir: &Path, bytes: u64, mkfs: &[&str]) -> Result<Vec<String>, String> {
    let image = dir.join(IMAGE);
    File::create(&image).unwrap().set_len(bytes).unwrap();
    run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image))?;
    Ok(vec!["-o".into(), "loop".into(), image.to_str().unwrap().into()])
}

fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// The mount points at or below `dir`.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    points.map(PathBuf::from).filter(|point| point.starts_with(dir)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_lives_as_long_as_its_guard() {
        let mounted = match Mounted::tmpfs(1 << 20) {
            Ok(mounted) => mounted,
            Err(reason) => return crate::skip(&reason),
        };
        let point = mounted.path().to_path_buf();
        assert_eq!(mounts_below(&point), std::slice::from_ref(&point));
        assert!(fs::write(point.join("too much"), vec![0; 2 << 20]).is_err());
        drop(mounted);
        assert!(mounts_below(&point).is_empty() && !point.exists());
    }
}
