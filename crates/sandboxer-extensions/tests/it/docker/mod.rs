//! The container extension against a docker daemon of the tests' own.

mod faults;
mod lifecycle;
mod limits;
mod yard;
