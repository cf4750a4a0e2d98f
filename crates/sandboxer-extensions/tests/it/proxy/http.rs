//! What is asked for in HTTP.

use std::io::Write;
use std::net::Shutdown;

use super::support::{closed, echo, mirror, rest, start};

#[test]
fn a_named_address_is_tunnelled_to() {
    let server = echo();
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), "hello");
    let decision = proxy.decision();
    assert_eq!((decision.host.as_str(), decision.port), ("127.0.0.1", server.port()));
    assert!(decision.allowed && decision.rule == Some(server.to_string()), "{decision:?}");
    assert_eq!(decision.address, Some(server.ip()));
}

#[test]
fn a_host_without_a_rule_is_refused_with_what_to_type() {
    let proxy = start(&["api.example.com:443", "*.crates.io"]);
    for target in ["example.com:443", "api.example.com:22", "crates.io:443", "api.example.com.evil.test:443"]
    {
        let answer = proxy.ask(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
        assert!(head.lines().next().unwrap().contains(&format!("--allow-host {target}")), "{head}");
        assert!(body.contains(target) && body.contains(&format!("--allow-host {target}")), "{body}");
        assert_eq!((body.lines().count(), body.ends_with('\n')), (1, true));
    }
    assert_eq!(proxy.decisions().iter().filter(|decision| !decision.allowed).count(), 4);
}

#[test]
fn bytes_that_come_right_after_the_request_are_passed_on() {
    let server = echo();
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.connect();
    write!(stream, "CONNECT {server} HTTP/1.1\r\n\r\nearly").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut stream).ends_with("\r\n\r\nearly"));
}

#[test]
fn a_url_is_asked_for_in_the_words_of_its_host() {
    let server = mirror();
    let proxy = start(&[&server.to_string()]);
    let request = format!(
        "POST http://{server}/a?b HTTP/1.1\r\nHost: evil.example\r\nProxy-Connection: keep-alive\r\n\
         Connection: X-Hop\r\nX-Hop: 1\r\nContent-Length: 0\r\nX-Mine: 2\r\n\r\n"
    );
    let answer = proxy.ask(request.as_bytes());
    let expected = format!(
        "POST /a?b HTTP/1.1\r\nHost: {server}\r\nContent-Length: 0\r\nX-Mine: 2\r\nConnection: close\r\n\r\n"
    );
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&expected), "{answer}");
}

#[test]
fn a_url_of_a_host_without_a_rule_is_refused() {
    let proxy = start(&["example.com:443"]);
    let answer = proxy.ask(b"GET http://example.com/ HTTP/1.1\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("--allow-host example.com:80"),
        "{answer}"
    );
}

#[test]
fn a_name_that_leads_to_this_machine_is_refused_unless_the_address_is_named() {
    let server = echo();
    let port = server.port();
    let request = format!("CONNECT LOCALHOST.:{port} HTTP/1.1\r\n\r\n");
    // A machine's own name resolves to loopback as well, but there is no telling what it is. A wildcard does not mean `localhost`.
    let Some(name) = name_of_this_machine() else {
        return sandboxer_testkit::skip("the name of this machine does not resolve to loopback");
    };
    let proxy = start(&[&format!("{name}:*")]);
    let answer = proxy.ask(format!("CONNECT {name}:{port} HTTP/1.1\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("loopback"), "{answer}");
    let decision = proxy.decision();
    assert!(!decision.allowed && decision.address.is_some_and(|a| a.is_loopback()), "{decision:?}");
    assert!(start(&["127.0.0.0/8:*"]).ask(request.as_bytes()).starts_with("HTTP/1.1 403 "));

    let proxy = start(&[&format!("{name}:*"), "127.0.0.0/8:*"]);
    drop(proxy.tunnel(format!("{name}:{port}")));
}

/// A name other than `localhost` that means this machine: from `/etc/hosts`, without anybody having to be asked.
fn name_of_this_machine() -> Option<String> {
    let hosts = std::fs::read_to_string("/etc/hosts").ok()?;
    let local = hosts.lines().filter(|line| line.starts_with("127."));
    let mut names =
        local.flat_map(|line| line.split_whitespace().skip(1).take_while(|word| !word.starts_with('#')));
    names.find(|name| *name != "localhost").map(str::to_owned)
}

#[test]
fn localhost_is_allowed_by_its_name() {
    let server = echo();
    let port = server.port();
    let proxy = start(&[&format!("localhost:{port}")]);
    drop(proxy.tunnel(format!("LocalHost.:{port}")));
    let decision = proxy.decision();
    assert_eq!((decision.host.as_str(), decision.address), ("localhost", Some(server.ip())));
    let answer = proxy.ask(format!("CONNECT 127.0.0.2:{port} HTTP/1.1\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

#[test]
fn addresses_in_odd_spellings_do_not_slip_through() {
    let server = echo();
    let port = server.port();
    // Even where every address is named, and every name below some: what is neither is refused.
    let proxy = start(&["0.0.0.0/0:*", "[::/0]:*", "*.com:*"]);
    for host in [
        "2130706433",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "0x7f000001",
        "127.0.0.01",
        "127.0.0.1%00.com",
        "127.0.0.1@x.com",
    ] {
        let answer = proxy.ask(format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{host}: {answer}");
        let answer = proxy.ask(format!("GET http://{host}:{port}/ HTTP/1.1\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{host}: {answer}");
    }
    assert!(proxy.decisions().iter().all(|decision| !decision.allowed));
}

#[test]
fn an_ipv4_address_in_the_clothes_of_ipv6_is_what_it_is() {
    let server = echo();
    let port = server.port();
    let mapped = format!("CONNECT [::ffff:127.0.0.1]:{port} HTTP/1.1\r\n\r\n");
    let answer = start(&["[2000::/3]:*", "[::ffff:0:0:0/96]:*"]).ask(mapped.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("loopback"), "{answer}");
    drop(start(&[&server.to_string()]).tunnel(format!("[::ffff:7f00:1]:{port}")));
}

#[test]
fn a_host_that_does_not_listen_is_a_bad_gateway() {
    let server = closed();
    let proxy = start(&[&server.to_string()]);
    let answer = proxy.ask(format!("CONNECT {server} HTTP/1.1\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(&server.to_string()), "{answer}");
    let decision = proxy.decision();
    assert!(decision.allowed && decision.reason.contains("no connection"), "{decision:?}");
}

#[test]
fn what_is_no_request_is_refused_and_hung_up_on() {
    let proxy = start(&["example.com"]);
    for request in [
        &b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"[..],
        b"GET http://example.com/ HTTP/1.1\nHost: a\n\n",
        b"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET https://example.com/ HTTP/1.1\r\n\r\n",
        b"GET http://exa mple.com/ HTTP/1.1\r\n\r\n",
        b"CONNECT example.com HTTP/1.1\r\n\r\n",
        b"CONNECT \x1b[2J:443 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\0\x05hello",
        b"\x04\x01\0\x50\x7f\0\0\x01\0",
        b"\0",
    ] {
        let answer = proxy.ask(request);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
        assert!(!answer.contains('\x1b'), "{answer:?}");
    }
    assert!(proxy.decisions().iter().all(|decision| !decision.allowed));
    proxy.wait_until_empty();
}

#[test]
fn an_answer_arrives_although_the_client_is_still_sending() {
    let proxy = start(&[]);
    let mut stream = proxy.connect();
    write!(stream, "POST http://example.com/ HTTP/1.1\r\nContent-Length: 500000\r\n\r\n").unwrap();
    stream.peek(&mut [0]).unwrap();
    // Many clients look at the answer only when they have sent everything, and fail if they cannot.
    for _ in 0..50 {
        stream.write_all(&[b'x'; 10_000]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(rest(&mut stream).starts_with("HTTP/1.1 403 "));
}
