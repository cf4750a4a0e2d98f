//! Bytes that nobody in their right mind would send, in a process of their own: panics of its threads are counted.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::proxy::support::{echo, start_within};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sandboxer_extensions::local::network::Bounds;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Starts of requests, so that what is arbitrary gets somewhere.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let starts = prop::sample::select(vec![
        &b""[..],
        b"\x05",
        b"\x05\x01\0\x05\x01\0\x03",
        b"\x05\x01\0\x05\x01\0\x04",
        b"CONNECT ",
        b"CONNECT [",
        b"GET http://",
        b"GET http://a/ HTTP/1.1\r\n",
        b"POST http://127.0.0.1:",
    ]);
    let ends = prop::sample::select(vec![&b""[..], b" HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"\r\n"]);
    let middle = prop::collection::vec(any::<u8>(), 0..60);
    (starts, middle, ends).prop_map(|(start, middle, end)| [start, &middle, end].concat())
}

#[test]
fn no_bytes_upset_the_proxy() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        usual(panic);
    }));
    let server = echo();
    let bounds = Bounds { head: Duration::from_secs(2), ..Bounds::default() };
    let proxy = start_within(&[&server.to_string()], bounds);
    let mut runner = TestRunner::default();
    let all = runner.run(&hostile(), |bytes| {
        let mut stream = proxy.connect();
        // It may hang up at any byte, and does not have to say why.
        let _ = stream.write_all(&bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let _ = stream.read_to_end(&mut Vec::new());
        prop_assert_eq!(PANICS.load(Ordering::SeqCst), 0);
        Ok(())
    });
    all.unwrap();
    proxy.wait_until_empty();
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    drop(proxy.tunnel(server));
}
