//! End to end in tmux, as a person works: a full-screen program, a resized window, a detached session.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::contained::everybody;
use crate::common::user::User;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server of tmux with one window, ended with the guard.
struct Tmux<'a> {
    user: &'a User,
}

impl<'a> Tmux<'a> {
    fn start(user: &'a User) -> Option<Self> {
        if !user.command("tmux").arg("-V").output().is_ok_and(|ran| ran.status.success()) {
            sandboxer_testkit::skip("tmux is not there");
            return None;
        }
        let tmux = Self { user };
        let started = tmux
            .command(&["-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "30", "sh"])
            .output()
            .unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Some(tmux)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.user.command("tmux");
        command.arg("-S").arg(self.user.world.path("user/tmux")).args(arguments);
        command
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env("S", self.user.binary())
            .env("NO_COLOR", "1")
            .env("PS1", "$ ");
        command
    }

    fn tell(&self, arguments: &[&str]) -> String {
        let ran = self.command(arguments).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    fn type_line(&self, line: &str) {
        self.tell(&["send-keys", "-l", line]);
        self.tell(&["send-keys", "Enter"]);
    }

    /// Waits until the screen shows this.
    fn see(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.tell(&["capture-pane", "-p"]).contains(text) {
            assert!(
                Instant::now() < deadline,
                "{text:?} did not appear:\n{}",
                self.tell(&["capture-pane", "-p"])
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

#[test]
fn a_session_in_a_window_is_like_any_other() {
    for user in everybody() {
        let Some(tmux) = Tmux::start(&user) else { return };
        user.ok(&["create", "--name", "win"]);
        tmux.type_line("$S shell win; echo ba$((1+1))ck");
        tmux.type_line("echo in$((1+1))side $(tty)");
        tmux.see("in2side /dev/pts/0");
        tmux.type_line("stty size");
        tmux.see("30 90");
        tmux.tell(&["resize-window", "-x", "70", "-y", "20"]);
        // The size comes with a signal, which may take its time.
        tmux.type_line("until [ \"$(stty size)\" = '20 70' ]; do sleep 0.05; done; echo re$((1+1))sized");
        tmux.see("re2sized");
        tmux.type_line("cat > typed");
        tmux.type_line("a line");
        tmux.tell(&["send-keys", "C-d"]);
        tmux.type_line("sh -c 'echo wait$((1+1))ing; exec sleep 500'");
        tmux.see("wait2ing");
        tmux.tell(&["send-keys", "C-c"]);
        tmux.type_line("echo still$((1+1))here; exit");
        tmux.see("still2here");
        // What is typed before is the sandbox's, and gone with it.
        tmux.see("ba2ck");
        tmux.type_line("stty -a | tr ' ' '\\n' | grep -x -e echo -e icanon | tr '\\n' '+'");
        tmux.see("icanon+echo+");
        assert_eq!(user.diff("win"), ["A typed"]);
        assert_eq!(user.ok(&["read", "win", "typed"]), "a line\n");
    }
}

#[test]
fn a_window_that_is_closed_ends_what_ran_in_it() {
    for user in everybody() {
        let Some(tmux) = Tmux::start(&user) else { return };
        let hour = format!("3600.{}{}", std::process::id(), u8::from(user.binary() == common::SANDBOX));
        tmux.type_line(&format!(
            "$S run --keep --name closed -- sh -c 'echo x > made; echo re\"\"ady; sleep {hour}'"
        ));
        tmux.see("ready");
        drop(tmux);
        let deadline = Instant::now() + PATIENCE;
        let line = format!("sleep\0{hour}\0").into_bytes();
        let sleeps = || {
            let processes = std::fs::read_dir("/proc").unwrap().flatten();
            processes
                .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
                .any(|words| words == line)
        };
        while sleeps() {
            assert!(Instant::now() < deadline, "the command goes on without its window");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(user.diff("closed"), ["A made"]);
    }
}
