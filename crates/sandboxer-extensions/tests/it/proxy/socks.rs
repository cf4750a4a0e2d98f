//! What is asked for in SOCKS5.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use super::support::{Running, closed, echo, rest, start};

const CONNECT: u8 = 1;
const BIND: u8 = 2;
const UDP: u8 = 3;

/// A request with its address in the form of SOCKS: kind and bytes.
fn ask(proxy: &Running, command: u8, address: &[u8], port: u16) -> (TcpStream, u8) {
    let mut stream = proxy.connect();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    stream.read_exact(&mut method).unwrap();
    assert_eq!(method, [5, 0]);
    stream.write_all(&[&[5, command, 0], address, &port.to_be_bytes()].concat()).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!((reply[0], &reply[2..]), (5, &[0, 1, 0, 0, 0, 0, 0, 0][..]));
    (stream, reply[1])
}

fn name(name: &[u8]) -> Vec<u8> {
    [&[3, u8::try_from(name.len()).unwrap()], name].concat()
}

const LOOPBACK: [u8; 5] = [1, 127, 0, 0, 1];

fn works((mut stream, reply): (TcpStream, u8)) {
    assert_eq!(reply, 0);
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), "hello");
}

#[test]
fn all_three_kinds_of_address_are_understood() {
    let port = echo().port();
    let proxy = start(&[&format!("localhost:{port}")]);
    works(ask(&proxy, CONNECT, &LOOPBACK, port));
    works(ask(&proxy, CONNECT, &name(b"localhost"), port));
    works(ask(&proxy, CONNECT, &name(b"127.0.0.1"), port));
    let mapped = [&[4_u8][..], &"::ffff:127.0.0.1".parse::<std::net::Ipv6Addr>().unwrap().octets()].concat();
    works(ask(&proxy, CONNECT, &mapped, port));
    assert!(proxy.decisions().iter().all(|decision| decision.allowed));
}

#[test]
fn what_no_rule_names_is_not_allowed() {
    let port = echo().port();
    let proxy = start(&["example.com:443", "0.0.0.0/1:1"]);
    for address in
        [&LOOPBACK[..], &name(b"localhost"), &name(b"other.example"), &[&[4][..], &[0; 16]].concat()]
    {
        assert_eq!(ask(&proxy, CONNECT, address, port).1, 2, "{address:?}");
    }
    assert_eq!(proxy.decisions().len(), 4);
}

#[test]
fn a_name_that_is_none_is_not_allowed() {
    let port = echo().port();
    let proxy = start(&["0.0.0.0/0:*", "*.com:*"]);
    for host in [
        &b""[..],
        b"2130706433",
        b"0x7f.1",
        b"127.1",
        b"a\0.com",
        b"\xff\xfe",
        b"a b.com",
        b"\x1b[2J",
        &[b'a'; 255],
    ] {
        assert_eq!(ask(&proxy, CONNECT, &name(host), port).1, 2, "{host:?}");
    }
    let decisions = proxy.decisions();
    assert_eq!(decisions.len(), 9);
    assert!(
        decisions
            .iter()
            .all(|decision| !decision.allowed && decision.host.bytes().all(|b| (b' '..=b'~').contains(&b)))
    );
}

#[test]
fn a_host_that_does_not_listen_refuses() {
    let port = closed().port();
    let proxy = start(&["127.0.0.1:*"]);
    assert_eq!(ask(&proxy, CONNECT, &LOOPBACK, port).1, 5);
}

#[test]
fn only_connecting_is_supported() {
    let proxy = start(&["127.0.0.1:*"]);
    assert_eq!(ask(&proxy, BIND, &LOOPBACK, 1).1, 7);
    assert_eq!(ask(&proxy, UDP, &LOOPBACK, 1).1, 7);
    assert_eq!(ask(&proxy, 9, &LOOPBACK, 1).1, 7);
    assert_eq!(ask(&proxy, CONNECT, &[7, 1, 2, 3, 4], 1).1, 8);
    assert_eq!(proxy.decisions(), []);
}

#[test]
fn a_client_that_insists_on_a_password_is_told_that_there_is_none() {
    let proxy = start(&[]);
    let mut stream = proxy.connect();
    stream.write_all(&[5, 1, 2]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [5, 0xff]);
}

#[test]
fn everything_may_come_at_once() {
    let server = echo();
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.connect();
    let request = [&[5, 1, 0, 5, CONNECT, 0][..], &LOOPBACK, &server.port().to_be_bytes(), b"early"].concat();
    stream.write_all(&request).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [&[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"early"].concat());
}
