//! The registry tells other projects what can be asked of this one. What it says has to be so: each row of the index has its file and
//! each file its row, both say the same, the commands that it names are there, and its links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::common::World;

/// The domain that everything here belongs to.
const DOMAIN: &str = "infotech";

/// Prefix of every id. The rest is the short id, which is an alias.
const ID_PREFIX: &str = "capability.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    capabilities: Vec<Row>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    aliases: Vec<String>,
    domain: String,
    owner: String,
    summary: String,
    file: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Capability {
    id: String,
    aliases: Vec<String>,
    domain: String,
    owner: String,
    summary: String,
    inputs: Vec<Field>,
    outputs: Vec<Field>,
    entry_points: Vec<EntryPoint>,
    limits: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    name: String,
    #[serde(default, rename = "required")]
    _required: bool,
    description: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryPoint {
    command: String,
    does: String,
}

/// Everything that is wrong with the registry in `root`, where `has_command` says which commands there are.
fn problems(root: &Path, has_command: &dyn Fn(&str) -> bool) -> Vec<String> {
    let index: Index = match read_yaml(&root.join("indexes/capabilities.yaml")) {
        Ok(index) => index,
        Err(problem) => return vec![problem],
    };
    let mut found = strays(root, &index.capabilities);
    found.extend(duplicate_names(&index.capabilities));
    found.extend(index.capabilities.iter().flat_map(|row| row_problems(root, row, has_command)));
    found
}

fn read_yaml<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_saphyr::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Files that no row names.
fn strays(root: &Path, rows: &[Row]) -> Vec<String> {
    let named: BTreeSet<PathBuf> = rows.iter().map(|row| root.join(&row.file)).collect();
    let files = fs::read_dir(root.join("capabilities")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| !named.contains(file)).map(|file| format!("{}: no row", file.display())).collect()
}

/// Ids and aliases that are given twice.
fn duplicate_names(rows: &[Row]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let names = rows.iter().flat_map(|row| [&row.id].into_iter().chain(&row.aliases));
    names.filter(|name| !seen.insert(*name)).map(|name| format!("{name}: two capabilities")).collect()
}

/// The id has its prefix, and its short form is an alias, in the row and in the file.
fn name_problems(row: &Row, capability: &Capability) -> Vec<String> {
    let Some(short) = row.id.strip_prefix(ID_PREFIX) else {
        return vec![format!("id does not begin with {ID_PREFIX:?}")];
    };
    let missing = (!row.aliases.iter().any(|alias| alias == short)).then(|| format!("no alias {short:?}"));
    let differ = (row.aliases != capability.aliases)
        .then(|| format!("aliases are {:?}, not {:?}", row.aliases, capability.aliases));
    missing.into_iter().chain(differ).collect()
}

fn row_problems(root: &Path, row: &Row, has_command: &dyn Fn(&str) -> bool) -> Vec<String> {
    let file = root.join(&row.file);
    let (capability, body) = match read_capability(&file) {
        Ok(parts) => parts,
        Err(problem) => return vec![problem],
    };
    let mut found = differences(row, &capability);
    found.extend(name_problems(row, &capability));
    found.extend(empty_fields(&capability));
    found.extend(unknown_commands(&capability, has_command));
    found.extend(dead_links(&file, &body));
    found.into_iter().map(|problem| format!("{}: {problem}", row.id)).collect()
}

/// The front matter of a file, and what follows it.
fn read_capability(file: &Path) -> Result<(Capability, String), String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let parts = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    let (front, body) = parts.ok_or_else(|| format!("{}: no front matter", file.display()))?;
    let capability = serde_saphyr::from_str(front).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok((capability, body.to_owned()))
}

/// Where the row, the file's name and the file disagree.
fn differences(row: &Row, capability: &Capability) -> Vec<String> {
    let file = format!("capabilities/{}.md", row.id);
    let pairs = [
        ("file", &row.file, &file),
        ("id", &row.id, &capability.id),
        ("domain", &row.domain, &capability.domain),
        ("owner", &row.owner, &capability.owner),
        ("summary", &row.summary, &capability.summary),
        ("domain", &capability.domain, &DOMAIN.to_owned()),
    ];
    let differ = pairs.into_iter().filter(|(_, one, other)| one != other);
    differ.map(|(what, one, other)| format!("{what} is {one:?}, not {other:?}")).collect()
}

/// Required fields that are there and say nothing.
fn empty_fields(capability: &Capability) -> Vec<String> {
    let fields = |fields: &[Field]| {
        fields.iter().any(|f| blank(&f.name) || blank(&f.description)) || fields.is_empty()
    };
    let points = &capability.entry_points;
    let checks = [
        ("owner", blank(&capability.owner)),
        ("summary", blank(&capability.summary)),
        ("inputs", fields(&capability.inputs)),
        ("outputs", fields(&capability.outputs)),
        ("entry_points", points.is_empty() || points.iter().any(|point| blank(&point.does))),
        ("limits", capability.limits.is_empty() || capability.limits.iter().any(|limit| blank(limit))),
    ];
    checks.into_iter().filter(|(_, empty)| *empty).map(|(what, _)| format!("{what} says nothing")).collect()
}

fn blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn unknown_commands(capability: &Capability, has_command: &dyn Fn(&str) -> bool) -> Vec<String> {
    let known = |point: &&EntryPoint| point.command.strip_prefix("sandbox ").is_some_and(has_command);
    let unknown = capability.entry_points.iter().filter(|point| !known(point));
    unknown.map(|point| format!("there is no command {:?}", point.command)).collect()
}

/// Relative links of the text that lead nowhere.
fn dead_links(file: &Path, body: &str) -> Vec<String> {
    let targets = body.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let paths = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    let there = |target: &str| file.parent().unwrap().join(target.split('#').next().unwrap()).exists();
    paths.filter(|target| !there(target)).map(|target| format!("{target} is not there")).collect()
}

fn has_command(word: &str) -> bool {
    World::new().run(&["help", word]).code == 0
}

fn registry() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../registry")
}

#[test]
fn what_the_registry_says_is_so() {
    let found = problems(&registry(), &has_command);
    assert!(found.is_empty(), "{found:#?}");
    let index: Index = read_yaml(&registry().join("indexes/capabilities.yaml")).unwrap();
    assert!(index.capabilities.iter().any(|row| row.id == "capability.execution.sandbox-provision"));
}

#[test]
fn only_commands_that_there_are_count() {
    assert!(has_command("create"));
    assert!(!has_command("conjure"));
}

/// The one row of a registry that is as it should be.
const ROW: &str = "  - {id: capability.b, aliases: [b], domain: infotech, owner: us, summary: It does., file: capabilities/capability.b.md}\n";

/// A registry of one capability that is as it should be, but for what `change` does to the index and to the file.
fn changed(change: impl Fn(&str) -> String) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    let index = format!("capabilities:\n{ROW}");
    let file = "---\nid: capability.b\naliases: [b]\ndomain: infotech\nowner: us\nsummary: It does.\ninputs:\n  - {name: i, description: in}\noutputs:\n  \
                - {name: o, description: out}\nentry_points:\n  - {command: sandbox create, does: makes}\nlimits: [some]\n---\n[itself](capability.b.md)\n";
    for (path, text) in
        [("indexes/capabilities.yaml", index.as_str()), ("capabilities/capability.b.md", file)]
    {
        fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
        fs::write(root.path().join(path), change(text)).unwrap();
    }
    problems(root.path(), &|word| word == "create")
}

#[test]
fn whatever_is_wrong_is_found() {
    assert_eq!(changed(str::to_owned), [""; 0]);
    let wrong = [
        ("domain: infotech", "domain: gardening", "not \"infotech\""),
        ("owner: us\n", "owner: them\n", "owner is \"us\""),
        ("owner: us", "owner: \"\"", "owner says nothing"),
        ("owner: us\n", "", "owner"),
        ("inputs:\n  - {name: i, description: in}", "inputs: []", "inputs says nothing"),
        ("limits: [some]", "limits: [some]\nmore: 1", "more"),
        ("sandbox create", "sandbox conjure", "no command \"sandbox conjure\""),
        ("sandbox create", "rm create", "no command \"rm create\""),
        ("](capability.b.md)", "](c.md)", "c.md is not there"),
        ("file: capabilities/capability.b.md", "file: capabilities/other.md", "no row"),
        ("  - {id: capability.b,", "  - {id: capability.c,", "id is \"capability.c\""),
        ("id: capability.b", "id: b", "id does not begin with \"capability.\""),
        ("aliases: [b]", "aliases: [c]", "no alias \"b\""),
        ("aliases: [b]\n", "aliases: [b, c]\n", "aliases are [\"b\"]"),
        ("aliases: [b]", "aliases: [b, capability.b]", "capability.b: two capabilities"),
        ("capabilities:\n", &format!("capabilities:\n{ROW}"), "capability.b: two capabilities"),
    ];
    for (from, to, problem) in wrong {
        let found = changed(|text| text.replace(from, to));
        assert!(found.iter().any(|line| line.contains(problem)), "{from} → {to}: {found:#?}");
    }
}
