//! Tokens, and the use cases for somebody whom one has named.

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::access::{Caller, NewToken, ProjectAccess, TokenRefusal, TokenScope};

fn new_token(principal: &str, resource: &Path) -> NewToken {
    NewToken {
        principal: principal.into(),
        consumer: Consumer { actor_type: "agt".into(), project: "web".into() },
        scopes: TokenScope::Commit.closure(),
        resources: vec![resource.to_str().unwrap().into()],
        expires_at: None,
    }
}

fn caller(manager: &SandboxManager, principal: &str, resource: &Path) -> Caller {
    let (_, text) = manager.create_token(new_token(principal, resource)).unwrap();
    manager.authenticate(&text).unwrap().unwrap()
}

/// The use cases as far as they are that principal's.
fn of(manager: &SandboxManager, principal: &str, resource: &Path) -> SandboxManager {
    manager.permitted_by(Arc::new(ProjectAccess::new(Arc::new(caller(manager, principal, resource)))))
}

fn request_of(resource: &Path) -> CreateRequest {
    CreateRequest {
        consumer: Consumer { actor_type: "agt".into(), project: "web".into() },
        ..request(&[resource])
    }
}

#[test]
fn a_token_names_who_shows_it() {
    let world = World::new();
    let manager = world.manager();
    let (token, text) = manager.create_token(new_token("ann", Path::new("/srv"))).unwrap();
    let caller = manager.authenticate(&text).unwrap().unwrap();
    assert_eq!((caller.principal.as_str(), &caller.token), ("ann", &token.id));
    assert_eq!(
        (&caller.consumer, &caller.scopes, &caller.resources),
        (&token.consumer, &token.scopes, &token.resources)
    );
    assert!(manager.is_good(&token.id).unwrap() && !manager.is_good("none").unwrap());
    assert_eq!(world.manager().tokens().unwrap(), [token]);
}

#[test]
fn a_token_that_is_no_good_says_why() {
    let world = World::new();
    let manager = world.manager();
    let refusal = |text: &str| manager.authenticate(text).unwrap().unwrap_err();
    let (token, text) = manager.create_token(new_token("ann", Path::new("/srv"))).unwrap();
    let (other, other_text) = manager.create_token(new_token("bob", Path::new("/srv"))).unwrap();
    assert_eq!(refusal("sbxt_x"), TokenRefusal::Malformed);
    assert_eq!(refusal(""), TokenRefusal::Malformed);
    // The secret of one with the id of another, and an id that was never given.
    let crossed = text.replace(&token.id, &other.id);
    assert_eq!(refusal(&crossed), TokenRefusal::Unknown(other.id));
    let unknown = text.replace(&token.id, &"a".repeat(token.id.len()));
    assert_eq!(refusal(&unknown), TokenRefusal::Unknown("a".repeat(token.id.len())));
    let at = Timestamp::now() - SignedDuration::from_secs(1);
    let past = NewToken { expires_at: Some(at), ..new_token("ann", Path::new("/srv")) };
    let (expired, expired_text) = manager.create_token(past).unwrap();
    assert!(matches!(refusal(&expired_text), TokenRefusal::Expired(id, _) if id == expired.id));
    assert!(!manager.is_good(&expired.id).unwrap());
    let future = Timestamp::now() + SignedDuration::from_hours(1);
    let (_, good) = manager
        .create_token(NewToken { expires_at: Some(future), ..new_token("ann", Path::new("/srv")) })
        .unwrap();
    assert!(manager.authenticate(&good).unwrap().is_ok());
    // Taken back by the beginning of its id; twice is fine, and the first time counts.
    let revoked = manager.revoke_token(&token.id[..10]).unwrap();
    assert_eq!(manager.revoke_token(&token.id).unwrap(), revoked);
    assert_eq!(refusal(&text), TokenRefusal::Revoked(token.id.clone(), revoked.revoked_at.unwrap()));
    assert!(!manager.is_good(&token.id).unwrap());
    assert!(manager.authenticate(&other_text).unwrap().is_ok(), "the other one is as good as before");
    assert!(matches!(manager.revoke_token("zzzz"), Err(Error::NotFound { what: "token", .. })));
    assert!(matches!(manager.revoke_token(""), Err(Error::NotFound { .. })));
}

#[test]
fn a_token_that_makes_sandboxes_says_of_what() {
    let manager = World::new().manager();
    let create = |scope: TokenScope, resources: &[&str]| {
        let resources = resources.iter().map(|&place| place.to_owned()).collect();
        manager.create_token(NewToken {
            scopes: scope.closure(),
            resources,
            ..new_token("ann", Path::new("/"))
        })
    };
    assert!(create(TokenScope::Read, &[]).is_ok() && create(TokenScope::Admin, &[]).is_ok());
    assert!(matches!(create(TokenScope::Work, &[]), Err(Error::Usage { hint: Some(_), .. })));
    assert!(create(TokenScope::Work, &["srv"]).is_err() && create(TokenScope::Work, &["/srv", "x"]).is_err());
    assert!(create(TokenScope::Work, &["s3://bucket"]).is_ok());
    assert!(manager.create_token(new_token("../ann", Path::new("/"))).is_err());
}

#[test]
fn anothers_plan_is_refused_and_nothing_of_it_is_told() {
    let world = World::new();
    let (x, y) = (world.resource("x"), world.resource("y"));
    let root = x.parent().unwrap();
    let manager = world.manager();
    let (ann, bob) = (of(&manager, "ann", root), of(&manager, "bob", root));
    let plan = Some(PlanId::from_string("shared"));
    let hers = CreateRequest { plan: plan.clone(), name: Some("annes".into()), ..request_of(&x) };
    let made = ann.get_or_create_sandbox(&hers).unwrap().sandbox;
    assert_eq!(made.principal.as_deref(), Some("ann"));
    assert!(!ann.get_or_create_sandbox(&hers).unwrap().created);
    for resource in [&x, &y] {
        let same_plan = CreateRequest { plan: plan.clone(), ..request_of(resource) };
        let refusal = bob.get_or_create_sandbox(&same_plan).unwrap_err();
        let told = format!("{refusal} {refusal:?}");
        assert!(!told.contains(made.id.as_str()) && !told.contains("annes"), "{told}");
    }
    let same_name = CreateRequest { name: Some("annes".into()), ..request_of(&y) };
    let refusal = bob.get_or_create_sandbox(&same_name).unwrap_err();
    let told = format!("{refusal} {refusal:?}");
    assert!(
        told.contains("is taken") && !told.contains(made.id.as_str()) && !told.contains("shared"),
        "{told}"
    );
    // Her own is told to her.
    let told = ann.get_or_create_sandbox(&same_name).unwrap_err().to_string();
    assert!(told.contains(made.id.as_str()), "{told}");
    assert!(bob.list(true).unwrap().is_empty() && ann.list(true).unwrap().len() == 1);
    for selector in [made.id.as_str(), "annes", &made.id.as_str()[..16], "@last"] {
        assert!(matches!(bob.find_any(selector), Err(Error::NotFound { similar, .. }) if similar.is_empty()));
    }
    assert!(bob.sandboxes_of_plan(&PlanId::from_string("shared")).is_err(), "plans are somebody's, too");
}

#[test]
fn what_a_token_is_not_for_is_not_isolated() {
    let world = World::new();
    let (x, y) = (world.resource("x"), world.resource("y"));
    let ann = of(&world.manager(), "ann", &x);
    assert!(matches!(ann.get_or_create_sandbox(&request_of(&y)), Err(Error::Refused { .. })));
    std::os::unix::fs::symlink(&y, x.join("link")).unwrap();
    assert!(matches!(ann.get_or_create_sandbox(&request_of(&x.join("link"))), Err(Error::Refused { .. })));
    assert!(ann.list(true).unwrap().is_empty());
    assert!(ann.get_or_create_sandbox(&request_of(&x)).unwrap().created);
}
