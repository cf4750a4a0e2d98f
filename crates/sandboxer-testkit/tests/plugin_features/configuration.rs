//! What there is before anybody asks for a sandbox: modules, a configuration, resource types.

use std::fs;

use cucumber::gherkin::Step;
use cucumber::given;
use sandboxer_testkit::manifest::Manifest;

use super::{Extending, plugins};

#[given("a directory with these files")]
fn a_directory(world: &mut Extending, step: &Step) {
    fs::create_dir(world.original()).unwrap();
    for row in step.table.as_ref().unwrap().rows.iter().skip(1) {
        fs::write(world.original().join(&row[0]), &row[1]).unwrap();
    }
    world.before = Manifest::capture(&world.original());
}

#[given(expr = "a Python module {string} with a class {string} that has all nine methods")]
#[given(expr = "a Python module {string} with a class {string} that keeps text in its state directory")]
#[given(expr = "a Python module {string} with a class {string} that returns dicts and takes no request")]
fn a_module(world: &mut Extending, module: String, class: String) {
    fs::create_dir_all(world.at("modules")).unwrap();
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

#[given(expr = "the class {string} has no {string}")]
fn lacks(world: &mut Extending, class: String, method: String) {
    add(world, &format!("del {class}.{method}"));
}

#[given(expr = "the class {string} is whole again")]
fn is_whole(world: &mut Extending, class: String) {
    a_module(world, "company".to_owned(), class);
}

#[given(expr = "{string} of the class {string} is defined as {string}")]
fn is_defined(world: &mut Extending, method: String, class: String, definition: String) {
    add(world, &format!("class _Other:\n    {definition}\n\n\n{class}.{method} = vars(_Other)[{method:?}]"));
}

#[given(expr = "the class {string} declares {string}")]
fn declares(world: &mut Extending, class: String, capabilities: String) {
    add(world, &format!("{class}.capabilities = {capabilities}"));
}

#[given(expr = "the class {string} notes the option {string}")]
fn notes_option(world: &mut Extending, class: String, option: String) {
    let note = format!("open('noted', 'a').write(f'{option} is {{{option}}}')");
    add(world, &format!("def _init(self, {option}):\n    {note}\n\n\n{class}.__init__ = _init"));
}

#[given(expr = "{string} of the class {string} kills its process once")]
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

#[given(expr = "importing the module {string} leaves a trace")]
fn leaves_trace(world: &mut Extending, module: String) {
    assert_eq!(module, "company");
    add(world, &format!("open({:?}, 'w').close()", world.at("trace")));
}

#[given(expr = "the configuration says of {string}")]
fn configuration_says(world: &mut Extending, name: String, step: &Step) {
    world.entries.insert(name, step.docstring.as_ref().unwrap().trim().to_owned());
    world.manager = None;
}

#[given(expr = "the configuration chooses {string}")]
fn configuration_chooses(world: &mut Extending, name: String) {
    world.chosen = Some(name);
    world.manager = None;
}

#[given(expr = "the resource type {string} chooses {string}")]
fn type_chooses(world: &mut Extending, type_name: String, strategy: String) {
    let text = sandboxer_testkit::faults::workspace_root().join(format!("resource-types/{type_name}.yaml"));
    let text = fs::read_to_string(text).unwrap();
    add_type(world, &type_name, &format!("{text}\nsandbox_strategy: {strategy}\n"));
}

#[given(expr = "a resource type {string} for URLs of {string} with the strategy {string}")]
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

#[given(expr = "{string} in the original is {string}")]
fn edit_original(world: &mut Extending, path: String, content: String) {
    fs::write(world.original().join(path), content).unwrap();
}
