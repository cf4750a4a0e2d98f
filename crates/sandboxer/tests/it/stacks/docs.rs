//! Runs the documentation pages whose commands use another machine.

use crate::common::doc_pages::run_pages;

#[test]
fn every_command_that_needs_another_machine_works() {
    run_pages(true);
}
