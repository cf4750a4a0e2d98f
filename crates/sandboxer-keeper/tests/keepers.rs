//! Keepers as an ordinary user has them.
//!
//! A keeper is the program that started it, under another name. So this test has a `main` of its own and is that program:
//! an example would do as well, but cargo does not build those for every way of running tests. What it tests is for those
//! who may not mount on the host: run by root, it starts itself as an ordinary user for each case, and stays root for the one
//! that needs two users.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use sandboxer_core::Error;
use sandboxer_keeper::{Keeper, Keepers, Overlay, Unmounted, fresh_work, mount, serve_if_asked};
use sandboxer_testkit::users::USER;
use sandboxer_testkit::{skip, users};
use tempfile::TempDir;

type Test = (&'static str, fn(&Case));

const TESTS: &[Test] = &[
    ("what_it_mounts_is_used_from_outside", what_it_mounts_is_used_from_outside),
    ("a_replaced_directory_is_marked_opaque", a_replaced_directory_is_marked_opaque),
    ("names_and_paths_of_any_kind", names_and_paths_of_any_kind),
    ("a_busy_mount_stays", a_busy_mount_stays),
    ("errors_are_those_of_the_mount", errors_are_those_of_the_mount),
    ("what_the_keeper_sees_otherwise_is_not_mounted", what_the_keeper_sees_otherwise_is_not_mounted),
    ("a_killed_keeper_is_replaced_and_nothing_lost", a_killed_keeper_is_replaced_and_nothing_lost),
    ("two_starts_at_once_give_one_keeper", two_starts_at_once_give_one_keeper),
    ("an_ended_keeper_leaves_nothing", an_ended_keeper_leaves_nothing),
    ("an_end_unmounts_before_it_is_reported", an_end_unmounts_before_it_is_reported),
    ("whoever_talks_nonsense_harms_nobody", whoever_talks_nonsense_harms_nobody),
    ("it_belongs_to_no_terminal_and_to_no_pipe", it_belongs_to_no_terminal_and_to_no_pipe),
    ("nobody_waits_for_what_it_inherited", nobody_waits_for_what_it_inherited),
    ("a_mount_inside_a_layer_is_named", a_mount_inside_a_layer_is_named),
    ("the_trial_leaves_nothing", the_trial_leaves_nothing),
    ("a_keeper_without_its_directory_ends", a_keeper_without_its_directory_ends),
    ("a_directory_put_in_its_place_is_not_its_own", a_directory_put_in_its_place_is_not_its_own),
    ("silent_clients_keep_nobody_waiting", silent_clients_keep_nobody_waiting),
    ("a_stopped_keeper_is_reported_and_not_replaced", a_stopped_keeper_is_reported_and_not_replaced),
];

fn main() {
    serve_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [verb, dir] if verb == "start" => drop(keepers(Path::new(dir)).start("it").unwrap()),
        [verb, dir] if verb == "end" => keepers(Path::new(dir)).end("it").unwrap(),
        [verb, dir] if verb == "try" => {
            keepers(Path::new(dir)).try_user().unwrap_or_else(|why| print!("{why}"))
        }
        [verb, ..] if verb == "case" || verb == "as-user" => exit(users::as_ordinary_user(run_case)),
        _ => libtest_mimic::run(&Arguments::from_args(), trials()).exit(),
    }
}

fn trials() -> Vec<Trial> {
    let as_user = TESTS.iter().map(|(name, _)| Trial::test(*name, move || start(name)));
    let as_root = Trial::test("another_user_is_refused", || {
        another_user_is_refused();
        Ok(())
    });
    as_user.chain([as_root]).collect()
}

/// Starts the case in a process of its own. Cases must not share one: a process that is being started holds for a moment
/// what the others have open, which makes a mount busy.
fn start(name: &str) -> Result<(), Failed> {
    let status = Command::new("/proc/self/exe").args(["case", name]).status()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

/// Runs the case in a thread of its name.
fn run_case(arguments: &[String]) -> i32 {
    let (name, test) = TESTS.iter().find(|test| test.0 == arguments[1]).unwrap();
    let run = || match Case::new().keepers.try_user() {
        Ok(()) => test(&Case::new()),
        Err(why) => skip(&why),
    };
    let thread = std::thread::Builder::new().name((*name).to_owned()).spawn(run).unwrap();
    if thread.join().is_ok() { 0 } else { 101 }
}

/// A state directory, the directories of an overlay, and no keeper left when it is dropped.
struct Case {
    temp: TempDir,
    keepers: Keepers,
    overlay: Overlay,
}

fn keepers(dir: &Path) -> Keepers {
    Keepers::new(&dir.join("keepers"), Path::new("/proc/self/exe"))
}

impl Case {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let overlay = overlay_in(&temp.path().join("ws"));
        Self { keepers: keepers(temp.path()), temp, overlay }
    }

    fn dir(&self) -> PathBuf {
        self.temp.path().join("keepers/it")
    }

    fn mounted(&self) -> Keeper {
        let keeper = self.keepers.start("it").unwrap();
        keeper.mount(&self.overlay).unwrap();
        keeper
    }

    /// What somebody says to the keeper, and what is heard until it hangs up.
    fn said(&self, bytes: &[u8]) -> String {
        let mut socket = connected(&self.dir());
        // It may hang up before everything was said.
        let _ = socket.write_all(bytes);
        let mut heard = String::new();
        let _ = socket.read_to_string(&mut heard);
        heard
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        for (id, pid) in self.keepers.running() {
            if let Err(e) = self.keepers.end(&id) {
                eprintln!("keeper {id} ({pid}): {e}");
            }
        }
        let _ = fresh_work(&self.overlay.work);
    }
}

fn overlay_in(base: &Path) -> Overlay {
    let [lower, upper, work, at] = ["lower", "upper", "work", "at"].map(|name| base.join(name));
    [&lower, &upper, &work, &at].into_iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
    fs::write(lower.join("file"), "lower").unwrap();
    fs::create_dir(lower.join("dir")).unwrap();
    fs::write(lower.join("dir/inner"), "lower").unwrap();
    Overlay { lowers: vec![lower], upper, work, at, volatile: true }
}

fn connected(dir: &Path) -> UnixStream {
    let dir = fs::File::open(dir).unwrap();
    let socket = UnixStream::connect(format!("/proc/self/fd/{}/socket", dir.as_raw_fd())).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|facts| facts.file_type().is_char_device() && facts.rdev() == 0)
}

fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits for something that has to come, for as long as a slow machine may need.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn what_it_mounts_is_used_from_outside(case: &Case) {
    let keeper = case.mounted();
    let at = keeper.reach(&case.overlay.at);
    assert!(keeper.is_mounted(&case.overlay.at).unwrap() && !keeper.is_mounted(&case.overlay.upper).unwrap());
    assert!(!mount::is_mounted(&case.overlay.at).unwrap(), "nothing gets out of the namespace");
    assert_eq!(fs::read_dir(&case.overlay.at).unwrap().count(), 0);
    fs::write(at.join("file"), "upper").unwrap();
    fs::write(at.join("new"), "new").unwrap();
    fs::remove_dir_all(at.join("dir")).unwrap();
    let upper = &case.overlay.upper;
    assert_eq!(fs::read_to_string(upper.join("file")).unwrap(), "upper");
    assert_eq!(fs::read_to_string(case.overlay.lowers[0].join("file")).unwrap(), "lower");
    assert!(is_whiteout(&upper.join("dir")) && case.overlay.lowers[0].join("dir/inner").exists());
    let us = rustix::process::geteuid().as_raw();
    assert_eq!(fs::metadata(at.join("new")).unwrap().uid(), us);
    assert_eq!(fs::metadata(upper.join("new")).unwrap().uid(), us);
    assert_eq!(keeper.unmount(&case.overlay.at).unwrap(), Unmounted::Done);
    assert_eq!(keeper.unmount(&case.overlay.at).unwrap(), Unmounted::NotMounted);
    assert!(!keeper.is_mounted(&case.overlay.at).unwrap());
    assert!(fresh_work(&case.overlay.work).unwrap(), "a volatile mount leaves its mark");
}

fn a_replaced_directory_is_marked_opaque(case: &Case) {
    let keeper = case.mounted();
    let dir = keeper.reach(&case.overlay.at).join("dir");
    fs::remove_dir_all(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    let mut mark = [0; 8];
    let path = case.overlay.upper.join("dir");
    let length = rustix::fs::getxattr(&path, "user.overlay.opaque", &mut mark[..]).unwrap();
    assert_eq!(&mark[..length], b"y");
    assert!(fs::rename(keeper.reach(&case.overlay.at).join("file"), dir.join("moved")).is_ok());
}

fn names_and_paths_of_any_kind(case: &Case) {
    let mut base = case.temp.path().join(OsStr::from_bytes(b"a:b,c\\ \n\xff\""));
    let keeper = case.keepers.start("it").unwrap();
    for _ in 0..2 {
        let overlay = overlay_in(&base);
        keeper.mount(&overlay).unwrap();
        assert!(keeper.is_mounted(&overlay.at).unwrap());
        assert_eq!(fs::read_to_string(keeper.reach(&overlay.at.join("file"))).unwrap(), "lower");
        assert_eq!(keeper.unmount(&overlay.at).unwrap(), Unmounted::Done);
        fresh_work(&overlay.work).unwrap();
        while base.as_os_str().len() < 3600 {
            base.push("n".repeat(240));
        }
    }
    // The socket's path is longer than an address may be, too.
    let far = Keepers::new(&base, Path::new("/proc/self/exe"));
    assert_eq!(far.running().len(), 0);
    let pid = far.start("it").unwrap().pid();
    assert_eq!(far.running(), [("it".to_owned(), pid)]);
    far.end("it").unwrap();
}

fn a_busy_mount_stays(case: &Case) {
    let keeper = case.mounted();
    let at = keeper.reach(&case.overlay.at);
    let dev = fs::metadata(&at).unwrap().dev();
    let file = fs::File::open(at.join("file")).unwrap();
    assert_eq!(keeper.unmount(&case.overlay.at).unwrap(), Unmounted::Busy);
    let pids = || mount::holders(dev).iter().map(|holder| holder.pid).collect::<Vec<_>>();
    assert_eq!(pids(), [std::process::id()]);
    drop(file);
    assert_eq!(pids(), [0; 0]);
    assert_eq!(keeper.unmount(&case.overlay.at).unwrap(), Unmounted::Done);
}

fn errors_are_those_of_the_mount(case: &Case) {
    let keeper = case.mounted();
    let Err(Error::Io { step, path, source }) = keeper.mount(&case.overlay) else { panic!("mounted twice") };
    assert_eq!((step, &path), ("mount overlay at", &case.overlay.at));
    assert!(source.to_string().contains("already"), "{source}");
    let gone = case.temp.path().join("gone");
    let overlay = Overlay { lowers: vec![gone.clone()], ..overlay_in(&case.temp.path().join("other")) };
    let Err(Error::Io { path, source, .. }) = keeper.mount(&overlay) else { panic!() };
    assert_eq!((path, source.kind()), (gone, std::io::ErrorKind::NotFound));
}

fn what_the_keeper_sees_otherwise_is_not_mounted(case: &Case) {
    let keeper = case.keepers.start("it").unwrap();
    let identity = |path: &Path| fs::metadata(path).map(|facts| [facts.dev(), facts.ino()]).unwrap();
    let Overlay { lowers, upper, work, .. } = &case.overlay;
    let right = [identity(&lowers[0]), identity(upper), identity(work)];
    let wrong = [identity(Path::new("/")), right[1], right[2]];
    let request = |seen: &[[u64; 2]]| {
        let request = serde_json::json!({"mount": {"overlay": case.overlay, "seen": seen}});
        case.said(format!("{request}\n").as_bytes())
    };
    assert!(request(&wrong).contains("sees another directory") && request(&right[..2]).contains("failed"));
    assert!(!keeper.is_mounted(&case.overlay.at).unwrap());
    assert_eq!(request(&right), "\"done\"\n");
}

fn a_killed_keeper_is_replaced_and_nothing_lost(case: &Case) {
    let first = case.mounted();
    fs::write(first.reach(&case.overlay.at).join("new"), "kept").unwrap();
    signal(first.pid(), rustix::process::Signal::KILL);
    until("a killed keeper is not found", || case.keepers.find("it").is_ok_and(|found| found.is_none()));
    assert!(case.dir().join("socket").exists(), "it had no time to clean up");
    assert!(!runs(first.pid()) && !first.is_mounted(&case.overlay.at).unwrap());
    assert!(fresh_work(&case.overlay.work).unwrap());
    let second = case.mounted();
    assert_ne!(first.pid(), second.pid());
    assert_eq!(fs::read_to_string(second.reach(&case.overlay.at).join("new")).unwrap(), "kept");
    assert!(first.unmount(&case.overlay.at).is_err(), "nobody is taken for a keeper that is gone");
}

fn two_starts_at_once_give_one_keeper(case: &Case) {
    let start = || case.keepers.start("it").unwrap().pid();
    let pids = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(pids.iter().all(|pid| *pid == pids[0] && runs(*pid)), "{pids:?}");
    assert_eq!(case.keepers.running(), [("it".to_owned(), pids[0])]);
}

fn an_ended_keeper_leaves_nothing(case: &Case) {
    let keeper = case.mounted();
    case.keepers.end("it").unwrap();
    assert!(!Path::new(&format!("/proc/{}", keeper.pid())).exists(), "not even a zombie");
    assert!(!case.dir().exists());
    assert_eq!(case.keepers.running(), []);
    case.keepers.end("it").unwrap();
    fs::create_dir(case.dir()).unwrap();
    case.keepers.end("it").unwrap();
    assert!(!case.dir().exists());
}

fn an_end_unmounts_before_it_is_reported(case: &Case) {
    for turn in 0..20 {
        let keeper = case.mounted();
        fs::write(keeper.reach(&case.overlay.at).join("turn"), turn.to_string()).unwrap();
        case.keepers.end("it").unwrap();
        assert!(fresh_work(&case.overlay.work).unwrap());
        assert_eq!(fs::read_to_string(case.overlay.upper.join("turn")).unwrap(), turn.to_string());
    }
}

fn a_keeper_without_its_directory_ends(case: &Case) {
    let pid = case.mounted().pid();
    fs::remove_dir_all(case.dir()).unwrap();
    until("a keeper without its directory ends", || case.keepers.find("it").is_ok() && !runs(pid));
}

fn a_directory_put_in_its_place_is_not_its_own(case: &Case) {
    let first = case.keepers.start("it").unwrap().pid();
    fs::rename(case.dir(), case.temp.path().join("aside")).unwrap();
    let second = case.keepers.start("it").unwrap().pid();
    assert_ne!(first, second);
    until("a keeper whose directory was replaced ends", || case.keepers.find("it").is_ok() && !runs(first));
    assert!(runs(second));
}

fn whoever_talks_nonsense_harms_nobody(case: &Case) {
    let keeper = case.mounted();
    for nonsense in [&b"garbage\n"[..], b"\n", b"{\"mount\":{}}\n", b"\"no\"\n", b"\xff\xfe\n", b"[[[[[[\n"] {
        assert!(case.said(nonsense).contains("failed"), "{nonsense:?}");
    }
    assert!(case.said(&b"[".repeat(1 << 20)).len() < 1000, "deep nesting is refused");
    assert!(case.said(&vec![b'x'; 20 << 20]).contains("too long"));
    drop(connected(&case.dir()));
    assert!(case.said(b"\"hello\"\n").contains(&format!("\"pid\":{}", keeper.pid())));
    assert!(keeper.is_mounted(&case.overlay.at).unwrap());
}

fn silent_clients_keep_nobody_waiting(case: &Case) {
    let keeper = case.mounted();
    let silent: Vec<UnixStream> = (0..20).map(|_| connected(&case.dir())).collect();
    assert_eq!(keeper.unmount(&case.overlay.at).unwrap(), Unmounted::Done);
    for mut socket in silent {
        let mut heard = String::new();
        let _ = socket.read_to_string(&mut heard);
        assert!(heard.contains("failed"), "they are told, and let go: {heard}");
    }
}

fn it_belongs_to_no_terminal_and_to_no_pipe(case: &Case) {
    let pid = case.keepers.start("it").unwrap().pid();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!(
        (fields[2], fields[3]),
        (&*pid.to_string(), &*pid.to_string()),
        "group and session are its own"
    );
    for fd in 0..3 {
        assert_eq!(fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap(), Path::new("/dev/null"));
    }
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "sandbox-keeper\n");
    assert!(fs::read(format!("/proc/{pid}/cmdline")).unwrap().starts_with(b"sandbox-keeper\0"));
    for (name, mode) in [("", 0o700), ("socket", 0o600), ("lock", 0o600)] {
        let found = fs::metadata(case.dir().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found & 0o077, 0, "{name}: {found:o}, not {mode:o}");
    }
}

/// A descriptor that goes through every exec is given to a program which starts a keeper; its end has to come with that
/// program's.
fn nobody_waits_for_what_it_inherited(case: &Case) {
    let (mut ours, theirs) = std::io::pipe().unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec 7>&1 >/dev/null; exec \"$0\" start \"$1\""]);
    command.arg(std::env::current_exe().unwrap()).arg(case.temp.path()).stdout(theirs);
    assert!(command.status().unwrap().success());
    drop(command);
    let reader = std::thread::spawn(move || ours.read_to_end(&mut Vec::new()));
    let pid = case.keepers.find("it").unwrap().unwrap().pid();
    until("the pipe is closed though the keeper runs", || reader.is_finished());
    assert!(runs(pid));
}

fn a_stopped_keeper_is_reported_and_not_replaced(case: &Case) {
    let pid = case.keepers.start("it").unwrap().pid();
    signal(pid, rustix::process::Signal::STOP);
    let found = catch_unwind(AssertUnwindSafe(|| case.keepers.start("it")));
    signal(pid, rustix::process::Signal::CONT);
    let Ok(Err(Error::Refused { reason, hint })) = found else { panic!("{found:?}") };
    assert!(reason.contains("does not answer") && hint.unwrap().contains(&format!("kill {pid}")));
    assert_eq!(case.keepers.start("it").unwrap().pid(), pid);
}

fn a_mount_inside_a_layer_is_named(case: &Case) {
    let keeper = case.keepers.start("it").unwrap();
    let overlay = Overlay { lowers: vec!["/dev".into()], ..case.overlay.clone() };
    if mount::submounts(Path::new("/dev")).unwrap().is_empty() {
        skip("nothing is mounted below /dev");
        return;
    }
    let Err(Error::Io { source, .. }) = keeper.mount(&overlay) else { panic!("it could be mounted") };
    assert!(source.to_string().contains("is mounted inside"), "{source}");
}

fn the_trial_leaves_nothing(case: &Case) {
    case.keepers.try_user().unwrap();
    assert_eq!(fs::read_dir(case.temp.path().join("keepers")).unwrap().count(), 0);
    let elsewhere = Keepers::new(Path::new("/proc/no"), Path::new("/proc/self/exe"));
    assert!(elsewhere.try_user().unwrap_err().contains("/proc/no"));
}

/// Root comes through every directory, so it can be the other user.
fn another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return skip("the tests are not run by root");
    }
    let temp = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let (program, home) = (temp.path().join("test"), temp.path().join("home"));
    // The user may not be able to reach the test where it was built.
    fs::copy("/proc/self/exe", &program).unwrap();
    fs::create_dir(&home).unwrap();
    chown(&home, Some(USER), Some(USER)).unwrap();
    let state = home.join("another");
    let as_user = |verb: &str| {
        let mut command = Command::new(&program);
        let output = command.arg(verb).arg(&state).uid(USER).gid(USER).current_dir("/").output().unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let why = as_user("try");
    if !why.is_empty() {
        return skip(&why);
    }
    as_user("start");
    let heard = catch_unwind(|| {
        let mut socket = connected(&state.join("keepers/it"));
        let _ = socket.write_all(b"\"quit\"\n");
        let mut heard = String::new();
        let _ = socket.read_to_string(&mut heard);
        heard
    });
    let found = keepers(&state).find("it");
    let ended = keepers(&state).end("it");
    as_user("end");
    assert!(heard.unwrap().contains("another user"));
    assert!(matches!(&found, Err(Error::Refused { reason, .. }) if reason.contains("54321")), "{found:?}");
    assert!(ended.is_err());
    assert!(!state.join("keepers/it").exists());
}
