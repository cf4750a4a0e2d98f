//! What there is to ask a server for.

use sandboxer_core::Error;
use sandboxer_core::environment::{ExtensionDefinition, Host, Profile};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

use super::client::Question;
use super::document::Document;
use super::{Remote, done, only_here};
use crate::cli::Outcome;
use crate::cli::catalogue;
use crate::cli::commands::{extensions, hosts, profiles};
use crate::cli::error::CliError;

/// One kind of entry.
struct Shelf {
    /// One.
    what: &'static str,
    /// Where they are, and what the list of them is called.
    all: &'static str,
}

pub fn profiles(remote: &mut Remote<'_>, args: &profiles::Args) -> Outcome {
    let shelf = Shelf { what: "profile", all: "profiles" };
    let Some(found) = look(remote, &shelf, args.id.as_deref())? else { return done() };
    let found = defined(remote, found, |profile: &mut Profile, origin| profile.origin = origin)?;
    profiles::show_all(&mut remote.app.ui, found.iter())?;
    done()
}

pub fn extensions(remote: &mut Remote<'_>, args: &extensions::Args) -> Outcome {
    if args.what.is_some() {
        return Err(only_here("extensions check"));
    }
    let shelf = Shelf { what: "extension", all: "extensions" };
    let Some(found) = look(remote, &shelf, args.id.as_deref())? else { return done() };
    let found = defined(remote, found, |known: &mut ExtensionDefinition, origin| known.origin = origin)?;
    extensions::show_all(&mut remote.app.ui, found.iter(), |_| None)?;
    done()
}

pub fn hosts(remote: &mut Remote<'_>, args: &hosts::Args) -> Outcome {
    if args.what.is_some() {
        return Err(only_here("hosts check"));
    }
    let shelf = Shelf { what: "host", all: "hosts" };
    let Some(found) = look(remote, &shelf, args.id.as_deref())? else { return done() };
    let found = defined(remote, found, |host: &mut Host, origin| host.origin = origin)?;
    hosts::show_all(&mut remote.app.ui, found.iter())?;
    done()
}

/// All entries, where they are still to be shown: one that was named is shown here, and so is a document.
fn look(
    remote: &mut Remote<'_>,
    shelf: &Shelf,
    id: Option<&str>,
) -> Result<Option<Vec<Box<RawValue>>>, CliError> {
    let document = remote.client.document(Question::get(format!("/v1/{}", shelf.all)))?;
    if id.is_none() && remote.shown(&document)? {
        return Ok(None);
    }
    let mut lists: BTreeMap<String, Vec<Box<RawValue>>> = remote.client.shaped(&document)?;
    let entries = lists.remove(shelf.all).unwrap_or_default();
    let Some(id) = id else { return Ok(Some(entries)) };
    let is_meant =
        |entry: &RawValue| serde_json::from_str::<Value>(entry.get()).is_ok_and(|it| it["id"] == id);
    let found = entries.into_iter().find(|entry| is_meant(entry));
    let entry = Document::from(found.ok_or_else(|| CliError::from(Error::not_found(shelf.what, id)))?);
    if !remote.shown(&entry)? {
        let entry: Value = remote.client.shaped(&entry)?;
        catalogue::show(&mut remote.app.ui, &entry)?;
    }
    Ok(None)
}

/// Entries as their files define them. Where one was defined is told beside it.
fn defined<T: DeserializeOwned>(
    remote: &Remote<'_>,
    entries: Vec<Box<RawValue>>,
    with_origin: impl Fn(&mut T, String),
) -> Result<Vec<T>, CliError> {
    let define = |entry: Box<RawValue>| {
        let mut fields: Value = remote.client.parsed(entry.get())?;
        let origin = fields.as_object_mut().and_then(|fields| fields.remove("origin"));
        let mut defined: T = remote.client.parsed(&fields.to_string())?;
        with_origin(&mut defined, origin.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned());
        Ok(defined)
    };
    entries.into_iter().map(define).collect()
}
