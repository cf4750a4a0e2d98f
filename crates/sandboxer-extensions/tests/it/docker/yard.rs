//! A state directory of a test's own, and containers of the daemon that the tests share.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::Result;
use sandboxer_core::contract::{CancelFlag, EnvironmentExtension};
use sandboxer_core::environment::{
    ExtensionCapabilities, ExtensionContext, ExtensionDefinition, Handle, IsolationLevel, LOCAL_HOST,
    NetworkNeed, Pricing, PricingModel, Provider, Provision, Reachability, Ready, ResourceNeeds,
    WorkspaceAccess,
};
use sandboxer_core::model::SandboxId;
use sandboxer_core::service::Consumer;
use sandboxer_extensions::container::factory;
use sandboxer_testkit::docker::{Docker, IMAGE};
use serde_json::json;
use tempfile::TempDir;

pub const LONG: Duration = Duration::from_secs(60);

/// The state directory is of its own, so whatever else the daemon has is not seen.
pub struct Yard {
    pub docker: &'static Docker,
    pub home: TempDir,
    pub extension: Arc<dyn EnvironmentExtension>,
}

impl Yard {
    /// `None` where no daemon runs here, which is reported as a skip.
    pub fn new() -> Option<Self> {
        match Docker::shared() {
            Ok(docker) => Some(Self::at(docker, tempfile::tempdir().unwrap())),
            Err(reason) => {
                sandboxer_testkit::skip(&reason);
                None
            }
        }
    }

    fn at(docker: &'static Docker, home: TempDir) -> Self {
        let extension = extension(docker, docker.client(), home.path());
        Self { docker, home, extension }
    }

    /// Another state directory, with the same daemon.
    pub fn another(&self) -> Self {
        Self::at(self.docker, tempfile::tempdir().unwrap())
    }

    /// The same state directory, as another process sees it that calls `program`.
    pub fn through(&self, program: &Path) -> Arc<dyn EnvironmentExtension> {
        extension(self.docker, program, self.home.path())
    }

    /// A client that fails, or kills itself, at its Nth call, and is the real one otherwise.
    pub fn failing_client(&self, nth: usize, how: &str) -> PathBuf {
        let program = self.home.path().join(format!("docker-{nth}-{how}"));
        let counter = program.with_extension("count");
        let real = self.docker.client().display();
        let fault = match how {
            "before" => "echo 'no luck' >&2; exit 9".to_owned(),
            "after" => format!("{real} \"$@\" >/dev/null 2>&1; echo 'no luck' >&2; exit 9"),
            other => panic!("{other}"),
        };
        let counter = counter.display();
        let script = format!(
            "#!/bin/sh\necho x >> {counter}\nif [ $(wc -l < {counter}) = {nth} ]; then {fault}; fi\nexec {real} \"$@\"\n"
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    /// Everything of a sandbox's, whatever its state directory.
    pub fn things_of(&self, sandbox: &SandboxId) -> usize {
        let filter = format!("--filter=label=sandboxer.sandbox={}", sandbox.as_str());
        let containers = self.docker.run(&["ps", "--all", "--quiet", &filter]);
        containers.lines().count() + self.docker.run(&["network", "ls", "--quiet", &filter]).lines().count()
    }

    pub fn provision(&self, request: &Provision) -> Handle {
        self.extension.provision(request).unwrap()
    }

    pub fn ready(&self, handle: &Handle) -> Result<Ready> {
        self.extension.wait_ready(handle, LONG, &CancelFlag::default())
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        for found in self.extension.inspect(None).unwrap_or_default() {
            let _ = self.extension.teardown(&found.sandbox_id, None);
        }
    }
}

fn extension(docker: &Docker, program: &Path, home: &Path) -> Arc<dyn EnvironmentExtension> {
    let options = json!({"engine": program, "host": docker.host(), "image": IMAGE});
    let definition = ExtensionDefinition {
        id: "ext.container".into(),
        summary: "a container".into(),
        provider: Provider::Container,
        capabilities: ExtensionCapabilities {
            isolation: vec![IsolationLevel::Container],
            network: vec!["none".into(), "host".into()],
            workspaces: WorkspaceAccess::HostPath,
            exec: true,
            ports: true,
            limits: true,
            mounts: true,
        },
        self_hosted: true,
        pricing: Pricing { model: PricingModel::Free, amount: 0.0, currency: None },
        regions: Vec::new(),
        options: serde_json::from_value(options).unwrap(),
        origin: "test".into(),
        invalid: None,
    };
    let context = ExtensionContext::quiet(home);
    factory()(&definition, &context).unwrap()
}

pub fn request() -> Provision {
    Provision {
        sandbox_id: SandboxId::generate(),
        name: "try".into(),
        profile_id: "profile.container".into(),
        consumer: Consumer { actor_type: "agt".into(), project: "a project, with=odd \"words\"".into() },
        host: LOCAL_HOST.into(),
        address: LOCAL_HOST.into(),
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

/// Runs a shell inside, by what the handle says.
pub fn try_inside(handle: &Handle, script: &str) -> Output {
    Command::new(&handle.exec[0]).args(&handle.exec[1..]).args(["sh", "-c", script]).output().unwrap()
}

pub fn inside(handle: &Handle, script: &str) -> String {
    let output = try_inside(handle, script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// An error and what is behind it.
pub fn told(error: &sandboxer_core::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    format!("{error}: {}", source.unwrap_or_default())
}
