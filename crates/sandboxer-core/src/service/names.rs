//! Names of sandboxes, workspaces and checkpoints: what is allowed, and what is made up where none is given.

use std::collections::HashSet;

use crate::model::{PlanId, Resource};
use crate::{Error, Result};

const LONGEST: usize = 100;
const LONGEST_PLAN: usize = 200;
const LONGEST_DERIVED: usize = 64;

/// Accepts `[A-Za-z0-9][A-Za-z0-9._-]*` that does not look like an id.
pub(super) fn check(what: &str, name: &str) -> Result<()> {
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !begins_well || !name.chars().all(is_allowed) || name.len() > LONGEST {
        return Err(Error::Usage {
            message: format!("{name:?} is no name for a {what}"),
            hint: Some(format!(
                "a name begins with a letter or digit and has up to {LONGEST} letters, digits, `.`, `_` and `-`"
            )),
        });
    }
    if looks_like_id(name) {
        return Err(Error::usage(format!("{name:?} is no name for a {what}: it looks like a sandbox id")));
    }
    Ok(())
}

/// A plan's id is the caller's own affair, as long as it can be printed.
pub(super) fn check_plan(plan: &PlanId) -> Result<()> {
    let text = plan.as_str();
    if text.trim().is_empty() || text.len() > LONGEST_PLAN || text.chars().any(char::is_control) {
        return Err(Error::usage(format!("{text:?} is no id for a plan")));
    }
    Ok(())
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn looks_like_id(name: &str) -> bool {
    name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("sbx_"))
}

/// A name after the resource's last path component, made to be one that [`check`] accepts.
pub(super) fn from_resource(resource: &Resource) -> String {
    let last = resource.location.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let plain: String =
        last.chars().map(|c| if is_allowed(c) { c } else { '-' }).take(LONGEST_DERIVED).collect();
    let name = plain.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    match name {
        "" => "sandbox".to_owned(),
        id if looks_like_id(id) => format!("sbx-{}", &id[4..]),
        other => other.to_owned(),
    }
}

/// `stem`, or `stem-2`, … where that is among `taken`.
pub(super) fn free(stem: &str, taken: &HashSet<String>) -> String {
    let numbered = (2_u64..).map(|n| format!("{stem}-{n}"));
    std::iter::once(stem.to_owned()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    #[test]
    fn names_are_plain_words_that_are_no_ids() {
        for good in ["a", "my-proj_2.0", "7"] {
            check("sandbox", good).unwrap();
        }
        let long = "x".repeat(101);
        for bad in ["", "-a", ".a", "a b", "a/b", "a:b", "@last", "é", "sbx_1", "SBX_1", &long] {
            assert!(check("sandbox", bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn a_plan_is_anything_that_prints() {
        for good in ["pln_1", "team/42: fix it"] {
            check_plan(&PlanId::from_string(good)).unwrap();
        }
        for bad in ["", " ", "a\nb", &"x".repeat(201)] {
            assert!(check_plan(&PlanId::from_string(bad)).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn every_directory_gives_a_valid_name() {
        let name = |path: &str| from_resource(&Resource::at_path("fs-directory", Path::new(path)));
        assert_eq!(name("/work/my proj"), "my-proj");
        assert_eq!(name("/"), "sandbox");
        assert_eq!(name("/x/.hidden"), "hidden");
        assert_eq!(name("/x/sbx_abc"), "sbx-abc");
        for path in ["/é", "/x/日本", "/x/--", &format!("/{}", "y".repeat(300))] {
            check("sandbox", &name(path)).unwrap();
        }
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let taken = HashSet::from(["a".to_owned(), "a-2".to_owned()]);
        assert_eq!(free("a", &taken), "a-3");
        assert_eq!(free("b", &taken), "b");
    }
}
