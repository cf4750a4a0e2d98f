//! The way from a workspace to its [`Model`].

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use serde_json::{Map, Value};

use crate::at::At;
use crate::bases::Bases;
use crate::dockerfile;
use crate::dotenv::{self, Format};
use crate::files::{Files, Kind, Place, directory_of};
use crate::interpolate::Variables;
use crate::load::{Document, Loader, inside};
use crate::model::{Definition, Model, Source};
use crate::{find, read};

/// Reads the files of a stack and all that they refer to below the root.
pub fn resolve(source: &Source<'_>) -> Result<Model> {
    let files = Files::below(source.root)?;
    let (names, file) = named_files(&files, source)?;
    let at = At::file(&names[0]);
    let base = directory_of(&names[0]).to_owned();
    let loader = Loader::new(&files);
    let given = Variables::new(source.variables.clone());
    let variables = loader.variables(&given, &base, &[], &at)?;
    let mut document = loader.load(&names, &base, &variables, &[])?;
    let left_out = leave_out(&mut document, &variables);
    if document.services.is_empty() {
        return Err(
            at.refuse("it has no services that run", "name some under `services`, without `profiles`")
        );
    }
    for (name, service) in &mut document.services {
        inline_environment(&files, name, service, &variables, &loader)?;
    }
    let notes = loader.notes.take();
    looked_at(&files, document, Model { file, left_out, notes, ..empty()? })
}

fn empty() -> Result<Model> {
    Ok(Model {
        file: RelPath::parse("compose.yaml")?,
        services: BTreeMap::new(),
        networks: BTreeMap::new(),
        volumes: BTreeMap::new(),
        secrets: BTreeMap::new(),
        configs: BTreeMap::new(),
        kinds: BTreeMap::new(),
        fetches: BTreeMap::new(),
        bases: BTreeMap::new(),
        left_out: Vec::new(),
        notes: Vec::new(),
    })
}

/// The files to begin with, and the first of them.
fn named_files(files: &Files, source: &Source<'_>) -> Result<(Vec<String>, RelPath)> {
    let names = match source.file {
        None => find::with_override(files, find::found(files)?)?,
        Some(file) => match files.locate("", file) {
            Place::Inside(path) if !path.is_empty() => vec![path],
            _ => {
                let message = format!("the compose file {file:?} does not lie in the workspace");
                let hint = "name it by its path below the workspace's root".to_owned();
                return Err(Error::Usage { message, hint: Some(hint) });
            }
        },
    };
    let first = RelPath::parse(&names[0])?;
    Ok((names, first))
}

/// Takes out the services of profiles that nobody asked for.
fn leave_out(document: &mut Document, variables: &Variables) -> Vec<String> {
    let asked = variables.get("COMPOSE_PROFILES").unwrap_or_default();
    let asked: BTreeSet<&str> = asked.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let wanted = |service: &Definition| {
        let profiles = service.keys.get("profiles").and_then(Value::as_array);
        profiles.is_none_or(|profiles| {
            let mut names = profiles.iter().filter_map(Value::as_str);
            profiles.is_empty() || asked.contains("*") || names.any(|name| asked.contains(name))
        })
    };
    let left: Vec<String> = document
        .services
        .iter()
        .filter(|(_, service)| !wanted(service))
        .map(|(name, _)| name.clone())
        .collect();
    document.services.retain(|name, _| !left.contains(name));
    for service in document.services.values_mut() {
        service.keys.remove("profiles");
    }
    left
}

/// Puts what `env_file` names into `environment`, and values to names that have none.
fn inline_environment(
    files: &Files,
    name: &str,
    service: &mut Definition,
    variables: &Variables,
    loader: &Loader<'_>,
) -> Result<()> {
    let at = service.at(name, "env_file");
    let mut whole: BTreeMap<String, String> = BTreeMap::new();
    let listed = service.keys.remove("env_file");
    for (index, entry) in listed.iter().flat_map(|list| list.as_array().into_iter().flatten()).enumerate() {
        whole.extend(entries_of(files, entry, variables, &at.item(index))?);
    }
    let at = service.at(name, "environment");
    let own = service.keys.remove("environment").unwrap_or_else(|| Map::new().into());
    for (variable, value) in read::map(&own, &at)? {
        let known = || variables.get(variable).map(str::to_owned);
        match value.as_str().map(str::to_owned).or_else(known) {
            Some(value) => _ = whole.insert(variable.clone(), value),
            None => loader.notes.borrow_mut().push(
                at.key(variable).says("left out: it has no value, and the environment here is not handed on"),
            ),
        }
    }
    let whole: Map<String, Value> = whole.into_iter().map(|(name, value)| (name, value.into())).collect();
    if !whole.is_empty() {
        service.keys.insert("environment".to_owned(), whole.into());
    }
    build_arguments(name, service, variables, loader);
    Ok(())
}

fn entries_of(
    files: &Files,
    entry: &Value,
    variables: &Variables,
    at: &At,
) -> Result<BTreeMap<String, String>> {
    let place = Place::from_value(&entry["path"]).ok_or_else(|| at.refuse("it names no file", "name one"))?;
    let path = inside(place, at)?;
    let required = entry.get("required").map_or(Ok(true), |value| read::flag(value, &at.key("required")))?;
    if !required && matches!(files.kind(&path)?, Kind::Missing) {
        return Ok(BTreeMap::new());
    }
    let format =
        match entry.get("format").map(|value| read::text(value, &at.key("format"))).transpose()?.as_deref() {
            None => Format::Usual,
            Some("raw") => Format::Raw,
            Some(odd) => return Err(at.key("format").unknown("the format", odd, &["raw"])),
        };
    dotenv::parse(&files.text(&path, at)?, format, variables, &At::file(&path))
}

/// Gives values to arguments of a build that have none.
fn build_arguments(name: &str, service: &mut Definition, variables: &Variables, loader: &Loader<'_>) {
    let at = service.at(name, "build").key("args");
    let arguments = service.keys.get_mut("build").and_then(|build| build.get_mut("args"));
    let Some(arguments) = arguments.and_then(Value::as_object_mut) else { return };
    for (argument, value) in arguments.iter_mut().filter(|(_, value)| value.is_null()) {
        match variables.get(argument) {
            Some(known) => *value = known.into(),
            None => loader.notes.borrow_mut().push(at.key(argument).says("left out: it has no value")),
        }
    }
    arguments.retain(|_, value| !value.is_null());
}

/// Looks at all places that the services refer to.
fn looked_at(files: &Files, document: Document, mut model: Model) -> Result<Model> {
    for service in document.services.values() {
        let mounts = service.keys.get("volumes").and_then(Value::as_array).into_iter().flatten();
        for place in mounts.filter_map(|mount| mount.get("source")).filter_map(Place::from_value) {
            look(files, &mut model, &place)?;
        }
    }
    for section in ["secrets", "configs"] {
        for entry in document.declared.get(section).into_iter().flat_map(BTreeMap::values) {
            if let Some(place) = entry.value.get("file").and_then(Place::from_value) {
                look(files, &mut model, &place)?;
            }
        }
    }
    let Document { mut services, mut declared, .. } = document;
    for (name, service) in &mut services {
        look_at_build(files, name, service, &mut model)?;
    }
    model.services = services;
    let mut section = |name: &str| declared.remove(name).unwrap_or_default();
    model.networks = section("networks");
    model.volumes = section("volumes");
    model.secrets = section("secrets");
    model.configs = section("configs");
    Ok(model)
}

fn look(files: &Files, model: &mut Model, place: &Place) -> Result<Option<Kind>> {
    let Place::Inside(path) = place else { return Ok(None) };
    let kind = files.kind(path)?;
    model.kinds.insert(path.clone(), kind);
    Ok(Some(kind))
}

/// Finds the Dockerfile of a service that is built, and reads what it would fetch.
fn look_at_build(files: &Files, name: &str, service: &mut Definition, model: &mut Model) -> Result<()> {
    let at = service.at(name, "build");
    let Some(build) = service.keys.get_mut("build").and_then(Value::as_object_mut) else { return Ok(()) };
    let Some(place) = build.get("context").and_then(Place::from_value) else { return Ok(()) };
    look(files, model, &place)?;
    let Place::Inside(context) = place else { return Ok(()) };
    look(files, model, &files.locate(&context, ".dockerignore"))?;
    let named = build.get("dockerfile").filter(|value| !value.is_null());
    let named =
        named.map_or(Ok("Dockerfile".to_owned()), |value| read::text(value, &at.key("dockerfile")))?;
    let place = files.locate(&context, &named);
    build.insert("dockerfile".to_owned(), place.to_value());
    let kind = look(files, model, &place)?;
    if let (Place::Inside(path), Some(Kind::File(_))) = (&place, kind)
        && !model.fetches.contains_key(path)
    {
        let text = files.text(path, &at.key("dockerfile"))?;
        model.fetches.insert(path.clone(), dockerfile::fetch(&text));
        model.bases.insert(path.clone(), Bases::read(&text));
    }
    Ok(())
}
