//! What one service gets of what the stack may use.

use std::collections::BTreeMap;

use sandboxer_core::Result;
use serde_json::Value;

use super::Placer;
use crate::at::At;
use crate::model::Definition;
use crate::read;

/// Less than this and an engine refuses to start anything.
const LEAST_MEMORY: f64 = (16 << 20) as f64;
const LEAST_CPUS: f64 = 0.01;
const LEAST_PIDS: f64 = 8.0;

/// What a service may have where nothing is said of processes.
const USUAL_PIDS: f64 = 4096.0;

/// How many containers one service may have.
const MOST_REPLICAS: i64 = 20;

/// What one container of a service may use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    pub memory: Option<f64>,
    pub cpus: Option<f64>,
    pub pids: Option<f64>,
    pub replicas: u32,
}

/// The share of each service.
pub(super) fn shared(placer: &Placer<'_>) -> Result<BTreeMap<String, Share>> {
    let mut shares = BTreeMap::new();
    for (name, service) in &placer.model.services {
        shares.insert(name.clone(), own(name, service)?);
    }
    let whole = placer.placing.limits;
    let at = At::file(&placer.model.file.to_string()).key("services");
    let memory = whole.memory.map(|memory| memory as f64);
    divide(&mut shares, memory, LEAST_MEMORY, "bytes of memory", |share| &mut share.memory, &at)?;
    divide(&mut shares, whole.cpus, LEAST_CPUS, "processors", |share| &mut share.cpus, &at)?;
    let pids = whole.pids.map(|pids| pids as f64);
    divide(&mut shares, pids, LEAST_PIDS, "processes", |share| &mut share.pids, &at)?;
    for share in shares.values_mut() {
        share.pids = Some(share.pids.unwrap_or(USUAL_PIDS));
    }
    Ok(shares)
}

/// What a service asks for itself.
fn own(name: &str, service: &Definition) -> Result<Share> {
    let limits = service.keys.get("deploy").and_then(|deploy| deploy.pointer("/resources/limits"));
    let limit = |key: &str| limits.and_then(|limits| limits.get(key)).map(|value| (value, "deploy"));
    let key = |key: &'static str| service.keys.get(key).map(|value| (value, key));
    let memory = key("mem_limit").or_else(|| limit("memory"));
    let memory = memory.map(|(value, key)| read::bytes(value, &service.at(name, key))).transpose()?;
    let number = |found: Option<(&Value, &str)>| {
        found.map(|(value, key)| read::number(value, &service.at(name, key))).transpose()
    };
    let cpus = number(key("cpus").or_else(|| limit("cpus")))?;
    let quota = number(key("cpu_quota"))?.filter(|quota| *quota > 0.0);
    let period = number(key("cpu_period"))?.filter(|period| *period > 0.0).unwrap_or(100_000.0);
    let pids = number(key("pids_limit").or_else(|| limit("pids")))?;
    let positive = |number: &f64| *number > 0.0;
    Ok(Share {
        memory: memory.map(|memory| memory as f64).filter(positive),
        cpus: cpus.filter(positive).or_else(|| quota.map(|quota| quota / period)),
        pids: pids.filter(positive),
        replicas: replicas(name, service)?,
    })
}

fn replicas(name: &str, service: &Definition) -> Result<u32> {
    let deploy = service.keys.get("deploy").and_then(|deploy| deploy.get("replicas"));
    let (value, key) = match (deploy, service.keys.get("scale")) {
        (Some(value), _) => (value, "deploy"),
        (None, Some(value)) => (value, "scale"),
        (None, None) => return Ok(1),
    };
    let at = service.at(name, key);
    let count = read::integer(value, &at)?;
    if !(0..=MOST_REPLICAS).contains(&count) {
        let what = format!("{count} containers of one service are asked for");
        return Err(at.refuse(what, format!("ask for at most {MOST_REPLICAS}")));
    }
    Ok(count as u32)
}

/// Gives those that ask for nothing equal parts of what the others leave.
fn divide(
    shares: &mut BTreeMap<String, Share>,
    whole: Option<f64>,
    least: f64,
    what: &str,
    part: impl Fn(&mut Share) -> &mut Option<f64>,
    at: &At,
) -> Result<()> {
    let Some(whole) = whole else { return Ok(()) };
    let (mut taken, mut open) = (0.0, 0.0);
    for share in shares.values_mut() {
        let count = f64::from(share.replicas);
        match *part(share) {
            Some(own) => taken += own * count,
            None => open += count,
        }
    }
    let each = if open > 0.0 { (whole - taken) / open } else { 0.0 };
    if taken > whole * 1.000_001 {
        let what = format!("the services ask for {taken} {what} together; the stack may use {whole}");
        return Err(at.refuse(what, "ask for less in the file, or set larger limits in the profile"));
    }
    if open > 0.0 && each < least {
        let what = format!(
            "{taken} of {whole} {what} are asked for: too little is left for {open} other containers"
        );
        return Err(at.refuse(what, "ask for less in the file, or set larger limits in the profile"));
    }
    for share in shares.values_mut() {
        let part = part(share);
        *part = Some(part.unwrap_or(each));
    }
    Ok(())
}

impl Share {
    /// As a compose file says it.
    pub fn write(&self, out: &mut serde_json::Map<String, Value>) {
        let whole = |number: f64| Value::from(number as u64);
        if let Some(memory) = self.memory {
            out.insert("mem_limit".to_owned(), whole(memory));
            // Without this an engine adds as much again in swap.
            out.insert("memswap_limit".to_owned(), whole(memory));
        }
        if let Some(cpus) = self.cpus {
            let cpus = ((cpus * 1000.0).floor() / 1000.0).max(LEAST_CPUS);
            out.insert("cpus".to_owned(), cpus.into());
        }
        if let Some(pids) = self.pids {
            out.insert("pids_limit".to_owned(), whole(pids.max(1.0)));
        }
        if self.replicas != 1 {
            out.insert("scale".to_owned(), self.replicas.into());
        }
    }
}
