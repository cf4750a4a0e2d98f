//! The role `strategy`: the nine methods as they travel, on the side that calls them and on the side that has them.

mod answers;
mod client;
mod failure;
mod host;
mod locks;
mod places;
mod python;
mod refs;
mod serve;
mod trust;

use crate::envelope::shape::{Method, Role};

pub use client::PluginStrategy;
pub use host::{Surroundings, declaration, log_path};
pub use serve::{Served, Start, serve, serve_with};

/// What a strategy has to be able to do. A `commit` that takes the ref alone commits everything, and nothing else.
pub const STRATEGY: Role = Role {
    name: "strategy",
    methods: &[
        method("create", &["plan_id", "resource"]),
        method("read", &["ref", "path"]),
        method("write", &["ref", "path", "content"]),
        method("diff", &["ref"]),
        Method { name: "commit", arguments: &["ref", "request"], optional: 1 },
        method("rollback", &["ref"]),
        method("checkpoint", &["ref", "checkpoint_id"]),
        method("restore_checkpoint", &["ref", "checkpoint_id"]),
        method("cleanup", &["ref"]),
    ],
};

const fn method(name: &'static str, arguments: &'static [&'static str]) -> Method {
    Method { name, arguments, optional: 0 }
}

#[cfg(test)]
mod tests {
    use sandboxer_core::contract::METHODS;

    #[test]
    fn the_role_has_the_nine_methods_of_the_contract() {
        assert_eq!(super::STRATEGY.methods.iter().map(|m| m.name).collect::<Vec<_>>(), METHODS);
    }
}
