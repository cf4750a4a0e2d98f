//! Clients of a proxy in front of a real server.

mod basics;
mod doors;
mod fixture;
mod leaks;
mod manners;
mod several;
