//! The network of a contained command: none, what was allowed and nothing else, or the host's.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::Ran;
use crate::common::contained::{PYTHON, attempts, everybody, sandbox};
use crate::common::user::User;

/// A server of the host on loopback that answers whatever it is asked with a page, and counts who asked.
struct Server {
    address: String,
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Server {
    fn start(host: &str) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut peer in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 4096];
                let _ = peer.read(&mut request);
                let _ = peer
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\noutside\n");
            }
        });
        Self { address: format!("{host}:{port}"), port, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Asks for a page with what the environment says about proxies.
const FETCH: &str = "
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try: print(urllib.request.urlopen(url, timeout=5).read().decode().strip())
    except urllib.error.HTTPError as e: print('refused', e.code)
    except OSError as e: print('failed')";

fn fetch(user: &User, flags: &[&str], urls: &[&str]) -> Ran {
    let words = [&["run"], flags, &["--", PYTHON, "-c", FETCH], urls].concat();
    Ran::of(sandbox(user, &words).output().unwrap())
}

#[test]
fn there_is_no_network_by_default() {
    for user in everybody() {
        let server = Server::start("127.0.0.2");
        let ran =
            fetch(&user, &["--discard"], &[&format!("http://{}/", server.address), "http://example.com/"]);
        assert_eq!(ran.stdout, "failed\nfailed\n", "{}", ran.stderr);
        assert_eq!(server.asked(), 0);
    }
}

#[test]
fn what_is_allowed_is_reached_and_nothing_else() {
    for user in everybody() {
        let (allowed, other) = (Server::start("127.0.0.2"), Server::start("127.0.0.2"));
        let urls = [
            format!("http://{}/", allowed.address),
            format!("http://{}/", other.address),
            "http://example.com/".to_owned(),
        ];
        let flags = ["--keep", "--name", "net", "--allow-host", &allowed.address];
        let ran = fetch(&user, &flags, &urls.each_ref().map(String::as_str));
        assert_eq!(ran.stdout, "outside\nrefused 403\nrefused 403\n", "{}", ran.stderr);
        assert_eq!((allowed.asked(), other.asked()), (1, 0));
        assert!(
            ran.stderr.contains(&format!("--allow-host {}", other.address))
                || ran.stderr.contains(&other.address),
            "{}",
            ran.stderr
        );
        let events = user.json(&["events", "net"]);
        let decided = |port: u16| {
            let all = events["events"].as_array().unwrap();
            all.iter()
                .find(|event| event["what"]["port"] == port)
                .map(|event| event["what"]["allowed"] == true)
        };
        assert_eq!(
            (decided(allowed.port), decided(other.port), decided(80)),
            (Some(true), Some(false), Some(false)),
            "{events}"
        );
    }
}

#[test]
fn loopback_that_was_named_is_reached_by_its_usual_names() {
    for user in everybody() {
        let server = Server::start("127.0.0.1");
        for name in ["127.0.0.1", "localhost"] {
            let rule = format!("{name}:{}", server.port);
            let ran = fetch(&user, &["--discard", "--allow-host", &rule], &[&format!("http://{rule}/")]);
            assert_eq!(ran.stdout, "outside\n", "{name}: {}", ran.stderr);
        }
    }
}

#[test]
fn every_tongue_of_the_proxy_obeys_the_rules() {
    for user in everybody() {
        if !user.command("curl").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
            return sandboxer_testkit::skip("curl is not there");
        }
        let (allowed, other) = (Server::start("127.0.0.2"), Server::start("127.0.0.2"));
        let mut script = String::new();
        for way in [
            "-x http://127.0.0.1:3128",
            "-p -x http://127.0.0.1:3128",
            "--socks5 127.0.0.1:3128",
            "--socks5-hostname 127.0.0.1:3128",
        ] {
            script += &format!(
                "curl -sf {way} http://{}/ || echo failed; curl -sf {way} http://{}/ || echo failed;",
                allowed.address, other.address
            );
        }
        script += &format!("curl -sf --noproxy '*' http://{}/ || echo no way round", allowed.address);
        let words = ["run", "--discard", "--allow-host", &allowed.address, "--", "sh", "-c", &script];
        let ran = Ran::of(sandbox(&user, &words).output().unwrap());
        assert_eq!(ran.stdout, format!("{}no way round\n", "outside\nfailed\n".repeat(4)), "{}", ran.stderr);
        assert_eq!((allowed.asked(), other.asked()), (4, 0));
    }
}

#[test]
fn private_addresses_need_to_be_named() {
    for user in everybody() {
        let server = Server::start("127.0.0.2");
        let rule = format!("*:{}", server.port);
        let ran =
            fetch(&user, &["--discard", "--allow-host", &rule], &[&format!("http://{}/", server.address)]);
        assert_ne!(
            ran.stdout, "outside\n",
            "a rule for every name reached the loopback device: {}",
            ran.stderr
        );
        assert_eq!(server.asked(), 0);
    }
}

#[test]
fn odd_ways_to_write_an_address_are_no_way_round() {
    for user in everybody() {
        let (allowed, other) = (Server::start("127.0.0.2"), Server::start("127.0.0.3"));
        let code = format!(
            "
def ask(target):
    s = socket.create_connection(('127.0.0.1', 3128), timeout=5)
    s.sendall(b'CONNECT ' + target + b' HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
    return s.recv(100).split(b'\\r\\n')[0].split(b' ')[1]
port = b'{}'
for host in [b'127.0.0.3', b'127.3', b'0x7f000003', b'2130706435', b'0177.0.0.3', b'[::ffff:127.0.0.3]', b'[::ffff:7f00:3]', b'127.0.0.3.',
             b'127.0.0.2@127.0.0.3', b'127.0.0.2%00.127.0.0.3', b'127.0.0.2#127.0.0.3', b'127.0.0.2:{} 127.0.0.3', b'0.0.0.0', b'[::]', b'localhost']:
    attempt(host.decode(), lambda: ask(host + b':' + port))",
            other.port, allowed.port
        );
        let outcome = attempts(&user, &["--allow-host", &allowed.address], &code);
        assert_eq!(other.asked(), 0, "{:?}", outcome.0);
        for (host, answer) in &outcome.0 {
            assert!(!answer.contains("200"), "{host}: {answer}");
        }
    }
}

#[test]
fn the_hosts_network_is_the_hosts() {
    for user in everybody() {
        let server = Server::start("127.0.0.1");
        let ran =
            fetch(&user, &["--discard", "--network", "host"], &[&format!("http://{}/", server.address)]);
        assert_eq!(ran.stdout, "outside\n", "{}", ran.stderr);
        assert!(ran.stderr.contains("the host's network"), "{}", ran.stderr);
    }
}

#[test]
fn the_hosts_network_does_not_bring_its_abstract_sockets() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    for user in everybody() {
        let name = format!("sandboxer-net-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let code = format!("attempt('connect', lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))");
        let outcome = attempts(&user, &["--network", "host"], &code);
        if user.ok(&["doctor"]).contains("no Landlock") {
            sandboxer_testkit::skip("this kernel cannot keep abstract sockets apart");
            continue;
        }
        outcome.refused(1, &["EPERM", "EACCES", "ECONNREFUSED"]);
        drop(listener);
    }
}

#[test]
fn rules_that_cannot_be_read_start_nothing() {
    for user in everybody() {
        for rule in
            ["", "a:b:c", "host:0", "host:99999", "http://host/", "*", "*.*:443", "ho st:1", "[::1:80"]
        {
            let ran = Ran::of(
                sandbox(&user, &["run", "--discard", "--allow-host", rule, "--", "echo", "ran"])
                    .output()
                    .unwrap(),
            );
            assert!(ran.code != 0 || rule == "*", "{rule:?}: {}{}", ran.stdout, ran.stderr);
            assert!(ran.stdout.is_empty() || rule == "*", "{rule:?}: {}", ran.stdout);
        }
    }
}
