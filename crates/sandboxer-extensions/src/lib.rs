//! Backends that environments are made by: [`local`], namespaces on this machine, and [`container`], one docker or podman container.

pub mod container;
pub mod local;
