//! Patterns with the meaning that they have for what is copied: `*` stays within a component, `**` crosses, a pattern
//! without a slash matches at any depth, and what matches brings everything below it.

use std::fmt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::{Error, Result};

/// Compiled patterns, which remember how they were written.
#[derive(Clone, Debug)]
pub(super) struct Globs {
    patterns: Vec<String>,
    set: GlobSet,
}

impl Globs {
    pub(super) fn new(patterns: Vec<String>) -> Result<Self> {
        if patterns.is_empty() {
            return Err(bad("there is no pattern".to_owned()));
        }
        let mut set = GlobSetBuilder::new();
        for pattern in &patterns {
            for glob in spelled_out(pattern)? {
                let built = GlobBuilder::new(&glob).literal_separator(true).build();
                set.add(built.map_err(|error| unusable(pattern, &error))?);
            }
        }
        let set = set.build().map_err(|error| unusable(&patterns.join(","), &error))?;
        Ok(Self { patterns, set })
    }

    pub(super) fn matches(&self, path: &Path) -> bool {
        self.set.is_match(path)
    }
}

/// The pattern from the root, and everything below what it matches.
fn spelled_out(pattern: &str) -> Result<[String; 2]> {
    let trimmed = pattern.trim_end_matches('/');
    if trimmed.is_empty() || pattern.contains('\0') {
        return Err(bad(format!("{pattern:?} is not a pattern")));
    }
    if let Some(rest) = pattern.strip_prefix('!') {
        return Err(bad(format!("pattern {pattern:?} does not exclude; write not-paths={rest}")));
    }
    let wide = match trimmed.strip_prefix('/') {
        Some(anchored) => anchored.to_owned(),
        None if trimmed.contains('/') => trimmed.to_owned(),
        None => format!("**/{trimmed}"),
    };
    Ok([format!("{wide}/**"), wide])
}

fn unusable(pattern: &str, error: &globset::Error) -> Error {
    bad(format!("pattern {pattern:?} is not valid: {}", error.kind()))
}

fn bad(message: String) -> Error {
    let hint = "patterns are globs such as `docs`, `*.rs`, `src/**/*.rs` or `/build`";
    Error::Usage { message, hint: Some(hint.to_owned()) }
}

impl PartialEq for Globs {
    fn eq(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }
}

impl fmt::Display for Globs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.patterns.join(","))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Globs::new(vec![pattern.to_owned()]).unwrap().matches(Path::new(path))
    }

    #[test]
    fn patterns_mean_what_they_mean_elsewhere() {
        for (pattern, path) in [
            ("src/**", "src/a/b.rs"),
            ("src/**/*.rs", "src/b.rs"),
            ("*.rs", "a/b/c.rs"),
            ("docs", "docs/a/b"),
            ("docs/", "x/docs/a"),
            ("/build", "build/x"),
            ("src/*.{rs,toml}", "src/a.toml"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("src/**", "src"),
            ("src/**", "lib/src/x"),
            ("src/*.rs", "src/a/b.rs"),
            ("/build", "a/build"),
            ("docs", "docs2/a"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn names_that_are_not_text_are_matched_byte_by_byte() {
        use std::os::unix::ffi::OsStrExt;
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"src/\xff.rs"));
        assert!(Globs::new(vec!["src/**".into()]).unwrap().matches(odd));
        assert!(!Globs::new(vec!["lib/**".into()]).unwrap().matches(odd));
    }

    #[test]
    fn what_is_no_pattern_is_named() {
        for bad in ["", "/", "a[", "!src"] {
            let error = Globs::new(vec![bad.to_owned()]).unwrap_err();
            assert!(error.to_string().contains(bad), "{error}");
            assert!(matches!(error, Error::Usage { hint: Some(_), .. }));
        }
        assert!(Globs::new(Vec::new()).is_err());
    }
}
