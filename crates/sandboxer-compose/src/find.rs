//! Which file of a workspace describes its stack.

use std::path::Path;

use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use crate::files::{Files, Kind};

/// Directories and names, in the order in which they are looked for.
const PLACES: [&str; 8] = [
    "e2e/docker-compose.yml",
    "e2e/compose.yaml",
    "e2e/compose.yml",
    "e2e/docker-compose.yaml",
    "docker-compose.yml",
    "compose.yaml",
    "compose.yml",
    "docker-compose.yaml",
];

/// The compose file of the workspace at `root`: in `e2e`, or beside it.
pub fn find(root: &Path) -> Result<RelPath> {
    let files = Files::below(root)?;
    let found = found(&files)?;
    RelPath::parse(found).map_err(Error::from)
}

pub(crate) fn found(files: &Files) -> Result<&'static str> {
    for place in PLACES {
        if !matches!(files.kind(place)?, Kind::Missing) {
            return Ok(place);
        }
    }
    let hint = format!("make {}, or name another in the profile: `options.compose_file: PATH`", PLACES[0]);
    Err(Error::Usage { message: "the workspace has no compose file".to_owned(), hint: Some(hint) })
}

/// The files that a compose program would read when none is named: what was found, and what overrides it.
pub(crate) fn with_override(files: &Files, found: &str) -> Result<Vec<String>> {
    let mut all = vec![found.to_owned()];
    let stem = found.rsplit_once('.').map_or(found, |(stem, _)| stem);
    for ending in ["yml", "yaml"] {
        let other = format!("{stem}.override.{ending}");
        if !matches!(files.kind(&other)?, Kind::Missing) {
            all.push(other);
            break;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn e2e_comes_before_the_root() {
        let temp = tempfile::tempdir().unwrap();
        let hint = match find(temp.path()).unwrap_err() {
            Error::Usage { hint, .. } => hint.unwrap(),
            other => panic!("{other:?}"),
        };
        assert!(
            hint.contains("e2e/docker-compose.yml") && hint.contains("`options.compose_file: PATH`"),
            "{hint}"
        );
        std::fs::create_dir(temp.path().join("e2e")).unwrap();
        for place in PLACES.iter().rev() {
            std::fs::write(temp.path().join(place), "").unwrap();
            assert_eq!(find(temp.path()).unwrap().to_string(), *place);
        }
    }
}
