//! What the rows of environments share: a project of one file, a request for a sandbox of it, and surroundings in which all is well.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sandboxer_core::environment::{
    Catalogue, ExtensionDefinition, Health, Host, Load, RouteQuestion, Surroundings, route,
};
use sandboxer_core::service::{Consumer, CreateRequest, EnvironmentRequest, Input};

use crate::failure::{During, Result};
use crate::measure::Sample;

/// Every extension works on every host, and every host is half used.
pub struct AllIsWell;

impl Surroundings for AllIsWell {
    fn health(&self, _extension: &ExtensionDefinition, _host: &Host) -> Health {
        Health::Healthy
    }

    fn load(&self, _host: &str) -> Load {
        Load { sandboxes: 5, cpus: 4.0, memory: 1 << 30 }
    }
}

/// A directory with one file in it: a sandbox has at least one workspace.
pub fn project(root: &Path) -> Result<PathBuf> {
    let project = root.join("project");
    fs::create_dir(&project).during("create directory", &project)?;
    fs::write(project.join("file"), "one line\n").during("write into", &project)?;
    Ok(project)
}

/// A request for a sandbox of `project` by a strategy, with the environment of a profile that is shipped.
pub fn request(project: &Path, strategy: &str, profile: &str) -> Result<CreateRequest> {
    let catalogue = Catalogue::embedded().during("read the catalogue for", project)?;
    let profile = catalogue.profile(profile).during("find the profile for", project)?;
    let question = RouteQuestion { profile, extension: None, host: None };
    let route = route(&question, &catalogue, &AllIsWell).during("find a route for", project)?;
    let (profile, labels) = (profile.clone(), BTreeMap::new());
    let environment =
        EnvironmentRequest { profile, route, labels, idempotency_key: None, request_digest: None };
    let location = project.to_string_lossy().into_owned();
    Ok(CreateRequest {
        inputs: vec![Input { name: None, location, properties: BTreeMap::new() }],
        strategy: Some(strategy.to_owned()),
        no_fallback: true,
        plan: None,
        name: None,
        ttl: None,
        consumer: Consumer { actor_type: "atm".to_owned(), project: "bench".to_owned() },
        disposable: false,
        environment: Some(Box::new(environment)),
    })
}

/// How long `work` takes in this process.
pub fn timed(work: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let started = Instant::now();
    work()?;
    Ok(Sample::in_process(started.elapsed()))
}
