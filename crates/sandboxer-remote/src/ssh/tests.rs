#![allow(clippy::unwrap_used)]
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use sandboxer_core::Error;
use sandboxer_testkit::sshd::Sshd;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn settings(sshd: &Sshd, config: &str) -> Settings {
    Settings {
        config: Some(sshd.path(config)),
        control: sshd.path("c"),
        connect_timeout: Duration::from_secs(10),
    }
}

fn ssh(sshd: &Sshd) -> Ssh {
    Ssh::new(Address::parse(&sshd.url()).unwrap(), settings(sshd, "config")).unwrap()
}

fn call(script: &str) -> Call<'_> {
    Call { script, arguments: &[], input: &[], deadline: LONG, output: 1 << 20, cancel: None, heard: None }
}

fn fault(error: &Error) -> Fault {
    trouble(error).unwrap_or_else(|| panic!("no trouble with a host: {error:?}")).fault
}

#[test]
fn words_input_output_and_every_exit_code_come_through() {
    let Some(sshd) = Sshd::start() else { return };
    let ssh = ssh(&sshd);
    let arguments = ["a b", "$(id)", "it's\\", "", "-n", "new\nline"].map(OsStr::new);
    let script = r#"printf '%s|' "$@"; cat"#;
    let answer = ssh.run(&Call { arguments: &arguments, input: b"in\0put", ..call(script) }).unwrap();
    assert_eq!(answer.stdout, b"a b|$(id)|it's\\||-n|new\nline|in\0put");
    for code in [0, 1, 17, 254, 255] {
        let script = format!("echo why >&2; exit {code}");
        let answer = ssh.run(&call(&script)).unwrap();
        assert_eq!((answer.code, answer.stderr.as_slice()), (code, &b"why\n"[..]));
    }
    ssh.start("exit 255", &[]).unwrap().finish().unwrap_err();
    ssh.disconnect();
}

#[test]
fn one_connection_serves_all_calls_and_ends_when_told() {
    let Some(sshd) = Sshd::start() else { return };
    let ssh = ssh(&sshd);
    let connection = || ssh.run(&call("echo $SSH_CONNECTION")).unwrap().stdout;
    let first = connection();
    assert_eq!(first, connection());
    ssh.disconnect();
    assert_ne!(first, connection(), "a new connection comes from another port");
    ssh.disconnect();
    assert!(!ssh.options.has_socket());
}

#[test]
fn the_common_troubles_are_told_apart() {
    let Some(sshd) = Sshd::start() else { return };
    let cases = [
        ("config-unknown", Fault::KeyUnknown),
        ("config-changed", Fault::KeyChanged),
        ("config-stranger", Fault::Login),
    ];
    for (config, expected) in cases {
        let ssh = Ssh::new(Address::parse(&sshd.url()).unwrap(), settings(&sshd, config)).unwrap();
        assert_eq!(fault(&ssh.connect().unwrap_err()), expected, "{config}");
        assert_eq!(fault(&ssh.run(&call("true")).unwrap_err()), expected, "{config}");
    }
    for (url, expected) in
        [("ssh://127.0.0.1:1", Fault::Unreachable), ("ssh://no-such-host.invalid", Fault::Name)]
    {
        let ssh = Ssh::new(Address::parse(url).unwrap(), settings(&sshd, "config")).unwrap();
        assert_eq!(fault(&ssh.connect().unwrap_err()), expected, "{url}");
    }
}

#[test]
fn a_host_that_takes_the_connection_and_says_nothing_is_not_waited_for() {
    let Some(sshd) = Sshd::start() else { return };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address =
        Address { user: None, host: "127.0.0.1".into(), port: Some(silent.local_addr().unwrap().port()) };
    let settings = Settings { connect_timeout: Duration::from_secs(1), ..settings(&sshd, "config") };
    let error = Ssh::new(address, settings).unwrap().connect().unwrap_err();
    assert_eq!(fault(&error), Fault::Unreachable, "{error:?}");
}

#[test]
fn a_connection_that_is_cut_says_so_and_the_next_call_makes_another() {
    let Some(sshd) = Sshd::start() else { return };
    let ssh = ssh(&sshd);
    let mut running = ssh.start("echo ready; cat; exit 0", &[]).unwrap();
    running.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    sshd.cut();
    assert_eq!(fault(&running.finish().unwrap_err()), Fault::Lost);
    assert_eq!(ssh.run(&call("echo again")).unwrap().stdout, b"again\n");
    ssh.disconnect();
}

#[test]
fn many_at_once_share_one_connection() {
    let Some(sshd) = Sshd::start() else { return };
    let hosts: Vec<Ssh> = (0..8).map(|_| ssh(&sshd)).collect();
    let mut connections: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let ask = |host| scope.spawn(move || Ssh::run(host, &call("echo $SSH_CONNECTION")).unwrap().stdout);
        let threads: Vec<_> = hosts.iter().map(ask).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    connections.dedup();
    assert_eq!(connections.len(), 1);
    hosts[0].disconnect();
}

#[test]
fn a_socket_that_nobody_answers_at_is_replaced() {
    let Some(sshd) = Sshd::start() else { return };
    let ssh = ssh(&sshd);
    drop(UnixListener::bind(ssh.options.socket()).unwrap());
    assert_eq!(ssh.run(&call("echo there")).unwrap().stdout, b"there\n");
    ssh.disconnect();
    let silent = UnixListener::bind(ssh.options.socket()).unwrap();
    assert_eq!(
        ssh.run(&call("echo there")).unwrap().stdout,
        b"there\n",
        "somebody listens and never answers"
    );
    drop(silent);
    ssh.disconnect();
}

#[test]
fn streams_go_both_ways() {
    let Some(sshd) = Sshd::start() else { return };
    let ssh = ssh(&sshd);
    let mut running = ssh.start("cat", &[]).unwrap();
    let mut stdin = running.stdin.take().unwrap();
    let sent = vec![7; 5 << 20];
    let copy = sent.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy));
    let mut received = Vec::new();
    running.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    writer.join().unwrap().unwrap();
    assert!(received == sent);
    running.finish().unwrap();
    ssh.disconnect();
}

/// A server takes ten at once over one connection, unless it is told otherwise.
#[test]
fn more_calls_at_once_than_a_connection_takes_all_get_through() {
    let Some(sshd) = Sshd::start() else { return };
    let ssh = ssh(&sshd);
    ssh.connect().unwrap();
    let started = tempfile::tempdir().unwrap();
    let one = |at: usize| {
        // Waits until eleven run at once, which is more than one connection takes, or for 30 s.
        let script = format!(
            "cd {}; touch {at}; i=0; while [ $(ls | wc -l) -lt 11 ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done; \
             echo {at} $SSH_CONNECTION",
            started.path().display()
        );
        String::from_utf8(ssh.run(&call(&script)).unwrap().stdout).unwrap()
    };
    let said: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16).map(|at| scope.spawn(move || one(at))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(said.iter().enumerate().all(|(at, said)| said.starts_with(&format!("{at} "))), "{said:?}");
    let ways: std::collections::BTreeSet<_> =
        said.iter().filter_map(|said| said.split_once(' ')).map(|(_, way)| way).collect();
    assert!(ways.len() > 1, "the server takes sixteen at once: nothing was tried");
    ssh.disconnect();
}

/// By it is known how long the way to a host is.
#[test]
fn the_first_word_is_timed_and_not_the_rest() {
    let begun = Instant::now();
    let said = crate::shell::Here.run(&call("echo first; sleep 3; echo last")).unwrap();
    assert!(said.first_word + Duration::from_secs(1) < begun.elapsed(), "{said:?}");
    let silent = crate::shell::Here.run(&call("sleep 0.2")).unwrap();
    assert!(silent.first_word >= Duration::from_millis(200), "{silent:?}");
}

#[test]
fn lines_run_words_and_have_a_terminal_where_one_is_asked_for() {
    let Some(sshd) = Sshd::start() else { return };
    let ssh = ssh(&sshd);
    let words = ["sh", "-c", "tty; printf '%s' \"$1\"", "sh", "a'b c"].map(OsString::from);
    let said = |terminal| {
        let line = ssh.line(&words, terminal);
        let output =
            Command::new(&line[0]).args(&line[1..]).stdin(std::process::Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(said(false).starts_with("not a tty") && said(false).ends_with("a'b c"));
    assert!(said(true).starts_with("/dev/pts/"), "{}", said(true));
    ssh.disconnect();
}

#[test]
fn a_tunnel_reaches_what_the_host_reaches_and_ends_with_its_process() {
    let Some(sshd) = Sshd::start() else { return };
    let ssh = ssh(&sshd);
    let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let local = sandboxer_testkit::reserve_port();
    let line = ssh.tunnel(local, "127.0.0.1", service.local_addr().unwrap().port());
    let mut tunnel = Command::new(&line[0]).args(&line[1..]).spawn().unwrap();
    let until = Instant::now() + LONG;
    while std::net::TcpStream::connect(("127.0.0.1", local)).is_err() {
        assert!(Instant::now() < until, "the tunnel does not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
    service.accept().unwrap();
    tunnel.kill().unwrap();
    tunnel.wait().unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", local)).is_err());
}

#[test]
fn a_jump_host_of_the_users_own_configuration_is_used() {
    let Some(sshd) = Sshd::start() else { return };
    let mut config = std::fs::read_to_string(sshd.config()).unwrap();
    let port = sshd.url().rsplit(':').next().unwrap().to_owned();
    config = format!(
        "Host first\n HostName 127.0.0.1\n Port {port}\nHost second\n HostName 127.0.0.1\n Port {port}\n ProxyJump first\n{config}"
    );
    std::fs::write(sshd.path("config-jump"), config).unwrap();
    let address = Address::parse("ssh://second").unwrap();
    let ssh = Ssh::new(address, settings(&sshd, "config-jump")).unwrap();
    assert_eq!(ssh.run(&call("echo far")).unwrap().stdout, b"far\n");
    ssh.disconnect();
}

#[test]
fn what_is_ours_is_not_in_the_environment_of_ssh() {
    let command = options::command(&["ssh".into()]);
    let kept: Vec<_> = command.get_envs().filter(|(_, value)| value.is_some()).collect();
    assert!(kept.is_empty(), "variables are inherited or removed, never set: {kept:?}");
}

#[test]
fn every_call_is_safe_by_its_arguments() {
    let temp = tempfile::tempdir().unwrap();
    let settings =
        Settings { config: None, control: temp.path().join("c"), connect_timeout: Duration::from_secs(7) };
    let ssh = Ssh::new(Address::parse("ssh://me@box:2222").unwrap(), settings).unwrap();
    for line in [
        ssh.line(&["id".into()], false),
        ssh.line(&[], true),
        ssh.tunnel(1, "::1", 2),
        ssh.options.of_master(),
    ] {
        let line: Vec<_> = line.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        for option in [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "ForwardAgent=no",
            "ForwardX11=no",
            "ConnectTimeout=7",
            "PermitLocalCommand=no",
        ] {
            assert!(line.iter().any(|word| word == option), "{option} is not in {line:?}");
        }
        if let Some(at) = line.iter().position(|word| word == "--") {
            assert_eq!(line[at + 1], "me@box");
        }
    }
    let tunnel = ssh.tunnel(1, "::1", 2);
    assert!(tunnel.contains(&OsString::from("127.0.0.1:1:[::1]:2")), "{tunnel:?}");
}
