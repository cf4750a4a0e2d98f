//! From a repository's compose files, which nobody believes, to one file that can be handed over.
//!
//! A compose file can name any path of the host, take variables from whoever starts it, and ask for the host itself.
//! So the compose program never sees it. [`resolve`] reads the files below a root through confined handles and follows
//! what they refer to, until one [`Model`] is left that refers to nothing; [`place`] holds every key and every value
//! against an allowlist, adds names, labels, networks and limits of ours, and writes the result as a [`Stack`]. What is
//! not known is refused, never passed on.
//!
//! Nothing here knows hosts or engines, prints, or looks at the environment of the process.

mod at;
mod bases;
mod declared;
mod dockerfile;
mod dotenv;
mod files;
mod find;
mod interpolate;
mod load;
mod merge;
mod model;
mod place;
mod policy;
mod read;
mod resolve;
mod shape;
mod yaml;

pub use find::find;
pub use model::{Model, Source};
pub use place::{BRIDGE_NAME, Limits, Network, PROXIES, Placing, place, service_keys};
pub use place::{Expected, Port, Sealed, Service, Stack};
pub use policy::{Allowance, Policy};
pub use resolve::resolve;

#[cfg(test)]
mod tests;
