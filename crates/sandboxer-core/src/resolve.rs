//! Which strategy a resource is isolated with, and which rule said so; and which word somebody may have meant.

use serde_json::Value;

use crate::config::{Settings, untrusted_refusal};
use crate::model::Resource;
use crate::registry::{StrategyEntry, StrategyRegistry};
use crate::types::ResourceType;
use crate::{Error, Result};

/// The origin that built-in strategies are registered with.
const BUILT_IN: &str = "built-in";

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
        refuse_strangers_choice(registry.get(name)?, settings)?;
        return Ok(choice(name, format!("sandbox.strategy of the {}", settings.origin("sandbox.strategy"))));
    }
    Ok(choice(&resource_type.default_strategy, format!("default_strategy of resource type {type_name}")))
}

fn choice(strategy: &str, reason: impl Into<String>) -> StrategyChoice {
    StrategyChoice { strategy: strategy.to_owned(), reason: reason.into() }
}

/// A type lists the built-ins that suit it; a custom strategy, which no shipped type can know, says so itself.
fn compatible(entry: &StrategyEntry, resource_type: &ResourceType) -> bool {
    if resource_type.strategies.contains(&entry.name) {
        return true;
    }
    let made_for = &entry.capabilities.resource_types;
    entry.origin != BUILT_IN && (made_for.is_empty() || made_for.contains(&resource_type.name))
}

fn incompatible(choice: &StrategyChoice, resource_type: &ResourceType, registry: &StrategyRegistry) -> Error {
    let names: Vec<&str> = registry
        .entries()
        .filter(|entry| compatible(entry, resource_type))
        .map(|entry| &*entry.name)
        .collect();
    Error::Usage {
        message: format!(
            "strategy {} (from {}) does not work on resource type {}; compatible: {}",
            choice.strategy,
            choice.reason,
            resource_type.name,
            names.join(", ")
        ),
        hint: names.first().map(|name| format!("--strategy {name}")),
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
