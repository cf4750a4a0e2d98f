//! What every build does works under the filter.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};

use nix::libc::{self, c_long};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fs::{FlockOperation, MemfdFlags, flock, inotify, memfd_create};
use sandboxer_extensions::local::Isolation::{self, Standard, Strict};

use crate::inside::{confined, errno, shell};

pub const CASES: &[crate::Case] = &[
    ("a_build_works_in_standard", || a_build_works(Standard)),
    ("a_build_works_in_strict", || a_build_works(Strict)),
    ("an_init_works_in_strict", an_init_works),
    ("a_shell_works_with_a_terminal", a_shell_works_with_a_terminal),
];

fn a_build_works(isolation: Isolation) {
    let temp = tempfile::tempdir().unwrap();
    std::env::set_current_dir(&temp).unwrap();
    confined(isolation);
    threads_wait_for_one_another();
    processes_talk();
    sockets_connect();
    files_are_locked_and_watched();
    assert_eq!(shell("echo $(printf '3\\n1\\n2\\n' | sort -n)"), "1 2 3");
    assert_eq!(shell("(sleep 100 & kill -9 $!; wait $!; echo $?) 2>/dev/null"), "137");
}

fn threads_wait_for_one_another() {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                *shared.0.lock().unwrap() += 1;
                shared.1.notify_all();
            })
        })
        .collect();
    let _all = shared.1.wait_while(shared.0.lock().unwrap(), |count| *count < 4).unwrap();
    drop(_all);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn processes_talk() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut child = std::process::Command::new("echo").arg("hello").stdout(writer).spawn().unwrap();
    let mut heard = String::new();
    reader.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "hello\n");
    assert!(child.wait().unwrap().success());
}

fn sockets_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"x").unwrap();
    let mut letter = [0];
    listener.accept().unwrap().0.read_exact(&mut letter).unwrap();
    assert_eq!(letter, *b"x");
    UdpSocket::bind("127.0.0.1:0").unwrap();
    let local = UnixListener::bind("socket").unwrap();
    UnixStream::connect("socket").unwrap();
    local.accept().unwrap();
    UnixStream::pair().unwrap();
    UnixDatagram::pair().unwrap();
    // This is how the C library asks for addresses: a raw socket by name, but not one of the internet.
    let netlink =
        [libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE].map(|n| n as u64);
    assert_eq!(errno(libc::SYS_socket, [netlink[0], netlink[1], netlink[2], 0, 0]), 0);
    let packets = [libc::AF_UNIX, libc::SOCK_SEQPACKET, 0].map(|n| n as u64);
    assert_eq!(errno(libc::SYS_socket, [packets[0], packets[1], packets[2], 0, 0]), 0);
}

fn files_are_locked_and_watched() {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, ".", inotify::WatchFlags::CREATE).unwrap();
    let file = std::fs::File::create("locked").unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    std::fs::rename("locked", "moved").unwrap();
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&set, &watch, epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
    let mut events = Vec::with_capacity(1);
    assert_eq!(epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None).unwrap(), 1);
    let memory = memfd_create("shared", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 4096).unwrap();
    let woken = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
    let mut ready = [PollFd::new(&woken, PollFlags::IN)];
    assert_eq!(poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap(), 1);
}

/// What init does after it has confined itself.
fn an_init_works() {
    confined(Strict);
    rustix::process::chdir("/").unwrap();
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::getrlimit(rustix::process::Resource::Nofile),
    )
    .unwrap();
    // An empty mask, and a first descriptor past every other.
    let empty = [0u64; 16];
    let signals: [(c_long, [u64; 5]); 2] = [
        (libc::SYS_signalfd4, [u64::MAX, empty.as_ptr() as u64, 8, libc::SFD_CLOEXEC as u64, 0]),
        (libc::SYS_close_range, [1000, u64::from(u32::MAX), 0, 0, 0]),
    ];
    for (call, arguments) in signals {
        assert_eq!(errno(call, arguments), 0, "call {call}");
    }
    let status = crate::inside::forked(|| i32::from(rustix::process::setsid().is_err()));
    assert_eq!(status, 0);
}

fn a_shell_works_with_a_terminal() {
    confined(Strict);
    let terminal = nix::pty::openpty(None, None).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal.master, size).unwrap();
    let slave = terminal.slave.as_raw_fd();
    let status = crate::inside::forked(|| {
        let led = rustix::process::setsid().is_ok()
            && errno(libc::SYS_ioctl, [slave as u64, libc::TIOCSCTTY, 0, 0, 0]) == 0;
        let controls = std::fs::File::open("/dev/tty").is_ok();
        i32::from(!(led && controls))
    });
    assert_eq!(status, 0);
    assert_eq!(rustix::termios::tcgetwinsize(&terminal.slave).unwrap().ws_col, 80);
}
