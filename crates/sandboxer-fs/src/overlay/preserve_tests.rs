#![allow(clippy::unwrap_used)]

use std::fs::{Permissions, create_dir, read, read_dir, set_permissions, write};
use std::os::unix::fs::{PermissionsExt, chown};

use rustix::fs::{Gid, Uid};

use super::super::instant::Instant;
use super::super::layer::{Marks, Meaning};
use super::super::live::make_holder;
use super::super::records::Recorded;
use super::*;
use crate::hash::ContentHash;
use crate::root::Dir;
use rustix::io::Errno;
use sandboxer_core::Error;

/// An overlay that is not mounted, and its original.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        ["original", "ws", "scratch"].iter().for_each(|dir| create_dir(temp.path().join(dir)).unwrap());
        Places::new(&temp.path().join("ws")).make().unwrap();
        Self(temp)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn original(&self) -> Root {
        Root::open(self.at("original")).unwrap()
    }

    fn watcher(&self) -> Watcher {
        let spec = OverlaySpec {
            root: crate::identity::DirectoryIdentity::read(&self.original()).unwrap(),
            original: self.at("original"),
            patterns: Default::default(),
            marks: Marks::User,
            volatile: false,
            keeper: None,
            instant: Instant::take(&self.original(), &self.at("scratch")).unwrap(),
            keep_base: 0,
            ground: None,
        };
        Watcher { home: self.at("ws"), spec, merged: None }
    }

    fn stamp(&self, path: &str) -> Stamp {
        let stamp = self.original().stamp(&rel(path)).unwrap().unwrap();
        // As it is read again.
        Stamp { dev: 0, blocks: 0, ..stamp }
    }

    /// A commit that replaces, or makes, `paths`.
    fn commit_of(&self, paths: &[&str]) -> Journal {
        let step = |path: &&str| Step::Place {
            path: rel(path),
            staged: String::new(),
            old: self.original().stamp(&rel(path)).unwrap(),
            new: Stamp { mode: 0o100_644, ..Stamp::default() },
            entry: Entry::default(),
        };
        Journal { steps: paths.iter().map(step).collect(), ..Journal::default() }
    }

    fn keep_old(&self, paths: &[&str]) -> Result<()> {
        self.watcher().keep_old(&self.original(), &self.commit_of(paths))
    }

    fn records(&self) -> Records {
        Records::new(&self.at("ws"))
    }

    fn recorded(&self) -> Recorded {
        self.records().load().unwrap()
    }

    fn record(&self, path: &str, entry: Option<Entry>) {
        self.records().update(Edits::from([(rel(path), entry)])).unwrap();
    }
}

fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

fn hash(content: &str) -> Option<ContentHash> {
    Some(ContentHash::of(content.as_bytes()))
}

#[test]
fn what_cannot_be_copied_whole_is_not_in_the_layer() {
    let home = Home::new();
    let (making, layer) =
        (Making::at(&home.at("ws/making")).unwrap(), Root::open(home.at("ws/preserve")).unwrap());
    let to = layer.as_dir().unwrap();
    let half = |dir: &Dir, name: &[u8]| -> Result<()> {
        write(dir.shown(name), "half").unwrap();
        assert_eq!(read_dir(home.at("ws/preserve")).unwrap().count(), 0, "seen before it is whole");
        Err(Error::io("copy", dir.shown(name), Errno::NOSPC))
    };
    assert!(making.put(&to, b"file", half).is_err());
    assert_eq!(read_dir(home.at("ws/preserve")).unwrap().count(), 0);
    assert_eq!(read_dir(home.at("ws/making")).unwrap().count(), 0);
}

#[test]
fn what_a_killed_copy_left_is_no_hindrance_and_goes() {
    let home = Home::new();
    write(home.at("original/file"), "whole").unwrap();
    create_dir(home.at("ws/making")).unwrap();
    write(home.at("ws/making/entry"), "wh").unwrap();
    home.keep_old(&["file"]).unwrap();
    assert_eq!(read(home.at("ws/preserve/file")).unwrap(), b"whole");
    assert!(!home.at("ws/making").exists());
}

#[test]
fn what_was_kept_and_not_noted_is_noted_the_next_time() {
    let home = Home::new();
    create_dir(home.at("original/dir")).unwrap();
    write(home.at("original/dir/file"), "old").unwrap();
    for _ in 0..2 {
        home.keep_old(&["dir/file", "new"]).unwrap();
        let recorded = home.recorded();
        assert_eq!(recorded[&rel("dir/file")].as_ref().unwrap().hash, hash("old"));
        assert_eq!(recorded[&rel("new")], None);
        // Killed before anything was noted.
        home.records().clear().unwrap();
    }
}

#[test]
fn what_was_hidden_and_not_noted_is_not_in_the_way() {
    let home = Home::new();
    home.keep_old(&["dir"]).unwrap();
    home.records().clear().unwrap();
    create_dir(home.at("original/dir")).unwrap();
    write(home.at("original/dir/file"), "by hand").unwrap();
    home.keep_old(&["dir/file", "dir/new"]).unwrap();
    assert_eq!(read(home.at("ws/preserve/dir/file")).unwrap(), b"by hand");
    assert_eq!(home.recorded()[&rel("dir/file")].as_ref().unwrap().hash, hash("by hand"));
    assert_eq!(home.recorded()[&rel("dir/new")], None);
}

#[test]
fn a_noted_base_that_still_is_there_gets_the_hash_of_what_was_kept() {
    let home = Home::new();
    write(home.at("original/file"), "old").unwrap();
    let noted = Entry { base: Some(home.stamp("file")), kept: Some(7), ..Entry::default() };
    home.record("file", Some(noted.clone()));
    home.keep_old(&["file"]).unwrap();
    assert_eq!(home.recorded()[&rel("file")], Some(Entry { hash: hash("old"), ..noted }));
}

#[test]
fn a_noted_base_gives_way_to_what_is_shown() {
    let home = Home::new();
    let was = Entry { hash: hash("was"), ..Entry::default() };
    for file in ["shown", "changed", "dir/hidden"] {
        std::fs::create_dir_all(home.at("original/dir")).unwrap();
        write(home.at("original").join(file), "by hand").unwrap();
        let base = Some(home.stamp(file).at_unknown_time());
        home.record(file, Some(Entry { base, ..was.clone() }));
    }
    write(home.at("ws/upper/changed"), "mine").unwrap();
    write(home.at("ws/upper/dir"), "was a directory").unwrap();
    home.keep_old(&["shown", "changed", "dir/hidden"]).unwrap();
    let recorded = home.recorded();
    let entry = |path| recorded[&rel(path)].as_ref().unwrap();
    assert_eq!((entry("shown").hash, entry("shown").base), (hash("by hand"), Some(home.stamp("shown"))));
    assert_eq!(entry("changed").hash, hash("was"));
    assert_eq!(entry("dir/hidden").hash, hash("was"));
}

#[test]
fn what_is_noted_to_be_absent_is_hidden_before_it_comes() {
    let home = Home::new();
    home.record("file", None);
    home.keep_old(&["file"]).unwrap();
    let preserve = Layer::open(&home.at("ws/preserve"), Marks::User).unwrap();
    let dir = preserve.root.as_dir().unwrap();
    let stamp = dir.stamp(b"file").unwrap().unwrap();
    assert_eq!(preserve.meaning(&dir, b"file", &stamp).unwrap(), Meaning::Whiteout);
    assert_eq!(home.recorded()[&rel("file")], None);
}

/// Runs `test` as an ordinary user, to whom everything in `home` belongs but the secret.
fn without_privilege(home: Home, test: impl FnOnce(&Home) + Send + 'static) {
    let is_root = rustix::process::geteuid().is_root();
    let own = ["", "original", "original/readable", "scratch", "ws"];
    let layers = ["ws/upper", "ws/preserve", "ws/layers", "ws/merged"];
    own.iter()
        .chain(&layers)
        .filter(|_| is_root)
        .for_each(|path| chown(home.at(path), Some(65534), Some(65534)).unwrap());
    let run = std::thread::spawn(move || {
        if is_root {
            // Of this thread alone; with it go all capabilities.
            rustix::thread::set_thread_gid(Gid::from_raw(65534)).unwrap();
            rustix::thread::set_thread_uid(Uid::from_raw(65534)).unwrap();
        }
        test(&home);
    });
    run.join().unwrap();
}

/// A home with a file that not everybody may read.
fn with_a_secret() -> Home {
    let home = Home::new();
    for file in ["readable", "secret"] {
        write(home.at("original").join(file), file).unwrap();
    }
    set_permissions(home.at("original/secret"), Permissions::from_mode(0o000)).unwrap();
    home
}

#[test]
fn what_may_not_be_read_is_noted_as_unknown_and_not_kept() {
    without_privilege(with_a_secret(), |home| {
        // A file that is not ours cannot be touched either.
        let watcher = Watcher { merged: Some(home.at("original")), ..home.watcher() };
        watcher.keep_old(&home.original(), &home.commit_of(&["readable", "secret"])).unwrap();
        let recorded = home.recorded();
        let entry = |path| recorded[&rel(path)].as_ref().unwrap();
        assert!(!entry("secret").base.unwrap().is_known());
        assert_eq!((entry("secret").hash, entry("readable").hash), (None, hash("readable")));
        assert!(home.at("ws/preserve/readable").exists());
        assert!(!home.at("ws/preserve/secret").exists());
    });
}

#[test]
fn checkpoints_do_without_what_may_not_be_read() {
    without_privilege(with_a_secret(), |home| {
        let places = Places::new(&home.at("ws"));
        Stack::open(&places).unwrap().freeze("one", &places).unwrap();
        let journal = home.commit_of(&["readable", "secret"]);
        keep_for_checkpoints(&home.watcher().spec, &places, &journal).unwrap();
        let kept = places.layer(Stack::load(&places).unwrap().checkpoint("one").unwrap()[0]);
        let names: Vec<_> = read_dir(kept).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["readable"]);
    });
}

/// A commit that has added `new` and `own`, and was killed while it hid the former; the latter is there in the upper too.
fn killed_while_hiding() -> (Home, Journal) {
    let home = Home::new();
    let journal = home.commit_of(&["new", "own"]);
    home.watcher().keep_old(&home.original(), &journal).unwrap();
    for name in ["new", "own"] {
        write(home.at("original").join(name), "committed").unwrap();
    }
    let upper = Root::open(home.at("ws/upper")).unwrap().as_dir().unwrap();
    make_holder(&upper, b"new").unwrap();
    write(home.at("ws/upper/own"), "").unwrap();
    set_permissions(home.at("ws/upper/own"), Permissions::from_mode(0o600)).unwrap();
    (home, journal)
}

#[test]
fn what_hiding_left_goes_with_the_next_try() {
    let (home, journal) = killed_while_hiding();
    // As good as a mount: there is nothing below that would have to be hidden.
    let watcher = Watcher { merged: Some(home.at("ws/upper")), ..home.watcher() };
    watcher.hide_new(&home.original(), &journal).unwrap();
    assert!(!home.at("ws/upper/new").exists());
    assert!(home.at("ws/upper/own").exists(), "an empty file of the workspace is its own");
}

#[test]
fn what_hiding_left_goes_also_when_it_is_not_mounted_any_more() {
    let (home, journal) = killed_while_hiding();
    home.watcher().hide_new(&home.original(), &journal).unwrap();
    assert!(!home.at("ws/upper/new").exists());
    assert!(home.at("ws/upper/own").exists(), "an empty file of the workspace is its own");
}
