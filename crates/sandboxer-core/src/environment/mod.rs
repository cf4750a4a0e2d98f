//! Environments: what a caller may ask for, what can make it, and where.
//!
//! A [`Profile`] says what is wanted, an [`ExtensionDefinition`] what a backend can do, a [`Host`] where there is room. A request is
//! routed to one extension on one host ([`Route`], which explains itself), and what was made is remembered beside its sandbox as an
//! [`Environment`]. All of these are plain data: files of the catalogue, columns of the store, documents of the command line. What makes
//! environments is behind [`crate::contract::EnvironmentExtension`].

mod catalogue;
mod documents;
mod event;
mod extension;
mod host;
mod profile;
mod record;
mod registry;
mod route;
mod router;
mod schemas;
mod surroundings;
mod validate;

pub use catalogue::Catalogue;
pub use documents::{
    Inputs, SandboxCreateRequest, SandboxStatus, StatusEnvironment, StatusFailure, StatusResource,
    StatusWorkspace,
};
pub use event::{EVENT_FORMAT, HUB, Identity, LifecycleEvent};
pub use extension::{
    ExtensionCapabilities, ExtensionDefinition, InvalidDefinition, Pricing, PricingModel, Provider,
    WorkspaceAccess,
};
pub use host::{Capacity, Compression, Host, HostPolicy, LOCAL_HOST, SshSettings};
pub use profile::{
    Binding, DEFAULT_PROFILE, InputSpec, IsolationLevel, NetworkNeed, Placement, Policy, Profile,
    Reachability, ResourceNeeds, Scope, Setup, WorkspaceMode,
};
pub use record::{
    Cost, Endpoint, Environment, EnvironmentFailure, Found, Handle, Health, Meter, Mount, Provision, Ready,
    Snapshot, Way,
};
pub use registry::{ExtensionContext, ExtensionFactory, ExtensionRegistry};
pub use route::{Candidate, Route};
pub use router::{Load, RouteQuestion, Surroundings, route};
pub use schemas::schemas;
pub use surroundings::{Environments, Known, ReadCatalogue};
