//! Landlock, by itself: no mount is read-only here.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;

use nix::libc::{EACCES, EPERM, SYS_kill, SYS_truncate, WEXITSTATUS};
use sandboxer_extensions::local::Isolation::{Standard, Strict};
use sandboxer_extensions::local::confine::landlock::{LandlockStatus, restrict};
use sandboxer_testkit::skip;
use tempfile::TempDir;

use crate::inside::{become_init, errno, forked, shell};

pub const CASES: &[crate::Case] = &[
    ("only_named_paths_can_be_written", only_named_paths_can_be_written),
    ("below_them_everything_works", below_them_everything_works),
    ("a_single_file_can_be_named", a_single_file_can_be_named),
    ("devices_work", devices_work),
    ("a_path_that_is_not_there_is_named", a_path_that_is_not_there_is_named),
    ("abstract_sockets_outside_are_out_of_reach", abstract_sockets_outside_are_out_of_reach),
    ("processes_outside_get_no_signal", processes_outside_get_no_signal),
];

/// A directory that can be written, one that cannot, and the version that is in force, if one is.
struct World {
    temp: TempDir,
}

impl World {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["in", "in/sub", "out"] {
            fs::create_dir(temp.path().join(dir)).unwrap();
        }
        fs::write(temp.path().join("out/file"), "outside").unwrap();
        Self { temp }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Restricts this process to the directory. Its version, or why the case is skipped.
    fn restricted(&self) -> Option<i32> {
        become_init();
        match restrict(&[self.path("in")], Standard, false).unwrap() {
            LandlockStatus::Enforced { abi } => Some(abi),
            LandlockStatus::Absent(why) => {
                skip(&why);
                None
            }
        }
    }
}

/// The case's process may not remove all of it any more, so a copy of it does, which was not restricted.
fn in_a_world(case: impl FnOnce(&World)) {
    let world = World::new();
    let status = forked(|| {
        case(&world);
        0
    });
    assert_eq!(status, 0, "see above");
}

fn only_named_paths_can_be_written() {
    in_a_world(|world| {
        let Some(abi) = world.restricted() else { return };
        let out = world.path("out");
        let refused = |result: std::io::Result<()>, what: &str| {
            assert_eq!(result.map_err(|e| e.kind()), Err(ErrorKind::PermissionDenied), "{what}");
        };
        refused(fs::write(out.join("new"), ""), "create");
        refused(OpenOptions::new().append(true).open(out.join("file")).map(drop), "append");
        refused(fs::remove_file(out.join("file")), "remove");
        refused(fs::create_dir(out.join("dir")), "mkdir");
        refused(fs::rename(out.join("file"), out.join("other")), "rename");
        refused(std::os::unix::fs::symlink("x", out.join("link")), "symlink");
        if abi >= 3 {
            let name = format!("{}\0", out.join("file").display());
            assert_eq!(errno(SYS_truncate, [name.as_ptr() as u64, 0, 0, 0, 0]), EACCES);
        }
        // From or to another place is another device to Landlock, unless neither side may be changed.
        assert!(fs::rename(out.join("file"), world.path("in/file")).is_err());
        assert!(fs::hard_link(out.join("file"), world.path("in/file")).is_err());
        assert_eq!(fs::read(out.join("file")).unwrap(), b"outside");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    });
}

fn below_them_everything_works() {
    in_a_world(|world| {
        if world.restricted().is_none() {
            return;
        }
        let dir = world.path("in");
        std::env::set_current_dir(&dir).unwrap();
        shell(
            "echo x >file && mv file sub/moved && ln sub/moved again && truncate -s 0 again && chmod 700 again",
        );
        shell("mkdir new && mv new sub/ && ln -s sub link && rm again && mkfifo pipe && rm -r sub link pipe");
        let _listener = UnixListener::bind("socket").unwrap();
        UnixStream::connect("socket").unwrap();
        File::create_new("exclusive").unwrap();
    });
}

fn a_single_file_can_be_named() {
    in_a_world(|world| {
        become_init();
        restrict(&[world.path("in"), world.path("out/file")], Standard, false).unwrap();
        fs::write(world.path("out/file"), "changed").unwrap();
    });
}

fn devices_work() {
    in_a_world(|world| {
        if world.restricted().is_none() {
            return;
        }
        fs::write("/dev/null", "x").unwrap();
        let terminal = nix::pty::openpty(None, None).unwrap();
        rustix::termios::tcgetwinsize(&terminal.slave).unwrap();
        fs::write("/proc/self/comm", "renamed").unwrap();
    });
}

fn a_path_that_is_not_there_is_named() {
    in_a_world(|world| {
        become_init();
        let step = restrict(&[world.path("nowhere")], Standard, false).unwrap_err();
        assert!(step.to_string().contains(world.path("nowhere").to_str().unwrap()), "{step}");
        assert!(step.reason.contains("os error 2") || step.reason.contains("No such file"), "{step}");
    });
}

fn abstract_sockets_outside_are_out_of_reach() {
    in_a_world(|world| {
        let name = |what: &str| {
            SocketAddr::from_abstract_name(format!("{}/{what}", world.path("").display())).unwrap()
        };
        let _outside = UnixListener::bind_addr(&name("outside")).unwrap();
        let code = forked(|| {
            become_init();
            match restrict(&[world.path("in")], Strict, true) {
                Err(step) if step.reason.contains("abstract") => return 77,
                status => assert!(status.unwrap().is_scoped()),
            }
            let error = UnixStream::connect_addr(&name("outside")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(EPERM));
            let _inside = UnixListener::bind_addr(&name("inside")).unwrap();
            UnixStream::connect_addr(&name("inside")).unwrap();
            0
        });
        match WEXITSTATUS(code) {
            77 => skip("this kernel's Landlock has no scopes"),
            _ => assert_eq!(code, 0),
        }
    });
}

fn processes_outside_get_no_signal() {
    in_a_world(|world| {
        let outside = std::process::id().into();
        let code = forked(|| {
            if world.restricted().is_none_or(|abi| abi < 6) {
                return 0;
            }
            let own = errno(SYS_kill, [std::process::id().into(), 0, 0, 0, 0]);
            i32::from((errno(SYS_kill, [outside, 0, 0, 0, 0]), own) != (EPERM, 0))
        });
        assert_eq!(code, 0);
    });
}
