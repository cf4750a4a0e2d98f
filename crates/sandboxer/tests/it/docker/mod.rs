//! Tests that need a Docker daemon.

mod container;
