//! A document as it came: read for what is in it, and printed without being made anew, so that order and numbers stay.

use std::fmt;

use serde::Serialize;
use serde_json::value::RawValue;

/// The text of a document.
#[derive(Debug)]
pub struct Document(Box<RawValue>);

impl Document {
    /// Reads one.
    pub fn read(text: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(text).map(Self)
    }

    /// One that is put together from parts of others.
    pub fn of(parts: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(parts).map(Self)
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl From<Box<RawValue>> for Document {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw)
    }
}

/// Indented as every document of ours is. What is in it was read before, so brackets match.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Indented { depth: 0, is_open: false, out: f };
        let (mut in_string, mut is_escaped) = (false, false);
        for c in self.text().chars() {
            if in_string {
                in_string = is_escaped || c != '"';
                is_escaped = c == '\\' && !is_escaped;
                text.put(c)?;
            } else {
                in_string = c == '"';
                text.token(c)?;
            }
        }
        Ok(())
    }
}

struct Indented<'a, 'b> {
    depth: usize,
    /// Whether a bracket was opened and nothing is in it yet.
    is_open: bool,
    out: &'a mut fmt::Formatter<'b>,
}

impl Indented<'_, '_> {
    fn token(&mut self, c: char) -> fmt::Result {
        match c {
            ' ' | '\t' | '\n' | '\r' => Ok(()),
            '{' | '[' => {
                self.put(c)?;
                (self.depth, self.is_open) = (self.depth + 1, true);
                Ok(())
            }
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                if !std::mem::take(&mut self.is_open) {
                    self.line()?;
                }
                write!(self.out, "{c}")
            }
            ',' => {
                self.put(c)?;
                self.line()
            }
            ':' => write!(self.out, ": "),
            c => self.put(c),
        }
    }

    fn put(&mut self, c: char) -> fmt::Result {
        if std::mem::take(&mut self.is_open) {
            self.line()?;
        }
        write!(self.out, "{c}")
    }

    fn line(&mut self) -> fmt::Result {
        write!(self.out, "\n{:width$}", "", width = self.depth * 2)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_document_looks_as_if_it_had_been_made_here() {
        for text in [
            r#"{"b":1,"a":[1,{"x":null,"y":[]},{}],"s":"a \" ,{}[]: \\","t":"\\","n":-1.5e3,"u":true}"#,
            "[]",
            "\"x\"",
            "[[[]],[1]]",
        ] {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            let made = serde_json::to_string_pretty(&value).unwrap();
            // The order is what differs: so the text is put in order first.
            let ordered = Document::read(value.to_string().as_bytes()).unwrap();
            assert_eq!(ordered.to_string(), made);
            let again: serde_json::Value =
                serde_json::from_str(&Document::read(text.as_bytes()).unwrap().to_string()).unwrap();
            assert_eq!(again, value);
        }
        let kept = Document::read(br#"{ "b" : 1.0 , "a" : 2 }"#).unwrap();
        assert_eq!(kept.to_string(), "{\n  \"b\": 1.0,\n  \"a\": 2\n}");
        assert!(Document::read(b"<html>").is_err());
    }
}
