//! What the tests of this module share, and what handles say of themselves.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use sandboxer_core::environment::{
    ExtensionCapabilities, IsolationLevel, LOCAL_HOST, NetworkNeed, Pricing, PricingModel, Provider,
    Reachability, ResourceNeeds, WorkspaceAccess,
};
use sandboxer_core::service::Consumer;
use serde_json::{Value, json};

use super::*;

pub(crate) fn request(sandbox: &str) -> Provision {
    Provision {
        sandbox_id: SandboxId::from_string(sandbox),
        name: "my-sandbox".into(),
        profile_id: "profile.container".into(),
        consumer: Consumer { actor_type: "agt".into(), project: "proj".into() },
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

pub(super) fn definition(options: Value) -> ExtensionDefinition {
    ExtensionDefinition {
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
        origin: "built-in".into(),
        invalid: None,
    }
}

fn handle(version: u32, data: Value) -> Handle {
    Handle {
        version,
        sandbox_id: SandboxId::from_string("sbx_1"),
        data,
        exec: Vec::new(),
        exec_on_terminal: Vec::new(),
    }
}

#[test]
fn a_handle_of_another_version_is_not_guessed_at() {
    let data = json!({"engine": {"program": "docker"}, "container": "abc", "home": "h"});
    assert_eq!(made(&handle(1, data.clone())).unwrap().container, "abc");
    assert!(matches!(made(&handle(2, data)), Err(Error::Refused { .. })));
    made(&handle(1, json!({}))).unwrap_err();
}

#[test]
fn an_engine_that_is_not_there_is_never_a_success() {
    let context = ExtensionContext::quiet("/nowhere");
    let definition = definition(json!({"engine": "/nonexistent/docker", "image": "i"}));
    let extension = factory()(&definition, &context).unwrap();
    let sandbox = SandboxId::from_string("sbx_1");
    extension.provision(&request("sbx_1")).unwrap_err();
    extension.teardown(&sandbox, None).unwrap_err();
    extension.inspect(None).unwrap_err();
    assert!(matches!(extension.health(), Health::Undetected(_)));
}
