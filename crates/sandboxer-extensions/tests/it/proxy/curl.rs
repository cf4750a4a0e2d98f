//! A client that nobody here wrote.

use std::process::Command;

use sandboxer_testkit::skip;

use super::support::{Running, mirror, start};

/// What curl prints, or `None` where there is no curl.
fn curl(proxy: &Running, scheme: &str, more: &[&str]) -> Option<(bool, String)> {
    let through = format!("{scheme}://{}", proxy.at);
    let mut command = Command::new("curl");
    command.args(["-q", "-sS", "--max-time", "30", "--noproxy", "", "-x", &through]).args(more);
    match command.output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(e) => {
            skip(&format!("curl cannot be started: {e}"));
            None
        }
    }
}

#[test]
fn curl_gets_what_is_allowed_in_every_way_it_knows() {
    let port = mirror().port();
    let proxy = start(&[&format!("localhost:{port}")]);
    let url = format!("http://localhost:{port}/path");
    for (scheme, more) in
        [("http", &["--data", "body"][..]), ("http", &["--proxytunnel"]), ("socks5h", &[]), ("socks5", &[])]
    {
        let Some((worked, text)) = curl(&proxy, scheme, &[more, &[&url]].concat()) else { return };
        assert!(
            worked && text.contains(" /path HTTP/1.1") && text.contains("Host: localhost"),
            "{scheme}: {text}"
        );
        assert!(!text.to_ascii_lowercase().contains("proxy-"), "{text}");
    }
}

#[test]
fn curl_is_told_what_is_refused() {
    let proxy = start(&["example.com"]);
    let Some((worked, text)) = curl(&proxy, "http", &["http://other.example/"]) else { return };
    assert!(worked && text.contains("--allow-host other.example:80"), "{text}");
    let Some((worked, text)) = curl(&proxy, "http", &["https://other.example/"]) else { return };
    assert!(!worked && text.contains("403"), "{text}");
    let Some((worked, text)) = curl(&proxy, "socks5h", &["http://other.example/"]) else { return };
    assert!(!worked && text.contains("(2)"), "{text}");
}
