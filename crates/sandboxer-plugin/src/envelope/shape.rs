//! What a role asks of a plugin, and whether what a plugin describes is that.

use std::collections::BTreeMap;

use sandboxer_core::verification::PluginProblem;
use serde::{Deserialize, Serialize};

/// What a plugin can be.
#[derive(Debug)]
pub struct Role {
    /// Its word in the handshake.
    pub name: &'static str,
    /// What it has to be able to do.
    pub methods: &'static [Method],
}

/// One method of a role.
#[derive(Debug)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// What it is called with, in order.
    pub arguments: &'static [&'static str],
    /// How many of the last arguments a plugin may do without.
    pub optional: usize,
    /// Whether a plugin has to have it. One that it has, has to be right in any case.
    pub required: bool,
}

/// A method as a plugin describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// The names of its parameters, in order.
    pub parameters: Vec<String>,
    /// How many of them have to be given.
    pub required: usize,
    /// Whether it takes any number more.
    pub rest: bool,
    /// Why it is no method that can be called, in words that follow its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong: Option<String>,
}

impl Shape {
    /// A shape with exactly these parameters.
    pub fn exactly(parameters: &[&str]) -> Self {
        let names: Vec<String> = parameters.iter().map(|name| (*name).to_owned()).collect();
        Self { required: names.len(), parameters: names, rest: false, wrong: None }
    }

    /// Whether it can be called with so many arguments.
    pub fn takes(&self, arguments: usize) -> bool {
        self.required <= arguments && (self.rest || arguments <= self.parameters.len())
    }
}

impl Role {
    /// Everything that is missing or of the wrong shape.
    pub fn problems(&self, methods: &BTreeMap<String, Shape>) -> Vec<PluginProblem> {
        self.methods.iter().filter_map(|method| method.problem(methods.get(method.name))).collect()
    }
}

impl Method {
    /// One that a plugin has to have, with all its arguments.
    pub const fn new(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { name, arguments, optional: 0, required: true }
    }

    /// One that a plugin may have.
    pub const fn optional(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { name, arguments, optional: 0, required: false }
    }

    fn problem(&self, shape: Option<&Shape>) -> Option<PluginProblem> {
        let method = self.name.to_owned();
        let Some(shape) = shape else {
            return self.required.then_some(PluginProblem::MissingMethod { method });
        };
        if let Some(reason) = shape.wrong.clone() {
            return Some(PluginProblem::UncallableMethod { method, reason });
        }
        let max = self.arguments.len();
        if (max - self.optional..=max).any(|arguments| shape.takes(arguments)) {
            return None;
        }
        let called_with = self.arguments.iter().map(|name| (*name).to_owned()).collect();
        Some(PluginProblem::WrongArguments { method, takes: shape.parameters.clone(), called_with })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: Role = Role {
        name: "test",
        methods: &[
            Method::new("read", &["ref", "path"]),
            Method { optional: 1, ..Method::new("commit", &["ref", "request"]) },
            Method::optional("health", &[]),
        ],
    };

    fn problems(methods: &[(&str, Shape)]) -> Vec<String> {
        let described = methods.iter().map(|(name, shape)| ((*name).to_owned(), shape.clone())).collect();
        ROLE.problems(&described).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_last_arguments_may_be_done_without_where_the_role_says_so() {
        for commit in [&["ref"][..], &["ref", "request"]] {
            let found =
                problems(&[("read", Shape::exactly(&["a", "b"])), ("commit", Shape::exactly(commit))]);
            assert!(found.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn what_nobody_needs_has_to_be_right_where_it_is() {
        let whole = [("read", Shape::exactly(&["a", "b"])), ("commit", Shape::exactly(&["a"]))];
        assert!(problems(&whole).is_empty());
        let [read, commit] = whole;
        let found = problems(&[read, commit, ("health", Shape::exactly(&["of"]))]);
        assert_eq!(found, ["`health` takes (of) where it is called with nothing"]);
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let coroutine = Shape { wrong: Some("is a coroutine".to_owned()), ..Shape::default() };
        assert_eq!(problems(&[("commit", coroutine)]), ["`read` is missing", "`commit` is a coroutine"]);
        let found = problems(&[("read", Shape::exactly(&["ref"])), ("commit", Shape::exactly(&[]))]);
        assert_eq!(
            found,
            [
                "`read` takes (ref) where it is called with (ref, path)",
                "`commit` takes nothing where it is called with (ref, request)"
            ]
        );
    }

    #[test]
    fn defaults_and_variadics_count() {
        let lenient = Shape { required: 1, ..Shape::exactly(&["ref", "path", "encoding"]) };
        let variadic = Shape { required: 0, rest: true, ..Shape::default() };
        assert!(lenient.takes(2) && !lenient.takes(0) && !lenient.takes(4) && variadic.takes(9));
    }
}
