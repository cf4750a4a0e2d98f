//! Configuration: what the user, the project and the caller want, and who is allowed to want it.
//!
//! Values come in five layers: flag, environment, the project's `sandboxer.yaml`, the user's file, default. The first
//! layer that has a value decides, and [`Settings::origins`] remembers which one it was. The project's file came with
//! the project, so it is hostile until the user has trusted exactly this content ([`TrustStore`]): before that it may
//! make things stricter, and anything else in it is refused rather than ignored. Nothing here reads the environment or
//! knows a home directory: the caller collects both into [`Layers`].

mod custom_strategy;
mod database;
mod duration;
mod events;
mod file;
mod keys;
mod layers;
mod moment;
mod quotas;
mod run;
mod schema;
mod settings;
mod size;
mod trust;
mod untrusted;
pub(crate) mod yaml;

pub use custom_strategy::{CustomStrategy, InvalidEntry, Source};
pub use database::DatabaseSettings;
pub use duration::{parse_duration, parse_ttl};
pub use events::{EventsSettings, TokenRef};
pub use keys::{KEYS, Key};
pub use layers::{Layers, PROJECT_FILE, find_project_file, load};
pub use moment::parse_moment;
pub use quotas::{Quota, QuotaFor, QuotaPeriod, Quotas};
pub use run::{Isolation, NetworkAccess, RunSettings};
pub use settings::{Durability, MinFree, Settings};
pub use size::parse_size;
pub use trust::{TrustStore, TrustedProject};

pub(crate) use file::{Links, read_bounded};
pub(crate) use schema::located;
pub(crate) use untrusted::refusal as untrusted_refusal;
pub(crate) use yaml::nearest_word;
