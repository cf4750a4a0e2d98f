//! The conformance suite over the plugin, on a btrfs of its own.

use crate::common;

use common::fixture;
use sandboxer_testkit::conformance_tests;
use sandboxer_testkit::faults::require_sampled;

conformance_tests!(btrfs_snapshot, || require_sampled(3).and_then(|()| fixture()));
