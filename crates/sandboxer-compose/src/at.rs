//! Where in which file something stands: every refusal begins with it.

use sandboxer_core::Error;
use sandboxer_core::resolve::nearest;

use crate::policy::Allowance;

/// Longest piece of a stranger's text that is repeated in a message.
const SHOWN: usize = 120;

/// A key of a file, as people write it: `e2e/docker-compose.yml: services.web.privileged`.
#[derive(Clone, Debug)]
pub(crate) struct At {
    file: String,
    key: String,
}

impl At {
    /// The file as a whole.
    pub fn file(file: &str) -> Self {
        Self { file: shown(file), key: String::new() }
    }

    /// A key below this one.
    pub fn key(&self, key: &str) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        Self { file: self.file.clone(), key: format!("{}{dot}{}", self.key, shown(key)) }
    }

    /// An entry of the list that this is.
    pub fn item(&self, index: usize) -> Self {
        Self { file: self.file.clone(), key: format!("{}[{index}]", self.key) }
    }

    /// A refusal that says what is wrong here, and what to do about it.
    pub fn refuse(&self, what: impl AsRef<str>, hint: impl Into<String>) -> Error {
        Error::Refused { reason: self.says(what), hint: Some(hint.into()) }
    }

    /// A refusal of what a host's policy could allow.
    pub fn needs(&self, what: impl AsRef<str>, word: Allowance) -> Error {
        let hint = format!("leave it out, or let the host allow it: `policy.allow: [{word}]`");
        self.refuse(what, hint)
    }

    /// A refusal of a word that is not among the valid ones.
    pub fn unknown(&self, what: &str, word: &str, valid: &[&str]) -> Error {
        let valid: Vec<String> = valid.iter().map(|word| (*word).to_owned()).collect();
        let hint = match nearest(word, valid.iter()).first() {
            Some(near) => format!("did you mean {near:?}?"),
            None if valid.len() > 20 => "leave it out".to_owned(),
            None => format!("valid here: {}", valid.join(", ")),
        };
        self.refuse(format!("{what} {:?} is not known", shown(word)), hint)
    }

    /// A sentence about this place.
    pub fn says(&self, what: impl AsRef<str>) -> String {
        let colon = if self.key.is_empty() { "" } else { ": " };
        format!("{}{colon}{}: {}", self.file, self.key, what.as_ref())
    }
}

/// A stranger's text without control characters, and no longer than a line.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}
