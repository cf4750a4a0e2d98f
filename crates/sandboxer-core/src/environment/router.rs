//! Chooses one extension on one host for a profile, and says why.
//!
//! Every extension of every host is a candidate. What a definition says decides first, since it costs nothing to read: an extension is
//! looked at once, a host once. What is left is put in order by the profile's placement and policy, and only then health is asked,
//! from the best downwards until one is well. Nothing depends on anything but the arguments, and equals are told apart by their ids, so the
//! same question has the same answer. Candidates are borrowed; words are made only of those that are shown.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use super::{
    Candidate, Catalogue, Cost, ExtensionDefinition, Health, Host, IsolationLevel, LOCAL_HOST, Policy,
    PricingModel, Profile, ResourceNeeds, Route, WorkspaceAccess,
};
use crate::config::{parse_size, parse_ttl};
use crate::service::{Sandbox, SandboxState};
use crate::{Error, Result};

/// How many candidates an answer lists.
const SHOWN: usize = 20;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct RouteQuestion<'a> {
    /// What is wanted.
    pub profile: &'a Profile,
    /// Only this extension.
    pub extension: Option<&'a str>,
    /// Only this host.
    pub host: Option<&'a str>,
}

/// What is in use on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Environments.
    pub sandboxes: u64,
    /// Processors that they were promised.
    pub cpus: f64,
    /// Bytes of memory that they were promised.
    pub memory: u64,
}

impl Load {
    /// What `sandboxes` have in use, by host. One that is parked or gone uses nothing.
    pub fn by_host<'a>(sandboxes: impl IntoIterator<Item = &'a Sandbox>) -> BTreeMap<String, Self> {
        use SandboxState::{Active, Destroying, Provisioning, Ready};
        let mut hosts: BTreeMap<String, Self> = BTreeMap::new();
        let live = |sandbox: &&Sandbox| matches!(sandbox.state, Provisioning | Ready | Active | Destroying);
        for sandbox in sandboxes.into_iter().filter(live) {
            let load = hosts.entry(sandbox.host().to_owned()).or_default();
            load.sandboxes += 1;
            if let Some(environment) = &sandbox.environment {
                load.promise(&environment.resources);
            }
        }
        hosts
    }

    fn promise(&mut self, needs: &ResourceNeeds) {
        self.cpus += needs.cpus.unwrap_or(0.0);
        let memory = needs.memory.as_deref().and_then(|memory| parse_size(memory).ok());
        self.memory = self.memory.saturating_add(memory.unwrap_or(0));
    }
}

/// What no definition tells.
pub trait Surroundings {
    /// Whether an extension can be used on a host now. Asked last, and of few.
    fn health(&self, extension: &ExtensionDefinition, host: &Host) -> Health;

    /// What is in use on a host. Asked only where its capacity has a bound.
    fn load(&self, host: &str) -> Load;
}

/// Why a candidate is none.
#[derive(Clone, Debug, PartialEq)]
enum Obstacle<'a> {
    Bound(&'a str),
    Invalid(String),
    NotAmong,
    NotThere,
    Isolation(IsolationLevel),
    Network(&'static str),
    Ports,
    Limits,
    Mounts,
    Workspaces,
    Remote,
    Placement,
    Label(&'a str, &'a str),
    Region,
    Drained,
    Full(u64),
    Processors { free: f64, wanted: f64 },
    Memory { free: u64, wanted: u64 },
    Health(String),
}

impl fmt::Display for Obstacle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound(id) => write!(f, "the profile names {id}"),
            Self::Invalid(reason) => f.write_str(reason),
            Self::NotAmong => f.write_str("the profile does not list this extension"),
            Self::NotThere => f.write_str("the host does not list this extension"),
            Self::Isolation(level) => write!(f, "it has no isolation {}", level.as_str()),
            Self::Network(need) => write!(f, "it has no network {need}"),
            Self::Ports => f.write_str("it publishes no ports"),
            Self::Limits => f.write_str("it enforces no limits"),
            Self::Mounts => f.write_str("inputs appear only at their own paths"),
            Self::Workspaces => f.write_str("it takes no inputs"),
            Self::Remote => f.write_str("it works with paths of this machine, and the host is another"),
            Self::Placement => f.write_str("the profile places it on other hosts"),
            Self::Label(key, value) => write!(f, "the host has no label {key}={value}"),
            Self::Region => f.write_str("it is in none of the profile's regions"),
            Self::Drained => f.write_str("the host is drained"),
            Self::Full(most) => write!(f, "the host is full: {most} sandboxes"),
            Self::Processors { free, wanted } => {
                write!(f, "the host has {free} processors left, not {wanted}")
            }
            Self::Memory { free, wanted } => {
                write!(f, "the host has {} of memory left, not {}", mebibytes(*free), mebibytes(*wanted))
            }
            Self::Health(reason) => f.write_str(reason),
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Where a host stands in a profile's placement; a smaller one comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Preferred(usize),
    Fallback(usize),
    Any,
}

/// An extension, what it costs for this profile, and why it cannot be it on any host.
struct Offer<'a> {
    extension: &'a ExtensionDefinition,
    price: Price<'a>,
    obstacle: Option<Obstacle<'a>>,
}

/// Nothing, or an amount an hour of some currency.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Price<'a> {
    currency: Option<&'a str>,
    per_hour: f64,
}

impl Price<'_> {
    /// What costs nothing comes first. Amounts are compared within one currency; of two, the one whose code comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        let free = |price: &Self| price.per_hour > 0.0;
        free(self)
            .cmp(&free(other))
            .then_with(|| self.currency.cmp(&other.currency))
            .then_with(|| self.per_hour.total_cmp(&other.per_hour))
    }
}

/// One extension on one host, that nothing speaks against so far.
#[derive(Clone, Copy)]
struct Eligible<'a> {
    extension: &'a ExtensionDefinition,
    host: &'a Host,
    tier: Tier,
    price: Price<'a>,
}

/// One that something speaks against.
struct Refused<'a> {
    extension: &'a str,
    host: &'a str,
    obstacle: Obstacle<'a>,
}

/// Everything that was looked at.
#[derive(Default)]
struct Field<'a> {
    eligible: Vec<Eligible<'a>>,
    refused: Vec<Refused<'a>>,
}

/// Chooses an extension and a host, or says of each candidate why not.
pub fn route(question: &RouteQuestion, catalogue: &Catalogue, around: &dyn Surroundings) -> Result<Route> {
    let mut field = survey(question, catalogue, around)?;
    let policy = question.profile.extension.policy;
    field.eligible.sort_by(|a, b| rank(policy, a, b));
    let well = first_well(&mut field, around);
    field.refused.sort_by(|a, b| (a.host, a.extension).cmp(&(b.host, b.extension)));
    match well {
        Some(chosen) => Ok(answer(question, &chosen, &field)),
        None => Err(no_route(question.profile, &field)),
    }
}

/// Sorts the candidates into those that nothing speaks against, and the others.
fn survey<'a>(
    question: &RouteQuestion<'a>,
    catalogue: &'a Catalogue,
    around: &dyn Surroundings,
) -> Result<Field<'a>> {
    let offers = offers(question, catalogue)?;
    let mut field = Field::default();
    match question.host {
        Some(id) => field.visit(catalogue.host(id)?, question, &offers, around),
        None => catalogue.hosts().for_each(|host| field.visit(host, question, &offers, around)),
    }
    Ok(field)
}

/// The extensions that come into question, in the order of their ids.
fn offers<'a>(question: &RouteQuestion<'a>, catalogue: &'a Catalogue) -> Result<Vec<Offer<'a>>> {
    let hours = question.profile.ttl.as_deref().and_then(|ttl| parse_ttl(ttl).ok());
    let hours = hours.map_or(1.0, |ttl| ttl.as_secs_f64() / 3600.0);
    let offer = |extension| Offer {
        extension,
        price: price(extension, hours),
        obstacle: extension_obstacle(question.profile, extension),
    };
    if let Some(id) = question.extension {
        return Ok(vec![offer(catalogue.extension(id)?)]);
    }
    // An extension that the profile names is used, whatever its file says.
    let named = catalogue.extensions().find(|extension| is_named(question, extension));
    if let Some(invalid) = named.and_then(|extension| extension.invalid.as_ref()) {
        return Err(invalid.to_error());
    }
    Ok(catalogue.extensions().map(offer).collect())
}

/// One paid for each sandbox costs as much an hour as its time to live makes of it; without one, an hour is assumed.
fn price(extension: &ExtensionDefinition, hours: f64) -> Price<'_> {
    let pricing = &extension.pricing;
    let per_hour = match pricing.model {
        PricingModel::Free => 0.0,
        PricingModel::PerHour => pricing.amount,
        PricingModel::PerSandbox => pricing.amount / hours,
    };
    Price { per_hour, currency: pricing.currency.as_deref().filter(|_| per_hour > 0.0) }
}

/// What an extension lacks for a profile, whatever the host.
fn extension_obstacle<'a>(profile: &'a Profile, extension: &ExtensionDefinition) -> Option<Obstacle<'a>> {
    let (binding, can) = (&profile.extension, &extension.capabilities);
    let needs = &profile.resources;
    let limited = needs.cpus.is_some() || needs.memory.is_some() || needs.pids.is_some();
    let mounted = profile.inputs.values().any(|input| input.mount.is_some());
    let takes_inputs = can.workspaces != WorkspaceAccess::None;
    let bound = binding.id.as_deref().filter(|_| binding.policy == Policy::Explicit);
    if let Some(id) = bound.filter(|id| *id != extension.id) {
        return Some(Obstacle::Bound(id));
    }
    if let Some(invalid) = &extension.invalid {
        return Some(Obstacle::Invalid(invalid.to_error().to_string()));
    }
    let level = profile.isolation;
    let network = profile.network.word();
    let checks = [
        (binding.among.is_empty() || binding.among.contains(&extension.id), Obstacle::NotAmong),
        (can.isolation.iter().any(|offered| suffices(*offered, level)), Obstacle::Isolation(level)),
        (can.network.iter().any(|offered| offered == network), Obstacle::Network(network)),
        (can.ports || profile.reachability.ports.is_empty(), Obstacle::Ports),
        (can.limits || !limited, Obstacle::Limits),
        (takes_inputs || profile.inputs.is_empty(), Obstacle::Workspaces),
        (can.mounts || !mounted, Obstacle::Mounts),
    ];
    checks.into_iter().find_map(|(fine, obstacle)| (!fine).then_some(obstacle))
}

/// A stricter level will do for a weaker one; a container is another thing, and only that.
fn suffices(offered: IsolationLevel, wanted: IsolationLevel) -> bool {
    let is_container = |level| level == IsolationLevel::Container;
    if is_container(offered) || is_container(wanted) { offered == wanted } else { offered >= wanted }
}

impl<'a> Field<'a> {
    /// Looks at one host, with each extension that comes into question there.
    fn visit(
        &mut self,
        host: &'a Host,
        question: &RouteQuestion<'a>,
        offers: &[Offer<'a>],
        around: &dyn Surroundings,
    ) {
        let tier = tier(question.profile, host);
        // Found out once a host, and only where an extension gets as far as that.
        let mut of_host: Option<Option<Obstacle>> = None;
        for Offer { extension, price, obstacle } in offers {
            let extension = *extension;
            let listed = host.extensions.contains(&extension.id);
            // Of what the host does not have, only what somebody has named is worth a word.
            if !listed && !is_named(question, extension) {
                continue;
            }
            let obstacle = (!listed).then_some(Obstacle::NotThere).or_else(|| obstacle.clone());
            let obstacle = obstacle.or_else(|| pair_obstacle(question.profile, extension, host));
            let obstacle = obstacle.or_else(|| {
                of_host.get_or_insert_with(|| host_obstacle(question.profile, host, tier, around)).clone()
            });
            match (obstacle, tier) {
                (None, Some(tier)) => self.eligible.push(Eligible { extension, host, tier, price: *price }),
                (obstacle, _) => {
                    let obstacle = obstacle.unwrap_or(Obstacle::Placement);
                    self.refused.push(Refused { extension: &extension.id, host: &host.id, obstacle });
                }
            }
        }
    }
}

/// Whether the caller or the profile asks for exactly this extension.
fn is_named(question: &RouteQuestion, extension: &ExtensionDefinition) -> bool {
    let bound = question.profile.extension.id.as_deref();
    question.extension.or(bound) == Some(&extension.id)
}

/// Where the profile wants this host; `None` where it does not.
fn tier(profile: &Profile, host: &Host) -> Option<Tier> {
    let place = &profile.placement;
    let at = |hosts: &[String]| hosts.iter().position(|id| *id == host.id);
    let any = || place.fallback.is_empty().then_some(Tier::Any);
    at(&place.prefer).map(Tier::Preferred).or_else(|| at(&place.fallback).map(Tier::Fallback)).or_else(any)
}

/// What speaks against this extension on this host, though not elsewhere.
fn pair_obstacle<'a>(
    profile: &Profile,
    extension: &ExtensionDefinition,
    host: &Host,
) -> Option<Obstacle<'a>> {
    let needs_paths =
        matches!(extension.capabilities.workspaces, WorkspaceAccess::Any | WorkspaceAccess::HostPath);
    if needs_paths && host.address != LOCAL_HOST {
        return Some(Obstacle::Remote);
    }
    let wanted = &profile.placement.regions;
    let is_wanted = |region: &String| wanted.contains(region);
    let there = host.region.as_ref().map_or_else(|| extension.regions.iter().any(is_wanted), is_wanted);
    (!wanted.is_empty() && !there).then_some(Obstacle::Region)
}

/// What speaks against a host, whatever the extension.
fn host_obstacle<'a>(
    profile: &'a Profile,
    host: &Host,
    tier: Option<Tier>,
    around: &dyn Surroundings,
) -> Option<Obstacle<'a>> {
    if tier.is_none() {
        return Some(Obstacle::Placement);
    }
    let missing = profile.placement.labels.iter().find(|(key, value)| host.labels.get(*key) != Some(*value));
    if let Some((key, value)) = missing {
        return Some(Obstacle::Label(key, value));
    }
    if host.drained {
        return Some(Obstacle::Drained);
    }
    capacity_obstacle(profile, host, around)
}

fn capacity_obstacle<'a>(profile: &Profile, host: &Host, around: &dyn Surroundings) -> Option<Obstacle<'a>> {
    let (capacity, needs) = (&host.capacity, &profile.resources);
    if capacity.sandboxes.is_none() && capacity.cpus.is_none() && capacity.memory.is_none() {
        return None;
    }
    let load = around.load(&host.id);
    if let Some(most) = capacity.sandboxes.filter(|most| load.sandboxes >= *most) {
        return Some(Obstacle::Full(most));
    }
    if let (Some(all), Some(wanted)) = (capacity.cpus, needs.cpus) {
        let free = (all - load.cpus).max(0.0);
        // What was promised in tenths adds up to a little more or less.
        if wanted > free + 1e-6 {
            return Some(Obstacle::Processors { free, wanted });
        }
    }
    let (all, wanted) = (capacity.memory.as_deref().zip(needs.memory.as_deref()))?;
    // What cannot be read was not checked before, and is nothing to count on.
    let free = parse_size(all).unwrap_or(0).saturating_sub(load.memory);
    let wanted = parse_size(wanted).unwrap_or(u64::MAX);
    (wanted > free).then_some(Obstacle::Memory { free, wanted })
}

/// Placement first, then what the policy looks at, then ids: no two are equal.
fn rank(policy: Policy, a: &Eligible, b: &Eligible) -> Ordering {
    let own_first = || b.extension.self_hosted.cmp(&a.extension.self_hosted);
    let by_policy = match policy {
        Policy::PreferSelfHosted => own_first().then_with(|| a.price.cmp(&b.price)),
        Policy::LowestCost => a.price.cmp(&b.price),
        Policy::Explicit => Ordering::Equal,
    };
    let ids = || (&a.host.id, &a.extension.id).cmp(&(&b.host.id, &b.extension.id));
    a.tier.cmp(&b.tier).then(by_policy).then_with(ids)
}

/// The best that is well. Those before it are not; those after it were not asked.
fn first_well<'a>(field: &mut Field<'a>, around: &dyn Surroundings) -> Option<Eligible<'a>> {
    let mut ill = 0;
    let mut found = None;
    for candidate in &field.eligible {
        match around.health(candidate.extension, candidate.host) {
            Health::Healthy | Health::Limited(_) => {
                found = Some(*candidate);
                break;
            }
            Health::Unhealthy(reason) | Health::Undetected(reason) => {
                let (extension, host) = (candidate.extension.id.as_str(), candidate.host.id.as_str());
                field.refused.push(Refused { extension, host, obstacle: Obstacle::Health(reason) });
                ill += 1;
            }
        }
    }
    field.eligible.drain(..ill);
    found
}

fn answer(question: &RouteQuestion, chosen: &Eligible, field: &Field) -> Route {
    Route {
        profile_id: question.profile.id.clone(),
        policy: question.profile.extension.policy,
        extension_id: chosen.extension.id.clone(),
        host: chosen.host.id.clone(),
        reason: reason(question, chosen, field),
        cost: Some(Cost {
            per_hour: chosen.price.per_hour,
            currency: chosen.price.currency.map(str::to_owned),
        }),
        considered: considered(field),
    }
}

/// Why this one, in a sentence.
fn reason(question: &RouteQuestion, chosen: &Eligible, field: &Field) -> String {
    let what = format!("{} on {}", chosen.extension.id, chosen.host.id);
    let rivals = &field.eligible;
    let all = rivals.len() + field.refused.len();
    if rivals.len() == 1 {
        return match all {
            1 => format!("{what}: the only candidate, and it qualifies"),
            _ => format!("{what}: the only one of {all} candidates that qualifies"),
        };
    }
    let why = why_first(question.profile, chosen, rivals);
    format!("{what}: {why}; {} of {all} candidates qualify", rivals.len())
}

fn why_first(profile: &Profile, chosen: &Eligible, rivals: &[Eligible]) -> String {
    let rivals: Vec<&Eligible> = rivals.iter().filter(|rival| rival.tier == chosen.tier).collect();
    match chosen.tier {
        Tier::Preferred(_) if rivals.len() == 1 => return format!("{} prefers this host", profile.id),
        Tier::Fallback(_) if rivals.len() == 1 => {
            return format!("{} falls back to this host", profile.id);
        }
        _ => (),
    }
    let ids = "the first by its id";
    match profile.extension.policy {
        Policy::Explicit => format!("{} names the extension, and the host is {ids}", profile.id),
        Policy::PreferSelfHosted
            if rivals.iter().any(|r| r.extension.self_hosted != chosen.extension.self_hosted) =>
        {
            let own: Vec<_> = rivals.into_iter().filter(|rival| rival.extension.self_hosted).collect();
            format!("on machines of one's own, {}", by_price(chosen, &own))
        }
        Policy::PreferSelfHosted | Policy::LowestCost => by_price(chosen, &rivals),
    }
}

fn by_price(chosen: &Eligible, rivals: &[&Eligible]) -> String {
    let price = chosen.price;
    let tied = rivals.iter().filter(|rival| rival.price.cmp(&price) == Ordering::Equal).count() > 1;
    let mut text = match price.currency {
        None => "free".to_owned(),
        Some(currency) => format!("the cheapest in {currency}, {} an hour", price.per_hour),
    };
    if tied {
        text.push_str(", and of equals the first by its id");
    }
    let others = |rival: &&&Eligible| price.currency.is_some() && rival.price.currency != price.currency;
    if rivals.iter().any(|rival| others(&rival)) {
        text.push_str("; prices in other currencies were not compared");
    }
    text
}

/// What was looked at, best first, as far as it is listed.
fn considered(field: &Field) -> Vec<Candidate> {
    let eligible = field.eligible.iter().enumerate().map(|(index, candidate)| Candidate {
        extension_id: candidate.extension.id.clone(),
        host: candidate.host.id.clone(),
        eligible: true,
        reason: if index == 0 { "chosen".to_owned() } else { format!("qualifies, as number {}", index + 1) },
    });
    eligible.chain(refused(field)).take(SHOWN).collect()
}

fn refused<'a>(field: &'a Field) -> impl Iterator<Item = Candidate> + 'a {
    field.refused.iter().map(|refused| Candidate {
        extension_id: refused.extension.to_owned(),
        host: refused.host.to_owned(),
        eligible: false,
        reason: refused.obstacle.to_string(),
    })
}

fn no_route(profile: &Profile, field: &Field) -> Error {
    Error::NoRoute {
        profile: profile.id.clone(),
        candidates: refused(field).take(SHOWN).collect(),
        left_out: field.refused.len().saturating_sub(SHOWN),
    }
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
