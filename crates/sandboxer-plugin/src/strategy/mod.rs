//! The role `strategy`: the nine methods as they travel, on the side that calls them and on the side that has them.

mod answers;
mod client;
pub(crate) mod failure;
mod host;
mod locks;
mod places;
mod refs;
mod serve;
mod trust;

use crate::envelope::shape::{Method, Role};

pub use crate::envelope::serve::Start;
pub use client::PluginStrategy;
pub use host::{Surroundings, check_record, declaration, log_path};
pub use serve::{Served, serve, serve_with};

/// What a strategy has to be able to do. A `commit` that takes the ref alone commits everything, and nothing else.
pub const STRATEGY: Role = Role {
    name: "strategy",
    methods: &[
        Method::new("create", &["plan_id", "resource"]),
        Method::new("read", &["ref", "path"]),
        Method::new("write", &["ref", "path", "content"]),
        Method::new("diff", &["ref"]),
        Method { optional: 1, ..Method::new("commit", &["ref", "request"]) },
        Method::new("rollback", &["ref"]),
        Method::new("checkpoint", &["ref", "checkpoint_id"]),
        Method::new("restore_checkpoint", &["ref", "checkpoint_id"]),
        Method::new("cleanup", &["ref"]),
    ],
};

#[cfg(test)]
mod tests {
    use sandboxer_core::contract::METHODS;

    #[test]
    fn the_role_has_the_nine_methods_of_the_contract() {
        assert_eq!(super::STRATEGY.methods.iter().map(|m| m.name).collect::<Vec<_>>(), METHODS);
    }
}
