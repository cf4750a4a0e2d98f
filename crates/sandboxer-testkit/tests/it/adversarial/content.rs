//! D06, D11, D12, D14, D15: what is in the tree.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sandboxer_testkit::manifest::set_mtime;
use sandboxer_testkit::skip;
use serde_json::Value;

use super::{Bench, told};

#[test]
fn d06_an_edit_of_the_original_is_a_conflict() {
    let bench = Bench::new();
    for name in ["a.txt", "b.txt", "new.txt"] {
        fs::write(bench.tree(name), "mine\n").unwrap();
    }
    let path = bench.resource.join("a.txt");
    let meta = fs::metadata(&path).unwrap();
    fs::write(&path, "A.TXT\n").unwrap();
    set_mtime(&path, meta.mtime(), meta.mtime_nsec());
    let before = bench.manifest();
    let output = bench.assert_code(3, "commit", &["--json"]);
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "conflict", "{error}");
    assert!(error.to_string().contains("a.txt"), "{error}");
    bench.assert_untouched(&before);
    bench.assert_code(3, "commit", &[]);
    bench.ok("commit", &["b.txt", "new.txt"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "A.TXT\n");
}

/// `cap_net_raw+ep` as the kernel stores it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn set_capability(path: &Path) -> bool {
    rustix::fs::setxattr(path, "security.capability", &CAPABILITY, rustix::fs::XattrFlags::empty()).is_ok()
}

#[test]
fn d11_privilege_does_not_leave() {
    let bench = Bench::with(|dir| {
        fs::write(dir.join("was-setuid"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(dir.join("was-setuid"), Permissions::from_mode(0o4755)).unwrap();
    });
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2755), ("both", 0o6711), ("a.txt", 0o4755)] {
        fs::write(bench.tree(name), "#!/bin/sh\nid\n").unwrap();
        fs::set_permissions(bench.tree(name), Permissions::from_mode(mode)).unwrap();
    }
    fs::write(bench.tree("was-setuid"), "#!/bin/sh\nid\n").unwrap();
    fs::set_permissions(bench.tree("was-setuid"), Permissions::from_mode(0o4755)).unwrap();
    fs::write(bench.tree("capable"), "#!/bin/sh\n").unwrap();
    let capable = set_capability(&bench.tree("capable"));
    if !capable {
        skip("file capabilities are not tried: setting one needs root");
    }
    let before = bench.manifest();
    let refused = told(&bench.assert_code(5, "commit", &[]));
    assert!(refused.contains("was-setuid: setuid") && refused.contains("both: setuid, setgid"), "{refused}");
    bench.assert_untouched(&before);
    let told = told(&bench.run("commit", &["--accept-flags"]));
    for name in ["setuid", "setgid", "both", "a.txt", "was-setuid"] {
        if let Ok(meta) = fs::metadata(bench.resource.join(name)) {
            let old = name == "was-setuid" && fs::read(bench.resource.join(name)).unwrap() == b"#!/bin/sh\n";
            assert!(old || meta.mode() & 0o6000 == 0, "{name} kept mode {:o}", meta.mode());
        }
        assert!(told.contains(name), "{name} is not reported: {told}");
    }
    let mut value = [0; 64];
    let left = rustix::fs::getxattr(bench.resource.join("capable"), "security.capability", &mut value[..]);
    assert!(left.is_err(), "a file capability was committed");
    assert!(!capable || told.contains("capable"), "the capability is not reported: {told}");
}

fn make_special(dir: &Path) {
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, dir.join("fifo"), FileType::Fifo, mode, 0).unwrap();
    drop(UnixListener::bind(dir.join("socket")).unwrap());
    let null = rustix::fs::makedev(1, 3);
    if mknodat(CWD, dir.join("device"), FileType::CharacterDevice, mode, null).is_err() {
        skip("a device is not tried: making one needs root");
    }
}

#[test]
fn d12_special_files_hang_nothing_and_are_not_committed() {
    let bench = Bench::new();
    make_special(&bench.sandbox.path);
    fs::write(bench.tree("a.txt"), "changed\n").unwrap();
    let before = bench.manifest();
    let shown = told(&bench.ok("diff", &[]));
    assert!(shown.contains("fifo") && shown.contains("socket"), "{shown}");
    bench.ok("diff", &["--patch"]);
    bench.ok("checkpoint", &["with-special"]);
    let output = bench.run("commit", &[]);
    assert!(told(&output).contains("fifo"), "the pipe is not reported: {}", told(&output));
    let is_special = |name: &str| {
        let meta = fs::symlink_metadata(bench.resource.join(name));
        meta.is_ok_and(|m| {
            m.file_type().is_fifo() || m.file_type().is_socket() || m.file_type().is_char_device()
        })
    };
    assert!(!["fifo", "socket", "device"].into_iter().any(is_special), "a special file was committed");
    if !output.status.success() {
        bench.assert_untouched(&before);
    }
    assert!(!bench.run("read", &["fifo"]).status.success());
    bench.ok("commit", &["a.txt"]);
    bench.ok("rollback", &[]);
    bench.ok("destroy", &[]);
}

#[test]
fn d12_special_files_in_the_original_hang_nothing() {
    let bench = Bench::with(make_special);
    assert_eq!(bench.run("diff", &["--exit-code"]).status.code(), Some(0));
    fs::write(bench.tree("a.txt"), "changed\n").unwrap();
    bench.ok("commit", &[]);
    assert!(fs::symlink_metadata(bench.resource.join("fifo")).unwrap().file_type().is_fifo());
    bench.ok("destroy", &[]);
    assert!(fs::symlink_metadata(bench.resource.join("socket")).unwrap().file_type().is_socket());
}

#[test]
fn d14_a_held_file_cannot_change_what_was_committed() {
    let bench = Bench::new();
    let mut held = OpenOptions::new().write(true).truncate(true).open(bench.tree("a.txt")).unwrap();
    held.write_all(b"reviewed\n").unwrap();
    let mut created = fs::File::create(bench.tree("new.txt")).unwrap();
    created.write_all(b"reviewed\n").unwrap();
    bench.ok("commit", &[]);
    for file in [&mut held, &mut created] {
        file.write_all(b"after the review\n").unwrap();
        file.sync_all().unwrap();
    }
    for name in ["a.txt", "new.txt"] {
        assert_eq!(fs::read_to_string(bench.resource.join(name)).unwrap(), "reviewed\n", "{name}");
    }
    assert_eq!(
        bench.run("diff", &["--exit-code"]).status.code(),
        Some(1),
        "the later write is a new difference"
    );
}

#[test]
fn d15_names_are_escaped_on_screen_and_exact_in_json() {
    let names: [&[u8]; 5] =
        [b"new\nline", b"esc\x1b[31mred", "bidi\u{202e}gpj.exe".as_bytes(), b"invalid\xff\xfe", b"tab\there"];
    let bench = Bench::new();
    for name in names {
        fs::write(bench.sandbox.path.join(OsStr::from_bytes(name)), "text\n").unwrap();
    }
    for options in [&[][..], &["--stat"], &["--patch"]] {
        let shown = bench.ok("diff", options).stdout;
        let text = String::from_utf8_lossy(&shown);
        assert!(
            !shown.contains(&0x1b) && !text.contains('\u{202e}'),
            "{options:?} wrote raw bytes: {text:?}"
        );
        assert!(!text.contains("new\nline"), "{options:?} broke a name over two lines: {text:?}");
    }
    let output = bench.ok("diff", &["--json"]);
    assert!(!output.stdout.contains(&0x1b));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let entries = document["entries"].as_array().unwrap();
    let exact = |entry: &Value| match entry["path_b64"].as_str() {
        Some(encoded) => decode_base64(encoded),
        None => entry["path"].as_str().unwrap().as_bytes().to_vec(),
    };
    let found: Vec<Vec<u8>> = entries.iter().map(exact).collect();
    for name in names {
        assert!(
            found.iter().any(|f| f == name),
            "{:?} was lost in {document}",
            String::from_utf8_lossy(name)
        );
    }
    bench.ok("commit", &[]);
    for name in names {
        assert!(bench.resource.join(OsStr::from_bytes(name)).exists());
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|c| *c != b'=').map(value).collect();
    let bits = digits.iter().flat_map(|d| (0..6).rev().map(move |i| (d >> i) & 1)).collect::<Vec<u8>>();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect()
}
