//! The units in `contrib/systemd`: what systemd thinks of them, and a server on a socket that was handed over.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{self, World};

fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd")
}

#[test]
fn systemd_takes_the_units() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["sandboxer.socket", "sandboxer.service"] {
        let unit = fs::read_to_string(contrib().join(name)).unwrap();
        // Where it will be installed there is nothing yet.
        fs::write(directory.path().join(name), unit.replace("/usr/local/bin/sandbox", common::SANDBOX))
            .unwrap();
    }
    let mut verify = Command::new("systemd-analyze");
    verify
        .arg("verify")
        .args(["sandboxer.service", "sandboxer.socket"].map(|name| directory.path().join(name)));
    let Ok(output) = verify.output() else { return sandboxer_testkit::skip("systemd-analyze is not there") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn keepers_outlive_a_restart() {
    let service = fs::read_to_string(contrib().join("sandboxer.service")).unwrap();
    assert!(service.lines().any(|line| line == "KillMode=process"));
}

/// Does what systemd does: the socket is descriptor 3, and the variables say for whom.
const HAND_OVER: &str = "
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
if listener.fileno() != 3:
    os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')
os.execv(sys.argv[2], sys.argv[2:])
";

#[test]
fn a_socket_that_is_handed_over_is_listened_on() {
    let world = World::new();
    let socket = world.path("handed.sock");
    let mut python = Command::new("python3");
    world.furnish(&mut python);
    python.args(["-c", HAND_OVER]).arg(&socket).args([common::SANDBOX, "serve"]).stderr(Stdio::null());
    let Ok(mut server) = python.spawn() else { return sandboxer_testkit::skip("python3 is not there") };
    let answer = health(&socket);
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM)
        .unwrap();
    assert!(server.wait().unwrap().success());
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(!world.path("home/serve.sock").exists(), "nothing else is listened on");
    assert!(socket.exists(), "what was handed over is not the server's to remove");
}

#[test]
fn what_was_handed_to_another_process_is_not_taken() {
    let world = World::new();
    let _other = UnixListener::bind(world.path("other.sock")).unwrap();
    let mut command = world.command(&["serve"]);
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "1").stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let answer = health(&world.path("home/serve.sock"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM)
        .unwrap();
    assert!(server.wait().unwrap().success());
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

/// Asks until somebody answers.
fn health(socket: &Path) -> String {
    for _ in 0..600 {
        if let Ok(mut stream) = UnixStream::connect(socket) {
            stream
                .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            return answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("nobody listens on {}", socket.display());
}
