//! `$NAME` and `${NAME…}` in values.
//!
//! What a name stands for is given by the profile and by files of the workspace; the environment of this process is
//! never looked at. Values can hold variables of other values, so what they grow to has a budget.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::Result;
use serde_json::Value;

use crate::at::{At, shown};

/// How much text all variables of a project may come to.
const EXPANDED: usize = 4 << 20;

/// How deep `${A:-${B:-…}}` may go.
const DEPTH: usize = 16;

/// Names and what they stand for, the strongest first.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    layers: Vec<BTreeMap<String, String>>,
    missing: RefCell<BTreeSet<String>>,
    spent: Cell<usize>,
}

impl Variables {
    /// With the values that nothing overrides.
    pub fn new(given: BTreeMap<String, String>) -> Self {
        Self { layers: vec![given], ..Self::default() }
    }

    /// With weaker values below the present ones.
    pub fn with(&self, weaker: BTreeMap<String, String>) -> Self {
        let layers = self.layers.iter().cloned().chain([weaker]).collect();
        Self { layers, missing: RefCell::default(), spent: self.spent.clone() }
    }

    /// What `name` stands for.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.layers.iter().find_map(|layer| layer.get(name)).map(String::as_str)
    }

    /// Names that were asked for and stand for nothing.
    pub fn missing(&self) -> Vec<String> {
        self.missing.borrow().iter().cloned().collect()
    }

    /// Every text in `value` with its variables replaced; keys stay as they are.
    pub fn fill(&self, value: &mut Value, at: &At) -> Result<()> {
        match value {
            Value::String(text) if text.contains('$') => *text = self.expand(text, at)?,
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.fill(item, &at.item(index))?;
                }
            }
            Value::Object(map) => {
                for (key, item) in map {
                    self.fill(item, &at.key(key))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The text of a compose file with its variables replaced.
    pub fn expand(&self, text: &str, at: &At) -> Result<String> {
        let scan = Scan { variables: self, beside: &BTreeMap::new(), lenient: false };
        scan.text(text, 0).map_err(|(what, hint)| at.refuse(what, hint))
    }

    /// The text of an environment file, in which a `$` may stand for itself, and names of the same file count.
    pub fn expand_beside(&self, text: &str, beside: &BTreeMap<String, String>, at: &At) -> Result<String> {
        let scan = Scan { variables: self, beside, lenient: true };
        scan.text(text, 0).map_err(|(what, hint)| at.refuse(what, hint))
    }
}

type Wrong = (String, String);

struct Scan<'a> {
    variables: &'a Variables,
    beside: &'a BTreeMap<String, String>,
    lenient: bool,
}

impl Scan<'_> {
    fn text(&self, text: &str, depth: usize) -> Result<String, Wrong> {
        if depth > DEPTH {
            return Err(("variables are nested too deep".to_owned(), format!("nest at most {DEPTH}")));
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            self.push(&mut out, &rest[..at])?;
            rest = self.variable(&rest[at + 1..], &mut out, depth)?;
        }
        self.push(&mut out, rest)?;
        Ok(out)
    }

    fn push(&self, out: &mut String, piece: &str) -> Result<(), Wrong> {
        let spent = self.variables.spent.get().saturating_add(piece.len());
        if spent > EXPANDED {
            let what = format!("all variables together come to more than {} MiB", EXPANDED >> 20);
            return Err((what, "write the values out".to_owned()));
        }
        self.variables.spent.set(spent);
        out.push_str(piece);
        Ok(())
    }

    /// Reads what follows a `$` and returns what follows that.
    fn variable<'t>(&self, rest: &'t str, out: &mut String, depth: usize) -> Result<&'t str, Wrong> {
        if let Some(rest) = rest.strip_prefix('$') {
            self.push(out, "$")?;
            return Ok(rest);
        }
        if let Some(inner) = rest.strip_prefix('{') {
            let end = closing(inner).ok_or_else(|| wrong(rest))?;
            self.braced(&inner[..end], out, depth)?;
            return Ok(&inner[end + 1..]);
        }
        let name = name_in(rest);
        if name.is_empty() {
            return if self.lenient { self.push(out, "$").map(|()| rest) } else { Err(wrong(rest)) };
        }
        self.push(out, self.value_or_empty(name))?;
        Ok(&rest[name.len()..])
    }

    fn braced(&self, inner: &str, out: &mut String, depth: usize) -> Result<(), Wrong> {
        let name = name_in(inner);
        let rest = &inner[name.len()..];
        if name.is_empty() {
            return Err(wrong(&format!("{{{inner}}}")));
        }
        if rest.is_empty() {
            return self.push(out, self.value_or_empty(name));
        }
        let (unless_empty, rest) = rest.strip_prefix(':').map_or((false, rest), |rest| (true, rest));
        let value = self.get(name).filter(|value| !(unless_empty && value.is_empty()));
        let mut operator = rest.chars();
        match (operator.next(), value) {
            (Some('-' | '?'), Some(value)) => self.push(out, value),
            (Some('-'), None) | (Some('+'), Some(_)) => {
                let word = self.text(operator.as_str(), depth + 1)?;
                out.push_str(&word);
                Ok(())
            }
            (Some('+'), None) => Ok(()),
            (Some('?'), None) => Err(self.demanded(name, operator.as_str(), depth)?),
            _ => Err(wrong(&format!("{{{inner}}}"))),
        }
    }

    fn demanded(&self, name: &str, word: &str, depth: usize) -> Result<Wrong, Wrong> {
        let said = self.text(word, depth + 1)?;
        let said = if said.is_empty() { String::new() } else { format!(": {}", shown(&said)) };
        let hint = format!("set {name} among the profile's variables, or in `.env` beside the file");
        Ok((format!("the variable {name} is needed{said}"), hint))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let known = self.variables.get(name).or_else(|| self.beside.get(name).map(String::as_str));
        // Paths are written as `$PWD/…`: here they are relative to the file, wherever that lies.
        known.or_else(|| (name == "PWD").then_some("."))
    }

    fn value_or_empty(&self, name: &str) -> &str {
        self.get(name).unwrap_or_else(|| {
            self.variables.missing.borrow_mut().insert(name.to_owned());
            ""
        })
    }
}

fn wrong(rest: &str) -> Wrong {
    let what = format!("`${}` is not a variable", shown(&rest.chars().take(40).collect::<String>()));
    (what, "write `${NAME}`, or `$$` for a dollar sign".to_owned())
}

/// The name that `text` begins with.
fn name_in(text: &str) -> &str {
    let fits = |(index, letter): (usize, char)| {
        letter == '_' || letter.is_ascii_alphabetic() || (index > 0 && letter.is_ascii_digit())
    };
    let end = text.char_indices().find(|at| !fits(*at)).map_or(text.len(), |(index, _)| index);
    &text[..end]
}

/// Where the brace ends that was opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut open, mut before) = (0_usize, ' ');
    for (index, letter) in text.char_indices() {
        match letter {
            '{' if before == '$' => open += 1,
            '}' if open == 0 => return Some(index),
            '}' => open -= 1,
            _ => {}
        }
        before = letter;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn variables() -> Variables {
        let given = [("A", "a"), ("EMPTY", ""), ("B", "$A")];
        Variables::new(given.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }

    #[test]
    fn every_form_is_known() {
        let table = [
            ("$A-${A}", "a-a"),
            ("$$A $${A}", "$A ${A}"),
            ("${A:-d}${X:-d}${EMPTY:-d}${EMPTY-d}", "add"),
            ("${A:+r}${X:+r}${EMPTY:+r}${EMPTY+r}", "rr"),
            ("${X:-${Y-${A}}}", "a"),
            ("${X:-a:b-c?d}", "a:b-c?d"),
            ("${A:?no}${EMPTY?no}", "a"),
            ("$X$A", "a"),
            // What a variable stands for is not looked into again.
            ("$B", "$A"),
            ("${PWD}/x", "./x"),
            ("é$A→", "éa→"),
        ];
        for (text, expected) in table {
            assert_eq!(variables().expand(text, &At::file("x")).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_told_and_what_is_needed_refused() {
        let variables = variables();
        assert_eq!(variables.expand("$NOT_THERE", &At::file("x")).unwrap(), "");
        assert_eq!(variables.missing(), ["NOT_THERE"]);
        for text in ["${X?say}", "${X:?say}", "${EMPTY:?say}"] {
            let error = variables.expand(text, &At::file("x")).unwrap_err().to_string();
            assert!(error.contains("needed: say"), "{error}");
        }
    }

    #[test]
    fn what_is_not_a_variable_is_refused() {
        for text in ["$", "$1", "${", "${}", "${A", "${A!x}", "${-x}", "${A:x}", "a $ b"] {
            assert!(variables().expand(text, &At::file("x")).is_err(), "{text}");
        }
        let deep = "${X:-".repeat(40) + &"}".repeat(40);
        assert!(variables().expand(&deep, &At::file("x")).is_err());
    }

    #[test]
    fn what_variables_grow_to_is_bounded() {
        let big = Variables::new([("A".to_owned(), "x".repeat(100_000))].into());
        assert!(big.expand(&"$A".repeat(1000), &At::file("x")).is_err());
    }
}
