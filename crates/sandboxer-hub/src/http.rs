//! What every client of ours holds to that sends a token: where it may go, and whom it believes.

use std::sync::Arc;

use rustls::crypto::ring;
use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

/// An agent for `url` that goes nowhere else: no proxy of the environment, no redirects. An answer of whatever status is an answer.
pub fn careful(url: &str) -> ConfigBuilder<AgentScope> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(concat!("sandboxer/", env!("CARGO_PKG_VERSION")));
    if url.starts_with("https:") { config.tls_config(tls()) } else { config }
}

/// Whether nobody on the way can read what is sent there.
pub fn keeps_a_secret(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return true };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Trusts whom this machine trusts, so that a company's own certificates work.
fn tls() -> TlsConfig {
    let found = rustls_native_certs::load_native_certs().certs;
    let roots: Vec<_> = found.iter().map(|cert| Certificate::from_der(cert.as_ref()).to_owned()).collect();
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_sent_in_the_clear() {
        for (url, keeps) in [
            ("https://hub.example/e", true),
            ("http://127.0.0.1:8080/e", true),
            ("http://[::1]:8080", true),
            ("http://localhost/e", true),
            ("http://hub.example/e", false),
            ("http://127.0.0.1.example/e", false),
            ("http://localhost.example", false),
        ] {
            assert_eq!(keeps_a_secret(url), keeps, "{url}");
        }
    }
}
