//! Backends that environments are made by: [`local`], namespaces on this machine; [`container`], one docker or podman container; [`compose`], a stack of services on a host.

pub mod compose;
pub mod container;
pub mod local;
