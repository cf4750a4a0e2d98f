//! Clients of a proxy in front of a real server.

mod basics;
mod fixture;
mod leaks;
mod manners;
mod several;
