//! Which services begin when.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::{Error, Result};

/// Services in steps: whatever one needs is in an earlier step than itself.
pub(super) fn steps<'a>(needs: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Result<Vec<Vec<&'a str>>> {
    let mut left = needs.clone();
    let mut steps = Vec::new();
    while !left.is_empty() {
        let waits = |of: &BTreeSet<&str>| of.iter().any(|other| left.contains_key(other));
        let step: Vec<&str> = left.iter().filter(|(_, of)| !waits(of)).map(|(name, _)| *name).collect();
        if step.is_empty() {
            let names: Vec<&str> = left.into_keys().collect();
            return Err(Error::Refused {
                reason: format!("services wait for each other: {}", names.join(", ")),
                hint: Some("take one of their `depends_on` out of the compose file".to_owned()),
            });
        }
        left.retain(|name, _| !step.contains(name));
        steps.push(step);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn needs<'a>(pairs: &[(&'a str, &[&'a str])]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
        pairs.iter().map(|(name, of)| (*name, of.iter().copied().collect())).collect()
    }

    #[test]
    fn whatever_is_needed_comes_first() {
        let needs =
            needs(&[("web", &["db", "cache"]), ("db", &[]), ("cache", &["db"]), ("alone", &["gone"])]);
        assert_eq!(steps(&needs).unwrap(), [vec!["alone", "db"], vec!["cache"], vec!["web"]]);
    }

    #[test]
    fn a_circle_is_refused_by_name() {
        let error = steps(&needs(&[("a", &["b"]), ("b", &["a"]), ("c", &[])])).unwrap_err();
        assert!(error.to_string().contains("a, b"), "{error}");
    }
}
