//! The lifecycle of a stack on a host with podman: `profile.compose-e2e` unmodified, as root and rootless.

use sandboxer_testkit::host::RemoteHost;

use crate::common::stack;
use crate::stacks::engines::{Column, lifecycle};

#[test]
fn a_stack_runs_on_podman_as_root() {
    let Some(host) = stack::own(RemoteHost::start_podman()) else { return };
    lifecycle(&host, Column::PodmanAsRoot);
}

#[test]
fn a_stack_runs_on_podman_without_root() {
    let Some(host) = stack::own(RemoteHost::start_rootless_podman()) else { return };
    lifecycle(&host, Column::RootlessPodman);
}
