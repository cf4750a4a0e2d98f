//! Connections that break: whatever came of it, nothing that was acknowledged is lost, and the end is
//! the end.

use std::time::Duration;

use sandboxer_testkit::faults::sample_of;
use sandboxer_testkit::host::{CuttingProxy, RemoteHost, Way};
use serde_json::json;

use crate::common::stack::{self, create, host, nothing_here, what_is_there, write_host};
use crate::common::{Ran, World};

const STACK: &str = "
services:
  web: {image: 'busybox:test', command: sleep infinity, init: true, working_dir: /shop, volumes: ['..:/shop', 'goods:/goods']}
volumes: {goods: {}}
";

/// How many cuts of a connection there are in each direction.
const CUTS: u64 = 24;

/// A world whose host is reached through a proxy.
struct Line {
    world: World,
    host: &'static RemoteHost,
    proxy: CuttingProxy,
}

impl Line {
    fn new() -> Option<Self> {
        let host = host()?;
        let proxy = CuttingProxy::to(host);
        let world = stack::world(host, STACK);
        write_host(&world, "h1", host.name(), &host.ssh_config_through(&proxy), &json!({}));
        // More than fits into one packet, so that a cut is in the middle of something.
        for n in 0..20 {
            world.file(&format!("project/many/{n}"), noise(n, 20_000));
        }
        Some(Self { world, host, proxy })
    }

    /// Without a connection from before: each try has the same way.
    fn fresh(&self) {
        self.proxy.cut();
        std::thread::sleep(Duration::from_millis(50));
        let _ = std::fs::remove_dir_all(self.world.path("home/ssh"));
    }

    fn inside(&self, script: &str) -> String {
        self.world.ok(&["exec", "e2e", "--service", "web", "--", "sh", "-c", script])
    }

    /// Runs a command over a connection that is cut at each of some places; `before` and `after` see to the rest.
    fn sweep(&self, words: &[&str], before: impl Fn(), after: impl Fn(&Ran, &str)) {
        before();
        self.fresh();
        let counted = [Way::There, Way::Back].map(|way| self.proxy.passed(way));
        let whole = self.world.run(words);
        assert_eq!(whole.code, 0, "{words:?}: {}", whole.stderr);
        after(&whole, "whole");
        let ways = [Way::There, Way::Back].into_iter().zip(counted);
        let totals = ways.map(|(way, from)| (way, self.proxy.passed(way) - from));
        let cuts: Vec<_> = totals.flat_map(|(way, total)| (0..CUTS).map(move |n| (way, total, n))).collect();
        for (way, total, n) in sample_of(&cuts, 1) {
            let at = total * (2 * n + 1) / (2 * CUTS);
            before();
            self.fresh();
            self.proxy.cut_for_good_after(way, at);
            let ran = self.world.run(words);
            self.proxy.admit();
            assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
            after(&ran, &format!("{words:?} cut after {at} of {total} bytes {way:?}: {}", ran.stderr));
        }
    }

    /// Destroys what there may be, as often as a person would try, and looks.
    fn ends(&self, told: &str) {
        self.fresh();
        let ran = self.world.run(&["destroy", "e2e", "--discard"]);
        assert!(ran.code == 0 || ran.code == 4, "{told}\n{}", ran.stderr);
        let ran = self.world.run(&["reconcile", "--grace", "0s"]);
        assert_eq!(ran.code, 0, "{told}\n{}", ran.stderr);
        let left = what_is_there(&self.world, self.host);
        assert!(left.is_empty(), "{told}\n{left:#?}");
        nothing_here(&self.world);
    }
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_creation_that_is_cut_is_whole_or_gone() {
    let Some(line) = Line::new() else { return };
    let before = || {};
    line.sweep(&create("profile.stack", "h1"), before, |ran, told| {
        if ran.code == 0 {
            assert_eq!(line.inside("cat hello.txt; ls many | wc -l"), "hello\nworld\n20\n", "{told}");
        } else {
            assert!(ran.stderr.contains("error: ") || ran.stderr.contains("refused"), "{told}");
        }
        line.ends(told);
    });
}

/// A line that breaks and is there again costs what was on its way, and nothing else.
#[test]
fn a_creation_whose_copy_is_cut_goes_on_with_what_is_left_of_it() {
    let Some(line) = Line::new() else { return };
    for n in 20..120 {
        line.world.file(&format!("project/many/{n}"), noise(n, 120_000));
    }
    let created = || {
        let before = line.proxy.passed(Way::There);
        let ran = line.world.run(&create("profile.stack", "h1"));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        line.proxy.passed(Way::There) - before
    };
    line.fresh();
    let whole = created();
    line.ends("whole");
    line.fresh();
    line.proxy.cut_after(Way::There, whole / 2);
    let resumed = created();
    assert_eq!(line.inside("cat many/* | wc -c"), "12400000\n");
    // A channel of SSH has at most 2 MiB on its way, and what it had has not arrived.
    assert!(resumed < whole + (3 << 20), "{resumed} bytes went over in all, {whole} when nothing was cut");
    line.ends("cut");
}

#[test]
fn a_destruction_that_is_cut_is_finished_by_the_next() {
    let Some(line) = Line::new() else { return };
    let before = || drop(line.world.json(&create("profile.stack", "h1")));
    line.sweep(&["destroy", "e2e", "--discard"], before, |_, told| line.ends(told));
}

#[test]
fn a_look_that_is_cut_loses_nothing() {
    let Some(line) = Line::new() else { return };
    line.world.json(&create("profile.stack", "h1"));
    let round = std::cell::Cell::new(0);
    let before = || {
        round.set(round.get() + 1);
        let n = round.get();
        line.inside(&format!("i=0; while [ $i -lt 10 ]; do yes {n}.$i | head -n 3000 > f$i; i=$((i+1)); done; rm -rf d; mkdir d; echo {n} > d/{n}"));
    };
    line.sweep(&["diff", "e2e"], before, |_, told| {
        line.fresh();
        let n = round.get();
        let lines = line.world.ok(&["diff", "e2e"]);
        assert_eq!(lines.lines().count(), 12, "{told}\n{lines}");
        for i in 0..10 {
            let text = line.world.ok(&["read", "e2e", &format!("f{i}")]);
            assert_eq!(text.len(), 3000 * format!("{n}.{i}\n").len(), "{told}");
            assert!(text.lines().all(|line| line == format!("{n}.{i}")), "{told}");
        }
        // And nobody stands still for ever.
        assert_eq!(line.inside(&format!("cat d/{n}")), format!("{n}\n"), "{told}");
    });
    line.ends("in the end");
}

#[test]
fn a_rollback_that_is_cut_goes_on_with_the_next_command() {
    let Some(line) = Line::new() else { return };
    line.world.json(&create("profile.stack", "h1"));
    let before =
        || {
            drop(line.inside(
                "for f in many/*; do echo other > $f; done; rm hello.txt; echo new > new; mkdir -p d/e",
            ))
        };
    line.sweep(&["rollback", "e2e"], before, |ran, told| {
        line.fresh();
        let state = || line.inside("cat many/* | md5sum; ls; cat hello.txt 2>/dev/null");
        let lines = line.world.ok(&["diff", "e2e"]);
        if ran.code == 0 || lines.is_empty() {
            assert_eq!(lines, "", "{told}");
            assert_eq!(
                line.inside("ls; cat hello.txt"),
                "e2e\nhello.txt\nmany\nrun.sh\nsrc\nhello\nworld\n",
                "{told}"
            );
        } else {
            // As it was: all of it, or none.
            assert_eq!(lines.lines().count(), 20 + 4, "{told}\n{lines}\n{}", state());
            line.world.ok(&["rollback", "e2e"]);
        }
        let md5 = line.inside("cat $(ls many/* | sort) | md5sum | cut -c1-32");
        assert_eq!(md5.trim(), expected(&line.world), "{told}");
    });
    line.ends("in the end");
}

/// The same of the project's own files.
fn expected(world: &World) -> String {
    let script = "cat $(ls many/* | LC_ALL=C sort) | md5sum | cut -c1-32";
    let said =
        std::process::Command::new("sh").args(["-c", script]).current_dir(world.project()).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_checkpoint_that_is_cut_is_whole_or_none_and_so_is_what_is_made_from_one() {
    let Some(line) = Line::new() else { return };
    line.world.json(&create("profile.stack", "h1"));
    let round = std::cell::Cell::new(0);
    let before = || {
        round.set(round.get() + 1);
        line.inside(&format!("yes {0} | head -n 50000 > /goods/list; echo {0} > now", round.get()));
    };
    let mut good = std::cell::RefCell::new(Vec::new());
    line.sweep(&["checkpoint", "e2e"], before, |ran, _| {
        if ran.code == 0 {
            good.borrow_mut().push((ran.stdout.trim().to_owned(), round.get()));
        }
        line.fresh();
        line.world.ok(&["diff", "e2e"]);
    });
    // Every one that was acknowledged has all of it.
    let (name, n) = good.get_mut().pop().unwrap();
    let listed = line.world.json(&["checkpoints", "e2e"]);
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), good.get_mut().len() + 1, "{listed:#}");
    let found = "echo $(wc -l < /goods/list) $(sort -u /goods/list) $(cat now)";
    let before = || {
        line.fresh();
        // A stack that was lost on the way is made again by the same command.
        let _ =
            line.world.run(&["exec", "e2e", "--", "sh", "-c", "echo worse > /goods/list; echo worse > now"]);
    };
    line.sweep(&["recreate", "e2e", "--from", &name], before, |ran, told| {
        line.fresh();
        if ran.code != 0 {
            let again = line.world.run(&["recreate", "e2e", "--from", &name]);
            assert_eq!(again.code, 0, "{told}\n{}", again.stderr);
        }
        assert_eq!(line.inside(found), format!("50000 {n} {n}\n"), "{told}");
    });
    line.ends("in the end");
}
