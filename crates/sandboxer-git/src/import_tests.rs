#![allow(clippy::unwrap_used)]

use std::io::{Seek, SeekFrom};

use super::*;
use crate::incoming::{deliver, discard};
use crate::objects::{read_blobs, tree_entries};
use crate::oid::ObjectFormat;
use crate::testing::{Checkout, ODD_NAMES, rel};

fn new<'a>(parents: &'a [Oid], changes: Vec<FileChange>) -> NewCommit<'a> {
    let who = "An Agent <agent@example.org>";
    NewCommit {
        parents,
        changes,
        tree_of: None,
        author: who,
        committer: who,
        seconds: 1_700_000_000,
        offset: "+0130",
        message: "what was done\n\nand why",
    }
}

fn put(path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> FileChange {
    let content = Content::Bytes(content.as_ref().to_vec());
    FileChange::Put { path: rel(path), mode: 0o100644, content }
}

fn remove(path: &str) -> FileChange {
    FileChange::Remove(rel(path))
}

/// The paths of a commit that was delivered.
fn files(checkout: &Checkout, commit: &Oid) -> Vec<String> {
    let told = checkout.git(["ls-tree", "-r", "-z", "--name-only", commit.as_str()]);
    told.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

#[test]
fn a_commit_has_what_was_put_byte_by_byte() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let checkout = Checkout::new(format);
        let ledger = checkout.ledger();
        let parent = checkout.oid("HEAD");
        let mut changes: Vec<FileChange> = ODD_NAMES.iter().map(|name| put(name, name)).collect();
        changes.push(remove("a"));
        let made = commit(&ledger, new(std::slice::from_ref(&parent), changes)).unwrap();
        let paths: Vec<RelPath> = ODD_NAMES.iter().map(rel).collect();
        let found = tree_entries(&ledger, &made.commit, &paths).unwrap();
        for name in ODD_NAMES {
            assert_eq!(made.blobs[&rel(name)], (0o100644, format.blob(name)));
            assert_eq!(found[&rel(name)].oid, format.blob(name));
        }
        deliver(&ledger).unwrap();
        assert_eq!(files(&checkout, &made.commit).len(), ODD_NAMES.len());
        assert_eq!(checkout.oid(&format!("{}^{{tree}}", made.commit)), made.tree);
        assert_eq!(checkout.oid(&format!("{}^", made.commit)), parent);
        let shown = checkout.git(["cat-file", "-p", made.commit.as_str()]);
        let tail = "author An Agent <agent@example.org> 1700000000 +0130\n\
                    committer An Agent <agent@example.org> 1700000000 +0130\n\nwhat was done\n\nand why";
        assert!(shown.ends_with(tail), "{shown}");
        checkout.git(["fsck", "--strict"]);
        assert_eq!(checkout.git_in(ledger.dir(), ["for-each-ref"]), "");
    }
}

#[test]
fn files_and_directories_take_the_place_of_one_another() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    checkout.write("d/x", "x");
    checkout.write("d/y", "y");
    let parent = checkout.commit_all("a directory");
    let ledger = checkout.ledger();
    let changes = vec![put("a/b", "below"), remove("a"), put("d", "file"), remove("d/x"), remove("d/y")];
    let made = commit(&ledger, new(&[parent], changes)).unwrap();
    deliver(&ledger).unwrap();
    assert_eq!(files(&checkout, &made.commit), ["a/b", "d"]);
}

#[test]
fn modes_links_trees_and_objects_that_are_there_are_kept() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    checkout.write("d/x", "x");
    let parent = checkout.commit_all("a directory");
    let ledger = checkout.ledger();
    let known =
        |path: &str, mode, oid| FileChange::Put { path: rel(path), mode, content: Content::Blob(oid) };
    let link = Content::Bytes(b"/etc/passwd".to_vec());
    let changes = vec![
        known("again", 0o100755, checkout.oid("HEAD:a")),
        known("tree", 0o040000, checkout.oid("HEAD:d")),
        known("module", 0o160000, parent.clone()),
        FileChange::Put { path: rel("link"), mode: 0o120000, content: link },
    ];
    let made = commit(&ledger, new(std::slice::from_ref(&parent), changes)).unwrap();
    assert_eq!(made.blobs[&rel("again")], (0o100755, checkout.oid("HEAD:a")));
    deliver(&ledger).unwrap();
    let shown = checkout.git(["ls-tree", made.commit.as_str(), "again", "link", "module", "tree"]);
    let modes: Vec<&str> = shown.lines().map(|line| &line[..6]).collect();
    assert_eq!(modes, ["100755", "120000", "160000", "040000"]);
}

#[test]
fn a_commit_can_be_the_first_empty_a_merge_or_start_elsewhere() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let ledger = checkout.ledger();
    let first = commit(&ledger, new(&[], vec![put("only", "")])).unwrap();
    let empty = commit(&ledger, new(std::slice::from_ref(&first.commit), vec![remove("only")])).unwrap();
    assert_eq!(empty.tree.as_str(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    let head = checkout.oid("HEAD");
    let parents = [head.clone(), first.commit.clone()];
    let mut merge = new(&parents, vec![put("more", "")]);
    merge.tree_of = Some(first.commit.clone());
    let merge = commit(&ledger, merge).unwrap();
    deliver(&ledger).unwrap();
    assert_eq!(files(&checkout, &first.commit), ["only"]);
    assert_eq!(files(&checkout, &merge.commit), ["more", "only"]);
    let parents = checkout.git(["log", "-1", "--format=%P", merge.commit.as_str()]);
    assert_eq!(parents, format!("{head} {}", first.commit));
}

#[test]
fn a_file_is_read_from_where_it_stands_and_a_large_one_stays_packed() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let ledger = checkout.ledger();
    let mut file = tempfile::tempfile().unwrap();
    let large: Vec<u8> = (0..9_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    file.write_all(b"skipped").unwrap();
    file.write_all(&large).unwrap();
    file.seek(SeekFrom::Start(7)).unwrap();
    let content = Content::File(file, large.len() as u64);
    let changes = vec![FileChange::Put { path: rel("large"), mode: 0o100644, content }];
    let made = commit(&ledger, new(&[checkout.oid("HEAD")], changes)).unwrap();
    let oid = made.blobs[&rel("large")].1.clone();
    assert_eq!(oid, ObjectFormat::Sha1.blob(&large));
    assert!(ledger.incoming().join("pack").read_dir().unwrap().count() >= 2);
    deliver(&ledger).unwrap();
    assert!(read_blobs(&ledger, &[oid]).unwrap()[0] == large);
    checkout.git(["fsck"]);
}

#[test]
fn many_files_are_one_pack() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let ledger = checkout.ledger();
    let changes = (0..3000).map(|at| put(format!("d{}/f{at}", at % 7), format!("{at}"))).collect();
    let made = commit(&ledger, new(&[], changes)).unwrap();
    assert_eq!(made.blobs.len(), 3000);
    deliver(&ledger).unwrap();
    assert_eq!(files(&checkout, &made.commit).len(), 3000);
}

#[test]
fn a_file_that_has_become_shorter_makes_no_commit() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let ledger = checkout.ledger();
    let content = Content::File(tempfile::tempfile().unwrap(), 10);
    let changes = vec![FileChange::Put { path: rel("x"), mode: 0o100644, content }];
    assert!(commit(&ledger, new(&[], changes)).is_err());
    let left: Vec<_> = ledger.dir().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.as_bytes().starts_with(b"fast_import")), "{left:?}");
    discard(&ledger).unwrap();
    commit(&ledger, new(&[], vec![put("x", "")])).unwrap();
}

#[test]
fn nothing_gets_into_a_git_directory_or_out_of_a_line() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let ledger = checkout.ledger();
    let link =
        |path: &str| FileChange::Put { path: rel(path), mode: LINK, content: Content::Bytes(b"x".to_vec()) };
    let bad = [".git/hooks/x", "d/.GIT", ".git", "GIT~1/x", ".git. .", ".git::$DATA", "x\\.git"]
        .map(|path| put(path, ""));
    for (place, bad) in bad.into_iter().chain([link("d/.gitModules")]).enumerate() {
        assert!(matches!(commit(&ledger, new(&[], vec![bad])), Err(Error::Refused { .. })), "{place}");
    }
    let fine = [".gitx", ".gi", "git", ".gitignore", ".gitmodules", ". .", "..git"].map(|path| put(path, ""));
    commit(&ledger, new(&[], fine.into_iter().chain([link("gitmodules")]).collect())).unwrap();
    discard(&ledger).unwrap();
    let mut hostile = new(&[], vec![put("x", "")]);
    hostile.author = "Eve\nfrom 0 <eve<>\0@example.org>\ndone";
    hostile.committer = "nobody";
    hostile.message = "done\n\0deleteall\nM 100644 inline .git/x";
    let made = commit(&ledger, hostile).unwrap();
    deliver(&ledger).unwrap();
    let shown = checkout.git(["cat-file", "-p", made.commit.as_str()]);
    let author = "author Evefrom 0 <eve@example.orgdone> 1700000000 +0130\ncommitter nobody <> ";
    assert!(shown.contains(author), "{shown}");
    assert!(shown.ends_with("done\ndeleteall\nM 100644 inline .git/x"), "{shown}");
    checkout.git(["fsck", "--strict"]);
    for bad in ["", "0000", "+00:00", "+1500", "+0000\n"] {
        let mut new = new(&[], Vec::new());
        new.offset = bad;
        assert!(matches!(commit(&ledger, new), Err(Error::Usage { .. })), "{bad:?}");
    }
}
