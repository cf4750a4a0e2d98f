//! A container by the extension, made and ready, against `docker run --detach` with the same image and flags. The daemon is a private one.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandboxer_core::contract::{CancelFlag, EnvironmentExtension};
use sandboxer_core::environment::{
    ExtensionCapabilities, ExtensionContext, ExtensionDefinition, IsolationLevel, LOCAL_HOST, NetworkNeed,
    Pricing, PricingModel, Provider, Provision, Reachability, ResourceNeeds, WorkspaceAccess,
};
use sandboxer_core::model::SandboxId;
use sandboxer_core::service::Consumer;
use sandboxer_extensions::container::factory;
use sandboxer_testkit::docker::{Docker, IMAGE};
use serde_json::json;
use tempfile::TempDir;

use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, interleave, run};
use crate::report::Row;
use crate::rows::Bench;

const NAME: &str = "provisioning by ext.container vs docker run --detach";
const GOAL: f64 = 1.1;
const PATIENCE: Duration = Duration::from_secs(60);
/// What the extension gives every container, in as few words.
const FLAGS: [&str; 11] = [
    "run",
    "--detach",
    "--init",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--log-driver=json-file",
    "--log-opt=max-size=1m",
    "--pids-limit=4096",
    "--network=none",
    "--hostname=bench",
    "--pull=never",
];

/// The comparison.
pub fn row(bench: &Bench) -> Result<Row> {
    bench.row(NAME, Some(GOAL), || {
        let docker = Docker::start().map_err(Failure::Skipped)?;
        let place = tempfile::tempdir().map_err(|e| Failure::new(format!("cannot create directory: {e}")))?;
        let extension = extension(&docker, &place)?;
        let count = Cell::new(0);
        let ours = || provision(&*extension);
        let theirs = || run_detached(&docker, &place, count.replace(count.get() + 1));
        let sides = interleave(bench.rounds * 2, &bench.interrupt, ours, theirs)?;
        Ok(Row::timed(NAME, Some(GOAL), &sides).noting("until it is ready"))
    })
}

fn provision(extension: &dyn EnvironmentExtension) -> Result<Sample> {
    let request = request();
    let failed = |error: sandboxer_core::Error| Failure::new(error.to_string());
    let started = Instant::now();
    let handle = extension.provision(&request).map_err(failed)?;
    extension.wait_ready(&handle, PATIENCE, &CancelFlag::default()).map_err(failed)?;
    let wall = started.elapsed();
    extension.teardown(&request.sandbox_id, Some(&handle)).map_err(failed)?;
    Ok(Sample::in_process(wall))
}

fn run_detached(docker: &Docker, place: &TempDir, number: usize) -> Result<Sample> {
    let name = format!("bench-{number}");
    let mut command = Command::new(docker.client());
    command.arg("--host").arg(docker.host()).args(FLAGS).arg(format!("--name={name}"));
    command.args(["--entrypoint=sleep", IMAGE, "infinity"]);
    let sample = run(&mut command, &place.path().join("output"), &[0])?;
    let removed = docker.try_run(&["rm", "--force", "--volumes", &name]);
    if removed.status.success() { Ok(sample) } else { Err(Failure::new(format!("cannot remove {name}"))) }
}

fn extension(docker: &Docker, home: &TempDir) -> Result<Arc<dyn EnvironmentExtension>> {
    let options = json!({"engine": docker.client(), "host": docker.host(), "image": IMAGE});
    let definition = ExtensionDefinition {
        id: "ext.container".to_owned(),
        summary: String::new(),
        provider: Provider::Container,
        capabilities: ExtensionCapabilities {
            isolation: vec![IsolationLevel::Container],
            network: vec!["none".to_owned()],
            workspaces: WorkspaceAccess::HostPath,
            exec: true,
            ports: true,
            limits: true,
            mounts: true,
        },
        self_hosted: true,
        pricing: Pricing { model: PricingModel::Free, amount: 0.0, currency: None },
        regions: Vec::new(),
        options: serde_json::from_value(options).during("describe", home.path())?,
        origin: "bench".to_owned(),
        invalid: None,
    };
    let context = ExtensionContext::quiet(home.path());
    factory()(&definition, &context).during("open", home.path())
}

fn request() -> Provision {
    Provision {
        sandbox_id: SandboxId::generate(),
        name: "bench".to_owned(),
        profile_id: "profile.bench".to_owned(),
        consumer: Consumer { actor_type: "atm".to_owned(), project: "bench".to_owned() },
        host: LOCAL_HOST.to_owned(),
        address: LOCAL_HOST.to_owned(),
        isolation: IsolationLevel::Container,
        network: NetworkNeed::None,
        resources: ResourceNeeds::default(),
        reachability: Reachability::default(),
        mounts: Vec::new(),
        options: BTreeMap::new(),
        labels: BTreeMap::new(),
        records: std::path::PathBuf::new(),
        kept: None,
    }
}
