//! What a file of the catalogue has to be beyond its shape: ids that can be told apart, values that can be read, words that exist,
//! and nothing that a program started later could mistake for an option.
//!
//! A check knows the key and the value that it objects to; where they stand is looked up in the text ([`Problem::located`]).

use std::collections::BTreeMap;
use std::path::{Component, Path};

use super::{
    Capacity, ExtensionCapabilities, ExtensionDefinition, Host, InputSpec, LOCAL_HOST, NetworkNeed, Policy,
    Pricing, PricingModel, Profile, Provider, ResourceNeeds,
};
use crate::config::{parse_size, parse_ttl, yaml};
use crate::{Error, Result};

/// What can be let through of a network.
const NETWORK_WORDS: [&str; 3] = ["none", "host", "allow"];

/// As long as any id, label or word may be.
const LONGEST: usize = 64;

/// As long as the value of a label may be.
const LONGEST_VALUE: usize = 256;

/// An objection to one value.
#[derive(Debug)]
pub(super) struct Problem {
    key: &'static str,
    value: String,
    message: String,
    hint: Option<String>,
}

type Checked = Result<(), Problem>;

impl Problem {
    /// An objection to `value` at `key`.
    pub(super) fn new(key: &'static str, value: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key, value: value.into(), message: message.into(), hint: None }
    }

    /// The same with what else to do.
    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same with what else to do, if there is such a thing.
    pub(super) fn maybe_hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    /// The same objection to one in a file.
    pub(super) fn located(self, file: &Path, text: &str) -> Error {
        let place = place_of(text, self.key, &self.value);
        let (line, column) = place.map_or((None, None), |(line, column)| (Some(line), Some(column)));
        Error::Config { file: file.to_path_buf(), line, column, message: self.message, hint: self.hint }
    }
}

/// Where `value` stands at `key` or below it, else where `key` stands; line and column from 1.
fn place_of(text: &str, key: &str, value: &str) -> Option<(u64, u64)> {
    let found = |index: usize, byte: usize, line: &str| {
        (index as u64 + 1, line.get(..byte).map_or(0, |before| before.chars().count()) as u64 + 1)
    };
    let (start, at) = text.lines().enumerate().find_map(|(index, line)| Some((index, key_at(line, key)?)))?;
    let beyond = |index: usize| if index == start { at + key.len() } else { 0 };
    let below = text.lines().enumerate().skip(start);
    let of_value = below.filter(|_| !value.is_empty()).find_map(|(index, line)| {
        let from = beyond(index);
        Some(found(index, from + line.get(from..)?.find(value)?, line))
    });
    of_value.or_else(|| Some(found(start, at, text.lines().nth(start)?)))
}

/// Where in a line a key stands.
pub(super) fn key_at(line: &str, key: &str) -> Option<usize> {
    let starts = |before: &str| before.ends_with([' ', '{', ',', '-']) || before.is_empty();
    let is_key = |at: &usize| starts(&line[..*at]) && line[at + key.len()..].trim_start().starts_with(':');
    line.match_indices(key).map(|(at, _)| at).find(is_key)
}

/// What is wrong with a profile, seen by itself.
pub(super) fn profile(profile: &Profile) -> Checked {
    id("profile.", "a profile", &profile.id)?;
    binding(profile)?;
    network_need(&profile.network)?;
    profile.inputs.iter().try_for_each(|(name, input)| input_spec(name, input))?;
    mounts_apart(&profile.inputs)?;
    profile.ttl.iter().try_for_each(|ttl| readable("ttl", ttl, parse_ttl(ttl)))?;
    needs(&profile.resources)?;
    profile.setup.secret_refs.iter().try_for_each(|reference| secret_ref(reference))?;
    unique("prefer", &profile.placement.prefer)?;
    unique("fallback", &profile.placement.fallback)?;
    labels(&profile.placement.labels)?;
    ports(&profile.reachability.ports)
}

/// What is wrong with an extension, seen by itself.
pub(super) fn extension(extension: &ExtensionDefinition) -> Checked {
    id("ext.", "an extension", &extension.id)?;
    capabilities(&extension.capabilities)?;
    pricing(&extension.pricing)?;
    provider(&extension.provider)
}

/// What is wrong with a host, seen by itself.
pub(super) fn host(host: &Host) -> Checked {
    if !is_word(&host.id, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c)) {
        let problem = Problem::new("id", &host.id, format!("{:?} is not an id for a host", host.id));
        return Err(problem.hint("lower-case letters, digits, hyphens and dots, such as build-1"));
    }
    address(&host.address)?;
    if host.extensions.is_empty() {
        return Err(Problem::new("extensions", "", "extensions: none works there")
            .hint("name at least one; `sandbox extensions` lists them"));
    }
    unique("extensions", &host.extensions)?;
    labels(&host.labels)?;
    capacity(&host.capacity)
}

/// `PREFIX` and a name of lower-case letters, digits and hyphens.
fn id(prefix: &str, what: &str, id: &str) -> Checked {
    let name = id.strip_prefix(prefix).unwrap_or_default();
    if is_word(name, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return Ok(());
    }
    let hint = format!("{prefix}NAME, where NAME has lower-case letters, digits and hyphens");
    Err(Problem::new("id", id, format!("{id:?} is not an id for {what}")).hint(hint))
}

/// Whether it begins with a letter or a digit, so that no program takes it for an option, and has only what is `allowed`.
fn is_word(text: &str, allowed: impl Fn(char) -> bool) -> bool {
    text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(allowed)
        && !text.contains("..")
}

fn binding(profile: &Profile) -> Checked {
    let binding = &profile.extension;
    match (&binding.id, binding.policy) {
        (None, Policy::Explicit) => {
            Err(Problem::new("policy", "explicit", "policy explicit needs the id of the extension")
                .hint("add `id: ext.NAME` beside it"))
        }
        (Some(id), Policy::PreferSelfHosted | Policy::LowestCost) => {
            Err(Problem::new("id", id, "an id is for policy explicit, and this policy chooses by itself")
                .hint("write `policy: explicit`, or list extensions in `among`"))
        }
        (Some(_), Policy::Explicit) if !binding.among.is_empty() => {
            Err(Problem::new("among", "", "policy explicit names one extension, `among` names others")
                .hint("keep `id` or `among`"))
        }
        _ => unique("among", &binding.among),
    }
}

fn network_need(need: &NetworkNeed) -> Checked {
    let NetworkNeed::Allow(hosts) = need else { return Ok(()) };
    if hosts.is_empty() {
        return Err(Problem::new("allow", "", "network: allow names no host")
            .hint("write `network: none`, or name hosts: [\"api.example.com:443\"]"));
    }
    hosts.iter().try_for_each(|host| allowed_host(host))
}

fn allowed_host(text: &str) -> Checked {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    if is_host_name(name.strip_prefix("*.").unwrap_or(name)) && port.is_none_or(is_port) {
        return Ok(());
    }
    Err(Problem::new("allow", text, format!("allow: {text:?} is not a host"))
        .hint("HOST or HOST:PORT, such as api.example.com:443"))
}

fn input_spec(name: &str, input: &InputSpec) -> Checked {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !is_word(name, allowed) {
        return Err(Problem::new("inputs", name, format!("{name:?} is not a name for an input"))
            .hint("letters, digits, hyphens, underscores and dots"));
    }
    input.mount.iter().try_for_each(|mount| mount_point(mount))
}

fn mount_point(mount: &str) -> Checked {
    let plain = |part: Component| matches!(part, Component::RootDir | Component::Normal(_));
    let path = Path::new(mount);
    let inside = path.is_absolute() && path.components().all(plain) && path.components().count() > 1;
    if inside && !mount.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Problem::new("mount", mount, format!("mount: {mount:?} is no place inside"))
        .hint("an absolute path without `..`, other than `/`, such as /work"))
}

fn mounts_apart(inputs: &BTreeMap<String, InputSpec>) -> Checked {
    let mut seen: BTreeMap<&Path, &str> = BTreeMap::new();
    for (name, mount) in inputs.iter().filter_map(|(name, input)| Some((name, input.mount.as_deref()?))) {
        if let Some(other) = seen.insert(Path::new(mount), name) {
            let message = format!("inputs {other:?} and {name:?} are mounted at one place, {mount}");
            return Err(Problem::new("inputs", name, message).hint("give each a place of its own"));
        }
    }
    Ok(())
}

fn needs(needs: &ResourceNeeds) -> Checked {
    processors(needs.cpus)?;
    needs.memory.iter().try_for_each(|memory| size("memory", memory))?;
    needs.disk.iter().try_for_each(|disk| size("disk", disk))?;
    match needs.pids {
        Some(0) => Err(Problem::new("pids", "0", "pids: nothing runs without a process")
            .hint("at least 1, or leave it out")),
        _ => Ok(()),
    }
}

fn capacity(capacity: &Capacity) -> Checked {
    processors(capacity.cpus)?;
    capacity.memory.iter().try_for_each(|memory| size("memory", memory))
}

fn processors(cpus: Option<f64>) -> Checked {
    match cpus {
        Some(cpus) if !(cpus.is_finite() && cpus > 0.0) => {
            Err(Problem::new("cpus", cpus.to_string(), format!("cpus: {cpus} is no number of processors"))
                .hint("a number above 0, such as 2 or 0.5"))
        }
        _ => Ok(()),
    }
}

fn size(key: &'static str, text: &str) -> Checked {
    readable(key, text, parse_size(text))
}

/// What a reader of values says, about the key that the value stands at.
fn readable<T>(key: &'static str, text: &str, read: Result<T>) -> Checked {
    match read {
        Ok(_) => Ok(()),
        Err(Error::Usage { message, hint }) => {
            Err(Problem { hint, ..Problem::new(key, text, format!("{key}: {message}")) })
        }
        Err(other) => Err(Problem::new(key, text, format!("{key}: {other}"))),
    }
}

/// The text is not repeated: somebody may have written the secret itself.
fn secret_ref(reference: &str) -> Checked {
    let (kind, rest) = reference.split_once(':').map_or((reference, None), |(kind, rest)| (kind, Some(rest)));
    let is_file = |path: &str| Path::new(path).is_absolute() && !path.chars().any(char::is_control);
    let fine = match (kind, rest) {
        ("env", Some(name)) => is_variable(name),
        ("file", Some(path)) => is_file(path),
        ("pgpass" | "my.cnf", None) => true,
        ("pgpass" | "my.cnf", Some(path)) => is_file(path),
        _ => false,
    };
    if fine {
        return Ok(());
    }
    Err(Problem::new("secret_refs", "", "secret_refs: an entry is not a reference to a secret")
        .hint("write env:NAME, file:/path, pgpass, pgpass:/path, my.cnf or my.cnf:/path; never the secret"))
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn labels(labels: &BTreeMap<String, String>) -> Checked {
    for (key, value) in labels {
        if !is_word(key, |c| c.is_ascii_alphanumeric() || "-_./".contains(c)) {
            return Err(Problem::new("labels", key, format!("{key:?} is not a name for a label"))
                .hint("letters, digits and -_./, beginning with a letter or a digit"));
        }
        if value.len() > LONGEST_VALUE || value.chars().any(char::is_control) {
            return Err(Problem::new("labels", key, format!("label {key:?}: its value cannot be used"))
                .hint("one line of at most 256 bytes"));
        }
    }
    Ok(())
}

fn ports(ports: &[u16]) -> Checked {
    for (index, port) in ports.iter().enumerate() {
        if *port == 0 || ports[..index].contains(port) {
            let what = if *port == 0 { "is no port" } else { "is listed twice" };
            return Err(Problem::new("ports", port.to_string(), format!("ports: {port} {what}")));
        }
    }
    Ok(())
}

fn unique(key: &'static str, words: &[String]) -> Checked {
    for (index, word) in words.iter().enumerate() {
        if words[..index].contains(word) {
            return Err(Problem::new(key, word, format!("{key}: {word:?} is listed twice")));
        }
    }
    Ok(())
}

fn capabilities(can: &ExtensionCapabilities) -> Checked {
    let empty = |key: &'static str, valid: &str| {
        Err(Problem::new(key, "", format!("capabilities: {key} is empty"))
            .hint(format!("at least one of {valid}")))
    };
    if can.isolation.is_empty() {
        return empty("isolation", "files, standard, strict, container");
    }
    if can.network.is_empty() {
        return empty("network", &NETWORK_WORDS.join(", "));
    }
    for word in &can.network {
        if !NETWORK_WORDS.contains(&word.as_str()) {
            let problem = Problem::new("network", word, format!("network: unknown value {word:?}"));
            return Err(Problem { hint: yaml::nearest_word(word, &NETWORK_WORDS), ..problem });
        }
    }
    unique("network", &can.network)
}

fn pricing(pricing: &Pricing) -> Checked {
    let amount = pricing.amount;
    if !(amount.is_finite() && amount >= 0.0) {
        return Err(Problem::new("amount", amount.to_string(), format!("amount: {amount} is no price")));
    }
    let currency = pricing.currency.as_deref();
    let is_code = |code: &str| code.len() == 3 && code.chars().all(|c| c.is_ascii_uppercase());
    match (pricing.model, currency) {
        (_, Some(code)) if !is_code(code) => {
            Err(Problem::new("currency", code, format!("currency: {code:?} is no code of a currency"))
                .hint("three capital letters, such as EUR"))
        }
        (PricingModel::Free, _) if amount > 0.0 => {
            Err(Problem::new("amount", amount.to_string(), "pricing: what is free costs nothing")
                .hint("leave out `amount`, or write `model: per-hour`"))
        }
        (PricingModel::PerHour | PricingModel::PerSandbox, None) if amount > 0.0 => {
            Err(Problem::new("pricing", "", "pricing: an amount of what?")
                .hint("add a currency, such as `currency: EUR`"))
        }
        _ => Ok(()),
    }
}

fn provider(provider: &Provider) -> Checked {
    let Provider::Plugin { module, timeout, .. } = provider else { return Ok(()) };
    timeout.iter().try_for_each(|timeout| readable("timeout", timeout, parse_ttl(timeout)))?;
    if module.is_empty() || module.starts_with('-') || module.chars().any(char::is_control) {
        return Err(Problem::new("module", module, format!("module: {module:?} names nothing"))
            .hint("a Python module, or exec:/path/to/program"));
    }
    Ok(())
}

/// `local`, or `ssh://[USER@]HOST[:PORT]`. What stands here is given to a program later, so it must not look like an option or hold
/// anything that a shell understands.
fn address(address: &str) -> Checked {
    let is_ssh = |rest: &str| {
        let (user, place) = rest.split_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        user.is_none_or(is_user) && is_place(place)
    };
    if address == LOCAL_HOST || address.strip_prefix("ssh://").is_some_and(is_ssh) {
        return Ok(());
    }
    // What comes before the `@` may hold a password.
    let shown = match address.rsplit_once('@') {
        Some((user, place)) if user.trim_start_matches("ssh://").contains(':') => format!("ssh://…@{place}"),
        _ => address.to_owned(),
    };
    Err(Problem::new("address", address, format!("address: {shown:?} is no address of a host"))
        .hint("`local`, or ssh://[USER@]HOST[:PORT] of letters, digits, dots and hyphens"))
}

fn is_user(user: &str) -> bool {
    user.len() <= LONGEST
        && user.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && user.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// A host name, an address, or an IPv6 address in brackets; a port may follow.
fn is_place(place: &str) -> bool {
    if let Some((inner, after)) = place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return port && inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    match place.split_once(':') {
        Some((name, port)) => is_host_name(name) && is_port(port),
        None => is_host_name(place),
    }
}

fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_port(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
