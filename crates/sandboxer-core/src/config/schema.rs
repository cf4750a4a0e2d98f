//! The shape of a configuration file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::custom_strategy::Written;
use super::database::DatabaseSetting;
use super::keys::{self, Setting};
use super::quotas::{self, Quotas};
use super::run::RunSetting;
use super::yaml;
use crate::{Error, Result};

/// A value of a file and the line it stands on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) setting: Setting,
    pub(super) line: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    sandbox: Option<SandboxSection>,
    state: Option<StateSection>,
    copy: Option<CopySection>,
    overlay: Option<OverlaySection>,
    commit: Option<CommitSection>,
    database: Option<DatabaseSection>,
    events: Option<EventsSection>,
    quotas: Option<Spanned<BTreeMap<String, Spanned<quotas::Written>>>>,
    run: Option<RunSection>,
    actor_type: Option<Spanned<String>>,
    project: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SandboxSection {
    strategy: Option<Spanned<String>>,
    custom_strategies: Option<Spanned<BTreeMap<String, Written>>>,
    default_ttl: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StateSection {
    lock_wait: Option<Spanned<String>>,
    max_size: Option<Spanned<String>>,
    min_free: Option<Spanned<String>>,
    scratch: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CopySection {
    include: Option<Spanned<Vec<String>>>,
    exclude: Option<Spanned<Vec<String>>>,
    threads: Option<Spanned<u64>>,
    keep_base: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OverlaySection {
    durability: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CommitSection {
    policy: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RunSection {
    isolation: Option<Spanned<String>>,
    network: Option<Spanned<String>>,
    allow_hosts: Option<Spanned<Vec<String>>>,
    hide: Option<Spanned<Vec<String>>>,
    show: Option<Spanned<Vec<String>>>,
    env: Option<Spanned<Vec<String>>>,
    memory: Option<Spanned<String>>,
    pids: Option<Spanned<u64>>,
    cpus: Option<Spanned<f64>>,
    timeout: Option<Spanned<String>>,
    disk_reserve: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DatabaseSection {
    allow_ddl: Option<Spanned<Vec<String>>>,
    block_limit: Option<Spanned<String>>,
    lock_timeout: Option<Spanned<String>>,
    turn_timeout: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EventsSection {
    hub: Option<Spanned<String>>,
    token: Option<Spanned<String>>,
}

/// Everything that `text`, the content of `file`, sets.
pub(super) fn parse(text: &str, file: &Path) -> Result<Vec<Entry>> {
    let document = yaml::parse::<Document>(text, file).map_err(|error| keyed(error, text))?;
    let document = document.unwrap_or_default();
    let (sandbox, state, copy) = (
        document.sandbox.unwrap_or_default(),
        document.state.unwrap_or_default(),
        document.copy.unwrap_or_default(),
    );
    let mut entries = Entries { file, found: Vec::new() };
    entries.text("sandbox.strategy", sandbox.strategy)?;
    entries.add("sandbox.custom_strategies", sandbox.custom_strategies, custom_strategies)?;
    entries.text("sandbox.default_ttl", sandbox.default_ttl)?;
    entries.text("state.lock_wait", state.lock_wait)?;
    entries.text("state.max_size", state.max_size)?;
    entries.text("state.min_free", state.min_free)?;
    entries.text("state.scratch", state.scratch)?;
    entries
        .add("copy.include", copy.include, |list| Ok(Setting::Include(keys::patterns(list.into_iter())?)))?;
    entries
        .add("copy.exclude", copy.exclude, |list| Ok(Setting::Exclude(keys::patterns(list.into_iter())?)))?;
    entries.add("copy.threads", copy.threads, |count| Ok(Setting::Threads(keys::threads(count)?)))?;
    entries.text("commit.policy", document.commit.unwrap_or_default().policy)?;
    entries.text("copy.keep_base", copy.keep_base)?;
    entries.text("overlay.durability", document.overlay.unwrap_or_default().durability)?;
    entries.database(document.database.unwrap_or_default())?;
    entries.events(document.events.unwrap_or_default())?;
    entries.add(quotas::KEY, document.quotas, |written| Quotas::read(written, file).map(Setting::Quotas))?;
    entries.run(document.run.unwrap_or_default())?;
    entries.text("actor_type", document.actor_type)?;
    entries.text("project", document.project)?;
    Ok(entries.found)
}

fn custom_strategies(written: BTreeMap<String, Written>) -> Result<Setting> {
    let read = |(name, entry): (String, Written)| entry.read(&name).map(|strategy| (name, strategy));
    written.into_iter().map(read).collect::<Result<_>>().map(Setting::CustomStrategies)
}

struct Entries<'a> {
    file: &'a Path,
    found: Vec<Entry>,
}

impl Entries<'_> {
    fn text(&mut self, key: &str, value: Option<Spanned<String>>) -> Result<()> {
        self.add(key, value, |text| Setting::from_text(key, &text))
    }

    fn database(&mut self, database: DatabaseSection) -> Result<()> {
        self.list("database.allow_ddl", database.allow_ddl)?;
        self.text("database.block_limit", database.block_limit)?;
        self.text("database.lock_timeout", database.lock_timeout)?;
        self.text("database.turn_timeout", database.turn_timeout)
    }

    fn events(&mut self, events: EventsSection) -> Result<()> {
        self.text("events.hub", events.hub)?;
        self.text("events.token", events.token)
    }

    fn run(&mut self, run: RunSection) -> Result<()> {
        self.text("run.isolation", run.isolation)?;
        self.text("run.network", run.network)?;
        self.list("run.allow_hosts", run.allow_hosts)?;
        self.list("run.hide", run.hide)?;
        self.list("run.show", run.show)?;
        self.list("run.env", run.env)?;
        self.text("run.memory", run.memory)?;
        self.number("run.pids", run.pids)?;
        self.number("run.cpus", run.cpus)?;
        self.text("run.timeout", run.timeout)?;
        self.text("run.disk_reserve", run.disk_reserve)
    }

    fn number(&mut self, key: &str, value: Option<Spanned<impl ToString>>) -> Result<()> {
        self.add(key, value, |number| Setting::from_text(key, &number.to_string()))
    }

    fn list(&mut self, key: &str, value: Option<Spanned<Vec<String>>>) -> Result<()> {
        self.add(key, value, |list| {
            let database = DatabaseSetting::from_list(key, list.clone())?.map(Setting::Database);
            let run = || RunSetting::from_list(key, list).map(|found| found.map(Setting::Run));
            database.map_or_else(run, |found| Ok(Some(found)))?.ok_or_else(|| keys::unknown_key(key))
        })
    }

    fn add<T>(
        &mut self,
        key: &str,
        value: Option<Spanned<T>>,
        read: impl FnOnce(T) -> Result<Setting>,
    ) -> Result<()> {
        let Some(spanned) = value else { return Ok(()) };
        let line = Some(spanned.referenced.line()).filter(|line| *line > 0);
        let setting = read(spanned.value).map_err(|error| located(error, key, self.file, line))?;
        self.found.push(Entry { setting, line });
        Ok(())
    }
}

/// A complaint about a value, told as a complaint about its place in the file.
pub(crate) fn located(error: Error, key: &str, file: &Path, line: Option<u64>) -> Error {
    match error {
        Error::Usage { message, hint } => {
            let message = format!("{key}: {message}");
            Error::Config { file: file.to_path_buf(), line, column: None, message, hint }
        }
        other => other,
    }
}

/// The parser's complaint about a value, with the key that stands on its line: it knows the line alone.
fn keyed(error: Error, text: &str) -> Error {
    match error {
        Error::Config { file, line: Some(line), column, message, hint } => {
            let message = match key_on(text, line) {
                Some(key) => format!("{key}: {message}"),
                None => message,
            };
            Error::Config { file, line: Some(line), column, message, hint }
        }
        other => other,
    }
}

/// The key of ours that is set on that line, with its section; nothing where the line is written in any other way.
fn key_on(text: &str, line: u64) -> Option<&'static str> {
    let lines: Vec<&str> = text.lines().take(usize::try_from(line).ok()?).collect();
    let (last, above) = lines.split_last()?;
    let name = last.split_once(':')?.0;
    let is_section = |line: &&&str| line.starts_with(|c: char| c.is_ascii_alphabetic());
    let section = above.iter().rev().find(is_section).and_then(|line| line.split_once(':'));
    let full = match (name.starts_with(' '), section) {
        (true, Some((section, _))) => format!("{section}.{}", name.trim()),
        _ => name.to_owned(),
    };
    keys::KEYS.iter().map(|key| key.name).find(|key| *key == full)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use jiff::SignedDuration;
    use serde_json::json;

    const EVERYTHING: &str = "\
sandbox:
  strategy: filesystem_copy
  default_ttl: 2h
  custom_strategies:
    fast:
      module: builtin:filesystem_copy
      options: {threads: 2}
    theirs:
      module: company.strategies
      class: Snapshot
state:
  lock_wait: 30s
  max_size: 5GB
  min_free: 2%
  scratch: /var/scratch
copy:
  keep_base: 10MiB
  include: [\"src/**\"]
  exclude:
    - target
  threads: 4
database:
  allow_ddl: [truncate]
  block_limit: 2m
  lock_timeout: 2s
  turn_timeout: 20s
overlay:
  durability: strict
commit:
  policy: /etc/policy.yaml
run:
  isolation: strict
  network: none
  allow_hosts: [\"api.example.com:443\"]
  hide: [~/.secrets]
  show: [~/.npmrc]
  env: [DOCKER_HOST]
  memory: 2G
  pids: 512
  cpus: 2
  timeout: 10m
  disk_reserve: 2%
events:
  hub: https://hub.example/events
  token: env:HUB_TOKEN
quotas:
  agt:shop: {sandboxes: 5, disk: 10GiB}
actor_type: agt
project: shop
";

    fn read(text: &str) -> Vec<Entry> {
        parse(text, Path::new("c.yaml")).unwrap()
    }

    fn complaint(text: &str) -> (Option<u64>, String) {
        match parse(text, Path::new("c.yaml")).unwrap_err() {
            Error::Config { line, message, .. } => (line, message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_key_can_stand_in_a_file() {
        let entries = read(EVERYTHING);
        let mut found: Vec<&str> = entries.iter().map(|entry| entry.setting.key()).collect();
        found.sort_unstable();
        let all: Vec<&str> = keys::KEYS.iter().map(|key| key.name).collect();
        assert_eq!(found, all);
        assert!(
            entries.contains(&Entry {
                setting: Setting::DefaultTtl(SignedDuration::from_hours(2)),
                line: Some(3)
            })
        );
    }

    #[test]
    fn custom_strategies_keep_module_class_and_options() {
        let entries = read(EVERYTHING);
        let custom = entries.into_iter().find_map(|entry| match entry.setting {
            Setting::CustomStrategies(custom) => Some(custom),
            _ => None,
        });
        let custom = custom.unwrap();
        assert_eq!(custom["fast"].options["threads"], json!(2));
        assert_eq!(custom["theirs"].class.as_deref(), Some("Snapshot"));
        assert!(complaint("sandbox:\n  custom_strategies:\n    x: {class: C}\n").1.contains("module"));
    }

    #[test]
    fn an_unusable_custom_strategy_leaves_the_rest_of_the_file_valid() {
        let entries = read(
            "sandbox:\n  custom_strategies:\n    odd: {module: 'exec:p'}\n    mine: {module: 'm:C'}\nproject: shop\n",
        );
        assert_eq!(entries.len(), 2);
        let Setting::CustomStrategies(custom) = &entries[0].setting else { panic!("{entries:?}") };
        let invalid = custom["odd"].invalid.as_ref().unwrap();
        assert_eq!(invalid.message, "\"p\" is not an absolute path");
        assert_eq!((&*custom["odd"].module, &custom["mine"].invalid), ("exec:p", &None));
    }

    #[test]
    fn an_empty_file_or_section_sets_nothing() {
        for text in ["", "# nothing\n", "sandbox:\n", "sandbox:\n  strategy:\ncopy: {}\nstate:\n"] {
            assert_eq!(read(text), [], "{text:?}");
        }
    }

    #[test]
    fn a_wrong_value_names_its_line() {
        let table = [
            ("project: shop\nactor_type: robot\n", 2, "actor_type: \"robot\" is not an actor type"),
            (
                "sandbox:\n  default_ttl: 5 minutes\n",
                2,
                "sandbox.default_ttl: \"5 minutes\" is not a duration",
            ),
            ("copy:\n\n  threads: 0\n", 3, "copy.threads: \"0\" is not a number of threads from 1 to 256"),
            ("state:\n  scratch: here\n", 2, "state.scratch: \"here\" is not an absolute path"),
            ("overlay:\n  durability: none\n", 2, "overlay.durability: \"none\" is not a durability"),
            ("sandbox:\n  stratgy: none\n", 2, "unknown key \"stratgy\""),
            ("run:\n  pids: 0\n", 2, "run.pids: \"0\" is not a number of processes from 1 to 4194304"),
            ("run:\n  env: [A=1]\n", 2, "run.env: \"A=1\" is not the name of a variable"),
        ];
        for (text, line, message) in table {
            assert_eq!(complaint(text), (Some(line), message.to_owned()));
        }
        assert_eq!(complaint("copy:\n  exclude: target\n").0, Some(2));
        assert_eq!(complaint("copy:\n  exclude: [\"\"]\n").1, "copy.exclude: \"\" is not a pattern");
    }

    #[test]
    fn a_value_of_the_wrong_type_names_its_key() {
        for (text, key) in [
            ("copy:\n  exclude: []\n  threads: lots\n", "copy.threads: "),
            ("sandbox:\n  strategy: 12\n", "sandbox.strategy: "),
            ("# first\nproject: [a]\n", "project: "),
            ("run:\n  cpus: all\n", "run.cpus: "),
        ] {
            let (_, message) = complaint(text);
            assert!(message.starts_with(key) && message.len() > key.len(), "{text:?}: {message}");
        }
        assert!(complaint("copy: {threads: lots}\n").0.is_some());
    }
}
