use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use sandboxer_core::{Error, Result};
use sandboxer_testkit::manifest::set_mtime;

use super::world::{Cutting, World, fill, said, through};
use crate::shell::{Answer, Call, Here, Running, Shell};
use crate::tree::{Mirror, Moved};

#[test]
fn a_tree_of_everything_arrives_as_it_is_and_is_not_sent_again() {
    for compress in [false, true] {
        let world = World { compress, ..World::new() };
        fill(&world.here(""));
        let moved = world.send().unwrap();
        world.assert_equal("first send");
        assert!(moved.bytes >= 3_000_000 && moved.refused.is_empty(), "{moved:?}");
        assert_eq!(world.send().unwrap(), Moved::default());
        assert_eq!(world.fetch().unwrap(), Moved::default());
        world.assert_equal("nothing was to be done");
    }
}

#[test]
fn only_what_changed_here_goes_over() {
    let world = World::new();
    fill(&world.here(""));
    world.send().unwrap();
    fs::write(world.here("readme.md"), "changed").unwrap();
    fs::write(world.here("nested/new"), "new").unwrap();
    fs::remove_dir_all(world.here("nested/deeper")).unwrap();
    fs::remove_file(world.here("large.bin")).unwrap();
    fs::create_dir(world.here("large.bin")).unwrap();
    fs::rename(world.here("names"), world.here("names again")).unwrap();
    fs::set_permissions(world.here("modes/600"), PermissionsExt::from_mode(0o644)).unwrap();
    let moved = world.send().unwrap();
    world.assert_equal("second send");
    assert!(moved.bytes < 1_000 && moved.removed == 3, "{moved:?}");
}

#[test]
fn a_change_that_hides_behind_an_old_time_is_seen() {
    let world = World::new();
    fs::write(world.here("file"), "one").unwrap();
    set_mtime(&world.here("file"), 1_000_000_000, 5);
    world.send().unwrap();
    fs::write(world.here("file"), "two").unwrap();
    set_mtime(&world.here("file"), 1_000_000_000, 5);
    assert_eq!(world.send().unwrap().bytes, 3);
    world.assert_equal("the same size and time");
    fs::write(world.there("file"), "six").unwrap();
    set_mtime(&world.there("file"), 1_000_000_000, 5);
    assert_eq!(world.fetch().unwrap().bytes, 3);
    assert_eq!(fs::read(world.here("file")).unwrap(), b"six");
}

#[test]
fn whatever_was_done_there_is_undone() {
    let world = World::new();
    fill(&world.here(""));
    world.send().unwrap();
    let outside = world.temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("one"), "canary").unwrap();
    fs::write(world.there("readme.md"), "theirs").unwrap();
    fs::write(world.there("extra"), "theirs").unwrap();
    fs::create_dir_all(world.there("extra dir/below")).unwrap();
    fs::remove_dir_all(world.there("nested")).unwrap();
    symlink(&outside, world.there("nested")).unwrap();
    fs::remove_file(world.there("nothing")).unwrap();
    fs::create_dir(world.there("nothing")).unwrap();
    fs::write(world.there("nothing/x"), "").unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, world.there("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    world.send().unwrap();
    world.assert_equal("after their changes");
    assert_eq!(fs::read(outside.join("one")).unwrap(), b"canary");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was written through a link");
}

#[test]
fn a_send_that_was_cut_is_completed_without_what_had_arrived() {
    let world = World::new();
    for at in 0..20 {
        fs::write(world.here(&format!("file {at:02}")), vec![b'x'; 100_000]).unwrap();
    }
    let error = world.with(&Cutting(1_000_000), |m| m.send()).unwrap_err();
    assert!(said(&error).contains("cut"), "{}", said(&error));
    let refused = world.fetch().unwrap_err();
    assert!(refused.to_string().contains("sent in part"), "{refused}");
    let moved = world.send().unwrap();
    world.assert_equal("completed");
    assert!((1_000_000..1_300_000).contains(&moved.bytes), "{moved:?}");
    assert_eq!(world.send().unwrap(), Moved::default());
}

#[test]
fn a_later_send_that_was_cut_anywhere_is_completed() {
    for after in [0, 511, 512, 600, 1_024, 2_000, 4_096, 6_000, 12_000] {
        let world = World::new();
        fill(&world.here(""));
        world.send().unwrap();
        fs::write(world.here("a new one"), vec![1; 2_000]).unwrap();
        fs::remove_dir_all(world.here("links")).unwrap();
        fs::write(world.here("links"), vec![2; 2_000]).unwrap();
        fs::write(world.here("readme.md"), vec![3; 2_000]).unwrap();
        world.with(&Cutting(after), |m| m.send()).unwrap_err();
        world.send().unwrap();
        world.assert_equal(&format!("cut after {after}"));
        assert_eq!(world.fetch().unwrap(), Moved::default());
    }
}

#[test]
fn our_list_is_lost_and_everything_still_becomes_equal() {
    let world = World::new();
    fill(&world.here(""));
    world.send().unwrap();
    fs::remove_file(world.temp.path().join("record")).unwrap();
    fs::write(world.there("extra"), "x").unwrap();
    fs::write(world.here("readme.md"), "ours").unwrap();
    assert!(world.fetch().unwrap_err().to_string().contains("never sent"));
    world.send().unwrap();
    world.assert_equal("without our list");
    fs::remove_file(world.temp.path().join("lists/list")).unwrap();
    fs::write(world.there("extra"), "x").unwrap();
    world.send().unwrap();
    world.assert_equal("without the host's list");
}

#[test]
fn what_is_no_file_directory_or_link_is_left_out_and_told() {
    let world = World::new();
    rustix::fs::mknodat(rustix::fs::CWD, world.here("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    fs::write(world.here("tool"), "x").unwrap();
    fs::set_permissions(world.here("tool"), PermissionsExt::from_mode(0o4755)).unwrap();
    let moved = world.send().unwrap();
    assert_eq!(moved.refused, ["fifo: a device, socket or pipe", "tool: its set-id or sticky bits"]);
    assert!(!world.there("fifo").exists());
    assert_eq!(fs::metadata(world.there("tool")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn a_single_file_goes_there_and_back() {
    let world = World::new();
    let (local, remote) = (world.here("one.yaml"), world.temp.path().join("somewhere/other.yaml"));
    fs::write(&local, "ours").unwrap();
    fs::write(world.here("neighbour"), "not sent").unwrap();
    let at = |act: fn(&Mirror<'_>) -> sandboxer_core::Result<Moved>| world.at(&Here, &local, &remote, act);
    assert_eq!(at(|m| m.send()).unwrap().bytes, 4);
    assert_eq!(fs::read(&remote).unwrap(), b"ours");
    fs::write(remote.with_file_name("neighbour"), "theirs").unwrap();
    assert_eq!(at(|m| m.send()).unwrap(), Moved::default());
    fs::write(&remote, "theirs").unwrap();
    assert_eq!(at(|m| m.fetch()).unwrap().bytes, 6);
    assert_eq!(fs::read(&local).unwrap(), b"theirs");
    fs::remove_file(&remote).unwrap();
    fs::create_dir(&remote).unwrap();
    assert!(at(|m| m.fetch()).unwrap_err().to_string().contains("no regular file"));
    at(|m| m.send()).unwrap();
    assert_eq!(fs::read(&remote).unwrap(), b"theirs");
    assert_eq!(fs::read(remote.with_file_name("neighbour")).unwrap(), b"theirs");
    fs::remove_file(&remote).unwrap();
    at(|m| m.fetch()).unwrap();
    assert!(!local.exists());
    assert!(matches!(at(|m| m.send()), Err(Error::NotFound { .. })));
}

#[test]
fn a_path_that_no_host_takes_is_named() {
    let world = World::new();
    let root = sandboxer_fs::root::Root::open(world.here("")).unwrap();
    let deep = sandboxer_core::model::RelPath::parse(vec!["directory"; 500].join("/")).unwrap();
    root.create_dirs(&deep, 0o700).unwrap();
    let error = world.send().unwrap_err().to_string();
    assert!(error.contains("directory/directory") && error.contains("4093"), "{error}");
    sandboxer_fs::remove_tree(&world.here("directory")).unwrap();
}

#[test]
fn a_tree_that_is_a_link_there_is_not_touched() {
    let world = World::new();
    fs::write(world.here("file"), "x").unwrap();
    fs::create_dir(world.temp.path().join("elsewhere")).unwrap();
    symlink("elsewhere", world.temp.path().join("there")).unwrap();
    assert!(said(&world.send().unwrap_err()).contains("symbolic link"));
    assert!(said(&world.fetch().unwrap_err()).contains("symbolic link"));
    assert_eq!(fs::read_dir(world.temp.path().join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_full_disk_there_is_told_in_the_words_of_tar() {
    if !rustix::process::geteuid().is_root() {
        return sandboxer_testkit::skip("only root mounts a small filesystem");
    }
    let world = World::new();
    fs::create_dir(world.there("")).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(world.there(""))
        .status();
    if !mounted.unwrap().success() {
        return sandboxer_testkit::skip("no filesystem can be mounted here");
    }
    fs::write(world.here("large"), vec![1; 3 << 20]).unwrap();
    let error = world.send().unwrap_err();
    fs::write(world.here("large"), "small").unwrap();
    let after = world.send();
    std::process::Command::new("umount").arg(world.there("")).status().unwrap();
    assert!(said(&error).contains("No space left"), "{}", said(&error));
    after.unwrap();
}

#[test]
fn who_asks_to_stop_stops() {
    let world = World::new();
    fs::write(world.here("file"), "x").unwrap();
    world.cancel.cancel();
    assert!(matches!(world.send(), Err(Error::Cancelled)));
    assert!(matches!(world.fetch(), Err(Error::Cancelled)));
}

/// A host that does not hear of it when the connection is gone after so many bytes: what took the stream waits for the rest.
struct Deaf(u64);

impl Shell for Deaf {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        Here.run(call)
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        let deaf = r#"n=$1; shift; f=$(mktemp); head -c "$n" > "$f"; cat > /dev/null
setsid sh -c 'f=$1 s=$2; shift 2; { cat "$f"; rm "$f"; exec sleep 60; } | exec setsid sh -c "$s" sh "$@"' sh "$f" "$@" > /dev/null 2>&1 &
while [ -e "$f" ]; do sleep 0.01; done; exit 1"#;
        through(deaf, self.0, script, arguments)
    }

    fn name(&self) -> &str {
        "the deaf host"
    }
}

#[test]
fn what_waits_for_the_rest_of_a_send_is_ended_by_the_next() {
    let world = World::new();
    for n in 0..40 {
        fs::write(world.here(&format!("f{n:02}")), vec![n; 4096]).unwrap();
    }
    world.with(&Deaf(100_000), |m| m.send()).unwrap_err();
    let noted = fs::read_to_string(world.temp.path().join("lists/sending")).unwrap();
    let process = PathBuf::from(format!("/proc/{}/status", noted.split(' ').next().unwrap()));
    let lives = || fs::read_to_string(&process).is_ok_and(|status| !status.contains("State:\tZ"));
    assert!(lives(), "nothing waits: {noted}");
    let sent = world.send().unwrap();
    assert!(!lives(), "it goes on");
    assert!((1..40).contains(&sent.entries), "what had arrived is not sent again: {sent:?}");
    world.assert_equal("a send after one that was not heard the end of");
}
