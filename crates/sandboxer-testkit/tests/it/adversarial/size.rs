//! D16 and D17: too large, too many, too deep.

use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use sandboxer_testkit::faults::{Cli, binary};
use sandboxer_testkit::full;
use tempfile::TempDir;

use super::{Bench, STRATEGY, bounded, told};

const HUGE: u64 = 100 << 30;

#[test]
fn d16_a_huge_sparse_file_stays_sparse() {
    let bench = Bench::with(|dir| {
        let file = fs::File::create(dir.join("huge")).unwrap();
        file.set_len(HUGE).unwrap();
        file.write_all_at(b"island", HUGE / 3).unwrap();
    });
    let blocks = |path: &Path| fs::metadata(path).unwrap().blocks();
    assert!(blocks(&bench.tree("huge")) < 1000, "the copy is not sparse");
    assert_eq!(bench.run("diff", &["--exit-code"]).status.code(), Some(0));
    let file = OpenOptions::new().write(true).open(bench.tree("huge")).unwrap();
    file.write_all_at(b"another island", HUGE / 2).unwrap();
    assert_eq!(bench.run("diff", &["--exit-code"]).status.code(), Some(1));
    bench.ok("diff", &["--patch"]);
    bench.ok("checkpoint", &["one"]);
    bench.assert_code(5, "commit", &[]);
    bench.ok("commit", &["--accept-flags"]);
    let committed = bench.resource.join("huge");
    assert_eq!(fs::metadata(&committed).unwrap().len(), HUGE);
    assert!(blocks(&committed) < 1000, "the commit is not sparse");
    let mut island = [0; 14];
    fs::File::open(&committed).unwrap().read_exact_at(&mut island, HUGE / 2).unwrap();
    assert_eq!(&island, b"another island");
    bench.ok("destroy", &[]);
}

#[test]
fn d17_many_tiny_files() {
    let (dirs, files) = if full() { (1000, 100) } else { (200, 100) };
    let bench = Bench::with(|dir| {
        for d in 0..dirs {
            let sub = dir.join(format!("many/{d:04}"));
            fs::create_dir_all(&sub).unwrap();
            for f in 0..files {
                fs::write(sub.join(format!("{f:03}")), "x").unwrap();
            }
        }
    });
    assert_eq!(bench.run("diff", &["--exit-code"]).status.code(), Some(0));
    fs::remove_dir_all(bench.tree("many/0001")).unwrap();
    fs::write(bench.tree("many/0000/000"), "changed").unwrap();
    bench.ok("commit", &[]);
    assert!(!bench.resource.join("many/0001").exists());
    assert_eq!(fs::read_to_string(bench.resource.join("many/0000/000")).unwrap(), "changed");
    bench.ok("destroy", &[]);
    assert!(!bench.sandbox.path.exists());
}

/// A chain of directories far deeper than any path can name, with a file at its end. `rm` knows how to remove it.
struct Deep {
    top: PathBuf,
}

impl Deep {
    fn make(top: PathBuf, depth: usize) -> Self {
        fs::create_dir(&top).unwrap();
        let open = |parent: Option<&OwnedFd>, path: &Path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match parent {
                Some(parent) => openat(parent, path, flags, Mode::empty()).unwrap(),
                None => openat(CWD, path, flags, Mode::empty()).unwrap(),
            }
        };
        let mut at = open(None, &top);
        for _ in 0..depth {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = open(Some(&at), Path::new("d"));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE;
        drop(openat(&at, "bottom", flags, Mode::RUSR | Mode::WUSR).unwrap());
        Self { top }
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        let _ = Command::new("rm").arg("-rf").arg(&self.top).status();
    }
}

/// `sandbox` with few file descriptors to its name.
fn confined(cli: &Cli, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new("prlimit");
    command.args(["--nofile=256:256", "--"]).arg(binary()).args(arguments);
    cli.prepare(&mut command);
    bounded(&mut command)
}

#[test]
fn d17_a_tree_too_deep_for_paths() {
    let dir = TempDir::with_prefix("sandboxer-deep-").unwrap();
    let deep = Deep::make(dir.path().join("deep"), 5000);
    let cli = Cli::new(&dir.path().join("home"));
    let created =
        confined(&cli, &[&["create", deep.top.to_str().unwrap(), "--name", "deep"], &STRATEGY[..]].concat());
    let code = created.status.code();
    assert!(matches!(code, Some(0 | 1 | 5)), "a crash: {}", told(&created));
    if code == Some(0) {
        let path = String::from_utf8(confined(&cli, &["path", "deep"]).stdout).unwrap();
        fs::write(Path::new(path.trim()).join("new"), "x").unwrap();
        let all = [&["diff", "deep"][..], &["checkpoint", "deep", "one"], &["commit", "deep"]];
        for arguments in if full() { &all[..] } else { &all[..1] } {
            let output = confined(&cli, arguments);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {}", told(&output));
        }
        let destroyed = confined(&cli, &["destroy", "deep", "--discard"]);
        assert!(destroyed.status.success(), "{}", told(&destroyed));
    } else {
        println!("refused: {}", told(&created));
    }
    cli.ok(&["list"]);
    let left: Vec<_> = cli.inventory().into_iter().filter(|p| p.to_string_lossy().contains("ws_")).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// The agent makes a deep tree inside the sandbox: whatever commit says, clean-up works.
#[test]
fn d17_a_deep_tree_made_in_the_sandbox() {
    let bench = Bench::new();
    let deep = Deep::make(bench.tree("deep"), if full() { 3000 } else { 1000 });
    for arguments in [&["diff", "--exit-code"][..], &["commit"]] {
        let arguments = [&arguments[..1], &[bench.sandbox.id.as_str()], &arguments[1..]].concat();
        let output = confined(&bench.cli, &arguments);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {}", told(&output));
    }
    let destroyed = confined(&bench.cli, &["destroy", &bench.sandbox.id]);
    assert!(destroyed.status.success(), "{}", told(&destroyed));
    assert!(!deep.top.exists());
    let _ = Command::new("rm").arg("-rf").arg(bench.resource.join("deep")).status();
}
