//! Runs `features/*.feature`: each step is matched with a function, and every scenario gets a new world.
//!
//! A step function takes the world, then one argument for each `{string}` and `{int}` of its expression, then a
//! [`Table`] or a [`DocString`] if the step has one.

mod parser;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::vec;

pub use parser::Scenario;
use parser::{Step, StepKind};

/// Returns the feature files in a directory and its subdirectories, in the order of their paths.
pub fn find_feature_files(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let files_at = |path: PathBuf| if path.is_dir() { find_feature_files(&path) } else { vec![path] };
    let files = paths.into_iter().flat_map(files_at);
    files.filter(|file| file.extension().is_some_and(|extension| extension == "feature")).collect()
}

/// Loads the scenarios of feature files. Panics with file and line if one is not valid.
pub fn load_scenarios(files: &[PathBuf]) -> Vec<Scenario> {
    let parse = |file: &PathBuf| parser::parse(file, &fs::read_to_string(file).unwrap());
    files.iter().flat_map(|file| parse(file).unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// The table below a step.
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// Returns the rows without the header.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.0[1..]
    }
}

/// The text between `"""` below a step.
pub struct DocString(pub String);

/// What a step passes to its function.
pub struct StepArguments {
    values: vec::IntoIter<String>,
    table: Option<Table>,
    doc_string: Option<DocString>,
}

/// A type that a step function can have as a parameter.
pub trait StepArgument: Sized + 'static {
    /// Takes the next argument of this type.
    fn take(arguments: &mut StepArguments) -> Result<Self, String>;
}

impl StepArgument for String {
    fn take(arguments: &mut StepArguments) -> Result<Self, String> {
        arguments
            .values
            .next()
            .ok_or_else(|| "the function has more parameters than the expression".to_owned())
    }
}

impl StepArgument for u64 {
    fn take(arguments: &mut StepArguments) -> Result<Self, String> {
        let value = String::take(arguments)?;
        value.parse().map_err(|error| format!("invalid number {value:?}: {error}"))
    }
}

impl StepArgument for Table {
    fn take(arguments: &mut StepArguments) -> Result<Self, String> {
        arguments.table.take().ok_or_else(|| "the step needs a table".to_owned())
    }
}

impl StepArgument for DocString {
    fn take(arguments: &mut StepArguments) -> Result<Self, String> {
        arguments.doc_string.take().ok_or_else(|| "the step needs a doc string".to_owned())
    }
}

/// A function of the world and up to three arguments. `Arguments` is the tuple of their types.
pub trait StepFunction<W, Arguments>: 'static {
    /// Calls the function, unless an argument is missing or invalid.
    fn call(&self, world: &mut W, arguments: &mut StepArguments) -> Result<(), String>;
}

macro_rules! step_function {
    ($($name:ident: $type:ident),*) => {
        impl<W, F, $($type: StepArgument),*> StepFunction<W, ($($type,)*)> for F
        where
            F: Fn(&mut W, $($type),*) + 'static,
        {
            fn call(&self, world: &mut W, _arguments: &mut StepArguments) -> Result<(), String> {
                $(let $name = $type::take(_arguments)?;)*
                self(world, $($name),*);
                Ok(())
            }
        }
    };
}
step_function!();
step_function!(first: A);
step_function!(first: A, second: B);
step_function!(first: A, second: B, third: C);

type StepCall<W> = Box<dyn Fn(&mut W, &mut StepArguments) -> Result<(), String>>;

struct StepDefinition<W> {
    kind: StepKind,
    expression: &'static str,
    call: StepCall<W>,
}

impl<W> StepDefinition<W> {
    /// Returns the values of the placeholders if the step matches.
    fn capture(&self, step: &Step) -> Option<Vec<String>> {
        let (mut expression, mut text) = (self.expression, &*step.text);
        let mut values = Vec::new();
        while let Some((literal, rest)) = expression.split_once('{') {
            let (placeholder, rest) = rest.split_once('}')?;
            text = text.strip_prefix(literal)?;
            let (value, rest_of_text) = match placeholder {
                "string" => text.strip_prefix('"')?.split_once('"')?,
                _ => text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())),
            };
            values.push(value.to_owned());
            (expression, text) = (rest, rest_of_text);
        }
        (self.kind == step.kind && expression == text).then_some(values)
    }
}

/// The step functions of a suite, by their expressions.
pub struct Steps<W> {
    definitions: Vec<StepDefinition<W>>,
}

impl<W: 'static> Steps<W> {
    /// Makes an empty registry and fills it.
    pub fn new(register: impl FnOnce(&mut Self)) -> Self {
        let mut steps = Self { definitions: Vec::new() };
        register(&mut steps);
        steps
    }

    /// Registers a function for `Given` steps.
    pub fn given<A>(&mut self, expression: &'static str, function: impl StepFunction<W, A>) {
        self.register(StepKind::Given, expression, function);
    }

    /// Registers a function for `When` steps.
    pub fn when<A>(&mut self, expression: &'static str, function: impl StepFunction<W, A>) {
        self.register(StepKind::When, expression, function);
    }

    /// Registers a function for `Then` steps.
    pub fn then<A>(&mut self, expression: &'static str, function: impl StepFunction<W, A>) {
        self.register(StepKind::Then, expression, function);
    }

    fn register<A>(&mut self, kind: StepKind, expression: &'static str, function: impl StepFunction<W, A>) {
        let is_known = |text: &str| text.starts_with("string}") || text.starts_with("int}");
        assert!(expression.split('{').skip(1).all(is_known), "unknown placeholder in {expression:?}");
        let call: StepCall<W> = Box::new(move |world, arguments| function.call(world, arguments));
        self.definitions.push(StepDefinition { kind, expression, call });
    }

    fn run_step(&self, world: &mut W, step: &Step) -> Result<(), String> {
        let matching = self.definitions.iter().filter_map(|found| Some((found, found.capture(step)?)));
        let mut matching: Vec<_> = matching.collect();
        let Some((definition, values)) = matching.pop() else { return Err("undefined step".to_owned()) };
        if let Some((other, _)) = matching.pop() {
            let (one, other) = (definition.expression, other.expression);
            return Err(format!("ambiguous step: {one:?} and {other:?} match"));
        }
        let mut arguments = StepArguments {
            values: values.into_iter(),
            table: (!step.table.is_empty()).then(|| Table(step.table.clone())),
            doc_string: step.doc_string.clone().map(DocString),
        };
        (definition.call)(world, &mut arguments)?;
        match arguments {
            StepArguments { values, table: None, doc_string: None } if values.len() == 0 => Ok(()),
            _ => Err("the step has arguments that its function does not take".to_owned()),
        }
    }

    /// Runs scenarios, and returns the number of steps that ran or a report of every scenario that failed.
    pub fn run(&self, new_world: impl Fn() -> W, scenarios: &[Scenario]) -> Result<usize, String> {
        let results = scenarios.iter().map(|scenario| self.run_scenario(&new_world, scenario));
        let failures: Vec<String> = results.filter_map(Result::err).collect();
        if !failures.is_empty() {
            let (failed, all) = (failures.len(), scenarios.len());
            return Err(format!("{failed} of {all} scenarios failed\n{}", failures.join("\n")));
        }
        let steps = scenarios.iter().map(|scenario| scenario.steps.len()).sum();
        eprintln!("{} scenarios, {steps} steps", scenarios.len());
        Ok(steps)
    }

    fn run_scenario(&self, new_world: impl Fn() -> W, scenario: &Scenario) -> Result<(), String> {
        let Scenario { file, line, name, steps, .. } = scenario;
        let file = file.display();
        eprintln!("{file}:{line}: {name}");
        // If the world cannot be created or dropped, the first or the last step is reported.
        let mut current = &steps[0];
        let run = AssertUnwindSafe(|| {
            let mut world = new_world();
            steps.iter().try_for_each(|step| {
                current = step;
                self.run_step(&mut world, step)
            })
        });
        let result = catch_unwind(run).unwrap_or_else(|panic| Err(panic_message(&*panic).to_owned()));
        let Step { kind, text, line: step_line, .. } = current;
        result.map_err(|error| {
            format!("{file}:{line}: scenario {name:?}\n  {file}:{step_line}: {kind:?} {text}\n    {error}")
        })
    }

    /// Checks that some scenario uses each function.
    pub fn check_usage(&self, scenarios: &[Scenario]) -> Result<(), String> {
        let steps: Vec<&Step> = scenarios.iter().flat_map(|scenario| &scenario.steps).collect();
        let is_unused = |one: &&StepDefinition<W>| !steps.iter().any(|step| one.capture(step).is_some());
        let unused = self.definitions.iter().filter(is_unused);
        let unused: Vec<String> = unused.map(|one| format!("{:?} {}", one.kind, one.expression)).collect();
        if unused.is_empty() { Ok(()) } else { Err(format!("unused steps:\n{}", unused.join("\n"))) }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked")
}
