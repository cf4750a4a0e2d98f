//! The conformance suite over the plugin, on a btrfs of its own.

use crate::common;

use common::fixture;
use sandboxer_testkit::conformance_tests;

conformance_tests!(btrfs_snapshot, fixture);
