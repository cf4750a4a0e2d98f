//! Which cgroup hierarchies are mounted, and where in them this process is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use super::Roots;

/// What of a cgroup this module makes use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Pids,
    Cpu,
    Cpuacct,
    Freezer,
}

impl Controller {
    /// Its name in the kernel's files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
            Self::Freezer => "freezer",
        }
    }
}

/// A mounted hierarchy, seen from where this process is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// The names of its controllers; none for version 2.
    pub(super) controllers: Vec<String>,
    /// Where it is mounted.
    pub(super) mount: PathBuf,
    /// This process's own directory, at or below `mount`.
    pub(super) own: PathBuf,
}

impl Hierarchy {
    pub(super) fn has(&self, controller: Controller) -> bool {
        self.controllers.iter().any(|name| name == controller.name())
    }
}

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Hierarchies {
    /// Version 2, of which there is one at most.
    pub(super) unified: Option<Hierarchy>,
    /// Version 1, by controllers.
    pub(super) legacy: Vec<Hierarchy>,
}

/// Looks. What cannot be read is not there.
pub(super) fn hierarchies(roots: &Roots) -> Hierarchies {
    let mounts = std::fs::read(&roots.mountinfo).unwrap_or_default();
    let own = std::fs::read(&roots.cgroup).unwrap_or_default();
    let memberships: Vec<Membership> = own.split(|byte| *byte == b'\n').filter_map(membership).collect();
    let mut found = Hierarchies::default();
    for mount in mounts.split(|byte| *byte == b'\n').filter_map(mount) {
        found.keep(&mount, &memberships);
    }
    found
}

impl Hierarchies {
    /// The first mount of a hierarchy that shows where we are is as good as any other.
    fn keep(&mut self, mount: &Mount, memberships: &[Membership]) {
        let Some(hierarchy) = memberships.iter().find_map(|membership| mount.shows(membership)) else {
            return;
        };
        if mount.unified {
            self.unified.get_or_insert(hierarchy);
        } else if !self.legacy.iter().any(|known| known.controllers == hierarchy.controllers) {
            self.legacy.push(hierarchy);
        }
    }

    /// The hierarchy of version 1 that has `controller`.
    pub(super) fn legacy_of(&self, controller: Controller) -> Option<&Hierarchy> {
        self.legacy.iter().find(|hierarchy| hierarchy.has(controller))
    }
}

/// A line of `/proc/self/cgroup`: `4:cpu,cpuacct:/some/where`.
struct Membership {
    controllers: Vec<String>,
    path: PathBuf,
}

fn membership(line: &[u8]) -> Option<Membership> {
    let mut fields = line.splitn(3, |byte| *byte == b':').skip(1);
    let controllers = names(fields.next()?);
    Some(Membership { controllers, path: path(fields.next()?.to_vec()) })
}

/// A line of `mountinfo` whose filesystem is a cgroup hierarchy.
struct Mount {
    unified: bool,
    /// The options of the filesystem, the names of its controllers among them.
    options: Vec<String>,
    /// Which directory of the hierarchy is mounted.
    root: PathBuf,
    at: PathBuf,
}

/// `36 31 0:33 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory`, with any number of fields before the dash.
fn mount(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let unified = match *fields.get(dash + 1)? {
        b"cgroup2" => true,
        b"cgroup" => false,
        _ => return None,
    };
    Some(Mount {
        unified,
        options: names(fields.get(dash + 3)?),
        root: path(unescaped(fields.get(3)?)),
        at: path(unescaped(fields.get(4)?)),
    })
}

impl Mount {
    /// This hierarchy, if `membership` is in it and the mount shows the place.
    fn shows(&self, membership: &Membership) -> Option<Hierarchy> {
        let same = match self.unified {
            true => membership.controllers.is_empty(),
            false => {
                !membership.controllers.is_empty()
                    && membership.controllers.iter().all(|name| self.options.contains(name))
            }
        };
        let below = membership.path.strip_prefix(&self.root).ok().filter(|_| same)?;
        // A place outside our cgroup namespace is told as `/../elsewhere`.
        let inside = below.components().all(|part| matches!(part, Component::Normal(_)));
        inside.then(|| Hierarchy {
            controllers: membership.controllers.clone(),
            mount: self.at.clone(),
            own: joined(&self.at, below),
        })
    }
}

/// Like `join`, which would add a slash for an empty path.
fn joined(mount: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { mount.to_path_buf() } else { mount.join(below) }
}

fn names(list: &[u8]) -> Vec<String> {
    let names = list.split(|byte| *byte == b',').map(|name| String::from_utf8_lossy(name).into_owned());
    names.filter(|name| !name.is_empty()).collect()
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// The kernel writes a space, a tab, a line break and a backslash as three octal digits after a backslash.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, more)) = rest.split_first() {
        match octal(rest) {
            Some(byte) => {
                text.push(byte);
                rest = &rest[4..];
            }
            None => {
                text.push(*first);
                rest = more;
            }
        }
    }
    text
}

fn octal(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\")?.get(..3)?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found(mountinfo: &str, cgroup: &str) -> Hierarchies {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            mountinfo: dir.path().join("mountinfo"),
            cgroup: dir.path().join("cgroup"),
            superuser: false,
        };
        std::fs::write(&roots.mountinfo, mountinfo).unwrap();
        std::fs::write(&roots.cgroup, cgroup).unwrap();
        hierarchies(&roots)
    }

    #[test]
    fn a_machine_with_version_2_has_one_hierarchy() {
        let found = found(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
            "0::/user.slice/a.scope\n",
        );
        let unified = found.unified.unwrap();
        assert_eq!(unified.mount, Path::new("/sys/fs/cgroup"));
        assert_eq!(unified.own, Path::new("/sys/fs/cgroup/user.slice/a.scope"));
        assert!(found.legacy.is_empty());
    }

    #[test]
    fn controllers_that_are_mounted_together_are_one_hierarchy() {
        let found = found(
            "33 31 0:30 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             34 31 0:31 / /cg/my\\040memory rw - cgroup cgroup rw,memory\n\
             35 31 0:31 / /elsewhere rw - cgroup cgroup rw,memory\n",
            "2:memory:/job\n1:cpu,cpuacct:/\n",
        );
        assert!(found.unified.is_none());
        let cpu = found.legacy_of(Controller::Cpu).unwrap();
        assert!(cpu.has(Controller::Cpuacct) && !cpu.has(Controller::Memory));
        assert_eq!(cpu.own, Path::new("/cg/cpu,cpuacct"));
        assert_eq!(found.legacy_of(Controller::Memory).unwrap().own, Path::new("/cg/my memory/job"));
        assert_eq!(found.legacy.len(), 2);
    }

    #[test]
    fn a_mount_of_a_part_is_followed_from_there() {
        let line = "30 23 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let unified = found(line, "0::/docker/x/job\n").unified.unwrap();
        assert_eq!(unified.own, Path::new("/sys/fs/cgroup/job"));
        assert!(found(line, "0::/docker/y\n").unified.is_none());
    }

    #[test]
    fn a_place_outside_the_namespace_is_of_no_use() {
        let line = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert!(found(line, "0::/../neighbour\n").unified.is_none());
    }

    #[test]
    fn nonsense_is_passed_over() {
        let found = found("\n1 2 3\n- cgroup2\nx x x x x - tmpfs t rw\n", "\n::\n7\n");
        assert!(found.unified.is_none() && found.legacy.is_empty());
    }
}
