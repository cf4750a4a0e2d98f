//! Workspaces as an engine's `--mount` takes them: one line of comma-separated values, quoted where a path asks for it.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use sandboxer_core::environment::Mount;
use sandboxer_core::{Error, Result};

/// What is the kernel's or the engine's own, with everything below it.
const TAKEN: [&str; 3] = ["/proc", "/sys", "/dev"];

/// One `--mount` for each workspace.
pub(super) fn flags(mounts: &[Mount]) -> Result<Vec<String>> {
    let mut places = BTreeSet::new();
    mounts
        .iter()
        .map(|mount| {
            let at = place(mount)?;
            if !places.insert(at.to_owned()) {
                return Err(refused(mount, "another workspace appears there"));
            }
            let from = text(mount, &mount.from)?;
            if !mount.from.is_absolute() {
                return Err(refused(mount, "it is not at an absolute path"));
            }
            let mut fields = vec!["--mount=type=bind".to_owned(), field("source", from), field("target", at)];
            fields.extend(mount.read_only.then(|| "readonly".to_owned()));
            Ok(fields.join(","))
        })
        .collect()
}

fn place(mount: &Mount) -> Result<&str> {
    let at = text(mount, &mount.at)?;
    let is_plain =
        mount.at.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !mount.at.is_absolute() || !is_plain {
        return Err(refused(mount, "the place is not an absolute path without '..'"));
    }
    if mount.at == Path::new("/") || TAKEN.iter().any(|taken| mount.at.starts_with(taken)) {
        return Err(refused(mount, "nothing can be mounted at /, /proc, /sys or /dev"));
    }
    Ok(at.trim_end_matches('/'))
}

fn text<'m>(mount: &Mount, path: &'m Path) -> Result<&'m str> {
    let text = path.to_str().ok_or_else(|| refused(mount, "its path is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(refused(
            mount,
            "its path has control characters, which an engine's --mount cannot carry",
        ));
    }
    Ok(text)
}

/// `key=value`, in quotes where the value holds a comma or quotes.
fn field(key: &str, value: &str) -> String {
    let plain = format!("{key}={value}");
    if !plain.contains([',', '"']) {
        return plain;
    }
    format!("\"{}\"", plain.replace('"', "\"\""))
}

fn refused(mount: &Mount, reason: &str) -> Error {
    let (from, at) = (mount.from.display(), mount.at.display());
    let message = format!("workspace {} cannot be mounted: {from:?} at {at:?}: {reason}", mount.workspace);
    Error::Usage { message, hint: Some("set another `mount` for this input in the profile".to_owned()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use super::*;

    fn mount(from: &str, at: &str) -> Mount {
        Mount { workspace: "w".into(), from: from.into(), at: at.into(), read_only: false }
    }

    #[test]
    fn paths_are_quoted_where_they_have_to_be() {
        let of = |from: &str| flags(&[mount(from, "/w")]).unwrap().remove(0);
        assert_eq!(of("/a b=c"), "--mount=type=bind,source=/a b=c,target=/w");
        assert_eq!(of("/a,readonly"), "--mount=type=bind,\"source=/a,readonly\",target=/w");
        assert_eq!(of("/a\"b"), "--mount=type=bind,\"source=/a\"\"b\",target=/w");
    }

    #[test]
    fn places_that_are_taken_are_refused() {
        for at in ["/", "//", "/proc", "/proc/1", "/sys/", "/dev/shm", "relative", "/a/../proc", "", "/a\nb"]
        {
            flags(&[mount("/a", at)]).expect_err(at);
        }
        for at in ["/process", "/devel", "/a/proc", "/home/u"] {
            flags(&[mount("/a", at)]).unwrap();
        }
    }

    #[test]
    fn no_two_appear_at_one_place() {
        flags(&[mount("/a", "/w"), mount("/b", "/w/")]).unwrap_err();
        assert_eq!(flags(&[mount("/a", "/w"), mount("/b", "/w/x")]).unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_carried_is_refused() {
        flags(&[mount("a", "/w")]).unwrap_err();
        flags(&[mount("/a\nb", "/w")]).unwrap_err();
        let from = PathBuf::from(OsStr::from_bytes(b"/\xff"));
        flags(&[Mount { from, ..mount("/a", "/w") }]).unwrap_err();
    }
}
