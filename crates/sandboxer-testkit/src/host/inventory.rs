//! What there is on a machine that was not there at first.

use std::fs;
use std::path::Path;

use super::{Engine, RemoteHost};
use crate::docker::IMAGE;

/// The networks that every engine has.
const GIVEN_NETWORKS: [&str; 4] = ["bridge", "host", "none", "podman"];

impl RemoteHost {
    /// Every container, network, volume and image with its labels, every directory below `~/.sandboxer` of both users, as lines that begin with what
    /// it is: those that contain `about` (a name, a label, an id; nothing for all of them). And every bridge `sbx…` that belongs to no network.
    pub fn inventory(&self, about: &str) -> Vec<String> {
        let mut found = self.directories();
        if self.engine != Engine::None {
            found.extend(
                self.containers()
                    .into_iter()
                    .chain(self.networks())
                    .chain(self.volumes())
                    .chain(self.images()),
            );
        }
        found.retain(|line| line.contains(about));
        if self.engine != Engine::None {
            found.extend(self.stray_bridges());
        }
        found
    }

    fn containers(&self) -> Vec<String> {
        self.list("container", &["ps", "--all", "--no-trunc", "--format", "{{.Names}} {{.Labels}}"])
    }

    fn networks(&self) -> Vec<String> {
        let lines = self.list("network", &["network", "ls", "--format", "{{.Name}} {{.Labels}}"]);
        let given = |line: &String| line.split(' ').nth(1).is_some_and(|name| GIVEN_NETWORKS.contains(&name));
        lines.into_iter().filter(|line| !given(line)).collect()
    }

    fn volumes(&self) -> Vec<String> {
        self.list("volume", &["volume", "ls", "--format", "{{.Name}} {{.Labels}}"])
    }

    fn images(&self) -> Vec<String> {
        let ids = self.run(&["images", "--quiet", "--no-trunc"]);
        let mut arguments =
            vec!["image", "inspect", "--format", "{{.RepoTags}} {{.Id}} {{json .Config.Labels}}"];
        let known = arguments.len();
        arguments.extend(ids.lines());
        if arguments.len() == known {
            return Vec::new();
        }
        let said = String::from_utf8_lossy(&self.try_run(&arguments).stdout).into_owned();
        let mut lines: Vec<String> = said.lines().map(|line| format!("image {}", line.trim())).collect();
        lines.retain(|line| {
            !line.contains(&format!("[{IMAGE}]")) && !line.contains(&format!("[localhost/{IMAGE}]"))
        });
        lines.dedup();
        lines
    }

    /// Bridges of ours whose network the engine has forgotten.
    fn stray_bridges(&self) -> Vec<String> {
        let links = self.there("ip", &["-oneline", "link", "show", "type", "bridge"]);
        let names = links.lines().filter_map(|line| line.split(": ").nth(1));
        let mut ours = names.filter(|name| name.starts_with("sbx")).peekable();
        if ours.peek().is_none() {
            return Vec::new();
        }
        let ids = self.run(&["network", "ls", "--quiet"]);
        let mut arguments = vec!["network", "inspect"];
        arguments.extend(ids.lines());
        // Others come and go meanwhile: what is still there is told all the same.
        let known = String::from_utf8_lossy(&self.try_run(&arguments).stdout).into_owned();
        ours.filter(|name| !known.contains(&format!("\"{name}\"")))
            .map(|name| format!("bridge {name}"))
            .collect()
    }

    fn directories(&self) -> Vec<String> {
        let homes = [self.home().to_path_buf(), self.guest_home()];
        homes.iter().flat_map(|home| below(&home.join(".sandboxer"), 2)).collect()
    }

    fn list(&self, what: &str, arguments: &[&str]) -> Vec<String> {
        self.run(arguments).lines().map(|line| format!("{what} {}", line.trim())).collect()
    }
}

/// Entries as deep as a sandbox's own directory.
fn below(dir: &Path, depth: usize) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let lines = paths.flat_map(|path| {
        let deeper = if depth > 1 { below(&path, depth - 1) } else { Vec::new() };
        std::iter::once(format!("directory {}", path.display())).chain(deeper)
    });
    lines.collect()
}
