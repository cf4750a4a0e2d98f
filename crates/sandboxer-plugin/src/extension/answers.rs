//! What extensions answer, and what is made of it. They may leave out what the host knows.

use sandboxer_core::environment::{Cost, Found, Handle, Health, Ready};
use sandboxer_core::model::SandboxId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::envelope::secrets::Secrets;

/// An answer that cannot be used; why.
pub(super) type Read<T> = Result<T, String>;

/// A handle is kept with its sandbox, and sent with every call.
const LONGEST_HANDLE: usize = 1 << 20;

/// The answer to `provision`.
#[derive(Deserialize)]
struct Provisioned {
    #[serde(default = "first")]
    version: u32,
    #[serde(default)]
    sandbox_id: Option<SandboxId>,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    exec: Vec<String>,
    #[serde(default)]
    exec_on_terminal: Vec<String>,
}

fn first() -> u32 {
    1
}

/// Fields go by name: a list of them in order is a misunderstanding.
fn parse<T: DeserializeOwned>(said: &RawValue) -> Read<T> {
    if said.get().starts_with('[') {
        return Err("it is a list".to_owned());
    }
    serde_json::from_str(said.get()).map_err(|error| error.to_string())
}

pub(super) fn handle(said: &RawValue, sandbox: &SandboxId) -> Read<Handle> {
    if said.get().len() > LONGEST_HANDLE {
        return Err(format!("it has {} bytes, {LONGEST_HANDLE} is the limit", said.get().len()));
    }
    let made: Provisioned = parse(said)?;
    if let Some(other) = made.sandbox_id.filter(|id| id != sandbox) {
        return Err(format!("it is about {other}, which nobody asked for"));
    }
    if made.exec.iter().chain(&made.exec_on_terminal).any(|word| word.contains('\0')) {
        return Err("a word of `exec` has a NUL in it".to_owned());
    }
    let Provisioned { version, data, exec, exec_on_terminal, .. } = made;
    Ok(Handle { version, sandbox_id: sandbox.clone(), data, exec, exec_on_terminal })
}

/// Nothing said is ready, too.
pub(super) fn ready(said: &RawValue) -> Read<Ready> {
    Ok(parse::<Option<Ready>>(said)?.unwrap_or_default())
}

/// What was found; all of it has to be what was asked about.
pub(super) fn found(said: &RawValue, of: Option<&SandboxId>, secrets: &Secrets) -> Read<Vec<Found>> {
    let mut found: Vec<Found> = serde_json::from_str(said.get()).map_err(|error| error.to_string())?;
    if let Some(other) = found.iter().find(|found| of.is_some_and(|id| found.sandbox_id != *id)) {
        return Err(format!("it is about {}, which nobody asked for", other.sandbox_id));
    }
    found.iter_mut().for_each(|found| found.what = secrets.told(&found.what));
    Ok(found)
}

pub(super) fn cost(said: &RawValue) -> Read<Option<Cost>> {
    match parse::<Option<Cost>>(said)? {
        Some(cost) if !cost.per_hour.is_finite() || cost.per_hour < 0.0 => {
            Err(format!("{} is no price", cost.per_hour))
        }
        cost => Ok(cost),
    }
}

/// Nothing said is healthy: it has answered.
pub(super) fn health(said: &RawValue, secrets: &Secrets) -> Read<Health> {
    Ok(match parse::<Option<Health>>(said)? {
        Some(Health::Limited(why)) => Health::Limited(secrets.told(&why)),
        Some(Health::Unhealthy(why)) => Health::Unhealthy(secrets.told(&why)),
        Some(Health::Undetected(why)) => Health::Undetected(secrets.told(&why)),
        Some(Health::Healthy) | None => Health::Healthy,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(&value).unwrap()
    }

    #[test]
    fn a_handle_is_completed_and_is_nobody_elses() {
        let id = SandboxId::generate();
        let made = handle(&raw(json!({"data": {"pid": 7}})), &id).unwrap();
        assert_eq!((made.version, &made.sandbox_id, &made.data["pid"]), (1, &id, &json!(7)));
        let other = json!({"sandbox_id": SandboxId::generate()});
        assert!(handle(&raw(other), &id).unwrap_err().contains("nobody asked for"));
        for odd in [json!([]), json!(7), json!({"version": "a"}), json!({"exec": ["a\0b"]})] {
            assert!(handle(&raw(odd.clone()), &id).is_err(), "{odd}");
        }
        assert!(handle(&raw(json!({"data": "x".repeat(LONGEST_HANDLE)})), &id).is_err());
    }

    #[test]
    fn what_was_found_is_what_was_asked_about() {
        let (id, other) = (SandboxId::generate(), SandboxId::generate());
        let said = raw(json!([{"sandbox_id": other, "what": "process\u{7} 7", "running": true}]));
        let all = found(&said, None, &Secrets::default()).unwrap();
        assert_eq!((&all[0].sandbox_id, &*all[0].what), (&other, "process  7"));
        assert!(found(&said, Some(&id), &Secrets::default()).unwrap_err().contains("nobody asked for"));
        assert!(found(&raw(json!({})), None, &Secrets::default()).is_err());
    }

    #[test]
    fn little_has_to_be_said() {
        assert_eq!(ready(RawValue::NULL).unwrap(), Ready::default());
        assert_eq!(cost(RawValue::NULL).unwrap(), None);
        assert_eq!(health(RawValue::NULL, &Secrets::default()).unwrap(), Health::Healthy);
        let sick = raw(json!({"state": "unhealthy", "reason": "no\ndisk"}));
        assert_eq!(health(&sick, &Secrets::default()).unwrap(), Health::Unhealthy("no disk".into()));
        assert!(cost(&raw(json!({"per_hour": -1}))).is_err() && ready(&raw(json!([1]))).is_err());
    }
}
