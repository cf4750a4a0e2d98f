//! A listener inside a network namespace, and the proxy outside of it.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use sandboxer_extensions::local::network::Bounds;
use sandboxer_testkit::skip;

use super::support::{client, echo, head, rest, start_on};

/// Puts the present thread, and no other, into a network namespace with a loopback device.
fn leave_the_network() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| format!("no network namespace: {errno}"))?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    match up {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("the loopback device cannot be switched on: {other:?}")),
    }
}

#[test]
fn who_has_nothing_but_a_loopback_device_gets_out_through_the_proxy_only() {
    let server = echo();
    let (give, take) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let inside = thread::spawn(move || -> Result<String, String> {
        leave_the_network()?;
        give.send(TcpListener::bind("127.0.0.1:3128").unwrap()).unwrap();
        wait.recv().unwrap();
        assert!(TcpStream::connect(server).is_err());
        let mut stream = client("127.0.0.1:3128".parse::<SocketAddr>().unwrap());
        write!(stream, "CONNECT {server} HTTP/1.1\r\n\r\nhello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = head(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        Ok(rest(&mut stream))
    });
    let running = take.recv().map(|listener| start_on(listener, &[&server.to_string()], Bounds::default()));
    if running.is_ok() {
        go.send(()).unwrap();
    }
    match inside.join().unwrap() {
        Ok(heard) => assert_eq!(heard, "hello"),
        Err(reason) => skip(&reason),
    }
}
