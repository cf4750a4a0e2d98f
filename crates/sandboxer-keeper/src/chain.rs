//! An error with all of its sources, as one line.

use std::error::Error;

/// `cannot mount overlay at /x: Invalid argument (os error 22)`.
pub(crate) fn in_words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        words = format!("{words}: {error}");
        source = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_named_once() {
        let source = std::io::Error::other("why");
        assert_eq!(in_words(&sandboxer_core::Error::io("read", "/p", source)), "cannot read /p: why");
    }
}
