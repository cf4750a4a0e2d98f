//! Sandboxes: made, looked at, listed, given more time, made again, ended.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use sandboxer_core::access::{Caller, TokenScope};
use sandboxer_core::config::parse_ttl;
use sandboxer_core::environment::{IsolationLevel, Profile, SandboxCreateRequest, SandboxStatus};
use sandboxer_core::model::{PlanId, SandboxId};
use sandboxer_core::service::{
    CreateRequest, Created, Ended, Input, Sandbox, SandboxManager, SandboxState, Uncommitted,
};
use sandboxer_core::store::PageQuery;
use sandboxer_core::types::is_url;
use sandboxer_documents::{Kind, SandboxDocument};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::input::{Asked, Document, Named};
use super::{answer, fine};
use crate::app::{App, Who, finished};
use crate::problem::Problem;

/// The longest key of a request.
const LONGEST_KEY: usize = 255;
/// The longest path or URL of a resource, as the kernel has it.
const LONGEST_PLACE: usize = 4096;
/// How many resources a sandbox may be of.
const MOST_INPUTS: usize = 64;
/// The longest page.
const LONGEST_PAGE: usize = 1000;
/// How long it takes at first until is looked again whether a sandbox that is being made is on record, and at last.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(500);

/// A page of sandboxes, newest first.
#[derive(Serialize, JsonSchema)]
pub struct SandboxesDocument {
    /// The page.
    #[schemars(with = "Vec<SandboxStatus>")]
    sandboxes: Vec<Box<serde_json::value::RawValue>>,
    /// What to give as `after` for the next page; missing where this is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which sandboxes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    limit: Option<usize>,
    after: Option<String>,
    #[serde(default)]
    all: bool,
    state: Option<SandboxState>,
    plan: Option<String>,
    project: Option<String>,
}

pub async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(query): Asked<ListQuery>,
) -> Result<Response, Problem> {
    let limit = query.limit.unwrap_or(PageQuery::default().limit);
    if !(1..=LONGEST_PAGE).contains(&limit) {
        return Err(Problem::usage(format!("limit={limit} is not from 1 to {LONGEST_PAGE}")));
    }
    let query = PageQuery {
        all: query.all,
        state: query.state,
        plan: query.plan,
        project: query.project,
        after: query.after.map(SandboxId::from_string),
        limit,
    };
    app.look(&who, move |manager| {
        let page = manager.page(&query)?;
        let raw = |sandbox: &Sandbox| serde_json::value::to_raw_value(&SandboxDocument::of(sandbox)).ok();
        let sandboxes = page.sandboxes.iter().filter_map(raw).collect();
        fine(&SandboxesDocument { sandboxes, next: page.next.map(|id| id.to_string()) })
    })
    .await
}

pub async fn get(State(app): State<Arc<App>>, who: Who, named: Named) -> Result<Response, Problem> {
    // A row by its id is read here and now; what takes a search waits elsewhere.
    let exact = app.glance(&who, |manager| Ok(manager.find_exact(&named.id)?))?;
    if let Some(sandbox) = exact {
        return fine(&SandboxDocument::of(&sandbox));
    }
    app.look(&who, move |manager| {
        let target = manager.find_any(&named.id)?;
        fine(&SandboxDocument::of(&target.sandbox))
    })
    .await
}

pub async fn create(
    State(app): State<Arc<App>>,
    who: Who,
    headers: HeaderMap,
    Document(request): Document<SandboxCreateRequest>,
) -> Result<Response, Problem> {
    check_consumer(&who, &request)?;
    check_inputs(&who, &request)?;
    let shown = key_of(&headers)?;
    let key = who.key(&shown);
    let patience = if prefers_async(&headers) { Duration::ZERO } else { app.limits.patience };
    let (maker, shared, wanted) = (who.clone(), app.clone(), key.clone());
    let making = tokio::spawn({
        let app = app.clone();
        async move { app.undertake(move || make(&shared, &maker, &request, (&shown, wanted))).await }
    });
    tokio::pin!(making);
    match tokio::time::timeout(patience, &mut making).await {
        Ok(made) => told(made),
        Err(_) => begun(&app, &who, &key, making).await,
    }
}

/// Answers with a sandbox that is being made, as soon as it is on record, or with what came of it if that is sooner.
async fn begun(
    app: &Arc<App>,
    who: &Who,
    key: &str,
    mut making: Pin<&mut JoinHandle<Result<Created, Problem>>>,
) -> Result<Response, Problem> {
    let mut pause = FIRST_LOOK;
    loop {
        let wanted = key.to_owned();
        let begun = app.look(who, move |manager| Ok(manager.requested(&wanted)?)).await?;
        if let Some(sandbox) = begun {
            return located(StatusCode::ACCEPTED, &SandboxDocument::of(&sandbox), &sandbox);
        }
        if let Ok(made) = tokio::time::timeout(pause, &mut making).await {
            return told(made);
        }
        pause = (pause * 2).min(LAST_LOOK);
    }
}

fn told(made: Result<Result<Created, Problem>, tokio::task::JoinError>) -> Result<Response, Problem> {
    let made = finished(made)?;
    let status = if made.created { StatusCode::CREATED } else { StatusCode::OK };
    located(status, &SandboxDocument::new(&made.sandbox, made.created, &made.message), &made.sandbox)
}

fn located(
    status: StatusCode,
    document: &SandboxDocument<'_>,
    sandbox: &Sandbox,
) -> Result<Response, Problem> {
    let mut response = answer(status, document)?;
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/sandboxes/{}", sandbox.id)) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// Whoever asks can only ask in their own name.
fn check_consumer(who: &Who, request: &SandboxCreateRequest) -> Result<(), Problem> {
    let Who::Caller(caller) = who else { return Ok(()) };
    if request.consumer == caller.consumer || caller.has(TokenScope::Admin) {
        return Ok(());
    }
    let (asked, own) = (&request.consumer, &caller.consumer);
    Err(Problem::refused(format!(
        "{} may not ask for {:?} of {:?}: its token is for {} of {}",
        caller.principal, asked.actor_type, asked.project, own.actor_type, own.project
    ))
    .hint(format!("ask as the token says: --actor {} --project {}", own.actor_type, own.project)))
}

/// Refused before anybody looks whether there is such a thing.
fn check_inputs(who: &Who, request: &SandboxCreateRequest) -> Result<(), Problem> {
    let Who::Caller(caller) = who else { return Ok(()) };
    who.require(TokenScope::Work, "create")?;
    match request.inputs.0.iter().map(|(_, place)| place).find(|place| !caller.may_isolate(place)) {
        Some(location) => Err(outside(caller, location)),
        None => Ok(()),
    }
}

/// A URL without what may be a password in it; nothing of that is repeated.
fn without_password(location: &str) -> String {
    match location.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or(rest)),
        None => location.to_owned(),
    }
}

fn outside(caller: &Caller, location: &str) -> Problem {
    Problem::refused(format!(
        "{} may not isolate {:?}: its token {} is for {}",
        caller.principal,
        without_password(location),
        caller.token,
        caller.resources.join(", ")
    ))
}

/// The same of where links lead, before anything there is read: a link must not tell what is outside either.
fn check_links(who: &Who, inputs: &[Input]) -> Result<(), Problem> {
    let Who::Caller(caller) = who else { return Ok(()) };
    let inside = |location: &str| {
        let end = where_it_leads(Path::new(location));
        end.is_some_and(|end| end.to_str().is_some_and(|end| caller.may_isolate(end)))
    };
    let mut paths = inputs.iter().map(|input| &input.location).filter(|location| location.starts_with('/'));
    paths.find(|location| !inside(location)).map_or(Ok(()), |location| Err(outside(caller, location)))
}

/// A path without links, as far as there is something; nothing where a link leads nowhere.
fn where_it_leads(path: &Path) -> Option<PathBuf> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        match at.canonicalize() {
            Ok(found) => return Some(missing.iter().rev().fold(found, |path, name| path.join(name))),
            Err(_) if at.symlink_metadata().is_ok() => return None,
            Err(_) => {
                missing.push(at.file_name()?);
                at = at.parent()?;
            }
        }
    }
}

fn key_of(headers: &HeaderMap) -> Result<String, Problem> {
    match headers.get("Idempotency-Key") {
        // Every request has one: it is also how one that takes long is found again.
        None => Ok(format!("request/{}", SandboxId::generate())),
        Some(value) => {
            let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= LONGEST_KEY);
            let odd =
                || Problem::usage(format!("an Idempotency-Key has 1 to {LONGEST_KEY} printable characters"));
            text.map(str::to_owned).ok_or_else(odd)
        }
    }
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let preferences = headers.get_all("Prefer").iter().filter_map(|value| value.to_str().ok());
    preferences
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("respond-async"))
}

/// Makes it. `shown` is the key as the client sent it, `key` as it is kept.
fn make(
    app: &App,
    who: &Who,
    request: &SandboxCreateRequest,
    (shown, key): (&str, String),
) -> Result<Created, Problem> {
    let manager = who.manager(app.backend.manager());
    let digest = request.digest();
    if let Some(answered) = manager.answered(&key)? {
        return same_request(answered, shown, &digest);
    }
    let inputs = request.inputs.0.iter().map(input).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = inputs.first() else {
        return Err(Problem::usage("a sandbox needs at least one input")
            .hint("\"inputs\": {\"repo\": \"/srv/repo\"}"));
    };
    if inputs.len() > MOST_INPUTS {
        return Err(Problem::usage(format!("a sandbox has at most {MOST_INPUTS} inputs")));
    }
    check_links(who, &inputs)?;
    let manager = who.manager(&app.backend.manager_at(&start(first))?);
    let mut environment = app.backend.environment(request)?;
    refuse_uncontained(who, &environment.profile)?;
    environment.idempotency_key = Some(key.clone());
    environment.request_digest = Some(digest.clone());
    let request = CreateRequest {
        inputs,
        strategy: None,
        no_fallback: false,
        plan: request.plan.as_deref().map(PlanId::from_string),
        name: request.name.clone(),
        ttl: request.ttl.as_deref().map(parse_ttl).transpose()?,
        consumer: request.consumer.clone(),
        disposable: false,
        environment: Some(Box::new(environment)),
    };
    let made = manager.get_or_create_sandbox(&request)?;
    let by_key = made.sandbox.environment.as_ref().and_then(|e| e.idempotency_key.as_ref()) == Some(&key);
    if made.created || !by_key { Ok(made) } else { same_request(made, shown, &digest) }
}

/// What a key was answered with before, for the same request and no other.
fn same_request(answered: Created, key: &str, digest: &str) -> Result<Created, Problem> {
    let before = answered.sandbox.environment.as_ref().and_then(|e| e.request_digest.as_deref());
    if before.is_some_and(|before| before != digest) {
        let message = format!("the Idempotency-Key {key:?} was used for another request");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, Kind::Usage, message)
            .hint("choose another key, or send the same request"));
    }
    let message = format!("the request {key:?} was answered with sandbox {} already", answered.sandbox.name);
    Ok(Created { message, ..answered })
}

/// What is not contained is a program of the server's user: a profile that is fine for them is not for whoever has a token.
fn refuse_uncontained(who: &Who, profile: &Profile) -> Result<(), Problem> {
    match who {
        Who::Local => Ok(()),
        _ if profile.isolation != IsolationLevel::Files => Ok(()),
        _ => Err(Problem::refused(format!(
            "{} does not contain commands (isolation: files): it is not to be had over a token",
            profile.id
        ))),
    }
}

/// A place is meant the same wherever the server was started: absolute, or a URL.
fn input((name, location): &(String, String)) -> Result<Input, Problem> {
    if !location.starts_with('/') && !is_url(location) {
        let message = format!("input {name:?}: {location:?} is neither an absolute path nor a URL");
        return Err(Problem::usage(message).hint("a path is one on the server's machine"));
    }
    if location.contains('\0') || location.len() > LONGEST_PLACE {
        let message = format!("input {name:?}: a place has up to {LONGEST_PLACE} bytes, and none is zero");
        return Err(Problem::usage(message));
    }
    Ok(Input { name: Some(name.clone()), location: location.clone(), properties: Default::default() })
}

/// Where the project's file is looked for.
fn start(input: &Input) -> PathBuf {
    let path = Path::new(&input.location);
    match path.is_dir() {
        true => path.to_path_buf(),
        false => path.parent().filter(|parent| parent.is_absolute()).unwrap_or(Path::new("/")).to_path_buf(),
    }
}

/// What became of a sandbox that was to end.
#[derive(Serialize, JsonSchema)]
pub struct EndedDocument {
    /// Its id.
    sandbox_id: String,
    /// What it was called.
    name: String,
    /// `destroyed`, or `parked` where it held uncommitted work.
    state: SandboxState,
    /// How many uncommitted changes are parked.
    parked_changes: usize,
}

/// How to end it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndQuery {
    #[serde(default)]
    discard: bool,
}

pub async fn destroy(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Asked(query): Asked<EndQuery>,
) -> Result<Response, Problem> {
    let uncommitted = if query.discard { Uncommitted::Discard } else { Uncommitted::Park };
    app.work(&who, move |manager| {
        let target = manager.find_any(&named.id)?;
        let (state, parked_changes) = match manager.destroy(&target, uncommitted)? {
            Ended::Destroyed => (SandboxState::Destroyed, 0),
            Ended::Parked { changes } => (SandboxState::Parked, changes),
            Ended::Already(state) => (state, 0),
        };
        let sandbox = target.sandbox;
        fine(&EndedDocument { sandbox_id: sandbox.id.to_string(), name: sandbox.name, state, parked_changes })
    })
    .await
}

/// How long a sandbox is to live.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendBody {
    /// From now, such as `2h`.
    ttl: String,
}

pub async fn extend(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Document(body): Document<ExtendBody>,
) -> Result<Response, Problem> {
    let ttl = parse_ttl(&body.ttl)?;
    changed(&app, &who, named, move |manager, target| Ok(manager.extend(target, ttl)?)).await
}

/// How an environment is to be made again.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RecreateBody {
    /// The checkpoint to restore first.
    from: Option<String>,
}

pub async fn recreate(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Document(body): Document<RecreateBody>,
) -> Result<Response, Problem> {
    changed(&app, &who, named, move |manager, target| Ok(manager.recreate(target, body.from.as_deref())?))
        .await
}

/// How parked work is taken up.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UnparkBody {
    /// What it is called from then on; what it was called without it.
    name: Option<String>,
}

pub async fn unpark(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Document(body): Document<UnparkBody>,
) -> Result<Response, Problem> {
    app.work(&who, move |manager| {
        let parked = manager.find_parked(&named.id)?;
        let sandbox = manager.unpark(&parked, body.name.as_deref())?;
        fine(&SandboxDocument::of(&sandbox))
    })
    .await
}

/// Changes a sandbox, and answers with how it is then.
async fn changed(
    app: &Arc<App>,
    who: &Who,
    named: Named,
    change: impl FnOnce(&SandboxManager, &sandboxer_core::service::Target) -> Result<Sandbox, Problem>
    + Send
    + 'static,
) -> Result<Response, Problem> {
    app.work(who, move |manager| {
        let target = named.find(manager, None)?;
        let sandbox = change(manager, &target).map_err(|problem| problem.aimed_at(&named.id))?;
        fine(&SandboxDocument::of(&sandbox))
    })
    .await
}
