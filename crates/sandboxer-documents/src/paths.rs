//! Paths as JSON has them.

use std::borrow::Cow;

use data_encoding::BASE64;
use sandboxer_core::model::RelPath;
use schemars::JsonSchema;
use serde::Serialize;

/// A path as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PathText {
    /// As text, lossily.
    pub path: String,
    /// Its exact bytes, where the text is lossy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
}

impl PathText {
    /// From bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let exact = std::str::from_utf8(bytes).is_err().then(|| BASE64.encode(bytes));
        Self { path: String::from_utf8_lossy(bytes).into_owned(), path_b64: exact }
    }

    /// From a path inside a workspace.
    pub fn of(path: &RelPath) -> Self {
        Self::new(path.as_bytes())
    }

    /// Its exact bytes.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        let exact = self.path_b64.as_ref().and_then(|text| BASE64.decode(text.as_bytes()).ok());
        exact.map_or(Cow::Borrowed(self.path.as_bytes()), Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_lossless() {
        let text = PathText::new(b"bad\xff");
        assert_eq!(text.path, "bad\u{fffd}");
        assert_eq!(text.path_b64.as_deref(), Some("YmFk/w=="));
        assert_eq!(*text.bytes(), *b"bad\xff");
        assert_eq!(PathText::new("é".as_bytes()).path_b64, None);
    }
}
