#![allow(clippy::unwrap_used)]

use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;

use rustix::fs::{FileType, Mode, XattrFlags, mknodat};

use super::super::layer::Marks;
use super::*;

/// Two layers over a bottom. `upper` hides `gone` and all that `d/opaque` held, has put a file over the directory `was` and a
/// directory over the file `is`, and has a link where `middle` has a directory.
fn stack(home: &std::path::Path) -> (Layer, Layer, Root) {
    for dir in
        ["upper/d/opaque", "upper/is", "middle/d/opaque", "middle/link", "bottom/d/opaque", "bottom/was"]
    {
        create_dir_all(home.join(dir)).unwrap();
    }
    let files =
        ["upper/was", "upper/d/opaque/new", "upper/is/new", "middle/d/two", "middle/gone", "middle/link/x"];
    for file in files.iter().chain(&[
        "bottom/gone",
        "bottom/is",
        "bottom/d/one",
        "bottom/d/opaque/old",
        "bottom/was/x",
    ]) {
        write(home.join(file), file).unwrap();
    }
    symlink("d", home.join("upper/link")).unwrap();
    let open = |name: &str| Layer::open(&home.join(name), Marks::User).unwrap();
    let (upper, middle) = (open("upper"), open("middle"));
    mknodat(&upper.root, "gone", FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    let opaque = Marks::User.attribute("opaque");
    rustix::fs::setxattr(home.join("upper/d/opaque"), opaque, b"y", XattrFlags::empty()).unwrap();
    (upper, middle, Root::open(home.join("bottom")).unwrap())
}

#[test]
fn a_stack_shows_what_the_kernel_would() {
    let temp = tempfile::tempdir().unwrap();
    let (upper, middle, bottom) = stack(temp.path());
    let view = View { layers: vec![&upper, &middle], bottom: &bottom };
    let rel = |path: &str| RelPath::parse(path).unwrap();
    let place = |path: &str| view.find(&rel(path)).unwrap().map(|found| found.layer);
    for hidden in ["gone", "d/opaque/old", "was/x", "link/x", "gone/x", "nothing"] {
        assert_eq!(place(hidden), None, "{hidden}");
    }
    let shown =
        [("was", Some(0)), ("is/new", Some(0)), ("link", Some(0)), ("d/two", Some(1)), ("d/one", None)];
    for (path, layer) in shown {
        assert_eq!(place(path), Some(layer), "{path}");
    }
    let names = |path: Option<&str>| {
        let names = view.names(path.map(rel).as_ref()).unwrap();
        names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(None), "d is link was");
    assert_eq!(names(Some("d")), "one opaque two");
    assert_eq!(names(Some("d/opaque")), "new");
    assert_eq!(names(Some("is")), "new");
    assert!(view.names(Some(&rel("was"))).is_err() && view.names(Some(&rel("gone"))).is_err());
}

#[test]
fn what_was_found_is_read_from_where_it_is() {
    let temp = tempfile::tempdir().unwrap();
    let (upper, middle, bottom) = stack(temp.path());
    let view = View { layers: vec![&upper, &middle], bottom: &bottom };
    for (path, expected) in [("was", "upper"), ("d/two", "middle"), ("d/one", "bottom")] {
        let path = RelPath::parse(path).unwrap();
        let found = view.find(&path).unwrap().unwrap();
        let parent = view.open_parent(&path, &found).unwrap();
        assert!(parent.shown_self().starts_with(temp.path().join(expected)), "{parent:?}");
        assert_eq!(parent.stamp(path.name()).unwrap(), Some(found.stamp));
    }
}
