//! `project_access` in server mode: decides by who asks, what for, and on what.

use std::collections::BTreeSet;
use std::path::{Component, Path};
use std::sync::Arc;

use super::{Token, TokenScope, Visibility};
use crate::contract::PermissionService;
use crate::model::AccessResult;
use crate::service::Consumer;

/// Somebody whom a token has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Who.
    pub principal: String,
    /// On whose behalf.
    pub consumer: Consumer,
    /// What they may do.
    pub scopes: BTreeSet<TokenScope>,
    /// What they may isolate.
    pub resources: Vec<String>,
    /// By which token.
    pub token: String,
}

impl From<Token> for Caller {
    fn from(token: Token) -> Self {
        Self {
            principal: token.principal,
            consumer: token.consumer,
            scopes: token.scopes,
            resources: token.resources,
            token: token.id,
        }
    }
}

impl Caller {
    /// Somebody who may nothing.
    pub fn nobody() -> Self {
        Self {
            principal: "nobody".to_owned(),
            consumer: Consumer { actor_type: String::new(), project: String::new() },
            scopes: BTreeSet::new(),
            resources: Vec::new(),
            token: "none".to_owned(),
        }
    }

    /// Whether they may isolate what is at `location`, as it was typed: before anybody looks whether there is something. Where a link leads is asked
    /// again when that is known.
    pub fn may_isolate(&self, location: &str) -> bool {
        let plain = !Path::new(location).components().any(|part| part == Component::ParentDir);
        let id =
            if location.starts_with('/') { format!("path:{location}") } else { format!("url:{location}") };
        plain && self.resources.iter().any(|root| is_within(root, &id))
    }

    /// Whether a scope is theirs.
    pub fn has(&self, scope: TokenScope) -> bool {
        self.scopes.contains(&scope)
    }
}

/// The permissions of one caller.
#[derive(Clone, Debug)]
pub struct ProjectAccess {
    caller: Arc<Caller>,
}

impl ProjectAccess {
    /// Of this caller.
    pub fn new(caller: Arc<Caller>) -> Self {
        Self { caller }
    }

    /// Why not, if not.
    fn refusal(&self, action: &str, scope: &str) -> Option<String> {
        let caller = &self.caller;
        let needed = TokenScope::needed_for(action);
        if !caller.has(needed) {
            let has: Vec<&str> = caller.scopes.iter().map(|scope| scope.as_str()).collect();
            return Some(format!(
                "{} may not {action}: that takes a token with the scope {needed}, and {} has {}",
                caller.principal,
                caller.token,
                has.join(", ")
            ));
        }
        if is_resource(scope) && !caller.resources.iter().any(|root| is_within(root, scope)) {
            let named =
                if caller.resources.is_empty() { "none".to_owned() } else { caller.resources.join(", ") };
            return Some(format!(
                "{} may not {} {}: its token {} is for {named}",
                caller.principal,
                if action == "create" { "isolate" } else { action },
                location(scope),
                caller.token
            ));
        }
        None
    }
}

impl PermissionService for ProjectAccess {
    fn decide(&self, principal: &str, action: &str, scope: &str) -> AccessResult {
        let refusal = self.refusal(action, scope);
        AccessResult {
            permitted: refusal.is_none(),
            principal: principal.to_owned(),
            action: action.to_owned(),
            scope: scope.to_owned(),
            reason: refusal.unwrap_or_else(|| {
                format!("the token {} has the scope {}", self.caller.token, TokenScope::needed_for(action))
            }),
        }
    }

    fn caller(&self) -> Option<&str> {
        Some(&self.caller.principal)
    }

    fn visibility(&self) -> Visibility {
        match self.caller.has(TokenScope::Admin) {
            true => Visibility::Everything,
            false => Visibility::Of {
                principal: self.caller.principal.clone(),
                consumer: self.caller.consumer.clone(),
            },
        }
    }
}

/// Whether a scope is a resource, and not a sandbox.
fn is_resource(scope: &str) -> bool {
    scope.starts_with("path:") || scope.starts_with("url:")
}

/// A resource's id without what kind it is.
fn location(id: &str) -> &str {
    id.split_once(':').map_or(id, |(_, location)| location)
}

/// Whether a resource, by its id, is at or below `root`: component by component, for `/srv/web-secret` is not in `/srv/web`.
fn is_within(root: &str, id: &str) -> bool {
    if let Some(path) = id.strip_prefix("path:") {
        return root.starts_with('/') && Path::new(path).starts_with(root);
    }
    let url = location(id);
    let root = root.trim_end_matches('/');
    !root.starts_with('/')
        // What follows a `?` may lead anywhere: another host, another user, another database.
        && url.strip_prefix(root).is_some_and(|rest| rest.is_empty() || (rest.starts_with('/') && !rest.contains('?')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(scope: TokenScope, resources: &[&str]) -> ProjectAccess {
        ProjectAccess::new(Arc::new(Caller {
            principal: "ann".into(),
            consumer: Consumer { actor_type: "agt".into(), project: "web".into() },
            scopes: scope.closure(),
            resources: resources.iter().map(|&root| root.into()).collect(),
            token: "abc".into(),
        }))
    }

    #[test]
    fn a_scope_that_is_missing_is_named() {
        let answer = access(TokenScope::Work, &["/srv"]).decide("ann", "commit", "sbx_1");
        assert!(!answer.permitted);
        assert_eq!(
            answer.reason,
            "ann may not commit: that takes a token with the scope commit, and abc has read, work"
        );
        assert!(access(TokenScope::Commit, &[]).decide("ann", "commit", "sbx_1").permitted);
        assert!(!access(TokenScope::Commit, &[]).decide("ann", "tokens", "").permitted);
    }

    #[test]
    fn only_what_a_token_is_for_is_isolated() {
        let create =
            |roots: &[&str], id: &str| access(TokenScope::Work, roots).decide("ann", "create", id).permitted;
        assert!(create(&["/srv/web"], "path:/srv/web") && create(&["/srv/web/"], "path:/srv/web/app"));
        assert!(!create(&["/srv/web"], "path:/srv/web-secret") && !create(&["/srv/web"], "path:/etc"));
        assert!(create(&["/"], "path:/etc") && !create(&[], "path:/etc"));
        assert!(
            create(&["s3://bucket"], "url:s3://bucket/key") && !create(&["s3://bucket"], "url:s3://bucket2")
        );
        assert!(!create(&["/"], "url:s3://bucket"), "all directories are no URLs");
        let database = "url:postgres://db/shop?host=/run/postgresql&dbname=payroll";
        assert!(
            !create(&["postgres://db/shop"], database)
                && create(&["postgres://db/shop?a=b"], "url:postgres://db/shop?a=b")
        );
        let commit = |id: &str| access(TokenScope::Commit, &["/srv/b"]).decide("ann", "commit", id).permitted;
        assert!(commit("sbx_1") && commit("path:/srv/b/x") && !commit("path:/srv/a"));
        let answer = access(TokenScope::Work, &["/srv"]).decide("ann", "create", "path:/etc");
        assert_eq!(answer.reason, "ann may not isolate /etc: its token abc is for /srv");
    }

    #[test]
    fn administrators_see_everything() {
        assert_eq!(access(TokenScope::Admin, &[]).visibility(), Visibility::Everything);
        assert!(matches!(access(TokenScope::Commit, &[]).visibility(), Visibility::Of { .. }));
    }
}
