#![allow(clippy::unwrap_used)]

use std::fs::{File, Permissions, create_dir, create_dir_all, hard_link, metadata, set_permissions, write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;

use rustix::fs::{Gid, Uid, XattrFlags};

use super::super::attrs;
use super::super::layer::Marks;
use super::*;

/// Directories that become layers with marks as ordinary users have them.
struct Home(tempfile::TempDir);

impl Home {
    fn new(layers: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        layers.iter().for_each(|layer| create_dir(temp.path().join(layer)).unwrap());
        Self(temp)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str) {
        create_dir_all(self.at(path).parent().unwrap()).unwrap();
        write(self.at(path), path).unwrap();
    }

    fn whiteout(&self, path: &str) {
        create_dir_all(self.at(path).parent().unwrap()).unwrap();
        let home = crate::root::Root::open(self.0.path()).unwrap();
        make_whiteout(&home.as_dir().unwrap(), path.as_bytes()).unwrap();
    }

    fn mark(&self, path: &str, mark: &str, value: &[u8]) {
        label(&self.at(path), &Marks::User.attribute(mark), value);
    }

    fn layer(&self, name: &str) -> Layer {
        Layer::open(&self.at(name), Marks::User).unwrap()
    }

    fn squash(&self, layers: &[&str]) -> Layer {
        create_dir(self.at("to")).unwrap();
        let layers: Vec<_> = layers.iter().map(|name| self.layer(name)).collect();
        squash(&layers.iter().collect::<Vec<_>>(), &self.at("to"), &CancelFlag::default()).unwrap();
        self.layer("to")
    }

    fn copy(&self, name: &str) -> (Layer, Copied) {
        create_dir(self.at("to")).unwrap();
        let copied = copy_layer(&self.layer(name), &self.at("to"), &CancelFlag::default()).unwrap();
        (self.layer("to"), copied)
    }
}

fn label(path: &Path, attribute: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, attribute, value, XattrFlags::empty()).unwrap();
}

fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

fn meaning(layer: &Layer, path: &str) -> Option<Meaning> {
    let path = rel(path);
    let dir = layer.root.find_parent(&path).unwrap()?;
    let stamp = dir.stamp(path.name()).unwrap()?;
    Some(layer.meaning(&dir, path.name(), &stamp).unwrap())
}

fn origin(layer: &Layer, path: &str) -> Option<Vec<u8>> {
    let path = rel(path);
    layer.mark(&layer.root.parent_of(&path).unwrap(), path.name(), ORIGIN).unwrap()
}

#[test]
fn a_directory_over_anything_that_hides_becomes_opaque() {
    let home = Home::new(&["upper", "middle", "lower"]);
    for name in ["whiteout", "file", "opaque", "plain"] {
        home.file(&format!("upper/{name}/new"));
        home.file(&format!("lower/{name}/old"));
    }
    home.whiteout("middle/whiteout");
    home.file("middle/file");
    home.file("middle/opaque/kept");
    home.mark("middle/opaque", "opaque", b"y");
    let squashed = home.squash(&["upper", "middle", "lower"]);
    for name in ["whiteout", "file", "opaque"] {
        assert_eq!(meaning(&squashed, name), Some(Meaning::Directory { opaque: true }), "{name}");
        assert_eq!(meaning(&squashed, &format!("{name}/new")), Some(Meaning::Entry), "{name}");
        assert_eq!(meaning(&squashed, &format!("{name}/old")), None, "{name}");
    }
    assert_eq!(meaning(&squashed, "opaque/kept"), Some(Meaning::Entry));
    assert_eq!(meaning(&squashed, "plain"), Some(Meaning::Directory { opaque: false }));
    assert_eq!(meaning(&squashed, "plain/old"), Some(Meaning::Entry));
}

#[test]
fn whiteouts_stay_unless_nothing_can_be_below() {
    let home = Home::new(&["upper", "lower"]);
    for path in ["upper/gone", "upper/plain/gone", "upper/opaque/below/gone"] {
        home.whiteout(path);
    }
    home.file("lower/opaque/below/gone");
    home.mark("lower/opaque", "opaque", b"y");
    home.file("upper/marked/gone");
    write(home.at("upper/marked/gone"), "").unwrap();
    home.mark("upper/marked", "opaque", b"x");
    home.mark("upper/marked/gone", "whiteout", b"");
    let squashed = home.squash(&["upper", "lower"]);
    for path in ["gone", "plain/gone", "marked/gone"] {
        assert_eq!(meaning(&squashed, path), Some(Meaning::Whiteout), "{path}");
        assert_eq!(metadata(home.at("to").join(path)).unwrap().mode() & 0o170_000, 0o020_000, "{path}");
    }
    assert_eq!(meaning(&squashed, "opaque/below"), Some(Meaning::Directory { opaque: false }));
    assert_eq!(meaning(&squashed, "opaque/below/gone"), None);
    let marked = squashed.mark(&squashed.root.as_dir().unwrap(), b"marked", "opaque").unwrap();
    assert_eq!(marked, None);
}

#[test]
fn origins_come_from_the_lowest_layer() {
    let home = Home::new(&["upper", "lower"]);
    for path in ["both", "made below", "d/file"] {
        home.file(&format!("upper/{path}"));
        home.file(&format!("lower/{path}"));
        home.mark(&format!("upper/{path}"), "origin", b"in lower");
    }
    home.file("upper/alone");
    home.mark("upper/alone", "origin", b"in bottom");
    home.mark("upper/d", "origin", b"in lower");
    home.mark("lower/d", "origin", b"in bottom");
    home.mark("lower/both", "origin", b"in bottom");
    let squashed = home.squash(&["upper", "lower"]);
    for (path, expected) in
        [("both", true), ("alone", true), ("d", true), ("made below", false), ("d/file", false)]
    {
        assert_eq!(origin(&squashed, path), expected.then(|| b"in bottom".to_vec()), "{path}");
    }
    assert_eq!(std::fs::read(home.at("to/both")).unwrap(), b"upper/both");
}

#[test]
fn a_link_over_a_file_does_without_its_origin() {
    let home = Home::new(&["upper", "lower"]);
    home.file("lower/link");
    home.mark("lower/link", "origin", b"in bottom");
    symlink("nowhere", home.at("upper/link")).unwrap();
    let squashed = home.squash(&["upper", "lower"]);
    assert_eq!(squashed.root.as_dir().unwrap().read_link(b"link").unwrap(), b"nowhere");
    assert_eq!(origin(&squashed, "link"), None);
}

#[test]
fn a_directory_with_whiteouts_counts_as_copied_up() {
    let home = Home::new(&["upper", "lower"]);
    home.whiteout("upper/made/gone");
    home.mark("upper/made", "origin", b"in lower");
    home.file("lower/made/gone");
    home.file("lower/plain/file");
    let squashed = home.squash(&["upper", "lower"]);
    assert_eq!(origin(&squashed, "made"), Some(Vec::new()));
    assert_eq!(origin(&squashed, "plain"), None);
}

/// A layer with one of everything that an ordinary user can make.
fn fill(home: &Home) {
    home.file("layer/d/file");
    hard_link(home.at("layer/d/file"), home.at("layer/second name")).unwrap();
    let sparse = File::create(home.at("layer/sparse")).unwrap();
    sparse.write_all_at(b"end", 10_000_000).unwrap();
    symlink("nowhere", home.at("layer/link")).unwrap();
    home.whiteout("layer/d/gone");
    home.file("layer/read only");
    label(&home.at("layer/read only"), "user.label", b"value");
    home.mark("layer/read only", "origin", b"");
    home.mark("layer/d", "opaque", b"y");
    let root = home.layer("layer").root;
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(&root, "pipe", pipe, rustix::fs::Mode::from_raw_mode(0o620), 0).unwrap();
    set_permissions(home.at("layer/pipe"), Permissions::from_mode(0o620)).unwrap();
    home.mark("layer", "uuid", b"0123456789abcdef");
    set_permissions(home.at("layer/read only"), Permissions::from_mode(0o444)).unwrap();
    set_permissions(home.at("layer/d"), Permissions::from_mode(0o555)).unwrap();
}

fn compare_copy(home: &Home, copy: &Layer) {
    let names = ["d", "d/file", "second name", "sparse", "link", "d/gone", "read only", "pipe"];
    let from = home.layer("layer");
    for path in names.map(rel) {
        let dirs = [&from, copy].map(|layer| layer.root.parent_of(&path).unwrap());
        let stamps = dirs.each_ref().map(|dir| dir.stamp(path.name()).unwrap().unwrap());
        assert!(stamps[0].same_state(&stamps[1]), "{path}: {stamps:?}");
        let attributes = dirs.each_ref().map(|dir| attrs::all(dir, path.name()).unwrap());
        assert_eq!(attributes[0], attributes[1], "{path}");
    }
    let stamp = |path: &str| copy.root.stamp(&rel(path)).unwrap().unwrap();
    assert_eq!(stamp("d/file").ino, stamp("second name").ino);
    assert!(stamp("sparse").looks_sparse());
    assert_eq!(meaning(copy, "d/gone"), Some(Meaning::Whiteout));
    assert_eq!(meaning(copy, "d"), Some(Meaning::Directory { opaque: true }));
    let uuid = attrs::get_own(&copy.root.as_dir().unwrap(), "user.overlay.uuid").unwrap();
    assert_eq!(uuid, None, "the mark of a mount was copied");
}

#[test]
fn an_ordinary_user_copies_a_layer_with_everything_in_it() {
    let home = Home::new(&["layer"]);
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(home.0.path(), Some(65534), Some(65534)).unwrap();
        chown(home.at("layer"), Some(65534), Some(65534)).unwrap();
    }
    let copy = std::thread::spawn(move || {
        if is_root {
            // Of this thread alone; with it go all capabilities.
            rustix::thread::set_thread_gid(Gid::from_raw(65534)).unwrap();
            rustix::thread::set_thread_uid(Uid::from_raw(65534)).unwrap();
        }
        fill(&home);
        let (copy, copied) = home.copy("layer");
        assert_eq!(copied, Copied { entries: 8, unsteady: Vec::new() });
        compare_copy(&home, &copy);
        for tree in ["layer", "to"] {
            crate::remove_tree(&home.at(tree)).unwrap();
        }
    });
    copy.join().unwrap();
}

#[test]
fn a_squashed_layer_is_a_copy_of_it() {
    let home = Home::new(&["layer"]);
    fill(&home);
    set_permissions(home.at("layer/d"), Permissions::from_mode(0o755)).unwrap();
    std::fs::remove_file(home.at("layer/d/gone")).unwrap();
    home.whiteout("layer/gone");
    let squashed = home.squash(&["layer"]);
    assert_eq!(meaning(&squashed, "gone"), Some(Meaning::Whiteout));
    let stamp = |path: &str| squashed.root.stamp(&rel(path)).unwrap().unwrap();
    assert_eq!(stamp("d/file").ino, stamp("second name").ino);
    assert!(stamp("sparse").looks_sparse() && stamp("pipe").permissions() == 0o620);
}

#[test]
fn great_depth_is_no_trouble_and_a_cancelled_copy_ends() {
    let home = Home::new(&["layer", "copy", "squashed"]);
    let layer = home.layer("layer");
    let deep = vec!["deep"; 1200].join("/");
    drop(layer.root.create_dirs(&rel(&deep), 0o700).unwrap());
    let cancel = CancelFlag::default();
    assert_eq!(copy_layer(&layer, &home.at("copy"), &cancel).unwrap().entries, 1200);
    assert_eq!(squash(&[&layer], &home.at("squashed"), &cancel).unwrap(), 1200);
    cancel.cancel();
    assert!(copy_layer(&layer, &home.at("squashed"), &cancel).is_err());
    assert!(squash(&[&layer], &home.at("squashed"), &cancel).is_err());
    for tree in ["layer", "copy", "squashed"] {
        crate::remove_tree(&home.at(tree)).unwrap();
    }
}
