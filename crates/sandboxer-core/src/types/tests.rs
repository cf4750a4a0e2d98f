//! The catalogue, and recognising what is really there.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, FileType, Mode};

use super::*;
use crate::model::Resource;

fn types() -> ResourceTypes {
    ResourceTypes::embedded().unwrap()
}

/// The definition of a type, with `change` made to it.
fn definition(change: (&str, &str)) -> String {
    let text = "\
name: my-tree
summary: Mine
handler: file
detect: {kind: directory, priority: 30}
default_strategy: filesystem_copy
strategies: [filesystem_copy, none]
";
    text.replace(change.0, change.1)
}

fn overridden(definitions: &[&str]) -> Result<ResourceTypes> {
    let dir = tempfile::tempdir().unwrap();
    for (number, text) in definitions.iter().enumerate() {
        std::fs::write(dir.path().join(format!("{number}.yaml")), text).unwrap();
    }
    std::fs::write(dir.path().join("README.md"), "not a type").unwrap();
    types().with_overrides(&ResourceTypes::files_in(dir.path()).unwrap())
}

#[test]
fn the_shipped_types_set_a_default_and_nothing_stronger() {
    let types = types();
    let names: Vec<_> = types.iter().map(|ty| ty.name.as_str()).collect();
    assert_eq!(names, ["fs-directory", "fs-file", "fs-mount", "git-checkout", "mysql", "postgres", "sqlite"]);
    for ty in types.iter() {
        let (default, handler) = match ty.name.as_str() {
            "fs-file" => ("copy_on_write", "file"),
            "git-checkout" => ("git_worktree", "git"),
            "sqlite" => ("database_snapshot", "database"),
            "mysql" | "postgres" => ("transaction_rollback", "database"),
            _ => ("overlay", "file"),
        };
        assert_eq!((ty.default_strategy.as_str(), &ty.sandbox_strategy), (default, &None));
        assert_eq!((ty.handler.as_str(), ty.origin.as_str()), (handler, "built-in"));
        assert!(!ty.summary.is_empty());
    }
}

#[test]
fn every_shipped_file_is_embedded() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../resource-types");
    assert_eq!(ResourceTypes::files_in(&directory).unwrap().len(), EMBEDDED.len());
}

#[test]
fn an_unknown_type_suggests_the_nearest() {
    let error = types().get("fs-dir").unwrap_err();
    assert!(
        matches!(error, Error::NotFound { what: "resource type", similar, .. } if similar[0] == "fs-directory")
    );
}

#[test]
fn a_user_adds_and_replaces_types() {
    let types = overridden(&[
        &definition(("", "")),
        &definition(("my-tree", "fs-file")).replace("directory", "file"),
    ])
    .unwrap();
    assert_eq!(types.iter().count(), EMBEDDED.len() + 1);
    assert_eq!(types.get("fs-file").unwrap().summary, "Mine");
    assert!(types.get("my-tree").unwrap().origin.ends_with("0.yaml"));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(types.detect(dir.path().to_str().unwrap()).unwrap().type_name, "my-tree");
}

#[test]
fn of_equal_priority_the_users_type_wins() {
    let types =
        overridden(&[&definition(("priority: 30", "priority: 10")).replace("my-tree", "zz")]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    assert_eq!(types.detect(inner.to_str().unwrap()).unwrap().type_name, "zz");
}

#[test]
fn definitions_are_checked() {
    let table = [
        (("name: my-tree", "name: My Tree"), "not a name"),
        (("summary: Mine\n", ""), "summary"),
        (("handler: file", "handler: fil"), "no handler"),
        (("kind: directory", "kind: directry"), "unknown value"),
        (("default_strategy: filesystem_copy", "default_strategy: overlay"), "not among strategies"),
        (("strategies: [filesystem_copy, none]\n", ""), "strategies"),
        (("summary", "sumary"), "unknown key"),
        (("kind: directory", "kind: url, schemes: [s3]"), "is for files"),
        (("kind: directory", "kind: directory, schemes: [s3]"), "schemes are for kind url"),
        (("kind: directory", "kind: directory, scheme: s3"), "unknown key"),
        (("name: my-tree", "origin: x\nname: my-tree"), "unknown key"),
    ];
    for (change, complaint) in table {
        let error = overridden(&[&definition(change)]).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{change:?}: {error:?}");
        assert!(error.to_string().contains(complaint), "{change:?}: {error}");
    }
    assert!(overridden(&[""]).unwrap_err().to_string().contains("empty"));
}

#[test]
fn a_name_twice_in_one_layer_is_refused() {
    let text = definition(("", ""));
    let error = overridden(&[&text, &text]).unwrap_err();
    assert!(error.to_string().ends_with("1.yaml: resource type \"my-tree\" is defined twice"), "{error}");
}

#[test]
fn a_directory_of_types_need_not_exist() {
    assert!(ResourceTypes::files_in(Path::new("/nonexistent")).unwrap().is_empty());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(ResourceTypes::files_in(&file), Err(Error::Io { step: "list", .. })));
}

/// A type of what is at URLs of `schemes`.
fn bucket(name: &str, schemes: &str) -> String {
    format!(
        "name: {name}\nsummary: A bucket\nhandler: generic\ndetect: {{kind: url, schemes: {schemes}}}\n\
         default_strategy: bucket\nstrategies: [bucket]\n"
    )
}

#[test]
fn a_type_may_be_for_urls() {
    let types = overridden(&[&bucket("s3-bucket", "[S3, s3n]"), &bucket("a-store", "[gs]")]).unwrap();
    assert_eq!(types.get("s3-bucket").unwrap().detect.schemes, ["s3", "s3n"]);
    for (location, type_name, canonical) in [
        ("s3://bucket/prefix/", "s3-bucket", "s3://bucket/prefix"),
        ("S3N://bucket", "s3-bucket", "s3n://bucket"),
        ("gs://x", "a-store", "gs://x"),
    ] {
        let resource = types.detect(location).unwrap();
        assert_eq!(resource, Resource::at_url(type_name, canonical), "{location}");
        assert_eq!(types.detect_as(type_name, location).unwrap(), resource);
    }
    let error = types.detect_as("s3-bucket", "gs://x").unwrap_err();
    assert_eq!(error.to_string(), "s3-bucket needs a URL of scheme s3 or s3n, not a URL of scheme gs");
    let error = types.detect_as("s3-bucket", "/").unwrap_err();
    assert_eq!(error.to_string(), "s3-bucket needs a URL of scheme s3 or s3n, / is a mount point");
    let error = types.detect_as("fs-directory", "s3://me:secret@x").unwrap_err();
    assert_eq!(error.to_string(), "fs-directory needs a directory, not a URL of scheme s3");
}

#[test]
fn types_for_urls_are_checked() {
    for (schemes, complaint) in
        [("[]", "needs the schemes"), ("[file]", "paths of this machine"), ("[\"s3://\"]", "is not a scheme")]
    {
        let error = overridden(&[&bucket("b", schemes)]).unwrap_err();
        assert!(matches!(&error, Error::Config { file, .. } if file.ends_with("0.yaml")), "{error:?}");
        assert!(error.to_string().contains(complaint), "{schemes}: {error}");
    }
}

#[test]
fn a_scheme_without_a_type_says_what_there_is() {
    let types = overridden(&[&bucket("s3-bucket", "[s3]")]).unwrap();
    let error = types.detect("gopher://user:secret@db/x").unwrap_err();
    assert_eq!(error.to_string(), "no resource type handles URLs of scheme gopher");
    let Error::Usage { hint: Some(hint), .. } = &error else { panic!("{error:?}") };
    assert!(
        hint.contains("file, mariadb, mysql, postgres, postgresql, s3")
            && hint.contains("resource-types/*.yaml"),
        "{hint}"
    );
    assert!(!format!("{error:?}").contains("secret"));
}

/// A directory with a file, a subdirectory, links and special files in it.
fn tree() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("sub")).unwrap();
    std::fs::write(root.join("file.txt"), "x").unwrap();
    std::os::unix::fs::symlink("sub", root.join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("dangling")).unwrap();
    rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    (dir, root.into_os_string().into_string().unwrap())
}

#[test]
fn directories_files_and_mounts_are_told_apart() {
    let (_dir, root) = tree();
    let table = [
        (format!("{root}/sub"), "fs-directory", format!("{root}/sub")),
        (format!("{root}/sub/"), "fs-directory", format!("{root}/sub")),
        (format!("{root}/sub/../sub/."), "fs-directory", format!("{root}/sub")),
        (format!("{root}/link"), "fs-directory", format!("{root}/sub")),
        (format!("file://{root}/file.txt"), "fs-file", format!("{root}/file.txt")),
        (format!("{root}/file.txt"), "fs-file", format!("{root}/file.txt")),
        ("/proc".to_owned(), "fs-mount", "/proc".to_owned()),
        ("/".to_owned(), "fs-mount", "/".to_owned()),
    ];
    for (location, type_name, canonical) in table {
        let resource = types().detect(&location).unwrap();
        assert_eq!((resource.type_name.as_str(), &resource.location), (type_name, &canonical), "{location}");
        assert_eq!(resource.id.as_str(), format!("path:{canonical}"));
    }
}

#[test]
fn what_is_missing_is_not_found() {
    let (_dir, root) = tree();
    for missing in ["fiel.txt", "dangling", "no/where"] {
        let error = types().detect(&format!("{root}/{missing}")).unwrap_err();
        assert!(matches!(&error, Error::NotFound { what: "resource", .. }), "{missing}: {error:?}");
    }
}

#[test]
fn a_file_where_a_directory_is_meant_is_told() {
    let (_dir, root) = tree();
    let error = types().detect(&format!("{root}/file.txt/")).unwrap_err();
    assert!(matches!(&error, Error::Usage { hint: Some(_), .. }), "{error:?}");
    assert!(error.to_string().contains("is a file"), "{error}");
    assert!(matches!(types().detect(&format!("{root}/file.txt/x")), Err(Error::Io { .. })));
    let error = types().detect_as("fs-directory", &format!("{root}/file.txt")).unwrap_err();
    assert_eq!(error.to_string(), format!("fs-directory needs a directory, {root}/file.txt is a file"));
}

#[test]
fn the_caller_may_name_the_type() {
    let (_dir, root) = tree();
    assert_eq!(types().detect_as("fs-directory", "/proc").unwrap().type_name, "fs-directory");
    let error = types().detect_as("fs-mount", &format!("{root}/sub")).unwrap_err();
    assert_eq!(error.to_string(), format!("fs-mount needs a mount point, {root}/sub is a directory"));
    assert!(matches!(types().detect_as("fs-fiel", &root), Err(Error::NotFound { .. })));
}

#[test]
fn special_files_are_refused() {
    let (_dir, root) = tree();
    let _listener = std::os::unix::net::UnixListener::bind(format!("{root}/socket")).unwrap();
    for (location, what) in [
        (format!("{root}/fifo"), "a FIFO"),
        (format!("{root}/socket"), "a socket"),
        ("/dev/null".into(), "a device"),
    ] {
        let error = types().detect(&location).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn a_location_has_to_be_utf8() {
    let (_dir, root) = tree();
    let odd = Path::new(&root).join(OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir(&odd).unwrap();
    std::os::unix::fs::symlink(&odd, Path::new(&root).join("to-odd")).unwrap();
    let error = types().detect(&format!("{root}/to-odd")).unwrap_err();
    assert!(error.to_string().contains("not UTF-8"), "{error}");
}

#[test]
fn without_a_fitting_type_nothing_is_detected() {
    let (_dir, root) = tree();
    let error = ResourceTypes::default().detect(&root).unwrap_err();
    assert!(error.to_string().starts_with("no resource type is for"), "{error}");
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_it() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root reads everything");
        return;
    }
    let (_dir, root) = tree();
    for (name, mode, step) in [("file.txt", 0o000, "read"), ("sub", 0o000, "read"), ("sub", 0o400, "search")]
    {
        let path = Path::new(&root).join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = types().detect(path.to_str().unwrap()).unwrap_err();
        assert!(matches!(&error, Error::Io { step: at, .. } if *at == step), "{name}: {error:?}");
    }
}

#[test]
fn a_checkout_is_told_by_its_git() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    let types = ResourceTypes::embedded().unwrap();
    let detected = || types.detect(path.to_str().unwrap()).unwrap().type_name;
    std::fs::create_dir(path.join(".git")).unwrap();
    assert_eq!(detected(), "fs-directory");
    std::fs::create_dir(path.join(".git/objects")).unwrap();
    std::fs::write(path.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    assert_eq!(detected(), "git-checkout");
    assert_eq!(types.detect_as("fs-directory", path.to_str().unwrap()).unwrap().type_name, "fs-directory");
    std::fs::remove_dir_all(path.join(".git")).unwrap();
    std::fs::write(path.join(".git"), "gitdir: /elsewhere\n").unwrap();
    assert_eq!(detected(), "git-checkout");
    std::fs::write(path.join(".git"), "not this").unwrap();
    assert_eq!(detected(), "fs-directory");
}

#[test]
fn a_bare_repository_is_refused_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    for name in ["objects", "refs"] {
        std::fs::create_dir(path.join(name)).unwrap();
    }
    std::fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    let types = ResourceTypes::embedded().unwrap();
    match types.detect(path.to_str().unwrap()) {
        Err(Error::Refused { reason, hint }) => {
            assert!(reason.contains("bare") && hint.unwrap().contains("git clone"), "{reason}");
        }
        other => panic!("not refused: {other:?}"),
    }
    assert!(types.detect_as("fs-directory", path.to_str().unwrap()).is_ok());
}

#[test]
fn a_sqlite_database_is_known_by_how_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        types().detect(path.to_str().unwrap()).unwrap().type_name
    };
    assert_eq!(at("a.db", b"SQLite format 3\0 and more"), "sqlite");
    assert_eq!(at("b.db", b"SQLite format 4\0 and more"), "fs-file");
    assert_eq!(at("c.db", b""), "fs-file");
}

#[test]
fn a_database_with_a_password_is_told_where_to_put_it() {
    let error = types().detect("postgres://user:secret@db/x").unwrap_err();
    let Error::Usage { message, hint: Some(hint) } = &error else { panic!("{error:?}") };
    assert!(message.contains("password") && hint.contains("env:DATABASE_URL"), "{message} {hint}");
    assert!(!format!("{error:?}").contains("secret"));
    let resource = types().detect("postgresql://user@db:5432/x/").unwrap();
    assert_eq!((&*resource.type_name, &*resource.location), ("postgres", "postgresql://user@db:5432/x"));
}
