//! Sandboxes: made, listed, looked at, given more time, made again, ended.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::config::parse_ttl;
use sandboxer_core::environment::{DEFAULT_PROFILE, Inputs, SandboxCreateRequest, SandboxStatus};
use sandboxer_core::service::SandboxState;
use sandboxer_core::types::is_url;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::client::{Question, query, sandbox};
use super::document::Document;
use super::{Remote, done, refuse};
use crate::cli::commands::{create, destroy, extend, get, list, recreate, unpark};
use crate::cli::environments::label;
use crate::cli::error::{CliError, Kind};
use crate::cli::output::{self, count, expiry, instant, shell_word};
use crate::cli::{Outcome, exit};

/// How often is looked whether a sandbox is made.
const LOOK: Duration = Duration::from_millis(200);
/// The longest page that a server gives.
const PAGE: &str = "1000";

pub fn create(remote: &mut Remote<'_>, args: &create::Args) -> Outcome {
    refuse_here(args)?;
    let request = request(remote, args)?;
    let mut question = Question::post("/v1/sandboxes", &request)?;
    if let Some(key) = &args.environment.idempotency_key {
        question = question.header("idempotency-key", key);
    }
    let answer = remote.client.ask(question)?;
    let place = answer.headers().get("location").and_then(|place| place.to_str().ok()).map(str::to_owned);
    let is_begun = answer.status().as_u16() == 202;
    let document = remote.client.read(answer)?;
    let document = match place.filter(|_| is_begun) {
        Some(place) => made(remote, &place, document)?,
        None => document,
    };
    if remote.shown(&document)? {
        return done();
    }
    let status: SandboxStatus = remote.client.shaped(&document)?;
    create::tell_made(&mut remote.app.ui, &status)?;
    remote.app.ui.next("then:", &format!("sandbox diff {}", shell_word(&status.name)));
    done()
}

/// What is settled by the settings of the server, or by the profile.
fn refuse_here(args: &create::Args) -> Result<(), CliError> {
    refuse(
        "create",
        &[
            ("--strategy", args.strategy.is_some()),
            ("--no-fallback", args.no_fallback),
            ("--include", !args.include.is_empty()),
            ("--exclude", !args.exclude.is_empty()),
            ("--from", args.checkout.from.is_some()),
            ("--clean", args.checkout.clean),
            ("--no-ignored", args.checkout.no_ignored),
            ("--credentials", args.database.credentials.is_some()),
            ("--allow-ddl", !args.database.allow_ddl.is_empty()),
            ("--extension", args.environment.extension.is_some()),
            ("--host", args.environment.host.is_some()),
        ],
    )
}

fn request(remote: &Remote<'_>, args: &create::Args) -> Result<SandboxCreateRequest, CliError> {
    if let Some(ttl) = &args.ttl {
        parse_ttl(ttl)?;
    }
    Ok(SandboxCreateRequest {
        profile: args.environment.profile.clone().unwrap_or_else(|| DEFAULT_PROFILE.to_owned()),
        inputs: inputs(args)?,
        consumer: args.consumer.consumer(&remote.app.own_settings()?),
        ttl: args.ttl.clone(),
        plan: args.plan.clone(),
        name: args.name.clone(),
        labels: args.environment.labels.iter().map(|text| label(text)).collect::<Result<_, _>>()?,
    })
}

/// What is isolated, by name. All of it is on the server's machine.
fn inputs(args: &create::Args) -> Result<Inputs, CliError> {
    let mut named = Vec::new();
    for resource in &args.resources {
        let location = create::location(resource)?;
        named.push((derived(&location), location));
    }
    for text in &args.inputs {
        let (name, location) = create::split_input(text)?;
        named.push((name.to_owned(), location.to_owned()));
    }
    if named.is_empty() {
        return Err(CliError::usage("the current directory is one of this machine; a server has its own")
            .hint("name a directory of the server's machine: `sandbox create /srv/proj`"));
    }
    let mut names = BTreeSet::new();
    for (name, location) in &named {
        check(location)?;
        if !names.insert(name) {
            return Err(CliError::usage(format!("two inputs are named {name:?}"))
                .hint("give each a name of its own: --input NAME=RESOURCE"));
        }
    }
    Ok(Inputs(named))
}

fn check(location: &str) -> Result<(), CliError> {
    if location.starts_with("env:") {
        return Err(CliError::usage(format!(
            "{location} is a variable of this machine, and a server has its own"
        ))
        .hint("name the database by its URL; the server's machine has its password"));
    }
    if Path::new(location).is_absolute() || is_url(location) {
        return Ok(());
    }
    Err(CliError::usage(format!("{location:?} is relative to a directory of this machine"))
        .hint("name a directory of the server's machine by its whole path, such as /srv/proj"))
}

/// A name after the last component, of characters that names have.
fn derived(location: &str) -> String {
    let last = location.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let plain: String = last.chars().map(|c| if allowed(c) { c } else { '-' }).take(64).collect();
    let name = plain.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() { "workspace".to_owned() } else { name.to_owned() }
}

/// Waits until a sandbox is made.
fn made(remote: &Remote<'_>, place: &str, first: Document) -> Result<Document, CliError> {
    let mut document = first;
    loop {
        let status: SandboxStatus = remote.client.shaped(&document)?;
        match status.state {
            SandboxState::Requested | SandboxState::Provisioning => std::thread::sleep(LOOK),
            SandboxState::Failed => return Err(not_made(&status)),
            _ => return Ok(document),
        }
        document = remote.client.document(Question::get(place))?;
    }
}

fn not_made(status: &SandboxStatus) -> CliError {
    let failure = status.environment.as_ref().and_then(|environment| environment.failure.as_ref());
    let why = failure.map(|failure| format!(": {}: {}", failure.step, failure.reason)).unwrap_or_default();
    CliError::new(Kind::Error, format!("{}{why}", status.message))
        .hint(format!("what happened: `sandbox events {}`", status.sandbox_id))
}

/// A page of sandboxes, and what comes after it.
#[derive(Deserialize, Serialize)]
struct Page {
    sandboxes: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Sandboxes {
    sandboxes: Vec<SandboxStatus>,
}

pub fn list(remote: &mut Remote<'_>, args: &list::Args) -> Outcome {
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let all = args.all.then_some("true");
        let query = query(&[("limit", Some(PAGE)), ("all", all), ("after", after.as_deref())]);
        let page = remote.client.document(Question::get(format!("/v1/sandboxes{query}")))?;
        let Page { sandboxes, next } = remote.client.shaped(&page)?;
        found.extend(sandboxes);
        if next.is_none() || next == after {
            break;
        }
        after = next;
    }
    let document = remote.client.joined(&Page { sandboxes: found, next: None })?;
    if remote.shown(&document)? {
        return done();
    }
    let Sandboxes { sandboxes } = remote.client.shaped(&document)?;
    match sandboxes.is_empty() {
        true => remote.app.ui.next("no sandboxes; make one with", "sandbox create /SOME/DIRECTORY"),
        false => list::show(&mut remote.app.ui, &sandboxes)?,
    }
    done()
}

pub fn get(remote: &mut Remote<'_>, args: &get::Args) -> Outcome {
    let document = remote.client.document(Question::get(sandbox(&args.target.id, "")))?;
    if !remote.shown(&document)? {
        let status = remote.client.shaped(&document)?;
        get::describe(&mut remote.app.ui, &status)?;
    }
    done()
}

pub fn extend(remote: &mut Remote<'_>, args: &extend::Args) -> Outcome {
    parse_ttl(&args.ttl)?;
    let question = Question::post(sandbox(&args.target.id, "/extend"), &json!({ "ttl": args.ttl }))?;
    let document = remote.client.document(question)?;
    if remote.shown(&document)? {
        return done();
    }
    let status: SandboxStatus = remote.client.shaped(&document)?;
    let when = expiry(status.expires_at.as_deref().map(instant), Timestamp::now());
    extend::tell(&mut remote.app.ui, &status.name, &when)?;
    done()
}

pub fn recreate(remote: &mut Remote<'_>, args: &recreate::Args) -> Outcome {
    let question = Question::post(sandbox(&args.target.id, "/recreate"), &json!({ "from": args.from }))?;
    let document = remote.client.document(question)?;
    if remote.shown(&document)? {
        return done();
    }
    let status: SandboxStatus = remote.client.shaped(&document)?;
    recreate::tell(&mut remote.app.ui, &status.name, &status.extension_id, &status.host)?;
    done()
}

pub fn unpark(remote: &mut Remote<'_>, args: &unpark::Args) -> Outcome {
    let body = json!({"name": args.name});
    let document = remote.client.document(Question::post(sandbox(&args.id, "/unpark"), &body)?)?;
    if remote.shown(&document)? {
        return done();
    }
    let status: SandboxStatus = remote.client.shaped(&document)?;
    unpark::tell(&mut remote.app.ui, &status.name, &status.sandbox_id)?;
    done()
}

/// What became of a sandbox that was to end.
#[derive(Deserialize)]
struct Ended {
    sandbox_id: String,
    name: String,
    state: SandboxState,
    parked_changes: usize,
}

pub fn destroy(remote: &mut Remote<'_>, args: &destroy::Args) -> Outcome {
    refuse("destroy", &[("--force", args.force)])?;
    let query = query(&[("discard", args.discard.then_some("true"))]);
    let document = remote.client.document(Question::delete(sandbox(&args.target.id, &query)))?;
    if remote.shown(&document)? {
        return done();
    }
    let ended: Ended = remote.client.shaped(&document)?;
    let ui = &mut remote.app.ui;
    let who = format!("{} ({})", output::name(&ended.name), output::name(&ended.sandbox_id));
    match (ended.state, ended.parked_changes) {
        (SandboxState::Parked, changes @ 1..) => {
            ui.line(format_args!("parked sandbox {who} with {}", count(changes, "uncommitted change")))?;
        }
        (SandboxState::Parked, 0) => ui.line(format_args!("parked already: sandbox {who}"))?,
        _ => ui.line(format_args!("removed sandbox {who}"))?,
    }
    ui.flush()?;
    if ended.state == SandboxState::Parked {
        let id = shell_word(&ended.sandbox_id);
        ui.next("bring it back:", &format!("sandbox unpark {id}"));
        ui.next("throw it away:", &format!("sandbox destroy {id} --discard"));
    }
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_of_the_last_component() {
        for (location, name) in [
            ("/srv/my proj", "my-proj"),
            ("/srv/app/", "app"),
            ("/", "workspace"),
            ("/srv/.git", "git"),
            ("postgres://db/shop", "shop"),
        ] {
            assert_eq!(derived(location), name);
        }
    }

    #[test]
    fn places_are_those_of_the_server() {
        for good in ["/srv/proj", "postgres://db/shop"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [".", "proj", "../x", "env:DATABASE_URL", "~/proj"] {
            assert!(check(bad).is_err_and(|error| error.exit == 2), "{bad}");
        }
    }
}
