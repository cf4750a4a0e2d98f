//! Backends that environments are made by. The first is [`local`]: namespaces on this machine.

pub mod local;
