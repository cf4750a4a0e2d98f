//! Every key there is: its name, its variable in the environment, and what counts as a value.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;

use super::custom_strategy::CustomStrategy;
use super::database::DatabaseSetting;
use super::duration::{parse_duration, parse_ttl};
use super::events::EventsSetting;
use super::quotas::{self, Quotas};
use super::run::RunSetting;
use super::settings::{Durability, MinFree, Settings};
use super::size::parse_size;
use super::yaml::nearest_word;
use crate::{Error, Result, resolve};

/// A key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Key {
    /// Its dotted name.
    pub name: &'static str,
    /// The variable of the environment layer; `None` where the files alone can set it.
    pub variable: Option<&'static str>,
    /// Whether a project's file may set it before it is trusted (and then only to something stricter).
    pub untrusted: bool,
}

const fn key(name: &'static str, variable: Option<&'static str>, untrusted: bool) -> Key {
    Key { name, variable, untrusted }
}

/// All keys, by name.
pub const KEYS: &[Key] = &[
    key("actor_type", Some("SANDBOXER_ACTOR_TYPE"), false),
    key("commit.policy", Some("SANDBOXER_POLICY"), false),
    key("copy.exclude", Some("SANDBOXER_EXCLUDE"), true),
    key("copy.include", Some("SANDBOXER_INCLUDE"), false),
    key("copy.keep_base", Some("SANDBOXER_KEEP_BASE"), false),
    key("copy.threads", Some("SANDBOXER_THREADS"), false),
    key("database.allow_ddl", Some("SANDBOXER_ALLOW_DDL"), false),
    key("database.block_limit", Some("SANDBOXER_BLOCK_LIMIT"), false),
    key("database.lock_timeout", Some("SANDBOXER_LOCK_TIMEOUT"), false),
    key("database.turn_timeout", Some("SANDBOXER_TURN_TIMEOUT"), false),
    key("events.hub", Some("SANDBOXER_HUB"), false),
    key("events.token", Some("SANDBOXER_HUB_TOKEN"), false),
    key("overlay.durability", Some("SANDBOXER_OVERLAY_DURABILITY"), true),
    key("project", Some("SANDBOXER_PROJECT"), false),
    key("quotas", None, false),
    key("run.allow_hosts", Some("SANDBOXER_ALLOW_HOSTS"), false),
    key("run.cpus", Some("SANDBOXER_CPUS"), true),
    key("run.disk_reserve", Some("SANDBOXER_DISK_RESERVE"), false),
    key("run.env", Some("SANDBOXER_ENV"), false),
    key("run.hide", Some("SANDBOXER_HIDE"), true),
    key("run.isolation", Some("SANDBOXER_ISOLATION"), true),
    key("run.memory", Some("SANDBOXER_MEMORY"), true),
    key("run.network", Some("SANDBOXER_NETWORK"), true),
    key("run.pids", Some("SANDBOXER_PIDS"), true),
    key("run.show", Some("SANDBOXER_SHOW"), false),
    key("run.timeout", Some("SANDBOXER_TIMEOUT"), true),
    key("sandbox.custom_strategies", None, false),
    key("sandbox.default_ttl", Some("SANDBOXER_DEFAULT_TTL"), true),
    key("sandbox.strategy", Some("SANDBOXER_STRATEGY"), true),
    key("state.lock_wait", Some("SANDBOXER_LOCK_WAIT"), false),
    key("state.max_size", Some("SANDBOXER_MAX_SIZE"), false),
    key("state.min_free", Some("SANDBOXER_MIN_FREE"), false),
    key("state.scratch", Some("SANDBOXER_SCRATCH"), false),
];

/// Who can ask: a person, an agent, an automation.
const ACTOR_TYPES: [&str; 3] = ["adm", "agt", "atm"];

/// More threads than this only wait for one another.
const MOST_THREADS: u64 = 256;

/// One value for one key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Setting {
    Strategy(String),
    CustomStrategies(BTreeMap<String, CustomStrategy>),
    DefaultTtl(SignedDuration),
    LockWait(Duration),
    Scratch(PathBuf),
    Policy(PathBuf),
    Include(Vec<String>),
    Exclude(Vec<String>),
    Threads(usize),
    KeepBase(u64),
    MaxSize(u64),
    MinFree(MinFree),
    Durability(Durability),
    ActorType(String),
    Project(String),
    Run(RunSetting),
    Database(DatabaseSetting),
    Events(EventsSetting),
    Quotas(Quotas),
}

impl Setting {
    /// The key's name.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Strategy(_) => "sandbox.strategy",
            Self::CustomStrategies(_) => "sandbox.custom_strategies",
            Self::DefaultTtl(_) => "sandbox.default_ttl",
            Self::LockWait(_) => "state.lock_wait",
            Self::Scratch(_) => "state.scratch",
            Self::Policy(_) => "commit.policy",
            Self::Include(_) => "copy.include",
            Self::Exclude(_) => "copy.exclude",
            Self::Threads(_) => "copy.threads",
            Self::KeepBase(_) => "copy.keep_base",
            Self::MaxSize(_) => "state.max_size",
            Self::MinFree(_) => "state.min_free",
            Self::Durability(_) => "overlay.durability",
            Self::ActorType(_) => "actor_type",
            Self::Project(_) => "project",
            Self::Run(setting) => setting.key(),
            Self::Database(setting) => setting.key(),
            Self::Events(setting) => setting.key(),
            Self::Quotas(_) => quotas::KEY,
        }
    }

    /// Reads a value as a flag or a variable gives it: text, lists separated by colons.
    pub(super) fn from_text(key: &str, text: &str) -> Result<Self> {
        Ok(match key {
            "sandbox.strategy" => Self::Strategy(word(text)?),
            "sandbox.default_ttl" => Self::DefaultTtl(parse_ttl(text)?),
            "state.lock_wait" => Self::LockWait(parse_duration(text)?.unsigned_abs()),
            "state.scratch" => Self::Scratch(absolute(text)?),
            "commit.policy" => Self::Policy(absolute(text)?),
            "copy.include" => Self::Include(patterns(text.split(':').map(str::to_owned))?),
            "copy.exclude" => Self::Exclude(patterns(text.split(':').map(str::to_owned))?),
            "copy.threads" => Self::Threads(threads(text.parse().map_err(|_| bad_threads(text))?)?),
            "copy.keep_base" => Self::KeepBase(parse_size(text)?),
            "state.max_size" => Self::MaxSize(parse_size(text)?),
            "state.min_free" => Self::MinFree(MinFree::parse(text)?),
            "overlay.durability" => Self::Durability(durability(text)?),
            "actor_type" => Self::ActorType(actor_type(text)?),
            "project" => Self::Project(word(text)?),
            "sandbox.custom_strategies" | quotas::KEY => {
                return Err(Error::usage(format!("{key} is set in the user's configuration file only")));
            }
            other => return Self::from_section(other, text),
        })
    }

    /// The same for keys of sections that have a file of their own.
    fn from_section(key: &str, text: &str) -> Result<Self> {
        if let Some(setting) = DatabaseSetting::from_text(key, text)? {
            return Ok(Self::Database(setting));
        }
        if let Some(setting) = EventsSetting::from_text(key, text)? {
            return Ok(Self::Events(setting));
        }
        RunSetting::from_text(key, text)?.map(Self::Run).ok_or_else(|| unknown_key(key))
    }

    /// Puts the value where it belongs. Patterns to exclude, policies and what is hidden add up over the layers, since being
    /// laxer than another layer asked for is never what was meant; everything else replaces what was there.
    pub(super) fn apply(self, settings: &mut Settings, origin: &str) {
        let key = self.key();
        match self {
            Self::Strategy(name) => settings.sandbox_strategy = Some(name),
            Self::CustomStrategies(custom) => settings.custom_strategies.extend(custom),
            Self::DefaultTtl(ttl) => settings.default_ttl = Some(ttl),
            Self::LockWait(wait) => settings.lock_wait = wait,
            Self::Scratch(directory) => settings.scratch = Some(directory),
            Self::Include(patterns) => settings.include = patterns,
            Self::Exclude(patterns) => {
                add(&mut settings.exclude, patterns);
                return also_decided(settings, key, origin);
            }
            Self::Policy(file) => {
                add(&mut settings.policies, vec![file]);
                return also_decided(settings, key, origin);
            }
            Self::Threads(threads) => settings.threads = Some(threads),
            Self::KeepBase(bytes) => settings.keep_base = Some(bytes),
            Self::MaxSize(bytes) => settings.max_size = bytes,
            Self::MinFree(floor) => settings.min_free = floor,
            Self::Durability(durability) => settings.durability = durability,
            Self::ActorType(actor_type) => settings.actor_type = Some(actor_type),
            Self::Project(project) => settings.project = Some(project),
            Self::Database(setting) => setting.apply(&mut settings.database),
            Self::Events(setting) => setting.apply(&mut settings.events),
            Self::Quotas(quotas) => settings.quotas = quotas,
            Self::Run(setting) => {
                if setting.apply(&mut settings.run) {
                    return also_decided(settings, key, origin);
                }
            }
        }
        settings.origins.insert(key.to_owned(), origin.to_owned());
    }
}

pub(super) fn add<T: PartialEq>(values: &mut Vec<T>, more: Vec<T>) {
    for value in more {
        if !values.contains(&value) {
            values.push(value);
        }
    }
}

fn also_decided(settings: &mut Settings, key: &str, origin: &str) {
    let decided = settings.origins.entry(key.to_owned()).or_default();
    *decided = if decided.is_empty() || decided == "default" {
        origin.to_owned()
    } else {
        format!("{decided} and {origin}")
    };
}

/// A name: not empty, one line, nothing that could disturb a terminal.
pub(super) fn word(text: &str) -> Result<String> {
    if text.is_empty() || text.len() > 200 || text.trim() != text || text.contains(char::is_control) {
        return Err(Error::usage(format!("{text:?} is not a name")));
    }
    Ok(text.to_owned())
}

pub(super) fn absolute(text: &str) -> Result<PathBuf> {
    let path = PathBuf::from(text);
    if !path.is_absolute() || text.contains('\0') {
        let hint = "write the whole path; ~ and variables are not expanded";
        return Err(Error::Usage {
            message: format!("{text:?} is not an absolute path"),
            hint: Some(hint.to_owned()),
        });
    }
    Ok(path)
}

pub(super) fn patterns(patterns: impl Iterator<Item = String>) -> Result<Vec<String>> {
    let patterns: Vec<String> = patterns.collect();
    match patterns.iter().find(|pattern| pattern.is_empty() || pattern.contains('\0')) {
        Some(bad) => Err(Error::usage(format!("{bad:?} is not a pattern"))),
        None => Ok(patterns),
    }
}

pub(super) fn threads(count: u64) -> Result<usize> {
    match usize::try_from(count) {
        Ok(threads) if (1..=MOST_THREADS).contains(&count) => Ok(threads),
        _ => Err(bad_threads(&count.to_string())),
    }
}

fn bad_threads(text: &str) -> Error {
    Error::usage(format!("{text:?} is not a number of threads from 1 to {MOST_THREADS}"))
}

pub(super) fn actor_type(text: &str) -> Result<String> {
    if ACTOR_TYPES.contains(&text) {
        return Ok(text.to_owned());
    }
    let hint = nearest_word(text, &ACTOR_TYPES);
    Err(Error::Usage { message: format!("{text:?} is not an actor type"), hint })
}

fn durability(text: &str) -> Result<Durability> {
    let all = [Durability::Volatile, Durability::Strict];
    all.into_iter().find(|known| known.as_str() == text).ok_or_else(|| Error::Usage {
        message: format!("{text:?} is not a durability"),
        hint: nearest_word(text, &all.map(Durability::as_str)),
    })
}

pub(super) fn unknown_key(name: &str) -> Error {
    let names: Vec<String> = KEYS.iter().map(|key| key.name.to_owned()).collect();
    let hint = resolve::nearest(name, names.iter()).first().map(|near| format!("did you mean {near:?}?"));
    Error::Usage { message: format!("unknown key {name:?}"), hint }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn complaint(key: &str, text: &str) -> (String, Option<String>) {
        match Setting::from_text(key, text).unwrap_err() {
            Error::Usage { message, hint } => (message, hint),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_key_reads_its_text_and_knows_its_name() {
        let table = [
            ("sandbox.strategy", "overlay"),
            ("sandbox.default_ttl", "2h"),
            ("state.lock_wait", "0s"),
            ("state.scratch", "/var/scratch"),
            ("commit.policy", "/etc/policy.yaml"),
            ("copy.include", "src/**:docs/**"),
            ("copy.exclude", "target"),
            ("copy.threads", "4"),
            ("copy.keep_base", "10MiB"),
            ("state.max_size", "5 GB"),
            ("state.min_free", "3%"),
            ("database.allow_ddl", "alter table,create index"),
            ("database.block_limit", "none"),
            ("database.lock_timeout", "2s"),
            ("database.turn_timeout", "20s"),
            ("events.hub", "https://hub.example/events"),
            ("events.token", "file:/run/token"),
            ("overlay.durability", "strict"),
            ("actor_type", "agt"),
            ("project", "shop"),
            ("run.isolation", "strict"),
            ("run.network", "host"),
            ("run.allow_hosts", "api.example.com:443,*.crates.io"),
            ("run.hide", "~/.secrets:/etc/private"),
            ("run.show", "~/.npmrc"),
            ("run.env", "DOCKER_HOST:KUBECONFIG"),
            ("run.memory", "2G"),
            ("run.pids", "512"),
            ("run.cpus", "1.5"),
            ("run.timeout", "10m"),
            ("run.disk_reserve", "2%"),
        ];
        for (key, text) in table {
            assert_eq!(Setting::from_text(key, text).unwrap().key(), key);
        }
        let text_keys: Vec<_> = table.iter().map(|(key, _)| *key).collect();
        let rest: Vec<_> = KEYS.iter().map(|key| key.name).filter(|name| !text_keys.contains(name)).collect();
        assert_eq!(rest, ["quotas", "sandbox.custom_strategies"]);
        assert!(KEYS.windows(2).all(|pair| pair[0].name < pair[1].name), "the list is sorted");
    }

    #[test]
    fn lists_are_separated_by_colons() {
        let include = Setting::from_text("copy.include", "a/**:b").unwrap();
        assert_eq!(include, Setting::Include(vec!["a/**".to_owned(), "b".to_owned()]));
        assert!(complaint("copy.exclude", "a::b").0.contains("not a pattern"));
    }

    #[test]
    fn values_are_checked() {
        let bad = [
            ("sandbox.strategy", ""),
            ("sandbox.strategy", " padded"),
            ("project", "two\nlines"),
            ("sandbox.default_ttl", "0s"),
            ("sandbox.default_ttl", "soon"),
            ("state.lock_wait", "-1s"),
            ("state.scratch", "~/scratch"),
            ("state.scratch", "relative"),
            ("commit.policy", "policy.yaml"),
            ("copy.threads", "0"),
            ("copy.threads", "257"),
            ("copy.threads", "many"),
            ("state.max_size", "lots"),
            ("state.min_free", "101%"),
            ("state.min_free", "%"),
            ("overlay.durability", ""),
            ("overlay.durability", "Strict"),
            ("sandbox.custom_strategies", "x"),
            ("quotas", "x"),
        ];
        for (key, text) in bad {
            assert!(Setting::from_text(key, text).is_err(), "{key} = {text:?}");
        }
        assert!(word(&"x".repeat(201)).is_err());
        assert_eq!(complaint("actor_type", "agent").1.as_deref(), Some("valid here: adm, agt, atm"));
        let (message, hint) = complaint("overlay.durability", "stric");
        assert_eq!(message, "\"stric\" is not a durability");
        assert_eq!(hint.as_deref(), Some("did you mean \"strict\"?"));
        assert_eq!(complaint("actor_type", "adn").1.as_deref(), Some("did you mean \"adm\"?"));
    }

    #[test]
    fn an_unknown_key_suggests_the_nearest() {
        let (message, hint) = complaint("sandbox.stratgy", "x");
        assert_eq!(message, "unknown key \"sandbox.stratgy\"");
        assert_eq!(hint.as_deref(), Some("did you mean \"sandbox.strategy\"?"));
    }

    #[test]
    fn a_value_lands_in_its_field_with_its_origin() {
        let mut settings = Settings::default();
        Setting::LockWait(Duration::from_secs(3)).apply(&mut settings, "flag");
        Setting::Threads(2).apply(&mut settings, "flag");
        Setting::Scratch("/s".into()).apply(&mut settings, "flag");
        assert_eq!(settings.lock_wait, Duration::from_secs(3));
        assert_eq!(
            (settings.threads, settings.scratch.as_deref()),
            (Some(2), Some(std::path::Path::new("/s")))
        );
        assert_eq!(settings.origin("state.lock_wait"), "flag");
        assert_eq!(settings.origin("project"), "default");
    }

    #[test]
    fn excludes_add_up() {
        let mut settings = Settings::default();
        Setting::Exclude(vec![".env".into()]).apply(&mut settings, "user file u");
        Setting::Exclude(vec!["target".into(), ".env".into()]).apply(&mut settings, "flag");
        assert_eq!(settings.exclude, [".env", "target"]);
        assert_eq!(settings.origin("copy.exclude"), "user file u and flag");
    }

    #[test]
    fn a_layer_adds_a_policy_and_takes_none_away() {
        let mut settings = Settings::default();
        Setting::Policy("/u.yaml".into()).apply(&mut settings, "user file u");
        Setting::Policy("/e.yaml".into()).apply(&mut settings, "environment SANDBOXER_POLICY");
        assert_eq!(settings.policies, [PathBuf::from("/u.yaml"), PathBuf::from("/e.yaml")]);
        assert_eq!(settings.origin("commit.policy"), "user file u and environment SANDBOXER_POLICY");
    }
}
