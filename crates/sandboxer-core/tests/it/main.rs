//! Tests of the public interface, as another crate uses it.
#![allow(clippy::unwrap_used)]

mod minimal_strategy;
