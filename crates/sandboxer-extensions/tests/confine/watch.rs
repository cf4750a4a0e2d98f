//! Watching: what is told of, and that nothing is changed by it. Landlock does the refusing.

use std::fs;
use std::io::{PipeReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::libc::{self, AT_FDCWD, EFAULT, ENOENT, ENOSYS, O_CREAT, O_RDONLY, O_RDWR, O_WRONLY, WEXITSTATUS};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sandboxer_extensions::local::Isolation::Standard;
use sandboxer_extensions::local::confine::landlock::{LandlockStatus, restrict};
use sandboxer_extensions::local::confine::watch::{Refused, Watcher, install};
use sandboxer_testkit::skip;
use tempfile::TempDir;

use crate::inside::{become_init, errno, shell, waited};

pub const CASES: &[crate::Case] = &[
    ("every_way_to_write_outside_is_told", every_way_to_write_outside_is_told),
    ("relative_paths_and_descriptors_are_understood", relative_paths_and_descriptors_are_understood),
    ("flags_in_memory_are_read", flags_in_memory_are_read),
    ("what_is_no_refusal_is_not_told", what_is_no_refusal_is_not_told),
    ("no_answer_of_the_kernel_is_changed", no_answer_of_the_kernel_is_changed),
    ("many_threads_are_served", many_threads_are_served),
    ("no_more_than_a_thousand_are_told", no_more_than_a_thousand_are_told),
    ("a_watcher_ends_with_those_it_watches", a_watcher_ends_with_those_it_watches),
    ("without_a_watcher_watched_calls_fail", without_a_watcher_watched_calls_fail),
];

/// A directory that can be written and one that cannot.
struct World {
    temp: TempDir,
}

impl World {
    /// None if nothing refuses here.
    fn new() -> Option<Self> {
        let world = Self { temp: tempfile::tempdir().unwrap() };
        for dir in ["in", "out", "out/dir"] {
            fs::create_dir(world.path(dir)).unwrap();
        }
        fs::write(world.path("out/file"), "outside").unwrap();
        let refuses = crate::inside::forked(|| {
            i32::from(matches!(restrict(&[world.path("in")], Standard, false), Ok(LandlockStatus::Absent(_))))
        });
        if refuses != 0 {
            skip("there is no Landlock, so nothing is refused");
        }
        (refuses == 0).then_some(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// What is told while `what` runs in namespaces of its own, restricted to one directory, and what that returned.
    fn watched(&self, what: impl FnOnce() -> i32) -> (Vec<PathBuf>, i32) {
        let (child, listener) = self.started(what);
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let told = told.clone();
            move |refused: Refused| told.lock().unwrap().push(refused.path)
        };
        let watcher = Watcher::start(listener, vec![self.path("in")], Arc::new(tell)).unwrap();
        let status = waited(child);
        drop(watcher);
        (Arc::into_inner(told).unwrap().into_inner().unwrap(), status)
    }

    /// What is told of a shell script, relative to the directory that cannot be written.
    fn told(&self, script: &str) -> Vec<String> {
        let (told, status) = self.watched(|| {
            std::env::set_current_dir(self.path("")).unwrap();
            shell(script);
            0
        });
        assert_eq!(status, 0);
        told.iter()
            .map(|path| path.strip_prefix(self.path("out")).unwrap().to_str().unwrap().to_owned())
            .collect()
    }

    /// A process that is the first of a pid namespace, and its listener, which is fetched from it.
    fn started(&self, what: impl FnOnce() -> i32) -> (libc::pid_t, OwnedFd) {
        let (number, mut tell) = std::io::pipe().unwrap();
        let (mut go, gone) = std::io::pipe().unwrap();
        become_init();
        // Who unshares that namespace cannot have another thread, so the child is made in it at once.
        let flags = libc::CLONE_NEWPID | libc::SIGCHLD;
        // SAFETY: without a stack or an address this is `fork`, and the process has one thread.
        match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } as libc::pid_t {
            -1 => panic!("clone: {}", std::io::Error::last_os_error()),
            0 => {
                drop(gone);
                let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    assert_eq!(std::process::id(), 1);
                    become_init();
                    restrict(&[self.path("in")], Standard, false).unwrap();
                    let listener = install().unwrap();
                    tell.write_all(&listener.as_raw_fd().to_ne_bytes()).unwrap();
                    go.read_to_end(&mut Vec::new()).unwrap();
                    drop((listener, tell));
                    what()
                }));
                // SAFETY: nothing is to be cleaned up in the copy.
                unsafe { libc::_exit(code.unwrap_or(101)) }
            }
            child => {
                drop(tell);
                let listener = fetched(child, number);
                drop(gone);
                (child, listener)
            }
        }
    }
}

fn fetched(child: libc::pid_t, mut number: PipeReader) -> OwnedFd {
    let mut bytes = [0; 4];
    number.read_exact(&mut bytes).unwrap();
    let process = pidfd_open(Pid::from_raw(child).unwrap(), PidfdFlags::empty()).unwrap();
    pidfd_getfd(process, i32::from_ne_bytes(bytes), PidfdGetfdFlags::empty()).unwrap()
}

fn every_way_to_write_outside_is_told() {
    let Some(world) = World::new() else { return };
    let told = world.told(
        "exec 2>/dev/null; echo x >out/new; echo x >>out/file; mkdir out/made; rmdir out/dir; ln -s x out/link;\
         echo x >in/y; ln in/y out/hard; mkfifo out/pipe; mv out/file out/moved; cp in/y out/copy; true",
    );
    assert_eq!(told, ["new", "file", "made", "dir", "link", "hard", "pipe", "moved", "copy"]);
    assert_eq!(fs::read(world.path("out/file")).unwrap(), b"outside");
}

fn relative_paths_and_descriptors_are_understood() {
    let Some(world) = World::new() else { return };
    let (told, _) = world.watched(|| {
        std::env::set_current_dir(world.path("in")).unwrap();
        let write = (O_WRONLY | O_CREAT) as u64;
        errno(libc::SYS_openat, [AT_FDCWD as u64, c"../out/a".as_ptr() as u64, write, 0o600, 0]);
        let dir = fs::File::open(world.path("out")).unwrap();
        errno(libc::SYS_openat, [dir.as_raw_fd() as u64, c"b".as_ptr() as u64, write, 0o600, 0]);
        errno(libc::SYS_mkdirat, [dir.as_raw_fd() as u64, c"../in/c".as_ptr() as u64, 0o700, 0, 0]);
        // The directory does not matter to a path that is absolute, and is an `int`.
        let absolute = format!("{}\0", world.path("out/d").display());
        errno(libc::SYS_openat, [u64::MAX, absolute.as_ptr() as u64, write, 0o600, 0]);
        errno(libc::SYS_openat, [u64::from(AT_FDCWD as u32), c"../out/e".as_ptr() as u64, write, 0o600, 0])
    });
    assert_eq!(told, ["a", "b", "d", "e"].map(|name| world.path("out").join(name)));
    assert!(world.path("in/c").is_dir());
}

fn flags_in_memory_are_read() {
    let Some(world) = World::new() else { return };
    let (told, status) = world.watched(|| {
        let open = |path: &str, flags: i32| {
            let how = [flags as u64, 0, 0];
            let path = format!("{}\0", world.path(path).display());
            errno(libc::SYS_openat2, [AT_FDCWD as u64, path.as_ptr() as u64, how.as_ptr() as u64, 24, 0])
        };
        assert_ne!(open("out/file", O_RDWR), 0);
        open("out/dir", O_RDONLY)
    });
    assert_eq!((told, status), (vec![world.path("out/file")], 0));
}

fn what_is_no_refusal_is_not_told() {
    let Some(world) = World::new() else { return };
    let told = world.told(
        "cat out/file >/dev/null; ls out >/dev/null; echo x >in/new; rm in/new; mkdir -p out/dir; rm -f out/none;\
         [ ! -e out/none ] && echo x >/dev/null && echo renamed >/proc/self/comm",
    );
    assert_eq!(told, Vec::<String>::new());
}

fn no_answer_of_the_kernel_is_changed() {
    let Some(world) = World::new() else { return };
    let (told, status) = world.watched(|| {
        let open = |path: u64| {
            errno(libc::SYS_openat, [AT_FDCWD as u64, path, (O_WRONLY | O_CREAT) as u64, 0o600, 0])
        };
        assert_eq!(open(u64::MAX), EFAULT);
        assert_eq!(open(8), EFAULT);
        assert_eq!(open(c"".as_ptr() as u64), ENOENT);
        let endless = vec![b'x'; 10_000];
        assert_eq!(open(endless.as_ptr() as u64), libc::ENAMETOOLONG);
        at_the_end_of_memory(&world.path("in/there"), &open);
        0
    });
    assert_eq!((told, status), (Vec::new(), 0));
    assert!(world.path("in/there").exists());
}

/// A path whose last byte is the last that there is.
fn at_the_end_of_memory(path: &Path, open: &dyn Fn(u64) -> i32) {
    let path = format!("{}\0", path.display());
    // SAFETY: two new pages, of which the second is given back, and the path is copied into the first.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let pages = libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(pages, libc::MAP_FAILED);
        assert_eq!(libc::munmap(pages.byte_add(4096), 4096), 0);
        let start = pages.byte_add(4096 - path.len()).cast::<u8>();
        start.copy_from_nonoverlapping(path.as_ptr(), path.len());
        assert_eq!(open(start as u64), 0);
    }
}

fn many_threads_are_served() {
    let Some(world) = World::new() else { return };
    let dir = world.path("in");
    let (told, status) = world.watched(|| {
        let write = |thread: usize| {
            (0..200).for_each(|file| fs::write(dir.join(format!("{thread}-{file}")), "x").unwrap());
            fs::write(world.path("out/file"), "x").unwrap_err();
        };
        std::thread::scope(|scope| (0..8).for_each(|thread| drop(scope.spawn(move || write(thread)))));
        0
    });
    assert_eq!((told, status), (vec![world.path("out/file")], 0));
    assert_eq!(fs::read_dir(world.path("in")).unwrap().count(), 1600);
}

fn no_more_than_a_thousand_are_told() {
    let Some(world) = World::new() else { return };
    let (told, _) = world.watched(|| {
        (0..1100).for_each(|file| drop(fs::write(world.path("out").join(file.to_string()), "")));
        0
    });
    assert_eq!(told.len(), 1000);
}

fn a_watcher_ends_with_those_it_watches() {
    let Some(world) = World::new() else { return };
    let (child, listener) = world.started(|| 0);
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let watcher = Watcher::start(listener, Vec::new(), Arc::new(|_| {})).unwrap();
    assert_eq!(waited(child), 0);
    let start = Instant::now();
    while threads() > before {
        assert!(start.elapsed() < Duration::from_secs(60), "it still waits");
        std::thread::yield_now();
    }
    drop(watcher);
}

fn without_a_watcher_watched_calls_fail() {
    let Some(world) = World::new() else { return };
    let (child, listener) = world
        .started(|| fs::write(world.path("in/file"), "").map_or_else(|e| e.raw_os_error().unwrap(), |()| 0));
    drop(listener);
    assert_eq!(WEXITSTATUS(waited(child)), ENOSYS);
}
