//! What goes through a tunnel, and how it ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::support::{echo, pattern, rest, serve, start};

const LARGE: usize = 24 << 20;

#[test]
fn a_large_transfer_arrives_whole_in_both_directions_at_once() {
    let server = echo();
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    let sent = pattern(LARGE, 7);
    let mut writer = stream.try_clone().unwrap();
    let to_send = sent.clone();
    let sending = thread::spawn(move || {
        writer.write_all(&to_send).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    sending.join().unwrap();
    assert!(received == sent, "{} bytes of {LARGE}, or others", received.len());
    proxy.wait_until_empty();
}

#[test]
fn a_reader_that_is_slow_gets_everything() {
    let body = pattern(LARGE, 8);
    let expected = body.clone();
    let server = serve(move |mut stream| stream.write_all(&body).unwrap());
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    // Long enough for every buffer on the way to be full.
    thread::sleep(Duration::from_millis(100));
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == expected, "{} bytes of {LARGE}, or others", received.len());
}

#[test]
fn one_half_can_be_closed_and_the_other_goes_on() {
    let server = serve(|mut stream| {
        let heard = rest(&mut stream);
        thread::sleep(Duration::from_millis(20));
        write!(stream, "heard {heard}").unwrap();
    });
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    stream.write_all(b"you").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), "heard you");
    proxy.wait_until_empty();
}

#[test]
fn the_server_can_close_its_half_first() {
    let (tell, told) = mpsc::channel();
    let server = serve(move |mut stream| {
        stream.write_all(b"bye").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        tell.send(rest(&mut stream)).unwrap();
    });
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    assert_eq!(rest(&mut stream), "bye");
    stream.write_all(b"still here").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(told.recv().unwrap(), "still here");
    proxy.wait_until_empty();
}

#[test]
fn a_reset_is_no_end_that_could_be_taken_for_the_real_one() {
    let server = serve(|mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    stream.write_all(b"x").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    proxy.wait_until_empty();
}

#[test]
fn what_a_server_has_sent_arrives_although_somebody_still_talks_to_it() {
    const ALL: usize = 1 << 19;
    let (tell, told) = mpsc::channel();
    let server = serve(move |mut stream| {
        stream.write_all(&pattern(ALL, 9)).unwrap();
        drop(stream);
        tell.send(()).unwrap();
    });
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    told.recv().unwrap();
    // The server has left, and its kernel answers each of these with a reset.
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(20));
        stream.write_all(b"more?").unwrap();
    }
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == pattern(ALL, 9), "{} bytes of {ALL}, or others", received.len());
    drop(stream);
    proxy.wait_until_empty();
}

#[test]
fn a_client_that_vanishes_takes_its_connection_along() {
    let (tell, told) = mpsc::channel();
    let server = serve(move |mut stream| {
        let piece = vec![0; 1 << 16];
        while stream.write_all(&piece).is_ok() {}
        tell.send(()).unwrap();
    });
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
    drop(stream);
    told.recv_timeout(Duration::from_secs(30)).unwrap();
    proxy.wait_until_empty();
}

#[test]
fn a_client_that_has_closed_everything_ends_a_stream_without_end() {
    let (tell, told) = mpsc::channel();
    let server = serve(move |mut stream| {
        // To the server it looks as if only one half was closed, until it sends something.
        assert_eq!(rest(&mut stream), "go");
        while stream.write_all(&[0; 1 << 16]).is_ok() {}
        tell.send(()).unwrap();
    });
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    stream.write_all(b"go").unwrap();
    drop(stream);
    told.recv_timeout(Duration::from_secs(30)).unwrap();
    proxy.wait_until_empty();
}

#[test]
fn a_tunnel_rests_and_goes_on() {
    let server = echo();
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    let turn = |stream: &mut TcpStream| {
        let mut heard = [0; 5];
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
    };
    turn(&mut stream);
    // By then it has given its pipes back.
    thread::sleep(Duration::from_millis(1200));
    turn(&mut stream);
}

#[test]
fn urgent_data_does_not_end_a_tunnel() {
    let server = echo();
    let proxy = start(&[&server.to_string()]);
    let mut stream = proxy.tunnel(server);
    stream.write_all(b"before").unwrap();
    rustix::net::send(&stream, b"!", rustix::net::SendFlags::OOB).unwrap();
    stream.write_all(b"after").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), "beforeafter");
}

#[test]
fn dropping_the_proxy_closes_its_connections_and_its_port() {
    let server = echo();
    let running = start(&[&server.to_string()]);
    let (at, mut stream) = (running.at, running.tunnel(server));
    let mut silent = running.connect();
    drop(running);
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    assert!(!matches!(silent.read(&mut [0]), Ok(1..)));
    assert!(TcpStream::connect(at).is_err());
}
