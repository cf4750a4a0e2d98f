//! Tests of the machine itself that only a full run takes: the tests of stacks use it and look at what is left of it.

mod ends;
mod network;
mod stacks;
