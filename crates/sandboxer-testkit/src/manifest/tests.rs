use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn sample() -> (tempfile::TempDir, Sample) {
    let dir = tempfile::tempdir().unwrap();
    let sample = rich_tree(dir.path(), Path::new("/etc/hostname"));
    (dir, sample)
}

/// What a change to the tree is reported as.
fn lines_after(change: impl Fn(&Path)) -> Vec<String> {
    let (dir, _) = sample();
    let before = Manifest::capture(dir.path());
    change(dir.path());
    before.differences(&Manifest::capture(dir.path()), Facets::WRITTEN)
}

#[test]
fn a_tree_is_the_same_as_itself() {
    let (dir, _) = sample();
    let manifest = Manifest::capture(dir.path());
    manifest.assert_same(&Manifest::capture(dir.path()), Facets::UNTOUCHED, "the same tree twice");
    assert!(manifest.files() > 20);
    assert!(manifest.entry("sparse").sparse && !manifest.entry("large.bin").sparse);
}

#[test]
fn every_kind_of_change_is_seen() {
    type Edit = fn(&Path);
    let edits: [(&str, Edit); 11] = [
        ("content", |d| {
            let mtime = fs::metadata(d.join("nested/one")).unwrap();
            fs::write(d.join("nested/one"), "9\n").unwrap();
            set_mtime(&d.join("nested/one"), mtime.mtime(), mtime.mtime_nsec());
        }),
        ("mode", |d| fs::set_permissions(d.join("nothing"), fs::Permissions::from_mode(0o601)).unwrap()),
        ("missing", |d| fs::remove_file(d.join("nothing")).unwrap()),
        ("unexpected", |d| fs::write(d.join("new"), "").unwrap()),
        ("target", |d| {
            fs::remove_file(d.join("links/dangling")).unwrap();
            symlink("/elsewhere", d.join("links/dangling")).unwrap();
        }),
        ("type", |d| {
            fs::remove_file(d.join("nothing")).unwrap();
            fs::create_dir(d.join("nothing")).unwrap();
        }),
        ("links", |d| {
            fs::remove_file(d.join("links/second name")).unwrap();
            fs::copy(d.join("links/first name"), d.join("links/second name")).unwrap();
        }),
        ("mtime", |d| set_mtime(&d.join("nothing"), 7, 7)),
        ("holes", |d| {
            let content = fs::read(d.join("sparse")).unwrap();
            fs::write(d.join("sparse"), content).unwrap();
        }),
        ("xattrs", |d| assert!(set_xattr(&d.join("nothing"), "user.x", b"1"))),
        ("size", |d| fs::write(d.join("nothing"), "now something").unwrap()),
    ];
    let (_dir, allowed) = sample();
    for (word, edit) in edits {
        if word == "xattrs" && !allowed.xattrs {
            crate::skip("no extended attributes on this filesystem");
            continue;
        }
        let lines = lines_after(edit);
        assert!(lines.iter().any(|l| l.contains(word)), "{word} was not reported: {lines:?}");
    }
}

#[test]
fn facets_decide_what_counts() {
    let (dir, _) = sample();
    let before = Manifest::capture(dir.path());
    fs::write(dir.path().join("empty/passing"), "").unwrap();
    fs::remove_file(dir.path().join("empty/passing")).unwrap();
    let after = Manifest::capture(dir.path());
    assert!(!before.same(&after, Facets::UNTOUCHED) && before.same(&after, Facets::WRITTEN));
    set_mtime(&dir.path().join("readme.md"), 5, 5);
    let after = Manifest::capture(dir.path());
    assert!(!before.same(&after, Facets::WRITTEN) && before.same(&after, Facets::CONTENT));
}
