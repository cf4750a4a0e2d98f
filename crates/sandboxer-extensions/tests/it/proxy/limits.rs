//! What a proxy bears, and for how long.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandboxer_extensions::local::network::Bounds;

use super::support::{echo, rest, start, start_within};

fn hasty() -> Bounds {
    Bounds { head: Duration::from_secs(2), ..Bounds::default() }
}

#[test]
fn a_head_that_comes_drop_by_drop_meets_its_deadline() {
    let proxy = start_within(&["example.com"], hasty());
    let mut stream = proxy.connect();
    let mut writer = stream.try_clone().unwrap();
    let dripping = thread::spawn(move || {
        let mut drops = 0;
        while drops < 10_000 && writer.write_all(b"G").is_ok() {
            drops += 1;
            thread::sleep(Duration::from_millis(5));
        }
        drops
    });
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    drop(stream);
    proxy.wait_until_empty();
    assert!(dripping.join().unwrap() < 10_000);
}

#[test]
fn silence_meets_the_deadline_too() {
    let proxy = start_within(&[], hasty());
    let mut streams = [proxy.connect(), proxy.connect(), proxy.connect()];
    streams[1].write_all(&[5]).unwrap();
    streams[2].write_all(b"GET ").unwrap();
    for stream in &mut streams {
        let answer = rest(stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    proxy.wait_until_empty();
}

#[test]
fn a_tunnel_has_no_deadline() {
    let server = echo();
    let proxy = start_within(&[&server.to_string()], hasty());
    let mut stream = proxy.tunnel(server);
    // A connection that begins after the tunnel and meets the deadline: the tunnel has outlived it.
    assert_eq!(rest(&mut proxy.connect()), "");
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_head_without_end_is_refused() {
    let proxy = start(&["example.com"]);
    let mut stream = proxy.connect();
    stream.write_all(b"GET http://example.com/ HTTP/1.1\r\n").unwrap();
    // The proxy may hang up on it before all of it is written.
    let _ = stream.write_all("X: y\r\n".repeat(12_000).as_bytes());
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 431");
}

/// Clients, proxy and server are one process here, and need more descriptors than many systems start with.
fn raise_the_limit_of_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

#[test]
fn three_hundred_clients_at_once_are_all_served() {
    raise_the_limit_of_descriptors();
    let server = echo();
    let proxy = start(&[&server.to_string()]);
    thread::scope(|scope| {
        for number in 0..300_u32 {
            let proxy = &proxy;
            scope.spawn(move || {
                let mut stream = proxy.tunnel(server);
                stream.write_all(&number.to_be_bytes()).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).unwrap();
                assert_eq!(heard, number.to_be_bytes());
            });
        }
    });
    assert_eq!(proxy.decisions().len(), 300);
    proxy.wait_until_empty();
}

#[test]
fn clients_beyond_the_limit_wait_for_their_turn() {
    let server = echo();
    let proxy = start_within(&[&server.to_string()], Bounds { connections: 2, ..Bounds::default() });
    let (first, second) = (proxy.tunnel(server), proxy.tunnel(server));
    let mut third = proxy.connect();
    write!(third, "CONNECT {server} HTTP/1.1\r\n\r\n").unwrap();
    third.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(third.read(&mut [0]).is_err());
    assert_eq!(proxy.proxy.connections(), 2);
    drop(first);
    third.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    third.read_exact(&mut [0; 12]).unwrap();
    drop(second);
}
