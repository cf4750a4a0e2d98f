//! What services mount.
//!
//! The engine follows links in the path of what it mounts, at the moment that a container starts. A service that can
//! write above such a path could put a link to the host's root there, just before another service starts. So what lies
//! below anything that is mounted writable is mounted from a copy that no service can reach, or not at all.

use std::collections::BTreeSet;

use sandboxer_core::Result;
use sandboxer_core::model::RelPath;
use serde_json::{Map, Value, json};

use super::{Expected, Placer, Sealed};
use crate::at::{At, shown};
use crate::files::{Kind, Place};
use crate::model::{Definition, Model};
use crate::policy::Allowance;
use crate::read;

/// Names that engines listen by.
const SOCKETS: [&str; 6] =
    ["docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock", "dockershim.sock"];

/// Places below the root that some service can write to.
pub(super) fn writable(model: &Model) -> BTreeSet<String> {
    let services = model.services.values();
    let mounts =
        services.filter_map(|service| service.keys.get("volumes").and_then(Value::as_array)).flatten();
    let writable =
        mounts.filter(|mount| !mount.get("read_only").is_some_and(|flag| flag == true || flag == "true"));
    let places = writable.filter_map(|mount| mount.get("source")).filter_map(Place::from_value);
    places
        .filter_map(|place| match place {
            Place::Inside(path) => Some(path),
            Place::Outside(_) => None,
        })
        .collect()
}

impl Placer<'_> {
    /// All mounts of a service; returns where it has the workspace itself.
    pub(super) fn mounts(
        &self,
        name: &str,
        definition: &Definition,
        out: &mut Map<String, Value>,
    ) -> Result<Option<String>> {
        let at = definition.at(name, "volumes");
        let (mut mounts, mut workspace) = (Vec::new(), None);
        let listed = definition.keys.get("volumes").map(|list| read::list(list, &at)).transpose()?;
        for (index, mount) in listed.into_iter().flatten().enumerate() {
            let at = at.item(index);
            let target = read::text(&mount["target"], &at)?;
            expect_target(&target, &at)?;
            if mount.get("source").and_then(Place::from_value) == Some(Place::Inside(String::new())) {
                workspace = workspace.or_else(|| Some(target.clone()));
            }
            mounts.push(self.mount(read::map(mount, &at)?, &target, &at)?);
        }
        mounts.extend(self.given_files(name, definition)?);
        if !mounts.is_empty() {
            out.insert("volumes".to_owned(), mounts.into());
        }
        if let Some(others) = definition.keys.get("volumes_from") {
            let others = self.volumes_from(others, &definition.at(name, "volumes_from"))?;
            out.insert("volumes_from".to_owned(), others);
        }
        Ok(workspace)
    }

    fn mount(&self, mount: &Map<String, Value>, target: &str, at: &At) -> Result<Value> {
        let read_only =
            mount.get("read_only").map_or(Ok(false), |flag| read::flag(flag, &at.key("read_only")))?;
        let kind = mount.get("type").and_then(Value::as_str).unwrap_or_default();
        if let Some(odd) =
            ["bind", "volume", "tmpfs"].iter().find(|key| **key != kind && mount.contains_key(**key))
        {
            return Err(at.key(odd).refuse(format!("this mount is a {kind}"), "leave it out"));
        }
        let mut out = match kind {
            "bind" => self.bind(mount, read_only, at)?,
            "volume" => self.volume_mount(mount, at)?,
            "tmpfs" => tmpfs(mount, at)?,
            odd => return Err(at.key("type").unknown("the type", odd, &["bind", "volume", "tmpfs"])),
        };
        out["target"] = target.into();
        if read_only {
            out["read_only"] = true.into();
        }
        Ok(out)
    }

    fn bind(&self, mount: &Map<String, Value>, read_only: bool, at: &At) -> Result<Value> {
        if let Some(options) = mount.get("bind") {
            bind_options(options, &at.key("bind"))?;
        }
        let source = match mount.get("source").and_then(Place::from_value) {
            Some(Place::Inside(path)) => self.bind_inside(&path, read_only, at)?,
            Some(Place::Outside(path)) => self.bind_outside(&path, at)?,
            None => return Err(at.refuse("it does not say what is mounted", "write `source: ./PATH`")),
        };
        expect_plain(&source, at)?;
        Ok(json!({"type": "bind", "source": source}))
    }

    fn bind_inside(&self, path: &str, read_only: bool, at: &At) -> Result<String> {
        let kind = self.expect_there(path, at)?;
        let above = self.writable.iter().find(|above| is_below(path, above));
        match above {
            None => self.there(path, kind),
            Some(_) if read_only => self.seal(path, kind, None),
            Some(_) if self.allows(Allowance::NestedMounts) => self.there(path, kind),
            Some(above) => {
                let above = if above.is_empty() { "the workspace" } else { above };
                let what = format!(
                    "{:?} is mounted writable, and lies in {}, which is mounted writable too: what is in that could put \
                     a link there",
                    shown(path),
                    shown(above)
                );
                let hint = format!(
                    "make it `read_only`, make it a named volume, or let the host allow it: `policy.allow: [{}]`",
                    Allowance::NestedMounts
                );
                Err(at.refuse(what, hint))
            }
        }
    }

    /// The path of a place on the host, which has to be there as it is here.
    pub(super) fn there(&self, path: &str, kind: Kind) -> Result<String> {
        if !path.is_empty() {
            let is_dir = matches!(kind, Kind::Directory(_));
            self.expected.borrow_mut().insert(Expected { path: RelPath::parse(path)?, is_dir });
        }
        Ok(joined(self.placing.workspace, path))
    }

    /// What is at a place below the root, if it can be mounted.
    pub(super) fn expect_there(&self, path: &str, at: &At) -> Result<Kind> {
        let kind = self.model.kinds.get(path).copied().unwrap_or(Kind::Missing);
        let shown = shown(path);
        match kind {
            Kind::File(_) | Kind::Directory(_) => Ok(kind),
            Kind::Missing => Err(at.refuse(
                format!("{shown:?} is not in the workspace"),
                "create it, or make it a named volume",
            )),
            Kind::Link => Err(
                at.refuse(format!("{shown:?} leads through a symbolic link"), "name what the link points to")
            ),
            Kind::Other => {
                Err(at
                    .refuse(format!("{shown:?} is not a file or a directory"), "name a file or a directory"))
            }
        }
    }

    /// The path of a copy that no service can write to.
    pub(super) fn seal(&self, path: &str, kind: Kind, mode: Option<u32>) -> Result<String> {
        let (is_dir, own) = match kind {
            Kind::Directory(mode) => (true, mode),
            Kind::File(mode) => (false, mode),
            _ => (false, 0o444),
        };
        let from = RelPath::parse(path)?;
        let mode = mode.unwrap_or(own);
        let mut sealed = self.sealed.borrow_mut();
        let known = sealed.iter().find(|known| known.from == from && known.mode == mode);
        let name = known.map_or_else(|| sealed.len().to_string(), |known| known.name.clone());
        if known.is_none() {
            sealed.push(Sealed { from, name: name.clone(), is_dir, mode });
        }
        Ok(joined(self.placing.sealed, &name))
    }

    /// A path of the host, if the host allows it; one that leads to an engine needs a word of its own.
    fn bind_outside(&self, path: &str, at: &At) -> Result<String> {
        let real = normal(path);
        if real.as_deref().is_some_and(reaches_engine) {
            let what = format!("{:?} is where the engine is reached", shown(path));
            self.demand(Allowance::EngineSocket, at, &what)?;
        }
        let what = format!("{:?} lies outside of the workspace", shown(path));
        if !real.as_deref().is_some_and(is_socket) {
            self.demand(Allowance::HostMounts, at, &what)?;
        }
        real.ok_or_else(|| at.refuse(what, "name it by its absolute path"))
    }

    fn volume_mount(&self, mount: &Map<String, Value>, at: &At) -> Result<Value> {
        let (mut out, mut nocopy) = (json!({"type": "volume"}), None);
        if let Some(source) = mount.get("source").and_then(Value::as_str).filter(|source| !source.is_empty())
        {
            if !self.model.volumes.contains_key(source) {
                let what = format!("there is no volume {:?}", shown(source));
                let hint = "declare it under `volumes`, or begin the path with `./`";
                return Err(at.refuse(what, hint));
            }
            out["source"] = source.into();
            // An image's files would come back that were removed before the volume was kept.
            nocopy = self.placing.kept_volumes.contains(source).then_some(true);
        }
        if let Some(options) = mount.get("volume") {
            let at = at.key("volume");
            let options = read::map(options, &at)?;
            read::known_keys(options, &["nocopy"], &at)?;
            if let Some(flag) = options.get("nocopy") {
                let asked = read::flag(flag, &at.key("nocopy"))?;
                nocopy = nocopy.or(Some(asked));
            }
        }
        if let Some(nocopy) = nocopy {
            out["volume"] = json!({"nocopy": nocopy});
        }
        Ok(out)
    }

    fn volumes_from(&self, others: &Value, at: &At) -> Result<Value> {
        let mut out: Vec<Value> = Vec::new();
        for (index, other) in read::texts(others, at)?.into_iter().enumerate() {
            let at = at.item(index);
            let (service, mode) = other.split_once(':').unwrap_or((&other, "rw"));
            if service == "container" || !matches!(mode, "ro" | "rw") {
                let what = format!("{:?} is not a service of this stack", shown(&other));
                return Err(at.refuse(what, "write `SERVICE` or `SERVICE:ro`"));
            }
            self.expect_service(service, &at)?;
            out.push(format!("{service}:{mode}").into());
        }
        Ok(out.into())
    }
}

fn bind_options(options: &Value, at: &At) -> Result<()> {
    let options = read::map(options, at)?;
    read::known_keys(options, &["propagation", "create_host_path", "selinux"], at)?;
    let usual = [json!(null), json!(""), json!("private"), json!("rprivate")];
    if usual.contains(options.get("propagation").unwrap_or(&Value::Null)) {
        return Ok(());
    }
    Err(at.key("propagation").refuse("mounts would cross between host and service", "leave it out"))
}

fn tmpfs(mount: &Map<String, Value>, at: &At) -> Result<Value> {
    if mount.contains_key("source") {
        return Err(at.key("source").refuse("a tmpfs has no source", "leave it out"));
    }
    let mut out = json!({"type": "tmpfs"});
    if let Some(options) = mount.get("tmpfs") {
        let at = at.key("tmpfs");
        let options = read::map(options, &at)?;
        read::known_keys(options, &["size", "mode"], &at)?;
        if let Some(size) = options.get("size") {
            out["tmpfs"] = json!({"size": read::bytes(size, &at.key("size"))?});
        }
    }
    Ok(out)
}

/// Whether `path` lies strictly below `above`; everything does below the root, which is empty.
fn is_below(path: &str, above: &str) -> bool {
    if above.is_empty() {
        return !path.is_empty();
    }
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// A path of the host that runs the stack.
pub(super) fn joined(root: &str, path: &str) -> String {
    let root = root.trim_end_matches('/');
    if path.is_empty() { root.to_owned() } else { format!("{root}/{path}") }
}

/// An absolute path without `.` and `..`.
fn normal(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.strip_prefix('/')?.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

fn is_socket(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| SOCKETS.contains(&name))
}

/// Whether an engine can be reached by what is at an absolute path, or below it.
fn reaches_engine(path: &str) -> bool {
    let homes = ["/run", "/var/run", "/var/lib/docker", "/var/lib/containers", "/proc"];
    let within = |home: &&str| path == *home || is_below(path, home) || path == "/" || is_below(home, path);
    is_socket(path) || homes.iter().any(within)
}

/// Refuses what is not a path inside of a container, or what a compose program could take for more than one.
pub(super) fn expect_target(target: &str, at: &At) -> Result<()> {
    let climbs = target.split('/').any(|part| part == "..");
    if !target.starts_with('/') || climbs || target.len() > 4096 {
        let what = format!("{:?} is not a path inside of a container", shown(target));
        return Err(at.refuse(what, "write an absolute path"));
    }
    expect_plain(target, at)
}

/// Compose programs hand mounts on as lists between commas and colons.
fn expect_plain(path: &str, at: &At) -> Result<()> {
    match path.chars().find(|letter| letter.is_control() || matches!(letter, ',' | ':' | '"' | '\\')) {
        None => Ok(()),
        Some(odd) => {
            let what = format!("{:?} has {odd:?} in it, which separates mounts", shown(path));
            Err(at.refuse(what, "rename it"))
        }
    }
}
