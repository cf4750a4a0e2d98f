//! The environment of a contained command: what of ours it is given, and what it is told of where it is.

use std::ffi::OsString;
use std::path::Path;

use sandboxer_core::config::RunSettings;
use sandboxer_core::service::Sandbox;
use sandboxer_extensions::local::environment::{Selected, select};
use sandboxer_extensions::local::{Network, network};

/// Where a command is.
pub struct Surroundings<'a> {
    /// The sandbox.
    pub sandbox: &'a Sandbox,
    /// Where the workspace is seen.
    pub workspace: &'a Path,
    /// Where the command works.
    pub directory: &'a Path,
    /// What it reaches.
    pub network: &'a Network,
}

/// The variables of a command, and the names of those that look like secrets and were left out. Each of `typed` is passed on or set, whatever it is.
pub fn environment(around: &Surroundings, run: &RunSettings, typed: &[OsString]) -> Selected {
    let named: Vec<OsString> = run.env.iter().map(OsString::from).chain(typed.iter().cloned()).collect();
    let mut selected = select(std::env::vars_os(), &named);
    if let Network::Allow(hosts) = around.network {
        for (name, value) in proxies(hosts) {
            // Somebody who names a proxy means that one.
            if !selected.vars.iter().any(|(known, _)| known == name) {
                selected.vars.push((name.into(), value.into()));
            }
        }
    }
    for (name, value) in places(around) {
        selected.vars.retain(|(known, _)| known != name);
        selected.vars.push((name.into(), value));
    }
    selected
}

fn places(around: &Surroundings) -> [(&'static str, OsString); 4] {
    [
        ("SANDBOX_ID", around.sandbox.id.as_str().into()),
        ("SANDBOX_NAME", around.sandbox.name.as_str().into()),
        ("SANDBOX_PATH", around.workspace.into()),
        ("PWD", around.directory.into()),
    ]
}

/// Programs do not agree on the case. What is on the sandbox's own loopback needs no proxy, unless the host's is meant.
fn proxies(hosts: &[String]) -> Vec<(&'static str, String)> {
    let (http, socks) =
        (format!("http://127.0.0.1:{}", network::PORT), format!("socks5h://127.0.0.1:{}", network::PORT));
    let is_meant = |own: &&str| hosts.iter().any(|host| host.contains(own));
    let own: Vec<&str> = ["localhost", "127.0.0.1", "::1"].into_iter().filter(|own| !is_meant(own)).collect();
    let none = own.join(",");
    vec![
        ("HTTP_PROXY", http.clone()),
        ("http_proxy", http.clone()),
        ("HTTPS_PROXY", http.clone()),
        ("https_proxy", http),
        ("ALL_PROXY", socks.clone()),
        ("all_proxy", socks),
        ("NO_PROXY", none.clone()),
        ("no_proxy", none),
    ]
}
