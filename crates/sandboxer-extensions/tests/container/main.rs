//! The container extension against a docker daemon of the tests' own.
#![allow(clippy::unwrap_used)]

mod faults;
mod lifecycle;
mod limits;
mod yard;
