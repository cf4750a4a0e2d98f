#![allow(clippy::unwrap_used)]
use std::fs;

use tempfile::TempDir;

use super::*;
use crate::environment::{IsolationLevel, NetworkNeed, Policy, Provider};

/// A directory of the user's with these files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = directory.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    directory
}

fn read(files: &[(&str, &str)]) -> Result<Catalogue> {
    Catalogue::embedded().unwrap().with_directory(directory(files).path())
}

/// Why `files` cannot be read, or an extension of them cannot be used.
fn error_of(files: &[(&str, &str)]) -> Error {
    let invalid = |catalogue: Catalogue| {
        let invalid = catalogue.extensions().find_map(|extension| extension.invalid.clone());
        invalid.unwrap().to_error()
    };
    read(files).map_or_else(|error| error, invalid)
}

/// Name of the file with the place in it, message and hint of what `files` are refused with.
fn complaint(files: &[(&str, &str)]) -> (String, String, Option<String>) {
    match error_of(files) {
        Error::Config { file, line, column, message, hint } => {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let places: Vec<String> = [line, column].into_iter().flatten().map(|n| format!(":{n}")).collect();
            (name + &places.concat(), message, hint)
        }
        other => panic!("{other:?}"),
    }
}

const MINE: &str = "id: profile.mine\nsummary: Mine\n";

#[test]
fn what_is_shipped_is_right() {
    let catalogue = Catalogue::embedded().unwrap();
    let profiles: Vec<&str> = catalogue.profiles().map(|profile| profile.id.as_str()).collect();
    assert_eq!(profiles, ["profile.compose-e2e", "profile.container", "profile.local"]);
    let extensions: Vec<&str> = catalogue.extensions().map(|extension| extension.id.as_str()).collect();
    assert_eq!(extensions, ["ext.compose-ssh", "ext.container", "ext.local"]);
    assert!(catalogue.extensions().all(|extension| extension.invalid.is_none()));
    assert_eq!(catalogue.hosts().map(|host| host.id.as_str()).collect::<Vec<_>>(), ["local"]);
    let container = catalogue.profile("profile.container").unwrap();
    assert_eq!(container.options["image"], "debian:stable-slim");
    assert_eq!((container.isolation, &container.network), (IsolationLevel::Container, &NetworkNeed::None));
    assert_eq!(container.origin, "built-in");
    assert_eq!(container.workspace.mode, None);
    assert_eq!(
        catalogue.profile(crate::environment::DEFAULT_PROFILE).unwrap().extension.policy,
        Policy::Explicit
    );
}

#[test]
fn files_of_the_users_add_and_replace() {
    let host = "id: local\nsummary: Mine\naddress: local\nextensions: [ext.mine]\n";
    let extension = "\
id: ext.mine
summary: Mine
provider: {plugin: {module: mine, class: Extension, timeout: 60s}}
capabilities: {isolation: [strict], network: [none], workspaces: transfer}
pricing: {model: per-hour, amount: 0.5, currency: EUR}
";
    let files = [
        ("profiles/a.yml", MINE),
        ("hosts/x.yaml", host),
        ("extensions/e.yaml", extension),
        ("hosts/notes", "["),
    ];
    let directory = directory(&files);
    let catalogue = Catalogue::embedded().unwrap().with_directory(directory.path()).unwrap();
    assert_eq!(
        catalogue.profile("profile.mine").unwrap().origin,
        directory.path().join("profiles/a.yml").display().to_string()
    );
    assert_eq!(catalogue.host("local").unwrap().extensions, ["ext.mine"]);
    let provider = &catalogue.extension("ext.mine").unwrap().provider;
    assert!(matches!(provider, Provider::Plugin { module, .. } if module == "mine"));
    assert!(catalogue.profile("profile.local").is_ok());
}

#[test]
fn a_directory_that_is_not_there_adds_nothing() {
    let catalogue = Catalogue::embedded().unwrap().with_directory(Path::new("/nowhere/at/all")).unwrap();
    assert_eq!(catalogue.profiles().count(), 3);
}

#[test]
fn unknown_ids_come_with_the_nearest() {
    let catalogue = Catalogue::embedded().unwrap();
    let similar = |error: Error| match error {
        Error::NotFound { what, similar, .. } => (what, similar.first().cloned()),
        other => panic!("{other:?}"),
    };
    let near = |id: &str| Some(id.to_owned());
    assert_eq!(similar(catalogue.profile("profile.lokal").unwrap_err()), ("profile", near("profile.local")));
    assert_eq!(
        similar(catalogue.extension("ext.contaner").unwrap_err()),
        ("extension", near("ext.container"))
    );
    assert_eq!(similar(catalogue.host("locl").unwrap_err()), ("host", near("local")));
}

#[test]
fn an_id_twice_in_a_layer_names_both_files() {
    let (place, message, _) = complaint(&[("profiles/a.yaml", MINE), ("profiles/b.yaml", MINE)]);
    assert_eq!(place, "b.yaml:1:5");
    assert!(message.starts_with("profile \"profile.mine\" is defined in "), "{message}");
    assert!(message.ends_with("/profiles/a.yaml already"), "{message}");
}

#[test]
fn what_an_entry_refers_to_has_to_be_there() {
    let profile = |rest: &str| format!("{MINE}{rest}");
    let table = [
        (
            "extension: {policy: explicit, id: ext.contaner}\n",
            "p.yaml:3:35",
            "no extension \"ext.contaner\"",
            "ext.container",
        ),
        (
            "extension:\n  among:\n    - ext.local\n    - ext.lcal\n",
            "p.yaml:6:7",
            "no extension \"ext.lcal\"",
            "ext.local",
        ),
        ("placement:\n  prefer: [locla]\n", "p.yaml:4:12", "no host \"locla\"", "local"),
        ("placement:\n  fallback: [locla]\n", "p.yaml:4:14", "no host \"locla\"", "local"),
    ];
    for (text, at, says, near) in table {
        let (place, message, hint) = complaint(&[("profiles/p.yaml", &profile(text))]);
        assert_eq!((place.as_str(), message.as_str()), (at, says));
        assert_eq!(hint, Some(format!("did you mean {near:?}?")));
    }
    let host = "id: far\naddress: ssh://far\nextensions: [ext.lokal]\n";
    let (place, message, hint) = complaint(&[("hosts/h.yaml", host)]);
    assert_eq!((place.as_str(), message.as_str()), ("h.yaml:3:14", "no extension \"ext.lokal\""));
    assert_eq!(hint.as_deref(), Some("did you mean \"ext.local\"?"));
}

#[test]
fn the_shape_of_a_file_is_checked_with_line_column_and_word() {
    let table = [
        (
            format!("{MINE}isolaton: strict\n"),
            "p.yaml:3:1",
            "unknown key \"isolaton\"",
            "did you mean \"isolation\"?",
        ),
        (
            format!("{MINE}isolation: strickt\n"),
            "p.yaml:3:12",
            "unknown value \"strickt\"",
            "did you mean \"strict\"?",
        ),
        (
            format!("{MINE}reachability:\n  prots: [1]\n"),
            "p.yaml:4:3",
            "unknown key \"prots\"",
            "did you mean \"ports\"?",
        ),
    ];
    for (text, at, says, advises) in table {
        let (place, message, hint) = complaint(&[("profiles/p.yaml", &text)]);
        assert_eq!((place.as_str(), message.as_str(), hint.as_deref()), (at, says, Some(advises)), "{text}");
    }
    let provider = "provider: {plugin: {modul: x}}\n";
    let extension = format!("id: ext.x\nsummary: X\n{provider}");
    assert_eq!(complaint(&[("extensions/e.yaml", &extension)]).1, "unknown key \"modul\"");
    assert_eq!(complaint(&[("hosts/h.yaml", "# nothing\n")]).1, "the file is empty");
    let (place, ..) = complaint(&[("profiles/p.yaml", &format!("{MINE}---\n{MINE}"))]);
    assert!(place.starts_with("p.yaml:"), "one document a file: {place}");
}

#[test]
fn an_unusable_extension_is_refused_only_where_it_is_used() {
    let table = [
        ("ext.mine.yaml", "id: ext.mine\nprovider: [\n"),
        ("a.yaml", "{summary: \"x, id: 'ext.mine'}"),
        ("a.yaml", "id: ext.mine\nsummary: Mine\n"),
        ("ext.mine.yaml", ""),
        ("mine.yml", "- no\n"),
    ];
    let bound = format!("{MINE}extension: {{policy: explicit, id: ext.mine}}\n");
    for (name, text) in table {
        let file = format!("extensions/{name}");
        let catalogue = read(&[(&file, text), ("profiles/p.yaml", &bound)]).unwrap();
        assert!(catalogue.extension("ext.local").is_ok(), "{text}");
        let error = catalogue.extension("ext.mine").unwrap_err();
        assert!(matches!(&error, Error::Config { file, .. } if file.ends_with(name)), "{text}: {error:?}");
        assert_eq!(catalogue.extensions().filter(|extension| extension.invalid.is_some()).count(), 1);
    }
}

#[test]
fn an_unusable_file_does_not_leave_the_shipped_extension_in_use() {
    let catalogue = read(&[("extensions/mine.yaml", "id: ext.container\noptions: {engine:\n")]).unwrap();
    assert!(matches!(catalogue.extension("ext.container"), Err(Error::Config { .. })));
}

#[test]
fn where_it_comes_from_cannot_be_claimed() {
    let (_, message, _) = complaint(&[("profiles/p.yaml", &format!("{MINE}origin: built-in\n"))]);
    assert_eq!(message, "unknown key \"origin\"");
}

/// The most memory this process has had, in KiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_alias_bomb_in_a_profile_is_refused_before_it_grows() {
    let mut bomb = format!("{MINE}options:\n  a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..=9 {
        let inner = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("  a{level}: &a{level} [{inner}]\n"));
    }
    let before = peak_memory();
    let (place, ..) = complaint(&[("profiles/bomb.yaml", &bomb)]);
    assert!(place.starts_with("bomb.yaml:"), "{place}");
    assert!(peak_memory() - before < 100 * 1024);
}

#[test]
fn a_file_that_is_none_does_not_hang() {
    let directory = directory(&[("hosts/a.yaml", "")]);
    let fifo = directory.path().join("hosts/b.yaml");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::remove_file(directory.path().join("hosts/a.yaml")).unwrap();
    let error = Catalogue::embedded().unwrap().with_directory(directory.path()).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}
