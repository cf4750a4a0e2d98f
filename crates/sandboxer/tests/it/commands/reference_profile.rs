//! `profiles/profile.compose-e2e.yaml` is the reference for profiles: it shows every key, its examples are valid, and what it
//! says beyond its short form changes nothing.

use std::collections::BTreeSet;
use std::fs;

use sandboxer_core::environment::{Catalogue, Profile, schemas};
use serde_json::Value;

use crate::common::doc_pages::repository;

const ID: &str = "profile.compose-e2e";

/// The keys without which the profile would do something else, and the one for billing.
const SHORT_FORM: &str = "\
id: profile.compose-e2e
summary: The services of a compose file, reaching each other and nothing else
extension: {policy: explicit, id: ext.compose-ssh}
isolation: container
network: none
inputs: {repo: {type: fs-directory, required: true}}
ttl: 4h
cost_class: standard
";

fn reference() -> String {
    fs::read_to_string(repository().join("profiles/profile.compose-e2e.yaml")).unwrap()
}

/// The profile as a user's file with this text defines it, on a machine that knows the hosts build-1 and build-2.
fn load(text: &str) -> sandboxer_core::Result<Profile> {
    let directory = tempfile::tempdir().unwrap();
    for host in ["build-1", "build-2"] {
        let file = directory.path().join(format!("hosts/{host}.yaml"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("id: {host}\naddress: ssh://{host}\nextensions: [ext.compose-ssh]\n"))
            .unwrap();
    }
    fs::create_dir(directory.path().join("profiles")).unwrap();
    fs::write(directory.path().join("profiles/reference.yaml"), text).unwrap();
    let catalogue = Catalogue::embedded()?.with_directory(directory.path())?;
    Ok(Profile { origin: String::new(), ..catalogue.profile(ID)?.clone() })
}

/// The keys of an object as the schema has them: `key`, and `key.below` for objects in it. A map has the key `*`.
fn schema_keys(schema: &Value, root: &Value) -> BTreeSet<String> {
    let target = schema["$ref"].as_str().map(|name| root.pointer(name.trim_start_matches('#')).unwrap());
    let schema = target.unwrap_or(schema);
    let named =
        schema["properties"].as_object().into_iter().flatten().map(|(key, below)| (key.as_str(), below));
    let map = schema.get("additionalProperties").filter(|below| below.get("$ref").is_some());
    named
        .chain(map.map(|below| ("*", below)))
        .flat_map(|(key, below)| joined(key, schema_keys(below, root)))
        .collect()
}

/// The keys of a document in the same form, where the entries of `inputs` are `*`.
fn document_keys(document: &Value, is_map: bool) -> BTreeSet<String> {
    let entries = document.as_object().into_iter().flatten();
    let below = |(key, value): (&String, &Value)| {
        joined(if is_map { "*" } else { key }, document_keys(value, key == "inputs"))
    };
    entries.flat_map(below).collect()
}

fn joined(key: &str, below: BTreeSet<String>) -> Vec<String> {
    let below = below.into_iter().map(|name| format!("{key}.{name}"));
    [key.to_owned()].into_iter().chain(below).collect()
}

/// One line `key: value  # e.g. example; meaning`.
struct Line<'a> {
    text: &'a str,
    key: &'a str,
    value: &'a str,
    example: Option<&'a str>,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let line = |text| -> Option<Line<'_>> {
        let (setting, comment) = str::split_once(text, " # ").unwrap_or((text, ""));
        let (key, value) = setting.split_once(": ")?;
        let example = comment.strip_prefix("e.g. ").map(|rest| rest.split_once("; ").unwrap_or((rest, "")).0);
        Some(Line { text, key, value: value.trim(), example })
    };
    text.lines().filter(|text| !text.starts_with('#')).filter_map(line).collect()
}

#[test]
fn reference_profile_shows_every_key() {
    let schema = schemas().into_iter().find(|(file, _)| *file == "profile.json").unwrap().1.to_value();
    let document: Value = serde_saphyr::from_str(&reference()).unwrap();
    let expected = schema_keys(&schema, &schema);
    assert!(expected.contains("placement.fallback") && expected.contains("inputs.*.mount"), "{expected:?}");
    assert_eq!(document_keys(&document, false), expected);
}

#[test]
fn reference_profile_does_what_its_short_form_does() {
    let embedded = Catalogue::embedded().unwrap().profile(ID).unwrap().clone();
    assert_eq!(Profile { origin: String::new(), ..embedded }, load(SHORT_FORM).unwrap());
}

#[test]
fn examples_of_the_reference_profile_are_valid() {
    let (text, shipped) = (reference(), load(SHORT_FORM).unwrap());
    for line in lines(&text).iter().filter(|line| line.example.is_some()) {
        let changed = format!("{}: {}", line.key, line.example.unwrap());
        let profile = load(&text.replacen(line.text, &changed, 1));
        assert_ne!(profile.unwrap_or_else(|error| panic!("{changed}: {error}")), shipped, "{changed}");
    }
}

#[test]
fn empty_keys_of_the_reference_profile_have_an_example() {
    let text = reference();
    // `among` contradicts the policy that this profile has.
    let empty = |line: &&Line| ["null", "[]", "{}"].contains(&line.value) && line.key.trim() != "among";
    let lines = lines(&text);
    let (with, without): (Vec<&Line>, Vec<&Line>) =
        lines.iter().filter(empty).partition(|line| line.example.is_some());
    assert_eq!(without.iter().map(|line| line.text).collect::<Vec<_>>(), [""; 0]);
    assert!(!with.is_empty());
}

#[test]
fn the_page_on_stacks_quotes_the_reference_profile() {
    let page = fs::read_to_string(repository().join("docs/compose.md")).unwrap();
    assert!(page.contains(&format!("```yaml\n{}```\n", reference())), "docs/compose.md quotes another text");
}
