//! What the runtime of a sandbox is to be: where its workspaces are, and what is not to be seen.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sandboxer_core::config::RunSettings;
use sandboxer_core::service::{Sandbox, Workspace};
use sandboxer_extensions::local::{Bind, Link, Spec, hidden};
use sandboxer_keeper::enter;

use super::args::Wanted;
use crate::cli::databases;

/// The spec of a sandbox's runtime. `state` is the state directory; `sockets` lead to databases.
pub fn of(sandbox: &Sandbox, state: &Path, run: &RunSettings, wanted: Wanted, sockets: Vec<Bind>) -> Spec {
    let home = home();
    let state = state_places(state);
    let mut spec = Spec {
        sandbox: sandbox.id.as_str().to_owned(),
        isolation: wanted.isolation,
        network: wanted.network,
        limits: wanted.limits,
        hidden: hidden::places(&homes(home.as_deref()), &run.hide, &run.show),
        disk_reserve: reserve(sandbox, run),
        exposed: sockets,
        home,
        ..Spec::default()
    };
    spec.hidden.extend(state.iter().cloned());
    spec.state = state;
    for workspace in &sandbox.workspaces {
        place(sandbox, workspace, &mut spec);
    }
    spec
}

/// The user's home directory, if there is one apart from everything else.
pub fn home() -> Option<PathBuf> {
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    home.filter(|home| home.parent().is_some())
}

/// The home directory, and the one that the user has by the system's table where that is another: credentials are in either.
fn homes(home: Option<&Path>) -> Vec<PathBuf> {
    let registered = hidden::registered_home().and_then(|home| home.canonicalize().ok());
    let mut homes: Vec<PathBuf> = home.map(Path::to_path_buf).into_iter().chain(registered).collect();
    homes.dedup();
    homes
}

/// What the settings show that lies in something hidden, which is hidden as a whole.
pub fn shown_in_vain(run: &RunSettings) -> Vec<PathBuf> {
    let Some(home) = home() else { return Vec::new() };
    if run.show.is_empty() {
        return Vec::new();
    }
    let hidden = hidden::places(&homes(Some(&home)), &run.hide, &run.show);
    hidden::shown_within(&home, &hidden, &run.show)
}

/// Where sandboxes are kept: the state directory and the scratch directories on other filesystems.
fn state_places(state: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read(state.join("scratch-roots")).unwrap_or_default();
    let lines = listed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let roots = lines.map(|line| PathBuf::from(OsStr::from_bytes(line)));
    let all = std::iter::once(state.to_path_buf()).chain(roots);
    all.filter_map(|place| place.canonicalize().ok()).collect()
}

/// In bytes, of the largest filesystem that a workspace is on.
fn reserve(sandbox: &Sandbox, run: &RunSettings) -> u64 {
    let paths = sandbox.workspaces.iter().filter_map(|workspace| workspace.sandbox_ref.sandbox_path());
    let sizes = paths.filter_map(|path| rustix::fs::statvfs(&path).ok()).map(|fs| fs.f_blocks * fs.f_frsize);
    sizes.max().map_or(0, |size| run.disk_reserve.of(size))
}

/// Where a workspace is seen inside: where its profile mounts it, or at the path of its original.
pub fn seen_at<'a>(sandbox: &'a Sandbox, workspace: &'a Workspace) -> Option<&'a Path> {
    let mounts = sandbox.environment.as_ref().map(|environment| &environment.mounts);
    let mounted = mounts.and_then(|mounts| mounts.get(&workspace.name)).map(PathBuf::as_path);
    mounted.or_else(|| workspace.resource.path())
}

/// Where a workspace is, and where it is to be seen.
fn place(sandbox: &Sandbox, workspace: &Workspace, spec: &mut Spec) {
    // What is at a URL has no path of its own at which a command could see it.
    let (Some(path), Some(at)) = (workspace.sandbox_ref.sandbox_path(), seen_at(sandbox, workspace)) else {
        return;
    };
    let from = match enter::inside(&path) {
        Some((keeper, inside)) => {
            spec.keeper = Some(keeper);
            inside
        }
        None => path,
    };
    if let Some(directory) = workspace.sandbox_ref.text("companions").map(PathBuf::from) {
        return place_with_companions(workspace, &directory, at, spec);
    }
    spec.workspaces.push(Bind { from, at: at.to_path_buf() });
    if let Some(at) = workspace.sandbox_ref.text("exposes").map(PathBuf::from)
        && let Ok(from) = at.canonicalize()
    {
        spec.exposed.push(Bind { from, at });
    }
}

/// A file that programs put others beside, which have to stay with it: its directory is shown apart, and a link in its place.
fn place_with_companions(workspace: &Workspace, directory: &Path, at: &Path, spec: &mut Spec) {
    let inside = databases::inside(workspace);
    let to = inside.join(at.file_name().unwrap_or_default());
    spec.workspaces.push(Bind { from: directory.to_path_buf(), at: inside });
    spec.links.push(Link { to, at: at.to_path_buf() });
}
