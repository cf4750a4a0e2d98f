//! What there is before anybody asks for a sandbox: modules, a configuration, resource types.

use std::fs;

use sandboxer_testkit::features::{DocString, Steps, Table};
use sandboxer_testkit::manifest::Manifest;

use super::{Extending, plugins};

pub fn register(steps: &mut Steps<Extending>) {
    steps.given("a directory with these files", a_directory);
    steps.given("a Python module {string} with a class {string} that has all nine methods", a_module);
    steps.given(
        "a Python module {string} with a class {string} that keeps text in its state directory",
        a_module,
    );
    steps.given(
        "a Python module {string} with a class {string} that returns dicts and takes no request",
        a_module,
    );
    steps.given("the class {string} has no {string}", lacks);
    steps.given("the class {string} is whole again", is_whole);
    steps.given("{string} of the class {string} is defined as {string}", is_defined);
    steps.given("the class {string} declares {string}", declares);
    steps.given("the class {string} notes the option {string}", notes_option);
    steps.given("{string} of the class {string} kills its process once", kills);
    steps.given("importing the module {string} leaves a trace", leaves_trace);
    steps.given("the configuration says of {string}", configuration_says);
    steps.given("the configuration chooses {string}", configuration_chooses);
    steps.given("the resource type {string} chooses {string}", type_chooses);
    steps.given("a resource type {string} for URLs of {string} with the strategy {string}", a_type);
    steps.given("{string} in the original is {string}", edit_original);
}

fn a_directory(world: &mut Extending, table: Table) {
    fs::create_dir(world.original()).unwrap();
    for row in table.rows() {
        fs::write(world.original().join(&row[0]), &row[1]).unwrap();
    }
    world.before = Manifest::capture(&world.original());
}

fn a_module(world: &mut Extending, module: String, class: String) {
    fs::create_dir_all(world.at("strategies")).unwrap();
    let text = fs::read_to_string(plugins().join(format!("{module}.py"))).unwrap();
    assert!(text.contains(&format!("class {class}:")));
    fs::write(world.module(&module), text).unwrap();
}

/// Adds statements to the end of the module of `Copies`.
fn add(world: &Extending, statements: &str) {
    let module = world.module("company");
    let text = fs::read_to_string(&module).unwrap();
    fs::write(&module, format!("{text}\n\n{statements}\n")).unwrap();
}

fn lacks(world: &mut Extending, class: String, method: String) {
    add(world, &format!("del {class}.{method}"));
}

fn is_whole(world: &mut Extending, class: String) {
    a_module(world, "company".to_owned(), class);
}

fn is_defined(world: &mut Extending, method: String, class: String, definition: String) {
    add(world, &format!("class _Other:\n    {definition}\n\n\n{class}.{method} = vars(_Other)[{method:?}]"));
}

fn declares(world: &mut Extending, class: String, capabilities: String) {
    add(world, &format!("{class}.capabilities = {capabilities}"));
}

fn notes_option(world: &mut Extending, class: String, option: String) {
    let note = format!("open('noted', 'a').write(f'{option} is {{{option}}}')");
    add(world, &format!("def _init(self, {option}):\n    {note}\n\n\n{class}.__init__ = _init"));
}

fn kills(world: &mut Extending, method: String, class: String) {
    let lines = [
        format!("_whole = {class}.{method}"),
        "def _once(self, ref):".to_owned(),
        "    if not os.path.exists('killed'):".to_owned(),
        "        open('killed', 'w').close()".to_owned(),
        "        os._exit(3)".to_owned(),
        "    return _whole(self, ref)".to_owned(),
        format!("{class}.{method} = _once"),
    ];
    add(world, &lines.join("\n"));
}

fn leaves_trace(world: &mut Extending, module: String) {
    assert_eq!(module, "company");
    add(world, &format!("open({:?}, 'w').close()", world.at("trace")));
}

fn configuration_says(world: &mut Extending, name: String, entry: DocString) {
    world.entries.insert(name, entry.0.trim().to_owned());
    world.manager = None;
}

fn configuration_chooses(world: &mut Extending, name: String) {
    world.chosen = Some(name);
    world.manager = None;
}

fn type_chooses(world: &mut Extending, type_name: String, strategy: String) {
    let text = sandboxer_testkit::faults::workspace_root().join(format!("resource-types/{type_name}.yaml"));
    let text = fs::read_to_string(text).unwrap();
    add_type(world, &type_name, &format!("{text}\nsandbox_strategy: {strategy}\n"));
}

fn a_type(world: &mut Extending, type_name: String, scheme: String, strategy: String) {
    let text = format!(
        "name: {type_name}\nsummary: Pages of text\nhandler: generic\ndetect: {{kind: url, schemes: [{scheme}]}}\n\
         default_strategy: {strategy}\nstrategies: [{strategy}]\n"
    );
    add_type(world, &type_name, &text);
}

fn add_type(world: &mut Extending, type_name: &str, text: &str) {
    let file = world.at(&format!("{type_name}.yaml"));
    fs::write(&file, text).unwrap();
    world.types.push(file);
    world.manager = None;
}

fn edit_original(world: &mut Extending, path: String, content: String) {
    fs::write(world.original().join(path), content).unwrap();
}
