//! Where things are: the state directory, the configuration files, and the variables that name them. The only file of
//! the program that reads the environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use sandboxer_core::config::{KEYS, Layers, find_project_file};
use sandboxer_core::types::ResourceTypes;

use super::error::CliError;
use super::serving::HANDED_VARIABLES;

/// The variable that names a server.
pub const SERVER: &str = "SANDBOXER_SERVER";
/// The variable with the token for it.
pub const TOKEN: &str = "SANDBOXER_TOKEN";

/// The places of this user, on this command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The state directory.
    pub home: PathBuf,
    /// Which rule chose it.
    pub home_reason: &'static str,
    /// The user's configuration file, which may be missing unless it was named.
    pub config: Option<PathBuf>,
    /// Whether it was named by a flag or a variable.
    pub config_named: bool,
}

/// What the choice depends on, so that it can be tested without an environment.
pub struct Surroundings<'a> {
    /// `--home`.
    pub home_flag: Option<&'a Path>,
    /// `--config`.
    pub config_flag: Option<&'a Path>,
    /// Looks up a variable.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Whether root runs this.
    pub root: bool,
}

impl Surroundings<'_> {
    /// A variable that names a directory; an empty one counts as unset, a relative XDG one too, as its specification says.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        let value = (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from)?;
        (value.is_absolute() || name.starts_with("SANDBOXER_")).then_some(value)
    }
}

impl Places {
    /// Chooses by flag, variable, and convention.
    pub fn find(around: &Surroundings) -> Result<Self, CliError> {
        let (home, home_reason) = state_directory(around)?;
        let named =
            around.config_flag.map(Path::to_path_buf).or_else(|| around.directory("SANDBOXER_CONFIG"));
        let config_named = named.is_some();
        Ok(Self {
            home: absolute(home),
            home_reason,
            config: named.map(absolute).or_else(|| default_config(around)),
            config_named,
        })
    }

    /// The places of this process.
    pub fn of_process(home: Option<&Path>, config: Option<&Path>) -> Result<Self, CliError> {
        Self::find(&Surroundings {
            home_flag: home,
            config_flag: config,
            variable: &|name| std::env::var_os(name),
            root: rustix::process::geteuid().is_root(),
        })
    }

    /// The layers of configuration for work that starts in `start`.
    pub fn layers(&self, start: &Path) -> Layers {
        Layers { project_file: find_project_file(start), ..self.own_layers() }
    }

    /// The same without any project.
    pub fn own_layers(&self) -> Layers {
        Layers {
            user_file: self.config.clone().filter(|file| self.config_named || file.exists()),
            project_file: None,
            env: KEYS.iter().filter_map(|key| key.variable).filter_map(text_variable).collect(),
            overrides: BTreeMap::new(),
        }
    }

    /// Where the user's own Python modules lie: `strategies` beside the configuration file.
    pub fn modules(&self) -> Option<PathBuf> {
        Some(self.config.as_ref()?.parent()?.join("strategies"))
    }

    /// Where the user's own profiles, extensions and hosts lie: in directories of those names beside the configuration file. A project
    /// has none.
    pub fn catalogue(&self) -> Option<&Path> {
        self.config.as_ref()?.parent()
    }

    /// The user's own resource types: `resource-types/*.yaml` beside the configuration file.
    pub fn type_files(&self) -> Result<Vec<PathBuf>, CliError> {
        match self.config.as_ref().and_then(|file| file.parent()) {
            Some(directory) => Ok(ResourceTypes::files_in(&directory.join("resource-types"))?),
            None => Ok(Vec::new()),
        }
    }
}

/// Whether a command of that name is anywhere on the search path. A directory there that may not be searched makes the
/// system answer "permission denied" for commands that do not exist at all.
pub fn is_on_search_path(program: &OsStr) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}

/// A variable of the environment, where it is set and text.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The variables of a command that a server has handed over, each `NAME=VALUE`: see [`HANDED_VARIABLES`].
pub fn handed_variables() -> Vec<OsString> {
    let text = variable(HANDED_VARIABLES).unwrap_or_default();
    let handed: BTreeMap<String, String> = serde_json::from_str(&text).unwrap_or_default();
    handed.into_iter().map(|(name, value)| format!("{name}={value}").into()).collect()
}

/// The server that was typed, or else named in the environment; nothing where the name is empty.
pub fn server(typed: Option<&str>) -> Result<Option<String>, CliError> {
    let named = match (typed, std::env::var_os(SERVER)) {
        (Some(typed), _) => Some(typed.to_owned()),
        // To take it for unset would be to do on this machine what was meant for another.
        (None, Some(name)) => Some(name.into_string().map_err(|_| {
            CliError::usage("the variable SANDBOXER_SERVER is no text").hint("unix:PATH, or a URL")
        })?),
        (None, None) => None,
    };
    Ok(named.filter(|name| !name.is_empty()))
}

/// The token for a server, as the environment has it; an empty one counts as unset.
pub fn token() -> Option<String> {
    let token = std::env::var_os(TOKEN).filter(|token| !token.is_empty())?;
    // What is no text is no token, and is refused as such, without repeating it.
    Some(token.into_string().unwrap_or_else(|_| "\u{fffd}".to_owned()))
}

/// Whether a server has started this command for one of its clients.
pub fn is_served() -> bool {
    std::env::var_os(HANDED_VARIABLES).is_some()
}

fn text_variable(name: &str) -> Option<(String, String)> {
    variable(name).map(|value| (name.to_owned(), value))
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn state_directory(around: &Surroundings) -> Result<(PathBuf, &'static str), CliError> {
    if let Some(flag) = around.home_flag {
        return Ok((flag.to_path_buf(), "--home"));
    }
    if let Some(home) = around.directory("SANDBOXER_HOME") {
        return Ok((home, "$SANDBOXER_HOME"));
    }
    if around.root {
        return Ok((PathBuf::from("/var/lib/sandboxer"), "default for root"));
    }
    if let Some(state) = around.directory("XDG_STATE_HOME") {
        return Ok((state.join("sandboxer"), "$XDG_STATE_HOME"));
    }
    match around.directory("HOME") {
        Some(home) => Ok((home.join(".local/state/sandboxer"), "default")),
        None => Err(CliError::usage("no state directory: neither $HOME nor $XDG_STATE_HOME is set")
            .hint("name one: --home DIR, or set $SANDBOXER_HOME")),
    }
}

fn default_config(around: &Surroundings) -> Option<PathBuf> {
    let base =
        around.directory("XDG_CONFIG_HOME").or_else(|| Some(around.directory("HOME")?.join(".config")))?;
    Some(base.join("sandboxer/config.yaml"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn find(variables: &[(&str, &str)], root: bool, flag: Option<&str>) -> Result<Places, CliError> {
        let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        let home_flag = flag.map(Path::new);
        Places::find(&Surroundings { home_flag, config_flag: None, variable: &lookup, root })
    }

    #[test]
    fn the_state_directory_goes_by_rule() {
        let all = [("SANDBOXER_HOME", "/s"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(find(&all, false, Some("/f")).unwrap().home, Path::new("/f"));
        assert_eq!(find(&all, true, None).unwrap().home, Path::new("/s"));
        assert_eq!(find(&all[1..], true, None).unwrap().home, Path::new("/var/lib/sandboxer"));
        assert_eq!(find(&all[1..], false, None).unwrap().home, Path::new("/x/sandboxer"));
        assert_eq!(find(&all[2..], false, None).unwrap().home, Path::new("/h/.local/state/sandboxer"));
        assert_eq!(find(&[], false, None).unwrap_err().exit, 2);
    }

    #[test]
    fn commands_are_looked_for() {
        assert!(is_on_search_path(OsStr::new("sh")));
        assert!(!is_on_search_path(OsStr::new("no-such-command-at-all")));
    }

    #[test]
    fn empty_and_relative_variables_count_as_unset() {
        let places =
            find(&[("SANDBOXER_HOME", ""), ("XDG_STATE_HOME", "rel"), ("HOME", "/h")], false, None).unwrap();
        assert_eq!(places.home, Path::new("/h/.local/state/sandboxer"));
    }

    #[test]
    fn the_configuration_file_may_be_missing_unless_it_was_named() {
        let default = find(&[("HOME", "/nowhere")], false, None).unwrap();
        assert_eq!(default.config.as_deref(), Some(Path::new("/nowhere/.config/sandboxer/config.yaml")));
        assert_eq!(default.layers(Path::new("/")).user_file, None);
        let named = find(&[("HOME", "/h"), ("SANDBOXER_CONFIG", "/nowhere/c.yaml")], false, None).unwrap();
        assert_eq!(named.layers(Path::new("/")).user_file.as_deref(), Some(Path::new("/nowhere/c.yaml")));
        assert!(named.type_files().unwrap().is_empty());
    }

    #[test]
    fn own_resource_types_lie_beside_the_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let types = dir.path().join("resource-types");
        std::fs::create_dir(&types).unwrap();
        for name in ["b.yaml", "a.yml", "notes.txt"] {
            std::fs::write(types.join(name), "").unwrap();
        }
        let config = dir.path().join("config.yaml");
        let lookup = |_: &str| None;
        let around = Surroundings {
            home_flag: Some(dir.path()),
            config_flag: Some(&config),
            variable: &lookup,
            root: false,
        };
        let files = Places::find(&around).unwrap().type_files().unwrap();
        assert_eq!(files, [types.join("a.yml"), types.join("b.yaml")]);
    }
}
