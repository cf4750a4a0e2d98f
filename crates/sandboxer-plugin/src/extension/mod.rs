//! The role `extension`: what makes environments, as a process of somebody else's. On the side of the host [`factory`] makes the
//! extensions of the provider `plugin`; on the side of a plugin that is written in Rust, [`serve_extension`] serves one.

mod answers;
mod client;
mod host;
mod serve;

use crate::envelope::shape::{Method, Role};

pub use client::PluginExtension;
pub use host::{factory, last_check, log_path, save_check};
pub use serve::{ServedExtension, serve_extension, serve_extension_with};

/// What an extension has to be able to do. Of costs and health its definition, or the fact that it answers, says enough where it does
/// not itself.
pub const EXTENSION: Role = Role {
    name: "extension",
    methods: &[
        Method::new(PROVISION, &["request"]),
        Method::new(WAIT_READY, &["handle", "deadline_ms"]),
        Method::new(TEARDOWN, &["sandbox_id", "handle"]),
        Method::new(INSPECT, &["sandbox_id"]),
        Method::optional(ESTIMATE_COST, &["request"]),
        Method::optional(HEALTH, &[]),
    ],
};

const PROVISION: &str = "provision";
const WAIT_READY: &str = "wait_ready";
const TEARDOWN: &str = "teardown";
const INSPECT: &str = "inspect";
const ESTIMATE_COST: &str = "estimate_cost";
const HEALTH: &str = "health";

/// The kind of an error that says: not yet, ask again.
const NOT_READY: &str = "not_ready";
