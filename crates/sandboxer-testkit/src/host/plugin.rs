//! `docker compose`, the second version of the program, which docker runs as a plugin. A machine has it in root's home, so that nothing else on this
//! one finds it.

use std::fs;
use std::path::{Path, PathBuf};

/// Names it where it is not installed: `./test` does.
const NAMED: &str = "SANDBOXER_TEST_COMPOSE";
/// Where packages put it.
const PLACES: [&str; 4] = [
    "/usr/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/local/lib/docker/cli-plugins",
];

/// Where it is, or why it is nowhere. Called by its path, it is a program like any other.
pub fn compose_plugin() -> Result<PathBuf, String> {
    let named = std::env::var_os(NAMED).map(PathBuf::from);
    let installed = PLACES.iter().map(|place| Path::new(place).join("docker-compose"));
    let found = named.into_iter().chain(installed).find(|path| path.is_file());
    found.ok_or_else(|| format!("there is no `docker compose` here; ./test fetches it, or {NAMED} names it"))
}

/// Gives it to the docker of whoever has this home. No symbolic link: the machine does not see every path of this one.
pub(super) fn install(home: &Path, plugin: &Path) {
    let plugins = home.join(".docker/cli-plugins");
    fs::create_dir_all(&plugins).unwrap();
    let place = plugins.join("docker-compose");
    fs::hard_link(plugin, &place).or_else(|_| fs::copy(plugin, &place).map(drop)).unwrap();
}
