#![allow(clippy::unwrap_used)]

use crate::filter::Filter;
use std::fs::{create_dir_all, hard_link, write};
use std::path::Path;

use rustix::fs::{FileType, Mode, XattrFlags, mknodat};

use super::super::layer::Marks;
use super::*;
use crate::root::Root;

fn layer(path: &Path) -> Layer {
    create_dir_all(path).unwrap();
    Layer::open(path, Marks::User).unwrap()
}

fn whiteout(layer: &Layer, path: &str) {
    mknodat(&layer.root, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
}

fn mark(layer: &Layer, path: &str, mark: &str, value: &[u8]) {
    let path = layer.root.path().join(path);
    rustix::fs::lsetxattr(path, Marks::User.attribute(mark), value, XattrFlags::empty()).unwrap();
}

fn look(layers: &[&Layer], threads: usize) -> Touched {
    touched(layers, &Filter::all(), threads, &CancelFlag::default()).unwrap()
}

fn facts(touched: &Touched, path: &str) -> Facts {
    Facts { btime: 0, ..touched.paths[&RelPath::parse(path).unwrap()] }
}

#[test]
fn every_layers_word_is_kept() {
    let temp = tempfile::tempdir().unwrap();
    let (upper, lower) = (layer(&temp.path().join("upper")), layer(&temp.path().join("lower")));
    create_dir_all(temp.path().join("upper/d")).unwrap();
    create_dir_all(temp.path().join("lower/d")).unwrap();
    for file in ["upper/d/f", "lower/d/f", "lower/only", "upper/back"] {
        write(temp.path().join(file), "x").unwrap();
    }
    mark(&upper, "d", "opaque", b"y");
    mark(&lower, "d/f", "origin", b"");
    whiteout(&upper, "only");
    whiteout(&lower, "back");
    for threads in [1, 4] {
        let touched = look(&[&upper, &lower], threads);
        let names: Vec<_> = touched.paths.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["back", "d", "d/f", "only"]);
        let entry = Facts { entry: true, ..Facts::default() };
        assert_eq!(facts(&touched, "d"), Facts { opaque: true, ..entry });
        assert_eq!(facts(&touched, "d/f"), Facts { origin: Some(Origin { ino: None }), ..entry });
        assert_eq!(facts(&touched, "only"), Facts { whiteout: true, ..entry });
        assert_eq!(facts(&touched, "back"), Facts { whiteout: true, ..entry });
    }
}

#[test]
fn the_origin_is_the_lowest_layers_even_if_that_has_none() {
    let temp = tempfile::tempdir().unwrap();
    let (upper, lower) = (layer(&temp.path().join("upper")), layer(&temp.path().join("lower")));
    write(temp.path().join("upper/f"), "x").unwrap();
    write(temp.path().join("lower/f"), "x").unwrap();
    mark(&upper, "f", "origin", b"");
    assert_eq!(facts(&look(&[&upper, &lower], 1), "f").origin, None);
    assert_eq!(facts(&look(&[&upper], 1), "f").origin, Some(Origin { ino: None }));
}

#[test]
fn names_of_a_file_are_counted_within_the_topmost_layer() {
    let temp = tempfile::tempdir().unwrap();
    let (upper, lower) = (layer(&temp.path().join("upper")), layer(&temp.path().join("lower")));
    let at = |path: &str| temp.path().join(path);
    create_dir_all(at("upper/d")).unwrap();
    write(at("upper/a"), "x").unwrap();
    hard_link(at("upper/a"), at("upper/d/b")).unwrap();
    hard_link(at("upper/a"), at("outside")).unwrap();
    write(at("lower/a"), "x").unwrap();
    whiteout(&upper, "w");
    hard_link(at("upper/w"), at("upper/w2")).unwrap();
    let found = look(&[&upper, &lower], 2);
    let links = facts(&found, "a").links.unwrap();
    assert_eq!((links.1, links.2), (2, 3));
    assert_eq!(facts(&found, "d/b").links, Some(links));
    assert_eq!(facts(&found, "w").links, None);
}

#[test]
fn a_tree_of_great_depth_is_walked_and_a_cancelled_walk_ends() {
    let temp = tempfile::tempdir().unwrap();
    let deep = vec!["deep"; 1200].join("/");
    let root = Root::open(temp.path()).unwrap();
    drop(root.create_dirs(&RelPath::parse(&deep).unwrap(), 0o700).unwrap());
    let layer = layer(temp.path());
    assert_eq!(look(&[&layer], 2).paths.len(), 1200);
    let cancel = CancelFlag::default();
    cancel.cancel();
    assert!(touched(&[&layer], &Filter::all(), 1, &cancel).is_err());
    crate::remove_tree(&temp.path().join("deep")).unwrap();
}
