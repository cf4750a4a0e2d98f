//! Processes, sockets, descriptors and variables of the host: a contained command neither sees nor reaches them.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common;
use crate::common::contained::{self, SECRET, attempts, everybody, sandbox, shell, works};
use crate::common::runtimes;
use crate::common::user::{self, User};

/// A process of the host that ends with the test.
struct Host(Child);

impl Host {
    /// A sleeper whose argument nothing else has.
    fn sleeper(user: &User) -> Self {
        Self(user.command("sleep").arg("3599.271").spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn processes_of_the_host_are_neither_seen_nor_signalled() {
    for user in everybody() {
        let mut host = Host::sleeper(&user);
        let pid = host.0.id();
        let seen =
            works(&user, &[], "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; ls -d /proc/[0-9]* | wc -l");
        assert!(!seen.contains("3599.271"), "{seen}");
        let count: u32 = seen.lines().last().unwrap().parse().unwrap();
        assert!(count < 8, "{seen}");
        let code = format!(
            "
for number in [15, 9, 19]:
    attempt('pid %d' % number, lambda: os.kill({pid}, number))
attempt('group', lambda: os.killpg({pid}, 9))
attempt('pidfd', lambda: call('pidfd_open', {pid}, 0))
attempt('status', lambda: text('/proc/{pid}/status'))"
        );
        attempts(&user, &[], &code).refused(6, &["ESRCH", "EPERM", "ENOENT"]);
        shell(&user, &[], "kill -9 -1; true");
        assert!(host.lives(), "a process of the host was ended");
    }
}

#[test]
fn init_is_not_ended_from_inside() {
    for user in everybody() {
        let ran = works(
            &user,
            &[],
            "for s in TERM INT HUP KILL STOP QUIT SEGV; do kill -$s 1; done; sleep 0.05; cat /proc/1/comm",
        );
        assert_eq!(ran, "sandbox-runtime\n");
    }
}

#[test]
fn listeners_of_the_host_are_out_of_reach() {
    for user in everybody() {
        let four = TcpListener::bind("127.0.0.1:0").unwrap();
        let six = TcpListener::bind("[::1]:0").ok();
        let (port, other) = (
            four.local_addr().unwrap().port(),
            six.as_ref().map_or(1, |six| six.local_addr().unwrap().port()),
        );
        let code = format!(
            "
def connect(host, port):
    socket.create_connection((host, port), timeout=2)
attempt('loopback', lambda: connect('127.0.0.1', {port}))
attempt('six', lambda: connect('::1', {other}))
attempt('outside', lambda: connect('192.0.2.1', 80))
attempt('metadata', lambda: connect('169.254.169.254', 80))
attempt('datagram', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53)))
attempt('broadcast', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('255.255.255.255', 9)))"
        );
        let errors = ["ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL", "EACCES"];
        attempts(&user, &[], &code).refused(6, &errors);
        four.set_nonblocking(true).unwrap();
        assert!(four.accept().is_err(), "somebody connected");
        assert_eq!(
            works(&user, &[], "grep -c : /proc/net/dev; cut -d: -f1 /proc/net/dev | grep lo | tr -d ' '"),
            "1\nlo\n"
        );
    }
}

/// A listener that everybody may connect to.
fn listen(at: &Path) -> UnixListener {
    let _ = fs::remove_file(at);
    let listener = UnixListener::bind(at).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

#[test]
fn unix_sockets_of_the_host_are_out_of_reach() {
    for user in everybody() {
        let beside = user.world.path("beside/socket");
        let home = user.world.path("user/agent");
        let project = user.world.path("project/socket");
        let name = format!("sandboxer-test-{}", std::process::id());
        let system = tempfile::tempdir_in("/var/lib").or_else(|_| tempfile::tempdir()).unwrap();
        fs::set_permissions(system.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let inside_system = system.path().join("socket");
        let paths = [&beside, &home, &project, &inside_system];
        let listeners = paths.map(|path| listen(path));
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        hidden.set_nonblocking(true).unwrap();
        let mut code =
            format!("attempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))\n");
        for path in paths {
            code += &format!("attempt({path:?}, lambda: socket.socket(socket.AF_UNIX).connect({path:?}))\n");
        }
        attempts(&user, &[], &code).refused(5, &["ECONNREFUSED", "ENOENT", "EACCES", "EPERM", "ENOTSOCK"]);
        for (path, listener) in paths.iter().zip(&listeners) {
            assert!(listener.accept().is_err(), "somebody connected to {}", path.display());
        }
        assert!(hidden.accept().is_err(), "somebody connected to the abstract socket");
    }
}

/// `/proc/net/unix` does not say where this one is; whoever may look into the process that holds it can tell.
#[test]
fn a_socket_with_a_relative_name_is_out_of_reach() {
    for user in everybody() {
        let Ok(system) = tempfile::tempdir_in("/var/lib") else {
            return sandboxer_testkit::skip(
                "only root can put a socket into a directory that is read-only inside",
            );
        };
        fs::set_permissions(system.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let program = "import os, socket, sys\nos.umask(0)\ns = socket.socket(socket.AF_UNIX)\ns.bind('relative')\ns.listen()\n\
                       print('listens', flush=True)\ns.accept()\nprint('REACHED', flush=True)";
        let mut server = user.command(contained::PYTHON);
        let mut server =
            server.args(["-c", program]).current_dir(system.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 8];
        std::io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let path = system.path().join("relative");
        let outcome = attempts(
            &user,
            &[],
            &format!("attempt('connect', lambda: socket.socket(socket.AF_UNIX).connect({path:?}))"),
        );
        let _ = server.kill();
        let _ = server.wait();
        outcome.refused(1, &["ECONNREFUSED", "ENOENT", "EACCES", "EPERM"]);
    }
}

#[test]
fn descriptors_of_the_caller_stay_outside() {
    for user in everybody() {
        let secret = user.world.path("user/.ssh/id_ed25519");
        // The shell opens 3 to 20 without closing them at exec.
        let open: String = (3..=9).map(|fd| format!("exec {fd}< '{}'; ", secret.display())).collect();
        let dirs = format!("exec 8< '{}'; ", user.world.path("user").display());
        let script = format!("{open}{dirs}exec timeout 60 \"$@\"");
        let mut command = user.command("bash");
        command.args(["-c", &script, "sh"]).arg(user.binary());
        command.args([
            "run",
            "--discard",
            "--",
            "sh",
            "-c",
            "ls -l /proc/self/fd; cat <&8; cat <&5; ls /proc/self/fd/8/",
        ]);
        let ran = common::Ran::of(command.output().unwrap());
        assert!(!ran.stdout.contains(SECRET) && !ran.stdout.contains("id_ed25519"), "{}", ran.stdout);
        let held = ran.stdout.lines().filter(|line| line.contains("->")).count();
        assert_eq!(held, 4, "three streams and the directory that is listed:\n{}", ran.stdout);
    }
}

#[test]
fn init_holds_nothing_of_the_callers_either() {
    for user in everybody() {
        let script = format!(
            "exec 7< '{}'; exec timeout 60 \"$@\"",
            user.world.path("user/.ssh/id_ed25519").display()
        );
        let mut command = user.command("bash");
        command.args(["-c", &script, "sh"]).arg(user.binary());
        command.args(["run", "--discard", "--", "sh", "-c", "echo ready; read line"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let held = held_by_runtimes(&user);
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        child.wait().unwrap();
        if !user::is_root() {
            return sandboxer_testkit::skip("only root can see what init holds");
        }
        assert!(!held.is_empty());
        let leaked: Vec<&String> = held.iter().filter(|target| target.contains(".ssh")).collect();
        assert!(leaked.is_empty(), "{held:?}");
    }
}

/// What the descriptors of this world's supervisors and inits lead to.
fn held_by_runtimes(user: &User) -> Vec<String> {
    let mut held = Vec::new();
    for pid in runtimes::processes(&user.world) {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        held.extend(descriptors.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.display().to_string())));
    }
    held
}

#[test]
fn secrets_of_the_environment_stay_outside() {
    for user in everybody() {
        let secrets = [
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "NPM_TOKEN",
            "MY_API_KEY",
            "DATABASE_PASSWORD",
            "SSH_AUTH_SOCK",
            "GPG_AGENT_INFO",
        ];
        let mut command = sandbox(
            &user,
            &["run", "--discard", "--", "sh", "-c", "env; cat /proc/*/environ | tr '\\0' '\\n'"],
        );
        command.envs(secrets.map(|name| (name, SECRET))).env("LANG", "C.UTF-8").env("TERM", "dumb");
        let ran = common::Ran::of(command.output().unwrap());
        assert!(!ran.stdout.contains(SECRET), "{}", ran.stdout);
        for kept in ["LANG=C.UTF-8", "TERM=dumb", "PATH=", "HOME="] {
            assert!(ran.stdout.contains(kept), "{kept} is missing: {}", ran.stdout);
        }
    }
}

/// Whatever the command leaves behind: in a session of its own, without parent, deaf to signals.
const LINGER: &str = "
for name in ['one', 'two']:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in [1, 2, 3, 13, 15]: signal.signal(number, signal.SIG_IGN)
            import time
            while True:
                with open('linger-' + name, 'a') as file: file.write('x')
                time.sleep(0.001)
        os._exit(0)
import time
while not (os.path.exists('linger-one') and os.path.exists('linger-two')): time.sleep(0.001)";

#[test]
fn nothing_lingers_after_the_command() {
    for user in everybody() {
        let words = contained::attempting(&[], LINGER);
        let words = [&["run", "--keep", "--name", "lingered"], &words[2..]].concat();
        let ran = common::Ran::of(sandbox(&user, &words).output().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(runtimes::processes(&user.world), Vec::<i32>::new(), "a runtime is left");
        assert!(!processes_contain("linger-"), "what it started still runs");
        let size = || user.ok(&["read", "lingered", "linger-one"]).len();
        let first = size();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(first, size(), "something still writes into the workspace");
        user.ok(&["destroy", "lingered", "--discard"]);
    }
}

fn processes_contain(text: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).any(|line| line.contains(text))
}

#[test]
fn orphans_are_buried() {
    for user in everybody() {
        // Reaped means that no zombie is left; the loop ends then, or after a minute.
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do (sh -c 'exit 0' &) ; done; i=0
            while left=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); [ $left != 0 ] && [ $i -lt 600 ]; do
                i=$((i+1)); sleep 0.1
            done
            echo $left";
        assert_eq!(works(&user, &[], script), "0\n");
    }
}
