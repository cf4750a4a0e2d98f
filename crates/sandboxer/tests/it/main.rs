//! Integration tests of the `sandbox` command.
//!
//! All of them are in one binary, so that it is linked once. The first module of a test names what the test needs;
//! `.config/nextest.toml` and `./test` select tests by it:
//! - `commands`: nothing but the `sandbox` command
//! - `contained`: namespaces
//! - `databases`: a PostgreSQL or MariaDB server
//! - `docker`: a Docker daemon
//! - `serve`: the HTTP server, which each test starts
//! - `stacks`: a machine with sshd and Docker, which the testkit starts in namespaces
#![allow(clippy::unwrap_used)]

mod commands;
mod common;
mod contained;
mod databases;
mod docker;
mod serve;
mod stacks;
