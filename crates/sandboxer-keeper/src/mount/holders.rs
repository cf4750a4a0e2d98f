//! Who works in a mount.
//!
//! A working directory, a root, a program that runs or an open file each keep a mount busy. Files in an overlay do not always
//! have its device: where upper and lower lie on different filesystems they show another. So an open file also counts by the
//! mount it was opened through, where some process's mount table still names that.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, major, makedev, minor};

use super::table::{mounts_of, uppers_of};

/// A process that keeps a mount busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// Its name, as `ps` shows it.
    pub name: String,
}

/// The processes that have their working directory, root, program or an open or mapped file on the device `dev`. Those that
/// this user may not look into are left out.
pub fn holders(dev: u64) -> Vec<Holder> {
    let processes = processes();
    let device = Device { dev, mounts: mounts(&processes, dev) };
    processes.into_iter().filter(|process| device.is_held_by(process)).map(Holder::named).collect()
}

/// Those of them that are in another mount namespace than `namespace`: what they have is a copy of the mount, which an unmount here leaves
/// alone.
pub fn holders_outside(dev: u64, namespace: u64) -> Vec<Holder> {
    use std::os::unix::fs::MetadataExt;
    let is_outside = |process: &Process| {
        fs::metadata(process.dir.join("ns/mnt")).is_ok_and(|found| found.ino() != namespace)
    };
    let outside: Vec<Process> = processes().into_iter().filter(is_outside).collect();
    let device = Device { dev, mounts: mounts(&outside, dev) };
    outside.into_iter().filter(|process| device.is_held_by(process)).map(Holder::named).collect()
}

struct Process {
    pid: u32,
    dir: PathBuf,
}

struct Device {
    dev: u64,
    mounts: HashSet<u64>,
}

impl Holder {
    fn named(process: Process) -> Self {
        let name = fs::read(process.dir.join("comm")).unwrap_or_default();
        Self { pid: process.pid, name: String::from_utf8_lossy(&name).trim_end().to_owned() }
    }
}

impl Device {
    fn is_held_by(&self, process: &Process) -> bool {
        let links = ["cwd", "root", "exe"].map(|name| process.dir.join(name));
        let files = || fs::read_dir(process.dir.join("fd")).into_iter().flatten().flatten();
        links.iter().any(|link| self.has(link))
            || files().any(|file| self.has(&file.path()))
            || self.is_mapped_by(process)
    }

    fn has(&self, link: &Path) -> bool {
        let wanted = StatxFlags::TYPE | StatxFlags::MNT_ID;
        rustix::fs::statx(CWD, link, AtFlags::NO_AUTOMOUNT, wanted).is_ok_and(|facts| {
            makedev(facts.stx_dev_major, facts.stx_dev_minor) == self.dev
                || self.mounts.contains(&facts.stx_mnt_id)
        })
    }

    /// `ADDRESSES PERMISSIONS OFFSET MAJOR:MINOR INODE PATH`, with hexadecimal numbers.
    fn is_mapped_by(&self, process: &Process) -> bool {
        let device = format!("{:02x}:{:02x}", major(self.dev), minor(self.dev));
        let maps = fs::read(process.dir.join("maps")).unwrap_or_default();
        maps.split(|byte| *byte == b'\n')
            .any(|line| line.split(|byte| *byte == b' ').nth(3) == Some(device.as_bytes()))
    }
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        Some(Process { pid: entry.file_name().to_str()?.parse().ok()?, dir: entry.path() })
    };
    entries.filter_map(process).collect()
}

/// Whether any namespace has something else mounted as the device `dev` than an overlay with this upper, as far as this user may
/// look: numbers are used again, by filesystems of every kind.
pub fn is_taken(dev: u64, upper: &Path) -> bool {
    let device = named(dev);
    tables(&processes()).iter().any(|table| {
        let all = mounts_of(&String::from_utf8_lossy(table), &device).len();
        all > uppers_of(table, &device).into_iter().filter(|other| other == upper).count()
    })
}

/// The ids of the device's mounts, in every namespace that one of the processes is in.
fn mounts(processes: &[Process], dev: u64) -> HashSet<u64> {
    let device = named(dev);
    let tables = tables(processes);
    tables.iter().flat_map(|table| mounts_of(&String::from_utf8_lossy(table), &device)).collect()
}

fn named(dev: u64) -> String {
    format!("{}:{}", major(dev), minor(dev))
}

/// The mount tables of all namespaces that one of the processes is in.
fn tables(processes: &[Process]) -> Vec<Vec<u8>> {
    let mut seen = HashSet::new();
    let namespaces = processes
        .iter()
        .filter(|process| fs::read_link(process.dir.join("ns/mnt")).is_ok_and(|name| seen.insert(name)));
    namespaces.filter_map(|process| fs::read(process.dir.join("mountinfo")).ok()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn this_process_holds_what_it_is_made_of() {
        let dev = fs::metadata("/proc/self/exe").unwrap().dev();
        let ours = holders(dev).into_iter().find(|holder| holder.pid == std::process::id());
        assert_eq!(ours.unwrap().name, fs::read_to_string("/proc/self/comm").unwrap().trim_end());
        assert_eq!(holders(makedev(0xfff, 0xfffff)), []);
    }
}
