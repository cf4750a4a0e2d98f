//! From files to services: what overrides, what is included, what is extended.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use sandboxer_core::Result;
use serde_json::{Map, Value};

use crate::at::{At, shown};
use crate::dotenv::{self, Format};
use crate::files::{Files, Place, directory_of};
use crate::interpolate::Variables;
use crate::model::{Declared, Definition};
use crate::shape::Shaper;
use crate::{declared, read, yaml};

/// How long a chain of files or services may be.
const DEPTH: usize = 16;

/// How many services there may be.
const MOST: usize = 200;

/// How much text services may take over from others.
const COPIED: usize = 16 << 20;

const SECTIONS: [&str; 4] = ["networks", "volumes", "secrets", "configs"];
const KEYS: [&str; 8] =
    ["version", "name", "include", "services", "networks", "volumes", "secrets", "configs"];

/// What a file says, with variables replaced and every key in its long form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub services: BTreeMap<String, Definition>,
    /// By section, then by name.
    pub declared: BTreeMap<&'static str, BTreeMap<String, Declared>>,
    include: Vec<Value>,
}

/// Follows files of one root.
pub(crate) struct Loader<'a> {
    pub files: &'a Files,
    copied: Cell<usize>,
    pub notes: RefCell<Vec<String>>,
}

/// Files that belong together: where their paths begin, and what their variables stand for.
struct Project<'a> {
    base: String,
    variables: &'a Variables,
    documents: RefCell<BTreeMap<String, Rc<Document>>>,
}

impl<'a> Loader<'a> {
    pub fn new(files: &'a Files) -> Self {
        Self { files, copied: Cell::new(0), notes: RefCell::default() }
    }

    /// The variables of the files in `base`: those given, then its `.env`.
    pub fn variables(
        &self,
        given: &Variables,
        base: &str,
        env_files: &[String],
        at: &At,
    ) -> Result<Variables> {
        let beside = if base.is_empty() { ".env".to_owned() } else { format!("{base}/.env") };
        let usual = matches!(self.files.kind(&beside)?, crate::files::Kind::Missing);
        let files = if !env_files.is_empty() {
            env_files.to_vec()
        } else if usual {
            vec![]
        } else {
            vec![beside]
        };
        let mut entries = BTreeMap::new();
        for file in files {
            let text = self.files.text(&file, at)?;
            entries.extend(dotenv::parse(&text, Format::Usual, given, &At::file(&file))?);
        }
        Ok(given.with(entries))
    }

    /// All that `files` say, each over those before it, with what they include and extend.
    pub fn load(
        &self,
        files: &[String],
        base: &str,
        variables: &Variables,
        above: &[String],
    ) -> Result<Document> {
        let project = Project { base: base.to_owned(), variables, documents: RefCell::default() };
        let mut whole = Document::default();
        for file in files {
            let document = self.document(&project, file, base, above)?;
            whole = overridden(whole, &document);
        }
        let whole = Rc::new(whole);
        let mut done = Document { declared: whole.declared.clone(), ..Document::default() };
        for name in whole.services.keys() {
            let service = self.extended(&project, &whole, name, &mut Vec::new())?;
            done.services.insert(name.clone(), service);
        }
        let mut chain = above.to_vec();
        chain.extend(files.iter().cloned());
        for (index, entry) in whole.include.iter().enumerate() {
            let at = At::file(&files[0]).key("include").item(index);
            let included = self.included(&project, entry, &chain, &at)?;
            joined(&mut done, included, &at)?;
        }
        if done.services.len() > MOST {
            return Err(
                At::file(&files[0]).refuse(format!("there are more than {MOST} services"), "name fewer")
            );
        }
        self.note_missing(variables, files);
        Ok(done)
    }

    fn note_missing(&self, variables: &Variables, files: &[String]) {
        let missing = variables.missing();
        if !missing.is_empty() {
            let note = format!("{}: nothing is known for {}: taken as empty", files[0], missing.join(", "));
            self.notes.borrow_mut().push(note);
        }
    }

    fn document(
        &self,
        project: &Project<'_>,
        file: &str,
        base: &str,
        above: &[String],
    ) -> Result<Rc<Document>> {
        let at = At::file(above.last().map_or(file, String::as_str));
        if let Some(known) = project.documents.borrow().get(file) {
            return Ok(known.clone());
        }
        let text = self.files.text(file, &at)?;
        let document = self.parsed(&text, file, base, project.variables)?;
        let document = Rc::new(document);
        project.documents.borrow_mut().insert(file.to_owned(), document.clone());
        Ok(document)
    }

    fn parsed(&self, text: &str, file: &str, base: &str, variables: &Variables) -> Result<Document> {
        let at = At::file(file);
        let parsed = yaml::parse(text, file)?;
        let whole = read::map(&parsed, &at)?;
        read::known_keys(whole, &KEYS, &at)?;
        let filled = |key: &str| -> Result<Value> {
            let mut value = without_extensions(key, whole.get(key));
            variables.fill(&mut value, &at.key(key))?;
            Ok(value)
        };
        let shaper = Shaper { files: self.files, base };
        let mut document = Document::default();
        for section in SECTIONS {
            let entries = declared::section(&shaper, Some(&filled(section)?), file, &at.key(section))?;
            document.declared.insert(section, entries);
        }
        document.services = services(&shaper, &filled("services")?, file, &at.key("services"))?;
        document.include = match filled("include")? {
            Value::Null => Vec::new(),
            Value::Array(entries) => entries,
            one => vec![one],
        };
        Ok(document)
    }

    /// A service with all that it extends.
    fn extended(
        &self,
        project: &Project<'_>,
        document: &Rc<Document>,
        name: &str,
        chain: &mut Vec<String>,
    ) -> Result<Definition> {
        let Some(own) = document.services.get(name) else { return Ok(Definition::default()) };
        let Some(extends) = own.keys.get("extends") else { return Ok(own.clone()) };
        let at = own.at(name, "extends");
        let link = format!("{}: {name}", own.file);
        if chain.contains(&link) || chain.len() >= DEPTH {
            let what = format!("{} extends itself: {}", shown(name), shown(&chain.join(" → ")));
            return Err(at.refuse(what, "break the circle, or the chain, which may have 16 links"));
        }
        chain.push(link);
        let (base_document, base_name) = self.base_of(project, document, extends, &at)?;
        if !base_document.services.contains_key(&base_name) {
            let names: Vec<&str> = base_document.services.keys().map(String::as_str).collect();
            return Err(at.unknown("the service", &base_name, &names));
        }
        let base = self.extended(project, &base_document, &base_name, chain)?;
        self.pay(&base, &at)?;
        let mut own = own.clone();
        own.keys.remove("extends");
        let mut whole = own.over(&base);
        whole.keys.remove("extends");
        Ok(whole)
    }

    fn pay(&self, base: &Definition, at: &At) -> Result<()> {
        let size: usize = base.keys.values().map(weight).sum();
        let copied = self.copied.get().saturating_add(size);
        self.copied.set(copied);
        if copied > COPIED {
            return Err(at.refuse("services take over too much from each other", "write them out"));
        }
        Ok(())
    }

    fn base_of(
        &self,
        project: &Project<'_>,
        document: &Rc<Document>,
        extends: &Value,
        at: &At,
    ) -> Result<(Rc<Document>, String)> {
        let service = read::text(&extends["service"], at)?;
        let Some(place) = extends.get("file").and_then(Place::from_value) else {
            return Ok((document.clone(), service));
        };
        let file = inside(place, &at.key("file"))?;
        let base = directory_of(&file).to_owned();
        if let Some(known) = project.documents.borrow().get(&file) {
            return Ok((known.clone(), service));
        }
        let text = self.files.text(&file, &at.key("file"))?;
        let document = Rc::new(self.parsed(&text, &file, &base, project.variables)?);
        project.documents.borrow_mut().insert(file, document.clone());
        Ok((document, service))
    }

    /// What an entry of `include` stands for.
    fn included(&self, project: &Project<'_>, entry: &Value, chain: &[String], at: &At) -> Result<Document> {
        let shaped = if entry.is_object() { entry.clone() } else { serde_json::json!({ "path": entry }) };
        let map = read::map(&shaped, at)?;
        read::known_keys(map, &["path", "env_file", "project_directory"], at)?;
        let files = self.paths(project, map, "path", at)?;
        let Some(first) = files.first() else {
            return Err(at.refuse("it names no file", "write `path: FILE`"));
        };
        if let Some(again) = files.iter().find(|file| chain.contains(file)) {
            let what = format!("{} includes itself: {}", shown(again), shown(&chain.join(" → ")));
            return Err(at.refuse(what, "break the circle"));
        }
        if chain.len() >= DEPTH {
            return Err(at.refuse(format!("more than {DEPTH} files include each other"), "put them together"));
        }
        let base = match self.paths(project, map, "project_directory", at)?.pop() {
            Some(directory) => directory,
            None => directory_of(first).to_owned(),
        };
        let env_files = self.paths(project, map, "env_file", at)?;
        let variables = self.variables(project.variables, &base, &env_files, at)?;
        self.load(&files, &base, &variables, chain)
    }

    fn paths(
        &self,
        project: &Project<'_>,
        map: &Map<String, Value>,
        key: &str,
        at: &At,
    ) -> Result<Vec<String>> {
        let Some(value) = map.get(key) else { return Ok(Vec::new()) };
        let at = at.key(key);
        let paths = read::texts(value, &at)?.into_iter();
        paths.map(|path| inside(self.files.locate(&project.base, &path), &at)).collect()
    }
}

/// The path of a place that has to be below the root.
pub(crate) fn inside(place: Place, at: &At) -> Result<String> {
    match place {
        Place::Inside(path) => Ok(path),
        Place::Outside(path) => Err(at.refuse(
            format!("{:?} lies outside of the workspace", shown(&path)),
            "put the file into the workspace, and name it by a relative path",
        )),
    }
}

/// A section without what is for other programs.
fn without_extensions(key: &str, section: Option<&Value>) -> Value {
    let mut value = section.cloned().unwrap_or(Value::Null);
    if let Value::Object(map) = &mut value
        && key != "include"
    {
        map.retain(|name, _| !name.starts_with("x-"));
        for entry in map.values_mut().filter_map(Value::as_object_mut) {
            entry.retain(|name, _| !name.starts_with("x-"));
        }
    }
    value
}

fn services(
    shaper: &Shaper<'_>,
    section: &Value,
    file: &str,
    at: &At,
) -> Result<BTreeMap<String, Definition>> {
    let mut services = BTreeMap::new();
    if section.is_null() {
        return Ok(services);
    }
    for (name, value) in read::map(section, at)? {
        let at = at.key(name);
        if !read::is_name(name) {
            return Err(at.refuse("this is not a name", "use letters, digits, `_`, `.` and `-`"));
        }
        let keys = shaper.service(read::map(value, &at)?, &at)?;
        let origins = keys.keys().map(|key| (key.clone(), file.to_owned())).collect();
        services.insert(name.clone(), Definition { file: file.to_owned(), origins, keys });
    }
    Ok(services)
}

/// One file over another.
fn overridden(weaker: Document, stronger: &Document) -> Document {
    let mut whole = weaker;
    for (name, service) in &stronger.services {
        let merged = whole.services.get(name).map_or_else(|| service.clone(), |weaker| service.over(weaker));
        whole.services.insert(name.clone(), merged);
    }
    for (section, entries) in &stronger.declared {
        let known = whole.declared.entry(section).or_default();
        for (name, entry) in entries {
            let value = known.get(name).map_or_else(
                || entry.value.clone(),
                |weaker| crate::merge::service(&weaker.value, &entry.value),
            );
            known.insert(name.clone(), Declared { file: entry.file.clone(), value });
        }
    }
    whole.include.extend(stronger.include.clone());
    whole
}

/// What is included, beside what is there. Two things by one name are refused: which is meant would be a guess.
fn joined(whole: &mut Document, more: Document, at: &At) -> Result<()> {
    for (name, service) in more.services {
        if whole.services.get(&name).is_some_and(|known| known.keys != service.keys) {
            let what = format!("the service {name:?} of {} is there already", shown(&service.file));
            return Err(at.refuse(what, "rename one of the two, or use `extends`"));
        }
        whole.services.entry(name).or_insert(service);
    }
    for (section, entries) in more.declared {
        let known = whole.declared.entry(section).or_default();
        for (name, entry) in entries {
            if known.get(&name).is_some_and(|known| known.value != entry.value) {
                let what = format!("{section}.{name} of {} is there already", shown(&entry.file));
                return Err(at.refuse(what, "rename one of the two"));
            }
            known.entry(name).or_insert(entry);
        }
    }
    Ok(())
}

/// About how much memory a value takes.
fn weight(value: &Value) -> usize {
    64 + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        _ => 0,
    }
}
