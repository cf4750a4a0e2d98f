//! Profiles, extensions and hosts, each with where it was defined.

use sandboxer_core::environment::{Catalogue, ExtensionDefinition, Host, Profile};
use schemars::JsonSchema;
use serde::Serialize;

/// An entry with where it was defined.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}WithOrigin")]
pub struct WithOrigin<'a, T> {
    #[serde(flatten)]
    entry: &'a T,
    /// `built-in`, or the file.
    origin: &'a str,
}

impl<'a> WithOrigin<'a, Profile> {
    /// Of a profile.
    pub fn profile(entry: &'a Profile) -> Self {
        Self { entry, origin: &entry.origin }
    }
}

impl<'a> WithOrigin<'a, ExtensionDefinition> {
    /// Of an extension.
    pub fn extension(entry: &'a ExtensionDefinition) -> Self {
        Self { entry, origin: &entry.origin }
    }
}

impl<'a> WithOrigin<'a, Host> {
    /// Of a host.
    pub fn host(entry: &'a Host) -> Self {
        Self { entry, origin: &entry.origin }
    }
}

/// `profiles`.
#[derive(Serialize, JsonSchema)]
pub struct ProfilesDocument<'a> {
    profiles: Vec<WithOrigin<'a, Profile>>,
}

impl<'a> ProfilesDocument<'a> {
    /// All that there are.
    pub fn new(catalogue: &'a Catalogue) -> Self {
        Self { profiles: catalogue.profiles().map(WithOrigin::profile).collect() }
    }
}

/// `extensions`.
#[derive(Serialize, JsonSchema)]
pub struct ExtensionsDocument<'a> {
    extensions: Vec<WithOrigin<'a, ExtensionDefinition>>,
}

impl<'a> ExtensionsDocument<'a> {
    /// All that there are.
    pub fn new(catalogue: &'a Catalogue) -> Self {
        Self { extensions: catalogue.extensions().map(WithOrigin::extension).collect() }
    }
}

/// `hosts`.
#[derive(Serialize, JsonSchema)]
pub struct HostsDocument<'a> {
    hosts: Vec<WithOrigin<'a, Host>>,
}

impl<'a> HostsDocument<'a> {
    /// All that there are.
    pub fn new(catalogue: &'a Catalogue) -> Self {
        Self { hosts: catalogue.hosts().map(WithOrigin::host).collect() }
    }
}
