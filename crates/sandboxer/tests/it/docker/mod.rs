//! Tests that need a container engine.

mod container;
mod podman;
