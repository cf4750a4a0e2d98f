//! From a profile and what was given to what is to be made.

use std::path::PathBuf;

use jiff::SignedDuration;

use super::steps::WORKSPACES;
use crate::config::parse_ttl;
use crate::environment::{Environment, InputSpec, Profile};
use crate::model::Resource;
use crate::service::{CreateRequest, EnvironmentRequest, Workspace};
use crate::{Error, Result, resolve};

/// The environment as it is to be, with nothing of it made.
pub(in crate::service) fn designed(request: &EnvironmentRequest, workspaces: &[Workspace]) -> Environment {
    let profile = &request.profile;
    let mount =
        |w: &Workspace| Some((w.name.clone(), PathBuf::from(profile.inputs.get(&w.name)?.mount.as_ref()?)));
    Environment {
        route: request.route.clone(),
        isolation: profile.isolation,
        network: profile.network.clone(),
        resources: profile.resources.clone(),
        scope: profile.scope,
        mounts: workspaces.iter().filter_map(mount).collect(),
        setup: profile.setup.clone(),
        reachability: profile.reachability.clone(),
        options: profile.options.clone(),
        labels: request.labels.clone(),
        cost_class: profile.cost_class.clone(),
        idempotency_key: request.idempotency_key.clone(),
        request_digest: request.request_digest.clone(),
        step: WORKSPACES.to_owned(),
        handle: None,
        endpoints: Vec::new(),
        notes: Vec::new(),
        kept: None,
        failure: None,
    }
}

/// How long a sandbox lives: as the caller says, else the profile, else the settings.
pub(in crate::service) fn time_to_live(
    request: &CreateRequest,
    default: Option<SignedDuration>,
) -> Result<Option<SignedDuration>> {
    let by_profile = request.environment.as_ref().and_then(|e| e.profile.ttl.as_deref());
    match (request.ttl, by_profile) {
        (Some(ttl), _) => Ok(Some(ttl)),
        (None, Some(text)) => parse_ttl(text).map(Some),
        (None, None) => Ok(default),
    }
}

/// Gives each resource the name of the input that it fills, and refuses what the profile does not declare or cannot do without.
pub(in crate::service) fn match_inputs(
    request: &CreateRequest,
    resources: &mut [(Option<String>, Resource)],
) -> Result<()> {
    let Some(profile) = request.environment.as_ref().map(|e| &e.profile) else { return Ok(()) };
    if profile.inputs.is_empty() {
        return Ok(());
    }
    name_the_only_one(profile, resources);
    for (name, resource) in resources.iter() {
        check_declared(profile, name.as_deref(), resource)?;
    }
    let given = |name: &str| resources.iter().any(|(given, _)| given.as_deref() == Some(name));
    match profile.inputs.iter().find(|(name, spec)| spec.required && !given(name)) {
        Some((name, _)) => Err(Error::Usage {
            message: format!("{} needs the input {name:?}", profile.id),
            hint: Some(format!("give it: --input {name}=PATH")),
        }),
        None => Ok(()),
    }
}

/// One resource without a name, and one input that has to be given: nothing else can be meant.
fn name_the_only_one(profile: &Profile, resources: &mut [(Option<String>, Resource)]) {
    let mut required = profile.inputs.iter().filter(|(_, spec)| spec.required);
    let only = match (required.next(), required.next()) {
        (Some((name, _)), None) => name,
        (None, _) if profile.inputs.len() == 1 => match profile.inputs.keys().next() {
            Some(name) => name,
            None => return,
        },
        _ => return,
    };
    if resources.iter().any(|(name, _)| name.as_ref() == Some(only)) {
        return;
    }
    let mut unnamed = resources.iter_mut().filter(|(name, _)| name.is_none());
    if let (Some((name, _)), None) = (unnamed.next(), unnamed.next()) {
        *name = Some(only.clone());
    }
}

fn check_declared(profile: &Profile, name: Option<&str>, resource: &Resource) -> Result<()> {
    let names = || profile.inputs.keys().cloned().collect::<Vec<_>>().join(", ");
    let Some(name) = name else {
        return Err(Error::Usage {
            message: format!("which input of {} is {}?", profile.id, resource.location),
            hint: Some(format!("name it: --input NAME={}; NAME is one of {}", resource.location, names())),
        });
    };
    let Some(spec) = profile.inputs.get(name) else {
        let near = resolve::nearest(name, profile.inputs.keys()).into_iter().next();
        return Err(Error::Usage {
            message: format!("{} has no input {name:?}", profile.id),
            hint: Some(near.map_or(format!("it has {}", names()), |near| format!("did you mean {near:?}?"))),
        });
    };
    check_type(profile, name, spec, resource)
}

fn check_type(profile: &Profile, name: &str, spec: &InputSpec, resource: &Resource) -> Result<()> {
    match spec.type_name.as_deref() {
        // A checkout is a directory, too.
        Some("fs-directory") if resource.type_name == "git-checkout" => Ok(()),
        Some(wanted) if wanted != resource.type_name => Err(Error::usage(format!(
            "input {name:?} of {} is a {wanted}, and {} is a {}",
            profile.id, resource.location, resource.type_name
        ))),
        _ => Ok(()),
    }
}
