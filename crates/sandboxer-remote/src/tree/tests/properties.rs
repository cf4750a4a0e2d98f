//! Whatever is done on either side, both become equal.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use sandboxer_testkit::manifest::{Facets, Manifest, set_mtime};

use super::world::{CutBack, Cutting, World};
use crate::tree::Moved;

const NAMES: [&[u8]; 6] = [b"a", b"-rf", b"new\nline", b"it's \"$x\" \\", b"\xff\xfe", b"b"];

#[derive(Clone, Debug)]
enum Edit {
    Write(Vec<usize>, u8),
    MakeDir(Vec<usize>),
    Link(Vec<usize>, usize),
    HardLink(Vec<usize>, Vec<usize>),
    Remove(Vec<usize>),
    Move(Vec<usize>, Vec<usize>),
    Mode(Vec<usize>, bool),
    OldTime(Vec<usize>),
}

fn path() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..NAMES.len(), 1..4)
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (path(), any::<u8>()).prop_map(|(path, value)| Edit::Write(path, value)),
        2 => path().prop_map(Edit::MakeDir),
        1 => (path(), 0..NAMES.len()).prop_map(|(path, to)| Edit::Link(path, to)),
        1 => (path(), path()).prop_map(|(from, to)| Edit::HardLink(from, to)),
        2 => path().prop_map(Edit::Remove),
        1 => (path(), path()).prop_map(|(from, to)| Edit::Move(from, to)),
        1 => (path(), any::<bool>()).prop_map(|(path, open)| Edit::Mode(path, open)),
        1 => path().prop_map(Edit::OldTime),
    ]
}

fn at(root: &Path, path: &[usize]) -> PathBuf {
    path.iter().fold(root.to_path_buf(), |path, name| path.join(OsStr::from_bytes(NAMES[*name])))
}

/// No component but the last is a link: edits stay in their tree.
fn stays(root: &Path, path: &Path) -> bool {
    let mut above = path.ancestors().skip(1).take_while(|above| *above != root);
    above.all(|above| !above.is_symlink())
}

/// Does it if it can be done.
fn apply(root: &Path, edit: &Edit) {
    let _ = match edit {
        Edit::Write(path, value) if usable(root, path) => {
            fs::write(at(root, path), vec![*value; usize::from(*value) * 40])
        }
        Edit::MakeDir(path) if stays(root, &at(root, path)) => fs::create_dir_all(at(root, path)),
        Edit::Link(path, to) if usable(root, path) => symlink(OsStr::from_bytes(NAMES[*to]), at(root, path)),
        Edit::HardLink(from, to) if usable(root, from) && usable(root, to) => {
            fs::hard_link(at(root, from), at(root, to))
        }
        Edit::Remove(path) if stays(root, &at(root, path)) => remove(&at(root, path)),
        Edit::Move(from, to) if stays(root, &at(root, from)) && stays(root, &at(root, to)) => {
            fs::rename(at(root, from), at(root, to))
        }
        Edit::Mode(path, open) if usable(root, path) && at(root, path).exists() => {
            let mode = if *open { 0o755 } else { 0o700 };
            fs::set_permissions(at(root, path), PermissionsExt::from_mode(mode))
        }
        Edit::OldTime(path) if usable(root, path) && at(root, path).exists() => {
            set_mtime(&at(root, path), 1_000_000_000, 1);
            Ok(())
        }
        _ => Ok(()),
    };
}

fn usable(root: &Path, path: &[usize]) -> bool {
    stays(root, &at(root, path)) && !at(root, path).is_symlink()
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

#[derive(Clone, Debug)]
enum Step {
    Send(Vec<Edit>, Vec<Edit>),
    Fetch(Vec<Edit>),
    Both(Vec<Edit>, Vec<Edit>),
    Cut(Vec<Edit>, u64),
    CutBack(Vec<Edit>, u64, Vec<Edit>),
}

fn step() -> impl Strategy<Value = Step> {
    let edits = || prop::collection::vec(edit(), 0..8);
    prop_oneof![
        (edits(), edits()).prop_map(|(here, there)| Step::Send(here, there)),
        edits().prop_map(Step::Fetch),
        (edits(), edits()).prop_map(|(here, there)| Step::Both(here, there)),
        (edits(), 0_u64..8_000).prop_map(|(here, after)| Step::Cut(here, after)),
        (edits(), 0_u64..8_000, edits()).prop_map(|(there, after, later)| Step::CutBack(there, after, later)),
    ]
}

fn edit_all(root: &Path, edits: &[Edit]) {
    edits.iter().for_each(|edit| apply(root, edit));
}

fn take(world: &World, step: &Step) {
    let (here, there) = (world.here(""), world.there(""));
    match step {
        Step::Send(ours, theirs) => {
            edit_all(&here, ours);
            edit_all(&there, theirs);
            world.send().unwrap();
        }
        Step::Fetch(theirs) => {
            edit_all(&there, theirs);
            world.fetch().unwrap();
        }
        Step::Both(ours, theirs) => {
            edit_all(&here, ours);
            edit_all(&there, theirs);
            let before = Manifest::capture(&here);
            if world.fetch().is_err() {
                before.assert_same(&Manifest::capture(&here), Facets::UNTOUCHED, "a conflict writes nothing");
            }
            world.send().unwrap();
        }
        Step::Cut(ours, after) => {
            edit_all(&here, ours);
            let _ = world.with(&Cutting(*after), |m| m.send());
            world.send().unwrap();
        }
        Step::CutBack(theirs, after, later) => {
            edit_all(&there, theirs);
            let _ = world.with(&CutBack(*after), |m| m.fetch());
            edit_all(&there, later);
            world.fetch().unwrap();
        }
    }
    world.assert_equal(&format!("{step:?}"));
    assert_eq!(
        (world.send().unwrap(), world.fetch().unwrap()),
        (Moved::default(), Moved::default()),
        "{step:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn both_sides_become_equal_whatever_is_done_to_them(steps in prop::collection::vec(step(), 1..5)) {
        let world = World::new();
        world.send().unwrap();
        for step in &steps {
            take(&world, step);
        }
    }
}
