//! Which strategy a resource is isolated with, and which rule said so; and which word somebody may have meant.

use serde_json::Value;

use crate::config::{Settings, untrusted_refusal};
use crate::model::Resource;
use crate::registry::{StrategyEntry, StrategyRegistry};
use crate::types::ResourceType;
use crate::{Error, Result};

/// The origin that built-in strategies are registered with.
pub(crate) const BUILT_IN: &str = "built-in";

/// What is not found where the global key names a strategy that is not there.
const BY_KEY: &str = "strategy (named by sandbox.strategy)";

/// A strategy, and why this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyChoice {
    /// The strategy's name in the registry.
    pub strategy: String,
    /// The rule that decided, in words.
    pub reason: String,
}

/// Chooses by the first rule that has an opinion: the caller's flag, the profile's workspace mode, the resource's own
/// setting, its type's `sandbox_strategy`, the global key `sandbox.strategy`, its type's `default_strategy`. A choice
/// that the type is not compatible with is an error, never a reason to try the next rule.
pub fn choose_strategy(
    flag: Option<&str>,
    profile_mode: Option<&str>,
    resource: &Resource,
    resource_type: &ResourceType,
    settings: &Settings,
    registry: &StrategyRegistry,
) -> Result<StrategyChoice> {
    let choice = match by_caller(flag, profile_mode) {
        Some(choice) => choice,
        None => match by_resource(resource)? {
            Some(choice) => choice,
            None => by_configuration(resource_type, settings, registry)?,
        },
    };
    if !compatible(registry.get(&choice.strategy)?, resource_type) {
        return Err(incompatible(&choice, resource_type, registry));
    }
    Ok(choice)
}

fn by_caller(flag: Option<&str>, profile_mode: Option<&str>) -> Option<StrategyChoice> {
    let flag = flag.map(|name| choice(name, "--strategy"));
    flag.or(profile_mode.map(|name| choice(name, "workspace mode of the profile")))
}

fn by_resource(resource: &Resource) -> Result<Option<StrategyChoice>> {
    match resource.properties.get("strategy") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) => Ok(Some(choice(name, "strategy of the resource itself"))),
        Some(other) => Err(Error::usage(format!("the resource's strategy is {other}, not a name"))),
    }
}

fn by_configuration(
    resource_type: &ResourceType,
    settings: &Settings,
    registry: &StrategyRegistry,
) -> Result<StrategyChoice> {
    let type_name = &resource_type.name;
    if let Some(name) = &resource_type.sandbox_strategy {
        return Ok(choice(name, format!("sandbox_strategy of resource type {type_name}")));
    }
    if let Some(name) = &settings.sandbox_strategy {
        refuse_strangers_choice(registry.get(name).map_err(named_by_key)?, settings)?;
        return Ok(choice(name, format!("sandbox.strategy of the {}", settings.origin("sandbox.strategy"))));
    }
    Ok(choice(&resource_type.default_strategy, format!("default_strategy of resource type {type_name}")))
}

/// A name that nobody typed just now: the error says where it comes from.
fn named_by_key(error: Error) -> Error {
    match error {
        Error::NotFound { what: "strategy", name, similar } => {
            Error::NotFound { what: BY_KEY, name, similar }
        }
        other => other,
    }
}

fn choice(strategy: &str, reason: impl Into<String>) -> StrategyChoice {
    StrategyChoice { strategy: strategy.to_owned(), reason: reason.into() }
}

/// A type lists the built-ins that suit it; a custom strategy, which no shipped type can know, says so itself.
fn compatible(entry: &StrategyEntry, resource_type: &ResourceType) -> bool {
    if resource_type.strategies.contains(&entry.name) {
        return true;
    }
    entry.origin != BUILT_IN && suits(&entry.capabilities.resource_types, resource_type)
}

/// A list of types that names none is for all.
fn suits(made_for: &[String], resource_type: &ResourceType) -> bool {
    made_for.is_empty() || made_for.contains(&resource_type.name)
}

fn incompatible(choice: &StrategyChoice, resource_type: &ResourceType, registry: &StrategyRegistry) -> Error {
    let registered = registry.entries().filter(|entry| compatible(entry, resource_type)).map(|e| &*e.name);
    // What was never asked for is not asked now: its configuration alone speaks for it.
    let declared = registry.declared().filter(|declared| suits(&declared.resource_types, resource_type));
    let mut names: Vec<&str> = registered.chain(declared.map(|declared| &*declared.name)).collect();
    names.sort_unstable();
    Error::Usage {
        message: format!(
            "strategy {} (from {}) does not work on resource type {}; compatible: {}",
            choice.strategy,
            choice.reason,
            resource_type.name,
            names.join(", ")
        ),
        hint: Some(format!("--strategy {}", resource_type.default_strategy)),
    }
}

/// A project that nobody has trusted may choose among strategies that isolate, and no other.
fn refuse_strangers_choice(entry: &StrategyEntry, settings: &Settings) -> Result<()> {
    match &settings.untrusted_strategy {
        Some(file) if !entry.capabilities.isolates => {
            let what = format!("sandbox.strategy chooses {:?}, which does not isolate", entry.name);
            Err(untrusted_refusal(&what, file, None))
        }
        _ => Ok(()),
    }
}

/// The best three of `candidates` that could have been meant by `word`, nearest first.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut scored: Vec<(f64, &String)> = candidates
        .map(|candidate| (likeness(word, candidate), candidate))
        .filter(|(score, _)| *score > 0.0)
        .collect();
    scored.sort_by(|(a, left), (b, right)| b.total_cmp(a).then_with(|| left.cmp(right)));
    scored.into_iter().take(3).map(|(_, candidate)| candidate.clone()).collect()
}

/// From 0 (not meant) to 1. Both measures have to agree that it is near: Jaro-Winkler alone finds a common beginning
/// in anything, edit distance alone does not see swapped or missing ends of long words.
fn likeness(word: &str, candidate: &str) -> f64 {
    let (word, candidate) = (word.to_lowercase(), candidate.to_lowercase());
    let similar = strsim::jaro_winkler(&word, &candidate);
    let edits = strsim::damerau_levenshtein(&word, &candidate);
    let longest = word.chars().count().max(candidate.chars().count());
    let few_edits = edits <= 1.max(longest / 3);
    let begins = word.len() >= 3 && candidate.starts_with(&word);
    if (few_edits && similar > 0.6) || begins || similar > 0.92 { similar } else { 0.0 }
}

/// A registry for tests of what asks one.
#[cfg(test)]
pub(crate) mod test_support {
    use super::*;
    use crate::contract::Capabilities;
    use std::sync::Arc;

    /// A strategy that is never opened.
    pub(crate) fn entry(name: &str, origin: &str, isolates: bool) -> StrategyEntry {
        StrategyEntry {
            name: name.to_owned(),
            summary: String::new(),
            origin: origin.to_owned(),
            capabilities: Capabilities { isolates, ..Capabilities::default() },
            options: Default::default(),
            factory: Arc::new(|name, _, _| Err(Error::usage(format!("{name} is not to be opened")))),
        }
    }

    /// The built-ins of the shipped types, and `git_worktree`, which they do not list.
    pub(crate) fn registry() -> StrategyRegistry {
        let mut registry = StrategyRegistry::new();
        for name in ["copy_on_write", "filesystem_copy", "git_worktree", "none", "overlay"] {
            registry.register(entry(name, BUILT_IN, name != "none")).unwrap();
        }
        registry
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::test_support::{entry, registry};
    use super::*;
    use crate::types::ResourceTypes;
    use std::path::Path;

    fn directory_type() -> ResourceType {
        ResourceTypes::embedded().unwrap().get("fs-directory").unwrap().clone()
    }

    fn resource(strategy: Option<Value>) -> Resource {
        let mut resource = Resource::at_path("fs-directory", Path::new("/tmp"));
        resource.properties.extend(strategy.map(|value| ("strategy".to_owned(), value)));
        resource
    }

    fn global(strategy: Option<&str>) -> Settings {
        let mut settings = Settings { sandbox_strategy: strategy.map(str::to_owned), ..Settings::default() };
        settings.origins.insert("sandbox.strategy".to_owned(), "user file /u.yaml".to_owned());
        settings
    }

    /// A registry in which every rule can name a strategy of its own.
    fn one_per_rule() -> StrategyRegistry {
        let mut registry = registry();
        for name in ["by_flag", "by_profile", "by_resource", "by_type", "by_global"] {
            registry.register(entry(name, "test", true)).unwrap();
        }
        registry
    }

    #[test]
    fn the_first_rule_with_an_opinion_decides() {
        // Each row takes the strongest remaining rule away.
        let rules = [
            ("by_flag", "--strategy"),
            ("by_profile", "workspace mode of the profile"),
            ("by_resource", "strategy of the resource itself"),
            ("by_type", "sandbox_strategy of resource type fs-directory"),
            ("by_global", "sandbox.strategy of the user file /u.yaml"),
            ("overlay", "default_strategy of resource type fs-directory"),
        ];
        let registry = one_per_rule();
        for (taken_away, (strategy, reason)) in rules.iter().enumerate() {
            let has = |rule: usize| (rule >= taken_away).then_some(rules[rule].0);
            let mut resource_type = directory_type();
            resource_type.sandbox_strategy = has(3).map(str::to_owned);
            let resource = resource(has(2).map(Value::from));
            let choice =
                choose_strategy(has(0), has(1), &resource, &resource_type, &global(has(4)), &registry)
                    .unwrap();
            assert_eq!((choice.strategy.as_str(), choice.reason.as_str()), (*strategy, *reason));
        }
    }

    #[test]
    fn each_rule_beats_the_default_by_itself() {
        let registry = one_per_rule();
        let choose = |flag, profile, own: Option<&str>, by_type: Option<&str>, key| {
            let mut resource_type = directory_type();
            resource_type.sandbox_strategy = by_type.map(str::to_owned);
            let resource = resource(own.map(Value::from));
            choose_strategy(flag, profile, &resource, &resource_type, &global(key), &registry)
                .unwrap()
                .strategy
        };
        assert_eq!(choose(Some("by_flag"), None, None, None, None), "by_flag");
        assert_eq!(choose(None, Some("by_profile"), None, None, None), "by_profile");
        assert_eq!(choose(None, None, Some("by_resource"), None, None), "by_resource");
        assert_eq!(choose(None, None, None, Some("by_type"), None), "by_type");
        assert_eq!(choose(None, None, None, None, Some("by_global")), "by_global");
    }

    fn by_flag(flag: &str, registry: &StrategyRegistry) -> Result<StrategyChoice> {
        choose_strategy(Some(flag), None, &resource(None), &directory_type(), &global(None), registry)
    }

    #[test]
    fn an_unknown_strategy_of_the_global_key_names_the_key() {
        let settings = global(Some("by_globl"));
        let error =
            choose_strategy(None, None, &resource(None), &directory_type(), &settings, &one_per_rule());
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), "no strategy (named by sandbox.strategy) \"by_globl\"");
        assert!(
            matches!(error, Error::NotFound { similar, .. } if similar.contains(&"by_global".to_owned()))
        );
    }

    #[test]
    fn an_incompatible_choice_lists_the_compatible_ones() {
        let error = by_flag("git_worktree", &registry()).unwrap_err();
        let Error::Usage { message, hint } = error else { panic!("{error:?}") };
        assert_eq!(
            message,
            "strategy git_worktree (from --strategy) does not work on resource type fs-directory; \
             compatible: copy_on_write, filesystem_copy, none, overlay"
        );
        assert_eq!(hint.as_deref(), Some("--strategy overlay"));
    }

    #[test]
    fn a_custom_strategy_says_itself_what_it_is_for() {
        let mut registry = registry();
        let mut made_for = |name: &str, types: &[&str]| {
            let mut entry = entry(name, "company:Class", true);
            entry.capabilities.resource_types = types.iter().map(|name| (*name).to_owned()).collect();
            registry.register(entry).unwrap();
        };
        made_for("any", &[]);
        made_for("directories", &["fs-directory"]);
        made_for("databases", &["sqlite"]);
        assert!(by_flag("any", &registry).is_ok());
        assert!(by_flag("directories", &registry).is_ok());
        assert!(matches!(by_flag("databases", &registry), Err(Error::Usage { .. })));
    }

    #[test]
    fn an_unknown_strategy_suggests_the_nearest() {
        let error = by_flag("copy-on-write", &registry()).unwrap_err();
        assert!(
            matches!(error, Error::NotFound { what: "strategy", similar, .. } if similar == ["copy_on_write"])
        );
    }

    #[test]
    fn a_resources_own_strategy_has_to_be_a_name() {
        let choose = |own| {
            choose_strategy(None, None, &resource(Some(own)), &directory_type(), &global(None), &registry())
        };
        assert!(matches!(choose(Value::from(5)), Err(Error::Usage { .. })));
        assert_eq!(choose(Value::Null).unwrap().strategy, "overlay");
    }

    #[test]
    fn a_strangers_choice_has_to_isolate() {
        let mut registry = registry();
        registry.register(entry("sneaky", "company:Class", false)).unwrap();
        let mut settings = global(Some("sneaky"));
        settings.untrusted_strategy = Some("/p/sandboxer.yaml".into());
        let choose = |flag, settings: &Settings| {
            choose_strategy(flag, None, &resource(None), &directory_type(), settings, &registry)
        };
        let error = choose(None, &settings).unwrap_err();
        assert!(
            matches!(&error, Error::Refused { hint: Some(hint), .. } if hint.contains("sandbox trust /p"))
        );
        assert_eq!(choose(Some("sneaky"), &settings).unwrap().strategy, "sneaky");
        settings.sandbox_strategy = Some("filesystem_copy".to_owned());
        assert_eq!(choose(None, &settings).unwrap().strategy, "filesystem_copy");
        settings = global(Some("sneaky"));
        assert_eq!(choose(None, &settings).unwrap().strategy, "sneaky");
    }

    #[test]
    fn nearest_finds_what_was_meant() {
        let words: Vec<String> =
            ["copy_on_write", "filesystem_copy", "git_worktree", "none", "overlay"].map(str::to_owned).into();
        let table: [(&str, &[&str]); 8] = [
            ("overlay", &["overlay"]),
            ("overaly", &["overlay"]),
            ("Overlay", &["overlay"]),
            ("copyonwrite", &["copy_on_write"]),
            ("filesystem", &["filesystem_copy"]),
            ("nome", &["none"]),
            ("postgres", &[]),
            ("", &[]),
        ];
        for (word, expected) in table {
            assert_eq!(nearest(word, words.iter()), expected, "{word:?}");
        }
    }

    #[test]
    fn nearest_gives_three_at_most_best_first() {
        let words: Vec<String> = ["abcd1", "abcd2", "abcd", "abcd3"].map(str::to_owned).into();
        assert_eq!(nearest("abcd", words.iter()), ["abcd", "abcd1", "abcd2"]);
    }
}
