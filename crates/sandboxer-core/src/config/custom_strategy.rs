//! One entry of `sandbox.custom_strategies`: what it says, and whether that can be meant.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::Value;

use super::duration::parse_ttl;
use super::keys::{absolute, word};
use crate::types::is_type_name;
use crate::{Error, Result};

/// What `module:` starts with where a built-in strategy is registered again.
const BUILTIN: &str = "builtin:";
/// What `module:` starts with where it is a program.
const PROGRAM: &str = "exec:";

/// One entry of `sandbox.custom_strategies`. Its `Debug` leaves the values of `env` out: they may be secrets.
#[derive(Clone, Default, PartialEq)]
pub struct CustomStrategy {
    /// Where it comes from; [`Self::source`] takes it apart.
    pub module: String,
    /// The class within the module, for modules that are not built in.
    pub class: Option<String>,
    /// The Python to run it with, a path or a name; for Python modules.
    pub python: Option<String>,
    /// What its process gets in its environment, on top of the caller's own.
    pub env: BTreeMap<String, String>,
    /// How long a call may take; `None` leaves it to the host.
    pub timeout: Option<Duration>,
    /// The resource types it is for, whatever it says itself; empty leaves that to it.
    pub resource_types: Vec<String>,
    /// Options handed to the strategy.
    pub options: BTreeMap<String, Value>,
    /// Set for an entry of a file that cannot be used. Only a command that uses the strategy fails.
    pub invalid: Option<InvalidEntry>,
}

/// Why an entry cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEntry {
    /// What is wrong with it.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

/// What a custom strategy is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// The built-in strategy of that name.
    Builtin(&'a str),
    /// A class of a Python module.
    Python {
        /// The module's dotted name.
        module: &'a str,
        /// The class in it.
        class: &'a str,
    },
    /// A program.
    Program {
        /// Where it is.
        path: &'a Path,
        /// What to make in it, if it makes several things.
        class: Option<&'a str>,
    },
}

impl CustomStrategy {
    /// What it is made of. An entry that was read from a file has been checked to have all of it; the class of any other is empty
    /// where none was given.
    pub fn source(&self) -> Source<'_> {
        if let Some(name) = self.module.strip_prefix(BUILTIN) {
            return Source::Builtin(name);
        }
        if let Some(path) = self.module.strip_prefix(PROGRAM) {
            return Source::Program { path: Path::new(path), class: self.class.as_deref() };
        }
        let (module, named) = split_class(&self.module);
        Source::Python { module, class: named.or(self.class.as_deref()).unwrap_or_default() }
    }

    /// The built-in strategy that this one is made of, if it is made of one.
    pub fn builtin(&self) -> Option<&str> {
        match self.source() {
            Source::Builtin(name) => Some(name),
            _ => None,
        }
    }

    /// Refuses what cannot be meant, whatever there is on this machine.
    ///
    /// # Errors
    /// A usage error that says what.
    pub fn check(&self) -> Result<()> {
        match self.source() {
            Source::Builtin(name) => {
                word(name)?;
                self.only_for_plugins()
            }
            Source::Program { path, class } => {
                check_program(path)?;
                class.map(word).transpose()?;
                self.only_for_python()
            }
            Source::Python { module, class } => self.check_python(module, class),
        }?;
        self.env.iter().try_for_each(|(name, value)| check_variable(name, value))?;
        self.resource_types.iter().try_for_each(|name| check_type_name(name))
    }

    fn check_python(&self, module: &str, class: &str) -> Result<()> {
        if !module.split('.').all(is_identifier) {
            return Err(no_module(&self.module));
        }
        if class.is_empty() {
            let message = format!("the Python module {module} needs the class to make");
            return Err(Error::Usage { message, hint: Some(format!("`module: {module}:ClassName`")) });
        }
        // A class within a class has the names of both.
        if !class.split('.').all(is_identifier) {
            return Err(Error::usage(format!("{class:?} is not the name of a Python class")));
        }
        if let Some(other) = self.class.as_deref().filter(|other| *other != class) {
            return Err(Error::usage(format!("module says class {class:?}, class says {other:?}")));
        }
        self.python.as_deref().map_or(Ok(()), check_python_program)
    }

    /// A built-in has no process that these could be about.
    fn only_for_plugins(&self) -> Result<()> {
        let given = [
            ("class", self.class.is_some()),
            ("python", self.python.is_some()),
            ("env", !self.env.is_empty()),
            ("timeout", self.timeout.is_some()),
            ("resource_types", !self.resource_types.is_empty()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(Error::usage(format!("{key} is for plugins; {} is none", self.module))),
            None => Ok(()),
        }
    }

    fn only_for_python(&self) -> Result<()> {
        match &self.python {
            Some(_) => Err(Error::usage(format!("python is for Python modules; {} is none", self.module))),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for CustomStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CustomStrategy");
        shown.field("module", &self.module).field("class", &self.class).field("python", &self.python);
        shown.field("env", &self.env.keys()).field("timeout", &self.timeout);
        shown.field("resource_types", &self.resource_types).field("options", &self.options);
        shown.field("invalid", &self.invalid).finish()
    }
}

/// `module:Class` as its two halves.
fn split_class(module: &str) -> (&str, Option<&str>) {
    module.split_once(':').map_or((module, None), |(module, class)| (module, Some(class)))
}

/// As Python has it: a letter or `_`, then digits too.
fn is_identifier(text: &str) -> bool {
    let letter = |c: char| c == '_' || c.is_alphabetic();
    text.starts_with(letter) && text.len() <= 200 && text.chars().all(|c| letter(c) || c.is_numeric())
}

fn no_module(module: &str) -> Error {
    Error::Usage {
        message: format!("{module:?} is not a module"),
        hint: Some(
            "write `builtin:NAME`, `exec:/path/to/program`, or a Python module and class such as `my_pkg.strategies:MyStrategy`"
                .to_owned(),
        ),
    }
}

fn check_program(path: &Path) -> Result<()> {
    let text = path.to_string_lossy();
    match text.contains(char::is_control) || text.ends_with('/') {
        true => Err(Error::usage(format!("{text:?} is not the path of a program"))),
        false => absolute(&text).map(drop),
    }
}

/// A name is looked up when it is run; a path has to be one wherever that is.
fn check_python_program(python: &str) -> Result<()> {
    word(python)?;
    if python.contains('/') { check_program(Path::new(python)) } else { Ok(()) }
}

/// It names a file and a directory, too.
fn check_name(name: &str) -> Result<()> {
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if is_plain && !name.is_empty() && !name.starts_with('.') && name.len() <= 100 {
        return Ok(());
    }
    Err(Error::Usage {
        message: "it is no name for a custom strategy".to_owned(),
        hint: Some("letters, digits, `_`, `-` and `.`, such as team_bucket".to_owned()),
    })
}

/// The value is not for an error to repeat.
fn check_variable(name: &str, value: &str) -> Result<()> {
    if let Some((name, _)) = name.split_once('=') {
        // What follows may be a secret.
        return Err(Error::usage(format!("{name:?} in env is written with `=`: write `{name}: value`")));
    }
    if name.is_empty() || name.contains('\0') {
        return Err(Error::usage(format!("{name:?} in env is not the name of a variable")));
    }
    if value.contains('\0') {
        return Err(Error::usage(format!("the value of {name:?} in env has a NUL in it")));
    }
    Ok(())
}

fn check_type_name(name: &str) -> Result<()> {
    if is_type_name(name) {
        return Ok(());
    }
    Err(Error::usage(format!("{name:?} in resource_types is not the name of a resource type")))
}

/// An entry as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    module: String,
    class: Option<String>,
    python: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, EnvValue>,
    timeout: Option<String>,
    #[serde(default)]
    resource_types: Vec<String>,
    #[serde(default)]
    options: BTreeMap<String, Value>,
}

impl Written {
    /// The entry `name`. One that cannot be used says why, and stops nothing else in the file from being used.
    ///
    /// # Errors
    /// Only what is not about this entry.
    pub(super) fn read(self, name: &str) -> Result<CustomStrategy> {
        let module = self.module.clone();
        match self.checked(name) {
            Err(Error::Usage { message, hint }) => {
                let invalid = Some(InvalidEntry { message, hint });
                Ok(CustomStrategy { module, invalid, ..CustomStrategy::default() })
            }
            other => other,
        }
    }

    fn checked(self, name: &str) -> Result<CustomStrategy> {
        check_name(name)?;
        let strategy = self.into_strategy()?;
        strategy.check()?;
        Ok(strategy)
    }

    fn into_strategy(self) -> Result<CustomStrategy> {
        Ok(CustomStrategy {
            env: self.env.into_iter().map(EnvValue::named).collect::<Result<_>>()?,
            timeout: self.timeout.map(|text| parse_ttl(&text)).transpose()?.map(|time| time.unsigned_abs()),
            module: self.module,
            class: self.class,
            python: self.python,
            resource_types: self.resource_types,
            options: self.options,
            invalid: None,
        })
    }
}

/// A value of `env`; `None` where it is not text. The parser's own error would repeat it, and it may be a secret.
struct EnvValue(Option<String>);

impl EnvValue {
    fn named((name, Self(value)): (String, Self)) -> Result<(String, String)> {
        match value {
            Some(value) => Ok((name, value)),
            None => Err(Error::Usage {
                message: format!("the value of {name:?} in env is not text"),
                hint: Some("put it in quotes".to_owned()),
            }),
        }
    }
}

impl<'de> Deserialize<'de> for EnvValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(EnvValueVisitor)
    }
}

struct EnvValueVisitor;

/// What a scalar that is not text is taken for.
macro_rules! not_text {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E>(self, _: $type) -> std::result::Result<EnvValue, E> {
            Ok(EnvValue(None))
        }
    )*};
}

impl Visitor<'_> for EnvValueVisitor {
    type Value = EnvValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<EnvValue, E> {
        Ok(EnvValue(Some(text.to_owned())))
    }

    fn visit_unit<E>(self) -> std::result::Result<EnvValue, E> {
        Ok(EnvValue(None))
    }

    not_text!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64);
}

#[cfg(test)]
#[path = "custom_strategy_tests.rs"]
mod tests;
