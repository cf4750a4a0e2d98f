use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::sshd::Sshd;

use super::world::{World, fill, said};
use crate::ssh::{Settings, Ssh};
use crate::tree::Moved;

fn sent() -> World {
    let world = World::new();
    fill(&world.here(""));
    world.send().unwrap();
    world
}

/// One change of each kind.
fn change_all(world: &World) {
    fs::write(world.there("readme.md"), "theirs").unwrap();
    fs::write(world.there("nested/new\nname"), "new").unwrap();
    fs::create_dir_all(world.there("made/below")).unwrap();
    fs::write(world.there("made/below/-file"), vec![7; 300_000]).unwrap();
    fs::hard_link(world.there("made/below/-file"), world.there("made/second")).unwrap();
    symlink("/etc/passwd", world.there("made/link")).unwrap();
    fs::remove_dir_all(world.there("nested/deeper")).unwrap();
    fs::remove_dir_all(world.there("modes")).unwrap();
    fs::write(world.there("modes"), "a file now").unwrap();
    fs::remove_file(world.there("nothing")).unwrap();
    fs::create_dir(world.there("nothing")).unwrap();
    fs::rename(world.there("large.bin"), world.there("moved.bin")).unwrap();
    fs::remove_file(world.there("links/relative")).unwrap();
    symlink("elsewhere", world.there("links/relative")).unwrap();
    fs::set_permissions(world.there("empty"), PermissionsExt::from_mode(0o700)).unwrap();
    sandboxer_testkit::manifest::set_xattr(&world.there("readme.md"), "user.theirs", b"\0x");
}

#[test]
fn whatever_changed_there_comes_here_and_nothing_else() {
    for compress in [false, true] {
        let world = World { compress, ..sent() };
        let untouched = fs::metadata(world.here("sparse")).unwrap().ino();
        change_all(&world);
        let moved = world.fetch().unwrap();
        world.assert_equal("fetched");
        assert!(moved.refused.is_empty() && moved.entries > 10, "{moved:?}");
        assert_eq!(fs::metadata(world.here("sparse")).unwrap().ino(), untouched);
        assert_eq!((world.fetch().unwrap(), world.send().unwrap()), Default::default());
    }
}

type Edit = fn(&World);

#[test]
fn what_changed_on_both_sides_is_a_conflict_and_nothing_is_written() {
    let cases: [(&str, Edit); 6] = [
        ("readme.md", |w| fs::write(w.here("readme.md"), "ours").unwrap()),
        ("readme.md", |w| fs::remove_file(w.here("readme.md")).unwrap()),
        ("nested/deeper/ours", |w| fs::write(w.here("nested/deeper/ours"), "new here").unwrap()),
        ("nested/deeper/two", |w| fs::write(w.here("nested/deeper/two"), "ours").unwrap()),
        ("made", |w| fs::write(w.here("made"), "a file here").unwrap()),
        ("modes/ours", |w| fs::write(w.here("modes/ours"), "x").unwrap()),
    ];
    for (name, ours) in cases {
        let world = sent();
        change_all(&world);
        ours(&world);
        let before = Manifest::capture(&world.here(""));
        let error = world.fetch().unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
        before.assert_same(&Manifest::capture(&world.here("")), Facets::UNTOUCHED, name);
        world.send().unwrap();
        world.assert_equal("ours wins by a send");
    }
}

/// As OverlayFS does it to files that were copied up, when it is mounted again.
#[test]
fn another_inode_here_is_no_conflict_and_another_time_is_one() {
    let world = sent();
    let inode = || fs::metadata(world.here("readme.md")).unwrap().ino();
    let before = inode();
    let written = fs::metadata(world.here("readme.md")).unwrap().modified().unwrap();
    fs::write(world.here("copy"), fs::read(world.here("readme.md")).unwrap()).unwrap();
    let mode = fs::metadata(world.here("readme.md")).unwrap().permissions();
    fs::set_permissions(world.here("copy"), mode).unwrap();
    fs::File::open(world.here("copy")).unwrap().set_modified(written).unwrap();
    fs::rename(world.here("copy"), world.here("readme.md")).unwrap();
    assert_ne!(before, inode());
    fs::write(world.there("readme.md"), "theirs").unwrap();
    world.fetch().unwrap();
    assert_eq!(fs::read(world.here("readme.md")).unwrap(), b"theirs");
    fs::write(world.there("readme.md"), "theirs again").unwrap();
    sandboxer_testkit::manifest::set_mtime(&world.here("readme.md"), 1_000_000_000, 0);
    world.fetch().unwrap_err();
}

#[test]
fn what_changed_here_alone_stays_and_is_sent_later() {
    let world = sent();
    fs::write(world.here("ours"), "x").unwrap();
    fs::write(world.here("nested/one"), "ours").unwrap();
    fs::write(world.there("readme.md"), "theirs").unwrap();
    world.fetch().unwrap();
    assert_eq!(fs::read(world.here("nested/one")).unwrap(), b"ours");
    assert_eq!(fs::read(world.here("readme.md")).unwrap(), b"theirs");
    let moved = world.send().unwrap();
    world.assert_equal("both");
    assert_eq!(moved.bytes, 5, "{moved:?}");
}

#[test]
fn a_fetch_that_was_killed_is_completed_by_the_next() {
    let world = sent();
    change_all(&world);
    let (list, record) = (world.temp.path().join("lists/list"), world.temp.path().join("record"));
    let before = (fs::read(&list).unwrap(), fs::read(&record).unwrap());
    world.fetch().unwrap();
    // As if it had been killed before either side remembered it, with something half written.
    fs::write(&list, before.0).unwrap();
    fs::write(&record, before.1).unwrap();
    fs::write(world.here("nested/.sandboxer-fetch-0123456789abcdef0123456789abcdef"), "half").unwrap();
    // A build that sets all times to the same one makes another file, which cannot be told from the one that came.
    let made = fs::metadata(world.there("moved.bin")).unwrap();
    fs::write(world.there("moved.bin"), vec![b'!'; made.len() as usize]).unwrap();
    fs::File::open(world.there("moved.bin")).unwrap().set_modified(made.modified().unwrap()).unwrap();
    world.fetch().unwrap();
    assert!(!world.here("nested/.sandboxer-fetch-0123456789abcdef0123456789abcdef").exists());
    world.assert_equal("fetched again");
    assert_eq!(world.fetch().unwrap(), Moved::default());
}

#[test]
fn privileges_and_devices_do_not_come() {
    let world = sent();
    fs::set_permissions(world.there("readme.md"), PermissionsExt::from_mode(0o6755)).unwrap();
    fs::remove_file(world.there("nothing")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, world.there("nothing"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let moved = world.fetch().unwrap();
    assert_eq!(moved.refused, ["nothing: a device, socket or pipe", "readme.md: its set-id or sticky bits"]);
    assert!(!world.here("nothing").exists());
    assert_eq!(fs::metadata(world.here("readme.md")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(world.fetch().unwrap(), Moved::default());
}

#[test]
fn a_change_in_the_instant_of_the_comparison_is_not_lost() {
    let world = World::new();
    fs::write(world.here("file"), "0").unwrap();
    world.send().unwrap();
    for round in 0_u32..20 {
        let content = format!("{}", round % 10);
        fs::write(world.there("file"), &content).unwrap();
        sandboxer_testkit::manifest::set_mtime(&world.there("file"), 1_000_000_000, 0);
        world.fetch().unwrap();
        assert_eq!(fs::read_to_string(world.here("file")).unwrap(), content, "round {round}");
    }
}

#[test]
fn an_empty_directory_takes_everything_and_any_other_nothing() {
    let world = World::new();
    fs::create_dir(world.there("")).unwrap();
    fs::create_dir(world.temp.path().join("lists")).unwrap();
    fill(&world.there(""));
    world.fetch().unwrap();
    world.assert_equal("all of it");
    let other = World::new();
    fs::create_dir(other.there("")).unwrap();
    fs::create_dir(other.temp.path().join("lists")).unwrap();
    fs::write(other.here("mine"), "x").unwrap();
    assert!(other.fetch().unwrap_err().to_string().contains("never sent"));
}

#[test]
fn a_tree_that_is_gone_there_is_an_error() {
    let world = sent();
    fs::remove_dir_all(world.there("")).unwrap();
    assert!(said(&world.fetch().unwrap_err()).contains("no directory"));
    assert!(world.here("readme.md").exists());
    world.send().unwrap();
    world.assert_equal("sent anew");
}

#[test]
fn all_of_it_works_over_ssh() {
    let Some(sshd) = Sshd::start() else { return };
    let settings = Settings {
        config: Some(sshd.config()),
        control: sshd.path("c"),
        connect_timeout: std::time::Duration::from_secs(10),
    };
    let ssh = Ssh::new(crate::Address::parse(&sshd.url()).unwrap(), settings).unwrap();
    for compress in [false, true] {
        let world = World { compress, ..World::new() };
        fill(&world.here(""));
        world.with(&ssh, |m| m.send()).unwrap();
        world.assert_equal("sent");
        change_all(&world);
        world.with(&ssh, |m| m.fetch()).unwrap();
        world.assert_equal("fetched");
    }
    let world = World::new();
    fs::write(world.here("large"), vec![7; 200 << 20]).unwrap();
    let cut = std::thread::scope(|scope| {
        let sending = scope.spawn(|| world.with(&ssh, |m| m.send()));
        while !world.there("large").exists() && !sending.is_finished() {
            std::thread::yield_now();
        }
        sshd.cut();
        sending.join().unwrap()
    });
    if let Err(error) = cut {
        assert_eq!(
            crate::trouble(&error).map(|trouble| trouble.fault),
            Some(crate::Fault::Lost),
            "{}",
            said(&error)
        );
    }
    world.with(&ssh, |m| m.send()).unwrap();
    world.assert_equal("cut, and sent again");
    ssh.disconnect();
}

/// Root needs no permission; run as anybody else, this shows whether it is given and taken back.
#[test]
fn directories_without_permission_to_write_are_written_to_all_the_same() {
    let world = World::new();
    let closed =
        |path: std::path::PathBuf, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    fs::create_dir_all(world.here("closed/below")).unwrap();
    fs::write(world.here("closed/file"), "one").unwrap();
    fs::write(world.here("closed/below/gone"), "one").unwrap();
    closed(world.here("closed/below"), 0o555);
    closed(world.here("closed"), 0o555);
    world.send().unwrap();
    world.assert_equal("sent");
    closed(world.here("closed"), 0o755);
    fs::write(world.here("closed/new"), "two").unwrap();
    fs::write(world.here("closed/file"), "two").unwrap();
    closed(world.here("closed/below"), 0o755);
    fs::remove_file(world.here("closed/below/gone")).unwrap();
    closed(world.here("closed/below"), 0o555);
    closed(world.here("closed"), 0o555);
    world.send().unwrap();
    world.assert_equal("sent again");
    closed(world.there("closed"), 0o755);
    fs::write(world.there("closed/file"), "three").unwrap();
    fs::remove_file(world.there("closed/new")).unwrap();
    closed(world.there("closed"), 0o555);
    world.fetch().unwrap();
    world.assert_equal("fetched");
    closed(world.here("closed"), 0o755);
    fs::remove_dir(world.here("closed/below")).unwrap();
    fs::remove_dir_all(world.here("closed")).unwrap();
    world.send().unwrap();
    world.assert_equal("removed");
}
