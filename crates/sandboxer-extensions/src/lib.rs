//! Backends that environments are made by: [`local`], namespaces on this machine; [`container`], one docker or podman container; [`compose`], a stack of services on a host.

#[cfg(feature = "containers")]
pub mod compose;
#[cfg(feature = "containers")]
pub mod container;
pub mod local;
