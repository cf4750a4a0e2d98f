//! Who asks, and what they may: principals, their tokens, and `project_access` in server mode.
//!
//! A token names a principal, the consumer that it acts for, what it may do (its scopes) and what it may isolate (its resources). Which
//! sandboxes it sees is not the token's affair: each sandbox's profile says whom it is shared with.

mod project;
mod token;
mod visibility;

pub use project::{Caller, ProjectAccess};
pub use token::{Credential, NewToken, Secret, Token, TokenRefusal, TokenScope};
pub use visibility::{Owner, Visibility};
