#![allow(clippy::unwrap_used)]

use super::*;
use crate::fixtures::{self, git};

const SHA1: ObjectFormat = ObjectFormat::Sha1;

struct Case {
    temp: tempfile::TempDir,
    tree: PathBuf,
    root: Root,
}

impl Case {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let tree = temp.path().join("tree");
        fixtures::init(&tree, SHA1);
        let root = Root::open(&tree).unwrap();
        Self { temp, tree, root }
    }

    fn with<T>(&self, autocrlf: Option<&str>, ask: impl FnOnce(&Attributes<'_>) -> T) -> T {
        let objects = self.tree.join(".git/objects");
        ask(&Attributes {
            files: &self.root,
            work: self.temp.path(),
            objects: &objects,
            format: SHA1,
            repository: b"",
            user: b"",
            autocrlf,
            eol: None,
        })
    }

    fn rules(&self, path: &str) -> Rules {
        self.with(None, |attributes| attributes.of(&[rel(path)]).unwrap().remove(&rel(path)).unwrap())
    }

    fn stored(&self, autocrlf: Option<&str>, path: &str, content: &[u8], before: Option<&Oid>) -> Vec<u8> {
        self.with(autocrlf, |attributes| attributes.stored(&rel(path), content, before).unwrap())
    }
}

fn rel(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

#[test]
fn without_attributes_nothing_is_asked_or_converted() {
    let case = Case::new();
    assert_eq!(case.rules("a/b"), Rules::default());
    let by_setting = case.with(Some("input"), |attributes| attributes.of(&[rel("a")]).unwrap());
    assert!(by_setting[&rel("a")].change(b"x\r\n") && !by_setting[&rel("a")].change(b"x\n"));
    let off = case.with(Some("false"), |attributes| attributes.of(&[rel("a")]).unwrap());
    assert!(!off[&rel("a")].converts);
}

#[test]
fn the_nearest_attributes_count() {
    let case = Case::new();
    fixtures::write(
        &case.tree,
        ".gitattributes",
        "* text=auto\n*.bin filter=lfs -text\n*.id ident\n*.no -filter binary\n",
    );
    fixtures::write(
        &case.tree,
        "sub/.gitattributes",
        "*.bin -filter\n*.utf working-tree-encoding=UTF-16LE\n",
    );
    assert_eq!(case.rules("x.bin").filter.as_deref(), Some("lfs"));
    assert!(!case.rules("x.bin").converts);
    assert_eq!(case.rules("sub/deep/x.bin").filter, None);
    assert!(case.rules("x.txt").converts && !case.rules("x.txt").change(b"plain\n"));
    assert!(case.rules("x.id").change(b"plain\n"));
    assert!(case.rules("sub/x.utf").change(b"plain\n"));
    assert_eq!(case.rules("x.no"), Rules::default());
    let odd = RelPath::from_bytes(b"sub/\xff\n\"x.bin").unwrap();
    let told = case.with(None, |attributes| attributes.of(&[odd.clone(), rel("x.bin")]).unwrap());
    assert_eq!(told.len(), 2);
    assert_eq!((&told[&odd].filter, told[&rel("x.bin")].filter.is_some()), (&None, true));
}

#[test]
fn content_is_stored_as_git_add_would_store_it() {
    let case = Case::new();
    fixtures::write(
        &case.tree,
        ".gitattributes",
        "*.txt text\n*.auto text=auto\n*.raw -text\n*.id ident\n*.utf working-tree-encoding=UTF-16LE\n*.crlf eol=crlf\n",
    );
    let utf16: Vec<u8> = "h\u{e9}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let contents: [&[u8]; 6] = [b"a\r\nb\n", b"a\rb\r\n", b"\0\r\n", b"$Id: 1234 $\n", &utf16, b""];
    for name in ["sub/x.txt", "x.auto", "x.raw", "x.id", "x.utf", "x.crlf", "x.other"] {
        for content in contents {
            if name == "x.utf" && content != utf16 {
                continue;
            }
            fixtures::write(&case.tree, name, content);
            git(&case.tree, &["add", "-f", name]);
            let expected = fixtures::command(&case.tree, &["cat-file", "blob", &format!(":{name}")]).stdout;
            assert_eq!(case.stored(None, name, content, None), expected, "{name} {content:?}");
            git(&case.tree, &["rm", "-q", "--cached", name]);
        }
    }
    assert_eq!(case.stored(None, "x.txt", b"a\r\n", None), b"a\n");
    assert_eq!(case.stored(Some("true"), "x.other", b"a\r\n", None), b"a\n");
}

#[test]
fn line_ends_that_are_in_the_repository_stay() {
    let case = Case::new();
    fixtures::write(&case.tree, "x", "a\r\n");
    let before = fixtures::commit(&case.tree, "with line ends");
    let blob: Oid = git(&case.tree, &["rev-parse", &format!("{before}:x")]).parse().unwrap();
    assert_eq!(case.stored(Some("input"), "x", b"b\r\n", Some(&blob)), b"b\r\n");
    assert_eq!(case.stored(Some("input"), "x", b"b\r\n", None), b"b\n");
}

#[test]
fn nothing_runs_and_nothing_is_followed() {
    let case = Case::new();
    let (marker, script) = fixtures::marker(case.temp.path());
    for key in ["filter.x.clean", "filter.x.process", "core.fsmonitor"] {
        git(&case.tree, &["config", key, &script]);
    }
    git(&case.tree, &["config", "filter.x.required", "true"]);
    fixtures::write(&case.tree, ".gitattributes", "* filter=x text\n");
    assert_eq!(case.stored(None, "a", b"a\r\n", None), b"a\n");
    assert_eq!(case.rules("a").filter.as_deref(), Some("x"));
    assert!(!marker.exists());
    std::fs::rename(case.tree.join(".gitattributes"), case.tree.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", case.tree.join(".gitattributes")).unwrap();
    assert_eq!(case.rules("a"), Rules::default());
    std::fs::remove_file(case.tree.join(".gitattributes")).unwrap();
    std::fs::File::create(case.tree.join(".gitattributes")).unwrap().set_len(1 << 30).unwrap();
    let refused = case.with(None, |attributes| attributes.of(&[rel("a")]).unwrap_err());
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    assert!(case.with(None, |attributes| attributes.stored(&rel(".git/config"), b"", None)).is_err());
}

#[test]
fn content_that_cannot_be_converted_is_refused() {
    let case = Case::new();
    fixtures::write(&case.tree, ".gitattributes", "* working-tree-encoding=UTF-16\n");
    let error = case.with(None, |attributes| attributes.stored(&rel("a"), b"odd", None).unwrap_err());
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[test]
fn attributes_of_the_repository_are_read() {
    let case = Case::new();
    assert_eq!(of_repository(&case.tree.join(".git")).unwrap(), b"");
    fixtures::write(&case.tree, ".git/info/attributes", "* text\n");
    assert_eq!(of_repository(&case.tree.join(".git")).unwrap(), b"* text\n");
}

#[test]
fn lfs_pointers_are_known() {
    let oid = "0".repeat(64);
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 12\n");
    assert!(is_lfs_pointer(pointer.as_bytes()));
    assert!(!is_lfs_pointer(b"version https://git-lfs.github.com/spec/v1\n"));
    assert!(!is_lfs_pointer(&[pointer.as_bytes(), &[b'x'; 2000]].concat()));
}

#[test]
fn several_files_become_what_each_becomes() {
    let case = Case::new();
    fixtures::write(&case.tree, ".gitattributes", "* text=auto\n");
    fixtures::write(&case.tree, "sub/.gitattributes", "*.utf working-tree-encoding=UTF-16LE\n");
    fixtures::write(&case.tree, "kept", "a\r\n");
    git(&case.tree, &["-c", "core.autocrlf=false", "hash-object", "-w", "--no-filters", "kept"]);
    let blob = SHA1.blob(b"a\r\n");
    let files: [(RelPath, &[u8], Option<&Oid>); 4] = [
        (rel("z"), b"z\r\n", None),
        (rel("sub/x.utf"), b"h\0i\0", None),
        (rel("kept"), b"b\r\n", Some(&blob)),
        (RelPath::from_bytes(b"\xff\n\"odd").unwrap(), b"o\r\n", None),
    ];
    let asked: Vec<ToStore<'_>> =
        files.iter().map(|(path, content, before)| ToStore { path, content, before: *before }).collect();
    let stored = case.with(None, |attributes| attributes.stored_all(&asked).unwrap());
    assert_eq!(stored, [b"z\n".as_slice(), b"hi", b"b\r\n", b"o\n"]);
    let odd = rel("sub/odd.utf");
    let asked = [asked[0], ToStore { path: &odd, content: b"odd", before: None }];
    let error = case.with(None, |attributes| attributes.stored_all(&asked).unwrap_err());
    assert!(error.to_string().contains("sub/odd.utf"), "{error}");
}
