//! Interactive use on a real terminal: sizes, keys, job control, settings, and what cannot be done to the terminal outside.

use std::fs;

use crate::common::contained::{self, PYTHON, everybody};
use crate::common::pty::Terminal;
use crate::common::user::User;

/// `sandbox` on a terminal of its own.
fn on_terminal(user: &User, arguments: &[&str]) -> Terminal {
    let mut command = user.command("setsid");
    command.args(["--ctty", "timeout", "--foreground", "60"]).arg(user.binary()).args(arguments);
    command.env("NO_COLOR", "1").env("TERM", "xterm");
    Terminal::over(command)
}

/// A shell of the host on a terminal, in which `$S` is `sandbox`.
fn host_shell(user: &User, script: &str) -> Terminal {
    let mut command = user.command("setsid");
    command.args(["--ctty", "timeout", "--foreground", "60", "bash", "-c", script]);
    command.env("NO_COLOR", "1").env("TERM", "xterm").env("S", user.binary());
    Terminal::over(command)
}

#[test]
fn the_command_has_a_terminal_of_its_own() {
    for user in everybody() {
        let mut terminal = on_terminal(
            &user,
            &[
                "run",
                "--discard",
                "--",
                "sh",
                "-c",
                "tty; test -t 0 -a -t 1 -a -t 2 && echo all; stty size; ps -o tpgid= -p $$",
            ],
        );
        terminal.resize(24, 80);
        terminal.expect("/dev/pts/0");
        terminal.expect("all");
        let (code, screen) = terminal.finish();
        assert_eq!(code, Some(0), "{screen}");
    }
}

#[test]
fn sizes_and_their_changes_arrive() {
    for user in everybody() {
        let code = "
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
print('ready', flush=True)
for change in range(2):
    signal.sigwait([signal.SIGWINCH])
    print('size', *os.get_terminal_size(), flush=True)
input()
print('last', *os.get_terminal_size())";
        let mut terminal = on_terminal(&user, &["run", "--discard", "--", PYTHON, "-c", code]);
        terminal.expect("ready");
        terminal.resize(31, 97);
        terminal.expect("size 97 31");
        terminal.resize(50, 132);
        terminal.expect("size 132 50");
        terminal.press("go on\n");
        terminal.expect("last 132 50");
        assert_eq!(terminal.finish().0, Some(0));
    }
}

/// A shell would be between two programs when the key is pressed, and miss it.
const WAITING: &str = "
import signal
open('new.txt', 'w').write('new\\n')
signal.signal(signal.SIGINT, signal.SIG_DFL)
print('ready', flush=True)
signal.pause()";

#[test]
fn control_c_is_the_commands_and_the_question_is_asked_afterwards() {
    for user in everybody() {
        let mut terminal = on_terminal(&user, &["run", "--name", "asked", "--", PYTHON, "-c", WAITING]);
        terminal.expect("ready");
        terminal.press("\x03");
        terminal.expect("[x] discard? ");
        terminal.press("c\n");
        let (code, screen) = terminal.finish();
        assert!(screen.contains("committed 1 change"), "{code:?} {screen}");
        assert_eq!(user.world.text("project/new.txt"), "new\n");
    }
}

#[test]
fn a_command_may_take_control_c_for_a_key() {
    for user in everybody() {
        let code = "
import sys, termios, tty
before = termios.tcgetattr(0)
tty.setraw(0)
print('ready', end='', flush=True)
keys = [sys.stdin.buffer.raw.read(1) for _ in range(4)]
termios.tcsetattr(0, termios.TCSADRAIN, before)
print(keys)";
        let mut terminal = on_terminal(&user, &["run", "--discard", "--", PYTHON, "-c", code]);
        terminal.expect("ready");
        terminal.press("\x03\x1a\x1c\x04");
        terminal.expect(r"[b'\x03', b'\x1a', b'\x1c', b'\x04']");
        assert_eq!(terminal.finish().0, Some(0));
    }
}

#[test]
fn the_terminal_is_as_it_was_whatever_the_command_did() {
    for user in everybody() {
        for (what, code) in [("stty raw -echo; exit 3", 3), ("stty raw; kill -9 $$", 137), ("true", 0)] {
            let script = format!(
                "a=$(stty -g); $S run --discard -- sh -c '{what}'; echo code $?; b=$(stty -g); [ \"$a\" = \"$b\" ] && echo same || echo $a $b"
            );
            let mut terminal = host_shell(&user, &script);
            terminal.expect(&format!("code {code}"));
            terminal.expect("same");
            assert_eq!(terminal.finish().0, Some(0));
        }
    }
}

#[test]
fn the_terminal_is_as_it_was_after_a_time_out_and_a_signal() {
    for user in everybody() {
        let script = "a=$(stty -g); $S run --discard --timeout 300ms -- sh -c 'stty raw; sleep 600'; echo code $?; \
                      [ \"$a\" = \"$(stty -g)\" ] && echo same; \
                      sh -c 'echo $$ > ../user/pid; exec $S run --discard -- sh -c \"stty raw; echo ready; sleep 600\"'; \
                      [ \"$a\" = \"$(stty -g)\" ] && echo same again";
        let mut terminal = host_shell(&user, script);
        terminal.expect("code 124");
        terminal.expect("same");
        terminal.expect("ready");
        contained::outside(&user, "kill -TERM $(cat ../user/pid)");
        terminal.expect("same again");
        terminal.finish();
    }
}

#[test]
fn nothing_is_typed_into_the_callers_terminal() {
    for user in everybody() {
        let code = "
import fcntl, os, termios
for fd in [0, 1, 2, os.open('/dev/tty', os.O_RDWR)]:
    for key in b'echo OWN' b'ED\\n':
        try: fcntl.ioctl(fd, termios.TIOCSTI, bytes([key]))
        except OSError as e: error = e
print('tried', error.errno)";
        let script =
            format!("$S run --discard -- {PYTHON} -c \"$CODE\"; read -t 0.3 line; echo \"typed:$line.\"");
        let mut command = user.command("setsid");
        command.args(["--ctty", "timeout", "--foreground", "60", "bash", "-c", &script]);
        command.env("S", user.binary()).env("CODE", code).env("NO_COLOR", "1");
        let mut terminal = Terminal::over(command);
        terminal.expect("tried 1");
        terminal.expect("typed:.");
        let (_, screen) = terminal.finish();
        assert!(!screen.contains("OWNED"), "{screen}");
    }
}

/// A job that prints a line when it runs and after each SIGCONT, so that no key is pressed too early. The terminal echoes the
/// source, so the source does not contain the words that the test waits for.
///
/// It starts no process: a shell stopped between vfork and exec never reports that it stopped. It writes with `os.write`,
/// because the signal may arrive while the first line is being written and `print` is not reentrant.
const JOB: &str = r#"/usr/bin/python3 -c 'import itertools, os, signal; n = itertools.count(1); signal.signal(signal.SIGCONT, lambda *_: os.write(1, b"resumed-%d\n" % next(n))); os.write(1, b"be" b"gun\n"); [signal.pause() for _ in iter(int, 1)]'"#;

#[test]
fn a_shell_has_job_control() {
    for user in everybody() {
        user.ok(&["create", "--name", "sh"]);
        let mut terminal = on_terminal(&user, &["shell", "sh"]);
        terminal.press("PS1='rea''dy> '; set -m\n");
        terminal.expect("ready> ");
        terminal.press(&format!("{JOB}\n"));
        terminal.expect("begun");
        terminal.press("\x1a");
        terminal.expect("Stopped");
        terminal.press("bg\n");
        terminal.expect("resumed-1");
        terminal.press("jobs\n");
        terminal.expect("Running");
        terminal.press("fg\n");
        terminal.expect("resumed-2");
        terminal.press("\x03");
        terminal.press("echo made > made; exit 7\n");
        let (code, screen) = terminal.finish();
        assert_eq!(code, Some(7), "{screen}");
        assert_eq!(user.diff("sh"), ["A made"]);
    }
}

#[test]
fn a_large_paste_arrives_whole() {
    for user in everybody() {
        let code = "
import hashlib, os, sys, tty
tty.setraw(0)
print('ready', end='', flush=True)
got = b''
while len(got) < 1 << 20: got += os.read(0, 1 << 16)
print(hashlib.sha256(got).hexdigest() == hashlib.sha256(b'0123456789abcde\\n' * (1 << 16)).hexdigest(), end='\\r\\n')";
        let mut terminal = on_terminal(&user, &["run", "--discard", "--", PYTHON, "-c", code]);
        terminal.expect("ready");
        terminal.press(&"0123456789abcde\n".repeat(1 << 16));
        terminal.expect("True");
        assert_eq!(terminal.finish().0, Some(0));
    }
}

#[test]
fn much_output_arrives_whole() {
    for user in everybody() {
        let mut terminal =
            on_terminal(&user, &["run", "--discard", "--", "sh", "-c", "seq 100000; echo the end"]);
        terminal.expect("99999\r\n100000\r\nthe end");
        let (code, screen) = terminal.finish();
        assert_eq!(code, Some(0));
        assert_eq!(screen.lines().filter(|line| line.parse::<u32>().is_ok()).count(), 100_000);
    }
}

#[test]
fn a_pipe_and_a_terminal_are_mixed() {
    for user in everybody() {
        let script = "echo piped | $S run --discard -- sh -c 'test -t 0 || echo in-pipe; test -t 1 && echo out-tty; cat'; \
                      $S run --discard -- sh -c 'test -t 0 && echo in-tty; test -t 1 || echo out-pipe; test -t 2 && echo err-tty' | sed 's/^/got /'; \
                      $S run --discard -- sh -c 'test -t 2 || echo err-file >&2' 2>err; grep -c err-file err";
        let mut terminal = host_shell(&user, script);
        for part in ["in-pipe", "out-tty", "piped", "got in-tty", "got out-pipe", "got err-tty", "1"] {
            terminal.expect(part);
        }
        assert_eq!(terminal.finish().0, Some(0));
        fs::remove_file(user.world.path("project/err")).unwrap();
    }
}

#[test]
fn the_end_of_the_terminal_is_the_end_of_the_command() {
    for user in everybody() {
        let mut terminal =
            on_terminal(&user, &["run", "--name", "hung", "--", "sh", "-c", "echo ready; sleep 3600.25"]);
        terminal.expect("ready");
        drop(terminal);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while sleeps("3600.25") {
            assert!(std::time::Instant::now() < deadline, "the command goes on without its terminal");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn sleeps(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| {
        line.starts_with(b"sleep\0") && line.windows(argument.len()).any(|part| part == argument.as_bytes())
    })
}

#[test]
fn control_d_ends_input() {
    for user in everybody() {
        let mut terminal =
            on_terminal(&user, &["run", "--discard", "--", "sh", "-c", "echo ready; cat; echo after"]);
        terminal.expect("ready");
        terminal.press("typed\n\x04");
        terminal.expect("typed");
        terminal.expect("after");
        assert_eq!(terminal.finish().0, Some(0));
    }
}
