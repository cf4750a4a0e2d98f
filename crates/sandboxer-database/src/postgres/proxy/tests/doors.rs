//! Who is let in, and what is asked of whoever is not in yet.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::super::super::client::Connection;
use super::super::super::held::Defences;
use super::super::super::target::{Host, Target};
use super::super::super::wire;
use super::super::Options;
use super::fixture::Fixture;

fn knock(fixture: &Fixture) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", fixture.proxy.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// It is closed without waiting for more.
fn is_closed(mut stream: TcpStream) -> bool {
    !matches!(stream.read(&mut [0; 100]), Ok(1..))
}

#[test]
fn those_who_do_not_log_in_keep_nobody_out() {
    let options = Options { logins: 3, clients: 1, ..Options::default() };
    let Some(fixture) = Fixture::with("select 1", Defences::default(), options) else { return };
    let mut idle: Vec<_> = (0..20).map(|_| knock(&fixture)).collect();
    let mut client = fixture.connect();
    client.simple_query("select 1").unwrap();
    assert!(fixture.connect_maybe().is_none());
    assert!(is_closed(idle.swap_remove(0)));
    client.simple_query("select 1").unwrap();
}

#[test]
fn logging_in_has_a_deadline_however_slowly_bytes_come() {
    let options = Options { login_timeout: Duration::from_millis(300), ..Options::default() };
    let Some(fixture) = Fixture::with("select 1", Defences::default(), options) else { return };
    let mut slow = knock(&fixture);
    let mut sent = 0;
    // The length says that 10,000 bytes follow.
    while sent < 600 && slow.write_all(if sent == 0 { &[0, 0, 39, 16] } else { &[0] }).is_ok() {
        sent += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(sent < 600);
}

#[test]
fn nothing_long_is_taken_before_the_password() {
    let Some(fixture) = Fixture::new("select 1") else { return };
    let mut long = knock(&fixture);
    long.write_all(&20_000_u32.to_be_bytes()).unwrap();
    assert!(is_closed(long));
}

/// A client that sends what it is told to.
pub fn plain_client(fixture: &Fixture) -> Connection {
    let target = Target {
        host: Host::Tcp("127.0.0.1".to_owned()),
        port: fixture.proxy.port(),
        user: fixture.proxy.user().to_owned(),
        database: fixture.database.clone(),
    };
    Connection::connect(&target, Some(fixture.proxy.password())).unwrap()
}

#[test]
fn function_calls_by_message_are_refused() {
    let Some(fixture) = Fixture::new("select 1") else { return };
    let mut client = plain_client(&fixture);
    let mut message = Vec::new();
    wire::put(&mut message, b'F', |body| body.extend_from_slice(&[0; 12]));
    client.send(&message).unwrap();
    assert_eq!(client.answer().unwrap_err().code(), Some("0A000"));
    assert_eq!(client.query("select 1").unwrap().single(), Some("1"));
}
