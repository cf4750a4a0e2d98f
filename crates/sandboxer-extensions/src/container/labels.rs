//! The words that everything of ours carries, and what it is called: enough to find it again by, and nothing else's.
//!
//! A thing is ours where label *and* name say so. Labels alone would not do: an image that somebody makes of a container has the container's
//! labels, and so has whatever is started from that image.

use std::path::Path;

use sandboxer_core::environment::Provision;
use sandboxer_core::model::SandboxId;
use sandboxer_core::{Error, Result};

/// Whose it is.
pub(super) const SANDBOX: &str = "sandboxer.sandbox";
/// Of which state directory, as a digest.
pub(super) const HOME: &str = "sandboxer.home";
/// What it was made with, as a digest.
pub(super) const CONFIGURATION: &str = "sandboxer.configuration";
const PROFILE: &str = "sandboxer.profile";
const CONSUMER: &str = "sandboxer.consumer";
/// Before the words of the caller's.
const OF_CALLER: &str = "sandboxer.label.";
const LONGEST: usize = 1_024;

/// What the container of a sandbox, and its network, is called.
pub(super) fn name_of(sandbox: &SandboxId) -> Result<String> {
    let id = sandbox.as_str();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if id.is_empty() || !id.chars().all(is_word) {
        return Err(Error::usage(format!("{id:?} cannot be part of a container's name")));
    }
    Ok(format!("sandboxer-{id}"))
}

/// The digest that stands for a state directory.
pub(super) fn digest_of_home(home: &Path) -> String {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_path_buf());
    short(blake3::hash(home.as_os_str().as_encoded_bytes()))
}

/// The digest that stands for everything that a container is made with.
pub(super) fn digest_of(arguments: &[String]) -> String {
    let mut hasher = blake3::Hasher::new();
    for argument in arguments {
        hasher.update(&(argument.len() as u64).to_le_bytes()).update(argument.as_bytes());
    }
    short(hasher.finalize())
}

fn short(hash: blake3::Hash) -> String {
    hash.to_hex()[..32].to_owned()
}

/// All labels but the configuration's.
pub(crate) fn labels_of(request: &Provision, home: &str) -> Result<Vec<(String, String)>> {
    let consumer = format!("{}/{}", request.consumer.actor_type, request.consumer.project);
    let ours = [
        (SANDBOX, request.sandbox_id.as_str()),
        (HOME, home),
        (PROFILE, &request.profile_id),
        (CONSUMER, &consumer),
    ];
    let mut labels: Vec<_> = ours.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    for (key, value) in &request.labels {
        labels.push((format!("{OF_CALLER}{}", word(key)?), value.clone()));
    }
    labels.iter().try_for_each(|(key, value)| refuse_odd(key, value))?;
    Ok(labels)
}

/// An engine takes everything before the first `=` for the key.
fn word(key: &str) -> Result<&str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if !key.is_empty() && key.chars().all(fits) {
        return Ok(key);
    }
    Err(Error::usage(format!("the label {key:?} has to be of letters, digits, '.', '-', '_' and '/'")))
}

fn refuse_odd(key: &str, value: &str) -> Result<()> {
    if value.len() <= LONGEST && !value.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::usage(format!(
        "the value of the label {key} has to be of at most {LONGEST} bytes, without control characters"
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::request;
    use super::*;

    #[test]
    fn a_name_is_of_the_id() {
        assert_eq!(name_of(&SandboxId::from_string("sbx_1")).unwrap(), "sandboxer-sbx_1");
        for odd in ["", "a b", "a/b", "ä", "a\n"] {
            name_of(&SandboxId::from_string(odd)).unwrap_err();
        }
    }

    #[test]
    fn digests_tell_apart() {
        let of = |words: &[&str]| digest_of(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        assert_ne!(of(&["a", "b"]), of(&["ab"]));
        assert_ne!(digest_of_home(Path::new("/nowhere/a")), digest_of_home(Path::new("/nowhere/b")));
    }

    #[test]
    fn labels_of_the_caller_cannot_pass_for_ours() {
        let mut request = request("sbx_1");
        request.labels.insert("sandboxer.home".into(), "x,sandboxer.home=y".into());
        let labels = labels_of(&request, "digest").unwrap();
        let homes: Vec<_> = labels.iter().filter(|(key, _)| key == HOME).collect();
        assert_eq!(homes, [&(HOME.to_owned(), "digest".to_owned())]);
        assert!(labels.iter().any(|(key, _)| key == "sandboxer.label.sandboxer.home"));
        assert!(labels.contains(&(CONSUMER.to_owned(), "agt/proj".to_owned())));
    }

    #[test]
    fn odd_labels_are_refused() {
        let long = "x".repeat(LONGEST + 1);
        for (key, value) in [("a=b", "c"), ("", "c"), ("a b", "c"), ("a", "c\nd"), ("a", &long)] {
            let mut request = request("sbx_1");
            request.labels.insert(key.into(), value.into());
            labels_of(&request, "digest").unwrap_err();
        }
    }
}
