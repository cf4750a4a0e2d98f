//! The conformance suite over every strategy and over the strict fake.

use sandboxer_testkit::conformance::Fixture;
use sandboxer_testkit::{conformance_tests, fake};

conformance_tests!(strict_fake, || Ok(Fixture::new(fake::entry())));
