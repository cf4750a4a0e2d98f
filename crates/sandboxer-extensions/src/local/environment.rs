//! Which variables a command is given.
//!
//! What builds and tools need is on a list, and everything else stays outside: sockets of agents and desktops, proxies, clusters. Of what is on
//! the list, what looks like a secret by its name or its value stays outside too. A variable that the user names is passed on whatever it is.

mod names;
mod secrets;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What a command is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selected {
    /// Its variables, each once.
    pub vars: Vec<(OsString, OsString)>,
    /// The names of those that were left out because they look like secrets: what is on the list, and what is on no list but named like the key
    /// of a service, whose absence a program would complain of.
    pub dropped_secrets: Vec<String>,
}

/// Chooses from `vars`. Each of `named` is the name of a variable to pass on, or `NAME=VALUE` to set one; the last of them counts.
pub fn select(vars: impl Iterator<Item = (OsString, OsString)>, named: &[OsString]) -> Selected {
    let mut selected = Selected::default();
    for (name, value) in vars {
        selected.consider(name, value, named);
    }
    for (name, value) in named.iter().filter_map(|named| assignment(named)) {
        selected.set(name, value);
    }
    selected
}

impl Selected {
    fn consider(&mut self, name: OsString, value: OsString, named: &[OsString]) {
        if named.contains(&name) {
            return self.set(name, value);
        }
        let Some(text) = name.to_str() else { return };
        let needed = names::is_needed(text);
        if needed && !secrets::in_name(text) && !secrets::in_value(value.as_bytes()) {
            return self.set(name, value);
        }
        let given = named.iter().filter_map(|named| assignment(named)).any(|(other, _)| other == name);
        if (needed || secrets::is_key(text)) && !given {
            self.dropped_secrets.push(text.to_owned());
        }
    }

    fn set(&mut self, name: OsString, value: OsString) {
        match self.vars.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.vars.push((name, value)),
        }
    }
}

/// `NAME=VALUE` in its two parts.
fn assignment(named: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = named.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Some((part(&bytes[..equals]), part(&bytes[equals + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(vars: &[(&str, &str)], named: &[&str]) -> Selected {
        let vars = vars.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let named: Vec<OsString> = named.iter().map(OsString::from).collect();
        select(vars, &named)
    }

    fn text(selected: &Selected) -> Vec<String> {
        let line = |(name, value): &(OsString, OsString)| format!("{}={}", name.display(), value.display());
        selected.vars.iter().map(line).collect()
    }

    #[test]
    fn what_is_on_the_list_passes_and_nothing_else() {
        let found = selected(
            &[("PATH", "/bin"), ("SSH_AUTH_SOCK", "/run/agent"), ("RUSTFLAGS", "-g"), ("MY_OWN", "1")],
            &[],
        );
        assert_eq!(text(&found), ["PATH=/bin", "RUSTFLAGS=-g"]);
        assert!(found.dropped_secrets.is_empty(), "what is on no list is not worth a word");
    }

    #[test]
    fn the_key_of_a_service_is_told_of_though_it_is_on_no_list() {
        let found = selected(&[("SOME_API_KEY", "x"), ("SSH_AUTH_SOCK", "/x"), ("XDG_SESSION_ID", "1")], &[]);
        assert!(found.vars.is_empty());
        assert_eq!(found.dropped_secrets, ["SOME_API_KEY"]);
    }

    #[test]
    fn secrets_stay_outside_and_are_told_of() {
        let found = selected(
            &[
                ("CARGO_REGISTRY_TOKEN", "x"),
                ("PIP_INDEX_URL", "https://me:hunter2@pypi.example/simple"),
                ("GIT_AUTHOR_NAME", "Me"),
            ],
            &[],
        );
        assert_eq!(text(&found), ["GIT_AUTHOR_NAME=Me"]);
        assert_eq!(found.dropped_secrets, ["CARGO_REGISTRY_TOKEN", "PIP_INDEX_URL"]);
    }

    #[test]
    fn what_shows_a_server_who_asks_stays_outside() {
        let found = selected(&[("SANDBOXER_TOKEN", "sbxt_a_b"), ("SANDBOXER_SERVER", "unix:/run/s")], &[]);
        assert!(found.vars.is_empty(), "{found:?}");
        assert!(!format!("{found:?}").contains("sbxt_"));
    }

    #[test]
    fn what_the_user_names_passes_whatever_it_is() {
        let vars = [("NPM_TOKEN", "secret"), ("DOCKER_HOST", "unix:///x"), ("HOME", "/home/me")];
        let found = selected(&vars, &["NPM_TOKEN", "DOCKER_HOST", "NOT_SET"]);
        assert_eq!(text(&found), ["NPM_TOKEN=secret", "DOCKER_HOST=unix:///x", "HOME=/home/me"]);
        assert!(found.dropped_secrets.is_empty());
    }

    #[test]
    fn a_value_that_is_given_takes_the_place_of_the_one_outside() {
        let found = selected(
            &[("PATH", "/bin"), ("NPM_TOKEN", "mine")],
            &["PATH=/opt/bin:/bin", "NPM_TOKEN=", "A=b=c", "A=d", "=odd"],
        );
        assert_eq!(text(&found), ["PATH=/opt/bin:/bin", "NPM_TOKEN=", "A=d"]);
        assert!(found.dropped_secrets.is_empty());
    }

    #[test]
    fn a_name_that_is_no_text_passes_only_if_it_is_named() {
        let odd = OsString::from_vec(vec![b'L', b'C', b'_', 0xff]);
        let vars = || [(odd.clone(), OsString::from("x"))].into_iter();
        assert!(select(vars(), &[]).vars.is_empty());
        assert_eq!(select(vars(), std::slice::from_ref(&odd)).vars.len(), 1);
    }
}
