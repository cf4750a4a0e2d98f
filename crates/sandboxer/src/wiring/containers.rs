//! The providers of container extensions.

use sandboxer_core::environment::ExtensionRegistry;
use sandboxer_extensions::{compose, container};

pub fn provide(registry: &mut ExtensionRegistry) {
    registry.provide("container", container::factory());
    registry.provide("compose-ssh", compose::factory());
}
