//! Tests that need a machine with sshd and Docker, which the testkit starts in namespaces.

mod chaos;
mod compose;
mod crashes;
mod docs;
mod engines;
mod faults;
mod hostile;
mod hosts;
mod podman;
mod programs;
mod services;
mod smoke_script;
