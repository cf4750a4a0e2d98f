//! Decisions, on trees that look like a cgroup filesystem.
#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::local::Limits;

/// A machine's cgroups, made of ordinary files.
struct Machine {
    dir: tempfile::TempDir,
    mounts: String,
    own: String,
}

impl Machine {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), mounts: String::new(), own: String::new() }
    }

    /// With version 2 mounted, and us in `own`.
    fn unified(mut self, own: &str) -> Self {
        self.mount("cgroup2", "v2", "rw");
        self.own.push_str(&format!("0::{own}\n"));
        self.cgroup(own, "");
        self
    }

    /// With controllers of version 1 mounted, and us in `own`.
    fn legacy(mut self, controllers: &str, own: &str) -> Self {
        self.mount("cgroup", controllers, &format!("rw,{controllers}"));
        self.own.push_str(&format!("1:{controllers}:{own}\n"));
        fs::create_dir_all(self.at(controllers, own)).unwrap();
        self
    }

    fn mount(&mut self, kind: &str, name: &str, options: &str) {
        let at = self.dir.path().join(name);
        fs::create_dir_all(&at).unwrap();
        self.mounts.push_str(&format!("1 1 0:1 / {} rw - {kind} none {options}\n", at.display()));
    }

    /// A cgroup of version 2 that hands on `controllers`.
    fn cgroup(&self, path: &str, controllers: &str) {
        let directory = self.at("v2", path);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cgroup.procs"), "").unwrap();
        fs::write(directory.join("cgroup.subtree_control"), format!("{controllers}\n")).unwrap();
    }

    fn at(&self, mount: &str, path: &str) -> PathBuf {
        self.dir.path().join(mount).join(path.trim_start_matches('/'))
    }

    fn roots(&self) -> Roots {
        let roots = Roots {
            mountinfo: self.dir.path().join("mountinfo"),
            cgroup: self.dir.path().join("cgroup"),
            superuser: false,
        };
        fs::write(&roots.mountinfo, &self.mounts).unwrap();
        fs::write(&roots.cgroup, &self.own).unwrap();
        roots
    }

    fn plan(&self, limits: &Limits) -> Plan {
        Group::plan("x", limits, &self.roots()).unwrap()
    }

    /// Makes the group, with the files in it that the kernel would put there.
    fn group(&self, limits: &Limits, files: &[&str]) -> Group {
        let mut plan = self.plan(limits);
        plan.create();
        for (path, file) in plan.paths().iter().flat_map(|path| files.iter().map(move |file| (path, file))) {
            fs::write(path.join(file), "").unwrap();
        }
        plan.settle()
    }
}

fn everything() -> Limits {
    Limits { memory: Some(1 << 30), pids: Some(64), cpus: Some(1.5), timeout: Some(Duration::from_secs(60)) }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn without_limits_our_own_cgroup_is_near_enough() {
    let machine = Machine::new().unified("/a/b");
    machine.cgroup("/a", "cpu memory pids");
    assert_eq!(machine.plan(&Limits::default()).paths(), [machine.at("v2", "/a/b/sandboxer-x")]);
    assert!(!machine.at("v2", "/a/b/sandboxer-x").exists(), "a plan makes nothing");
}

#[test]
fn the_nearest_cgroup_that_hands_on_what_is_wanted_is_taken() {
    let machine = Machine::new().unified("/a/b/c");
    for (path, controllers) in
        [("/", "cpu memory pids io"), ("/a", "cpu memory pids"), ("/a/b", "pids cpuset")]
    {
        machine.cgroup(path, controllers);
    }
    let paths = |limits: &Limits| machine.plan(limits).paths();
    assert_eq!(paths(&everything()), [machine.at("v2", "/a/sandboxer-x")]);
    let pids = Limits { pids: Some(9), ..Limits::default() };
    assert_eq!(paths(&pids), [machine.at("v2", "/a/b/sandboxer-x")]);
}

#[test]
fn what_nobody_hands_on_is_left_to_the_process_itself() {
    let machine = Machine::new().unified("/a/b");
    machine.cgroup("/a", "pids");
    let group = machine.group(&everything(), &["pids.max"]);
    let enforcement = group.enforcement();
    assert_eq!((&enforcement.memory, &enforcement.pids), (&By::Rlimit, &By::CgroupV2));
    assert_eq!((&enforcement.cpus, &enforcement.timeout), (&By::Affinity, &By::Supervisor));
    let reason = enforcement.reason.as_deref().unwrap();
    assert!(reason.contains("controller memory") && reason.contains("controller cpu"), "{reason}");
    assert_eq!(read(machine.at("v2", "/a/cgroup.subtree_control")), "pids\n", "nothing of others is changed");
}

#[test]
fn limits_of_version_2_are_written_in_its_files() {
    let machine = Machine::new().unified("/a");
    machine.cgroup("/", "cpu memory pids");
    let files = ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"];
    let group = machine.group(&everything(), &files);
    let path = machine.at("v2", "sandboxer-x");
    assert_eq!(group.unified(), Some(path.as_path()));
    let written = files.map(|file| read(path.join(file)));
    assert_eq!(written, ["1073741824", "0", "1", "64", "150000 100000"]);
    assert!(group.enforcement().weak().is_empty() && group.enforcement().reason.is_none());
}

#[test]
fn files_that_a_kernel_may_lack_are_not_missed() {
    let machine = Machine::new().unified("/a");
    machine.cgroup("/", "memory");
    let limits = Limits { memory: Some(4096), ..Limits::default() };
    assert_eq!(machine.group(&limits, &["memory.max"]).enforcement().memory, By::CgroupV2);
}

#[test]
fn a_limit_that_a_cgroup_does_not_take_is_left_to_the_process_itself() {
    let machine = Machine::new().unified("/a");
    machine.cgroup("/", "memory");
    let limits = Limits { memory: Some(4096), ..Limits::default() };
    let group = machine.group(&limits, &[]);
    assert_eq!(group.enforcement().memory, By::Rlimit);
    assert!(group.enforcement().reason.as_deref().unwrap().contains("memory limit"));
}

#[test]
fn a_threaded_cgroup_is_no_place_for_processes() {
    let machine = Machine::new().unified("/a/b");
    machine.cgroup("/a", "");
    fs::write(machine.at("v2", "/a/b/cgroup.type"), "threaded\n").unwrap();
    fs::write(machine.at("v2", "/a/cgroup.type"), "domain\n").unwrap();
    assert_eq!(machine.plan(&Limits::default()).paths(), [machine.at("v2", "/a/sandboxer-x")]);
}

#[test]
fn version_1_has_a_directory_for_each_hierarchy_that_is_needed() {
    let machine = Machine::new()
        .legacy("memory", "/job")
        .legacy("cpu,cpuacct", "/")
        .legacy("freezer", "/")
        .legacy("pids", "/");
    let nothing = machine.plan(&Limits::default()).paths();
    let at = |mount: &str, path: &str| machine.at(mount, path).join("sandboxer-x");
    assert_eq!(nothing, [at("freezer", ""), at("cpu,cpuacct", "")]);
    let limits = Limits { memory: Some(1 << 30), cpus: Some(0.5), ..Limits::default() };
    let files =
        ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "cpu.cfs_period_us", "cpu.cfs_quota_us"];
    let group = machine.group(&limits, &files);
    assert_eq!(group.paths(), [at("memory", "job"), at("cpu,cpuacct", ""), at("freezer", "")]);
    assert_eq!((&group.enforcement().memory, &group.enforcement().cpus), (&By::CgroupV1, &By::CgroupV1));
    assert_eq!(read(at("memory", "job").join("memory.memsw.limit_in_bytes")), "1073741824");
    assert_eq!(read(at("cpu,cpuacct", "").join("cpu.cfs_quota_us")), "50000");
    assert!(group.can_freeze() && group.unified().is_none());
}

#[test]
fn beside_version_2_only_limits_need_version_1() {
    let machine =
        Machine::new().unified("/").legacy("memory", "/").legacy("freezer", "/").legacy("cpuacct", "/");
    assert_eq!(machine.plan(&Limits::default()).paths(), [machine.at("v2", "sandboxer-x")]);
    let limits = Limits { memory: Some(1 << 30), ..Limits::default() };
    let both = [machine.at("v2", "sandboxer-x"), machine.at("memory", "sandboxer-x")];
    assert_eq!(machine.plan(&limits).paths(), both);
}

#[test]
fn usage_is_read_from_either_version() {
    let limits = Limits { memory: Some(1 << 30), pids: Some(9), ..Limits::default() };
    let machine = Machine::new().unified("/a");
    machine.cgroup("/", "memory pids");
    let group = machine.group(&limits, &["memory.max", "pids.max"]);
    assert_eq!(group.usage(), Usage::default());
    let put = |file: &str, text: &str| fs::write(group.paths()[0].join(file), text).unwrap();
    put("cpu.stat", "usage_usec 1500\nuser_usec 1\n");
    put("memory.peak", "4096\n");
    put("memory.events", "low 0\noom 7\noom_kill 3\noom_group_kill 1\n");
    put("pids.events", "max 5\n");
    let expected = Usage {
        cpu: Some(Duration::from_micros(1500)),
        memory_peak: Some(4096),
        oom_kills: Some(3),
        pids_refused: Some(5),
    };
    assert_eq!(group.usage(), expected);
}

#[test]
fn a_machine_without_cgroups_says_so() {
    let group = Machine::new().group(&everything(), &[]);
    assert!(group.paths().is_empty() && !group.can_freeze());
    assert_eq!(group.enforcement().weak(), ["memory", "pids", "cpus"]);
    assert_eq!(group.enforcement().reason.as_deref(), Some("no cgroup hierarchy is mounted"));
    assert!(group.freeze().is_err() && group.kill().is_err() && group.remove().is_ok());
    let roots = Roots { superuser: true, ..Machine::new().roots() };
    let group = Group::make("x", &everything(), &roots).unwrap();
    assert!(matches!(&group.enforcement().pids, By::Nothing(why) if why.contains("root")));
}

#[test]
fn a_place_that_is_not_ours_to_write_is_named() {
    if rustix::process::geteuid().is_root() {
        return sandboxer_testkit::skip("root may write everywhere");
    }
    let machine = Machine::new().unified("/a");
    for path in ["/", "/a"] {
        fs::set_permissions(machine.at("v2", path), Permissions::from_mode(0o555)).unwrap();
    }
    let group = machine.group(&everything(), &[]);
    fs::set_permissions(machine.at("v2", "/"), Permissions::from_mode(0o755)).unwrap();
    let reason = group.enforcement().reason.clone().unwrap();
    assert!(reason.contains("v2/a") && reason.contains("writable"), "{reason}");
}

#[test]
fn an_empty_leftover_is_taken_over_and_a_full_one_is_not() {
    let machine = Machine::new().unified("/");
    let path = machine.at("v2", "sandboxer-x");
    fs::create_dir(&path).unwrap();
    assert_eq!(machine.group(&Limits::default(), &[]).paths(), std::slice::from_ref(&path));
    fs::write(path.join("something"), "").unwrap();
    assert!(machine.group(&Limits::default(), &[]).paths().is_empty());
    assert!(path.join("something").exists());
}

#[test]
fn names_and_limits_that_make_no_sense_are_refused() {
    let roots = Machine::new().roots();
    for name in ["", "a/b", "a\nb", "../x"] {
        assert!(Group::plan(name, &Limits::default(), &roots).is_err(), "{name:?}");
    }
    for limits in [
        Limits { memory: Some(0), ..Limits::default() },
        Limits { pids: Some(0), ..Limits::default() },
        Limits { cpus: Some(0.0), ..Limits::default() },
        Limits { cpus: Some(f64::NAN), ..Limits::default() },
    ] {
        assert!(Group::plan("x", &limits, &roots).is_err(), "{limits:?}");
    }
}

#[test]
fn only_cgroups_of_ours_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, other) = (dir.path().join("sandboxer-x"), dir.path().join("other"));
    fs::create_dir(&ours).unwrap();
    fs::create_dir(&other).unwrap();
    assert!(remove_paths(&[ours.clone(), other.clone()]).is_err());
    assert!(remove_paths(&["sandboxer-x".into()]).is_err(), "a relative path could be anywhere");
    assert!(ours.exists() && other.exists());
    remove_paths(&[dir.path().join("sandboxer-gone"), ours.clone()]).unwrap();
    assert!(!ours.exists());
}
