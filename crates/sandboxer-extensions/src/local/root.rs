//! The root that a command sees, built in a mount namespace that is ours alone.
//!
//! The order is what makes it safe: first descriptors of everything that is needed later, then the whole tree read-only at once,
//! then what is private, then home, then the workspaces above it, and last what covers the rest.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, Mode};
use rustix::mount::MountAttrFlags;

use super::home::{self, Home};
use super::mounting::{Detached, cover, detach, mount_points, pin, seal};
use super::places;
use super::refusal::{Refusal, Refused};
use super::spec::{Bind, Isolation, Link, Spec};
use super::system::{APART, Attributes, BARE, RDONLY, TAME, change_mount};

/// Devices that everybody may use.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What in `/proc` speaks to the kernel instead of telling about processes. Whoever is root outside could write to it.
const PROC_READ_ONLY: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];
/// What tells of the host more than anybody inside needs to know.
const COVERED: [&str; 15] = [
    "/proc/kcore",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/pagetypeinfo",
    "/proc/slabinfo",
    "/proc/vmallocinfo",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/acpi",
    "/proc/scsi",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
    "/sys/firmware",
    "/sys/fs/bpf",
];

/// What is private. All of it is in memory, of which each may take so many hundredths.
const PRIVATE: [(&str, &str, u64); 3] = [("/tmp", "1777", 20), ("/var/tmp", "1777", 10), ("/run", "0755", 5)];
/// The shares of the layer over home and of shared memory.
const HOME_SHARE: u64 = 20;
const SHM_SHARE: u64 = 20;
/// What holds next to nothing.
const TINY: &str = "1m";

/// So many hundredths of the memory that there is: of the limit, or of the machine's.
fn share(hundredths: u64, spec: &Spec) -> String {
    match spec.limits.memory {
        Some(bytes) => (bytes / 100 * hundredths).max(1 << 20).to_string(),
        None => format!("{hundredths}%"),
    }
}

/// A file that holds nothing and cannot be filled.
const NOTHING: &str = "/dev/null";

/// What was built.
pub(crate) struct Root {
    /// Everything below these can be written, as far as the filesystem lets them.
    pub writable: Vec<PathBuf>,
    /// What is written to the home directory.
    pub home_layer: Option<OwnedFd>,
}

/// Taken before anything is mounted over it.
struct Sources {
    devices: Vec<(&'static str, Detached)>,
    workspaces: Vec<(PathBuf, Detached)>,
    exposed: Vec<(PathBuf, Detached)>,
    proc: Detached,
    home: Option<Home>,
    /// What is mounted in the home directory: a layer over that does not show it.
    in_home: Vec<(PathBuf, Detached)>,
}

impl Sources {
    fn take(spec: &Spec) -> Result<Self, Refusal> {
        let bind = |bind: &Bind| Ok((bind.at.clone(), Detached::copy_of(&bind.from)?));
        // Read-only keeps nobody from using a device, and root from changing the host's.
        let device = |name: &'static str| {
            Ok((name, Detached::copy_of(&Path::new("/dev").join(name))?.with(RDONLY | BARE)?))
        };
        Ok(Self {
            devices: DEVICES.into_iter().map(device).collect::<Result<_, Refusal>>()?,
            workspaces: spec.workspaces.iter().map(bind).collect::<Result<_, Refusal>>()?,
            exposed: spec.exposed.iter().map(bind).collect::<Result<_, Refusal>>()?,
            proc: new_proc()?,
            home: home_to_cover(spec).map(Home::open).transpose()?,
            in_home: mounted_in_home(spec)?,
        })
    }
}

/// The home directory, unless a workspace shows it, or there is none worth the name.
fn home_to_cover(spec: &Spec) -> Option<&Path> {
    let home = spec.home.as_deref().filter(|home| *home != Path::new("/") && home.is_dir())?;
    let shown = spec.workspaces.iter().any(|workspace| home.starts_with(&workspace.at));
    (!shown).then_some(home)
}

/// Copies of the mounts below the home directory that are to be seen. What is mounted in one of them comes with it.
fn mounted_in_home(spec: &Spec) -> Result<Vec<(PathBuf, Detached)>, Refusal> {
    let Some(home) = home_to_cover(spec).filter(|_| spec.isolation != Isolation::Strict) else {
        return Ok(Vec::new());
    };
    let mut mounts: Vec<(PathBuf, Detached)> = Vec::new();
    for at in mount_points().refused(|| "list the mounts".to_owned())? {
        let is_seen =
            at.starts_with(home) && at != home && !spec.hidden.iter().any(|hidden| at.starts_with(hidden));
        let comes_along = mounts.iter().any(|(above, _)| at.starts_with(above));
        let is_ours = spec.workspaces.iter().any(|workspace| at.starts_with(&workspace.at));
        if is_seen && !comes_along && !is_ours {
            let copy = Detached::copy_of(&at)?.with(TAME | RDONLY)?;
            mounts.push((at, copy));
        }
    }
    Ok(mounts)
}

fn new_proc() -> Result<Detached, Refusal> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Detached::new("proc", &[("source", OsStr::new("proc"))], attributes)
}

/// Builds it. The caller is process 1 of a new pid namespace, in a new mount namespace. `user_marks` says whether
/// overlays have to keep their marks where users may.
pub(crate) fn build(spec: &Spec, user_marks: bool) -> Result<Root, Refusal> {
    let sources = Sources::take(spec)?;
    let foreign = foreign_mounts(spec)?;
    let whole = Attributes { set: RDONLY | TAME, propagation: APART };
    change_mount(CWD, Path::new("/"), true, whole).refused(|| "make the root read-only".to_owned())?;
    foreign.iter().rev().for_each(|path| detach(path));
    let layer = match &sources.home {
        Some(home) => Some(cover_home(home, spec, user_marks)?),
        None => None,
    };
    for (at, mode, part) in private_places() {
        Detached::tmpfs(mode, &share(part, spec), MountAttrFlags::empty())?.attach(Path::new(at))?;
    }
    place_devices(sources.devices, &share(SHM_SHARE, spec))?;
    let home_layer = match (layer, &sources.home) {
        (Some(layer), Some(home)) => Some(place_home(layer, home.path())?),
        _ => None,
    };
    let shown: Vec<PathBuf> = sources.in_home.iter().map(|(at, _)| at.clone()).collect();
    for (at, mount) in sources.in_home {
        mount.attach(&at)?;
    }
    // Before the workspaces: a link in one of them could lead anywhere through the host's.
    place_proc(sources.proc)?;
    let mut covered = hide(spec, sources.home.as_ref().map(Home::path), &shown)?;
    place(sources.workspaces, TAME)?;
    covered.extend(cover_inside_workspaces(spec)?);
    check_exposed(spec, &covered)?;
    place(sources.exposed, TAME | RDONLY)?;
    place_links(&spec.links)?;
    covered.iter().try_for_each(|path| seal(path))?;
    if spec.isolation == Isolation::Strict {
        cover(Path::new("/sys"), Path::new(NOTHING))?;
    }
    enter_workspace(spec)?;
    Ok(Root { writable: writable(spec, sources.home.as_ref().map(Home::path)), home_layer })
}

/// Mounts of other sandboxes, of which this namespace got copies. They would be kept for as long as it is there.
fn foreign_mounts(spec: &Spec) -> Result<Vec<PathBuf>, Refusal> {
    let all = mount_points().refused(|| "list the mounts".to_owned())?;
    let ours = |path: &PathBuf| spec.state.iter().any(|state| path.starts_with(state));
    Ok(all.into_iter().filter(ours).collect())
}

/// Those that are there; one that is a link is where it leads.
fn private_places() -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    PRIVATE.into_iter().filter(|(at, ..)| places::is_there(Path::new(at)))
}

/// The layer over home is made in a directory in memory, which has to be mounted somewhere for that: where something else is mounted over it next.
fn cover_home(home: &Home, spec: &Spec, user_marks: bool) -> Result<home::Layer, Refusal> {
    let scratch = private_places().next().map(|(at, ..)| Path::new(at));
    let scratch = scratch
        .ok_or_else(|| Refusal::new("cover the home directory", "there is no /tmp, /var/tmp or /run"))?;
    Detached::tmpfs("0700", &share(HOME_SHARE, spec), MountAttrFlags::empty())?.attach(scratch)?;
    if spec.isolation != Isolation::Strict {
        return home.layer(scratch, &spec.hidden, user_marks);
    }
    // Nothing of it is shown.
    let mount = Detached::tmpfs("0700", &share(HOME_SHARE, spec), MountAttrFlags::empty())?;
    let upper = rustix::io::fcntl_dupfd_cloexec(&mount, 3).refused(|| "open a layer".to_owned())?;
    Ok(home::Layer { mount, upper })
}

fn place_home(layer: home::Layer, at: &Path) -> Result<OwnedFd, Refusal> {
    layer.mount.attach_new(at)?;
    Ok(layer.upper)
}

fn place_devices(devices: Vec<(&'static str, Detached)>, shm: &str) -> Result<(), Refusal> {
    let dev = Path::new("/dev");
    Detached::tmpfs("0755", TINY, MountAttrFlags::MOUNT_ATTR_NOEXEC)?.attach(dev)?;
    for (name, device) in devices {
        let at = dev.join(name);
        device.attach_new(&at)?;
    }
    for (name, to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        fs::symlink(to, dev.join(name)).refused(|| format!("make /dev/{name}"))?;
    }
    for name in ["pts", "shm"] {
        fs::mkdir(dev.join(name), Mode::RWXU).refused(|| format!("make /dev/{name}"))?;
    }
    let pts = [("ptmxmode", OsStr::new("0666")), ("mode", OsStr::new("0620"))];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Detached::new("devpts", &pts, attributes)?.attach(&dev.join("pts"))?;
    Detached::tmpfs("1777", shm, MountAttrFlags::empty())?.attach(&dev.join("shm"))?;
    seal(dev)
}

/// Covers what is to be hidden and is neither in the home layer, where it is missing, nor in a workspace. What is `shown` over the
/// layer shows again what is missing in that. Says which directories were covered: mount points may still have to be made in them.
fn hide(spec: &Spec, home: Option<&Path>, shown: &[PathBuf]) -> Result<Vec<PathBuf>, Refusal> {
    let in_home = |path: &Path| home.is_some_and(|home| path.starts_with(home) && path != home);
    let layered = |path: &Path| in_home(path) && !shown.iter().any(|shown| path.starts_with(shown));
    let mut covered = Vec::new();
    for path in spec.hidden.iter().filter(|path| !layered(path) && workspace_of(path, spec).is_none()) {
        covered.extend(cover(path, Path::new(NOTHING))?.then(|| path.clone()));
    }
    Ok(covered)
}

/// Covers what is to be hidden in a workspace. The directories on the way are pinned: somebody could rename one of them, and find
/// the next time under its new name what is covered under the old one. Says which directories were covered.
fn cover_inside_workspaces(spec: &Spec) -> Result<Vec<PathBuf>, Refusal> {
    let mut covered = Vec::new();
    let mut pinned = BTreeSet::new();
    for path in &spec.hidden {
        let Some(workspace) = workspace_of(path, spec).filter(|_| places::is_there(path)) else { continue };
        let above = path.ancestors().skip(1).take_while(|above| *above != workspace.at);
        for above in above.collect::<Vec<_>>().into_iter().rev() {
            if pinned.insert(above.to_path_buf()) {
                pin(above)?;
            }
        }
        covered.extend(cover(path, Path::new(NOTHING))?.then(|| path.clone()));
    }
    Ok(covered)
}

/// A place for what is exposed is made below what is covered, or is there: nothing is made in a workspace.
fn check_exposed(spec: &Spec, covered: &[PathBuf]) -> Result<(), Refusal> {
    let in_the_way = |exposed: &&Bind| {
        let in_workspace = workspace_of(&exposed.at, spec).is_some();
        in_workspace
            && !covered.iter().any(|path| exposed.at.starts_with(path))
            && !places::is_there(&exposed.at)
    };
    match spec.exposed.iter().find(in_the_way) {
        Some(exposed) => Err(Refusal::new(
            format!("show {}", exposed.at.display()),
            "it lies in what is isolated; keep the state directory elsewhere",
        )),
        None => Ok(()),
    }
}

/// The workspace that shows what is at `path`.
fn workspace_of<'a>(path: &Path, spec: &'a Spec) -> Option<&'a Bind> {
    spec.workspaces.iter().find(|workspace| path.starts_with(&workspace.at) && path != workspace.at)
}

fn place(mounts: Vec<(PathBuf, Detached)>, attributes: u64) -> Result<(), Refusal> {
    for (at, mount) in mounts {
        mount.with(attributes)?.attach_new(&at)?;
    }
    Ok(())
}

/// A link that is mounted over a file is followed like any other. It is made in a directory in memory that nobody sees again.
fn place_links(links: &[Link]) -> Result<(), Refusal> {
    for link in links {
        let made = Path::new("/run/.link");
        let failed = || format!("show {} at {}", link.to.display(), link.at.display());
        fs::symlink(&link.to, made).refused(failed)?;
        let copy = Detached::copy_of_link(made).and_then(|copy| copy.attach_new(&link.at));
        fs::unlink(made).refused(failed)?;
        copy?;
    }
    Ok(())
}

fn place_proc(proc: Detached) -> Result<(), Refusal> {
    proc.attach(Path::new("/proc"))?;
    for path in PROC_READ_ONLY.map(Path::new).into_iter().filter(|path| places::is_there(path)) {
        Detached::copy_of(path)?.with(RDONLY)?.attach(path)?;
    }
    for path in COVERED.map(Path::new) {
        cover(path, Path::new(NOTHING))?;
    }
    Ok(())
}

fn enter_workspace(spec: &Spec) -> Result<(), Refusal> {
    let directory = spec.workspaces.iter().map(|workspace| workspace.at.as_path()).find(|at| at.is_dir());
    let directory = directory.unwrap_or(Path::new("/"));
    std::env::set_current_dir(directory).refused(|| format!("enter {}", directory.display()))
}

fn writable(spec: &Spec, home: Option<&Path>) -> Vec<PathBuf> {
    let workspaces = spec.workspaces.iter().map(|workspace| workspace.at.clone());
    let private = private_places().map(|(at, ..)| PathBuf::from(at));
    let devices = ["/dev", "/proc"].map(PathBuf::from);
    workspaces.chain(private).chain(devices).chain(home.map(Path::to_path_buf)).collect()
}
