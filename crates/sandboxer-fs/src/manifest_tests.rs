#![allow(clippy::unwrap_used)]
use super::*;

const FILE: u32 = 0o100_644;
const DIR: u32 = 0o040_755;

fn entry(name: &str, mode: u32) -> Entry {
    let base = Stamp { ino: 1, mode, size: 5, ..Stamp::default() };
    Entry {
        name: name.into(),
        base: Some(base),
        copy: Some(Stamp { ino: 2, ctime: 9, ..base }),
        ..Entry::default()
    }
}

fn link_to(name: &str, child: DirId) -> Entry {
    Entry { name: name.into(), child: Some(child), ..Entry::default() }
}

fn sample(dir: &Path) -> Manifest {
    let path = dir.join("base");
    let writer = ManifestWriter::create(&path).unwrap();
    let chunk = |id, own, entries| Chunk { id, own, entries };
    writer.append(&chunk(1, entry("d", DIR), vec![link_to("e", 2), entry("x", FILE)])).unwrap();
    writer.append(&chunk(ROOT, entry("", DIR), vec![entry("a", FILE), link_to("d", 1)])).unwrap();
    writer.append(&chunk(2, entry("e", DIR), vec![entry("y", FILE)])).unwrap();
    writer.finish().unwrap();
    Manifest::load(&path).unwrap()
}

fn rel(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

fn paths(manifest: &Manifest) -> Vec<String> {
    let mut paths: Vec<_> =
        manifest.below(ROOT, None).unwrap().into_iter().map(|(p, _)| p.to_string()).collect();
    paths.sort();
    paths
}

#[test]
fn entries_come_back_as_they_were() {
    let temp = tempfile::tempdir().unwrap();
    let manifest = sample(temp.path());
    assert_eq!(paths(&manifest), ["a", "d", "d/e", "d/e/y", "d/x"]);
    assert_eq!(manifest.find(&rel("d/x")).unwrap().unwrap(), entry("x", FILE));
    assert_eq!(manifest.find(&rel("d/e")).unwrap().unwrap().node_type(), NodeType::Directory);
    assert_eq!(manifest.find(&rel("d/none")).unwrap(), None);
    assert_eq!(manifest.find(&rel("a/below")).unwrap(), None);
}

#[test]
fn a_copy_unlike_its_original_is_stored_in_full() {
    let temp = tempfile::tempdir().unwrap();
    let manifest = sample(temp.path());
    let mut odd = entry("a", FILE);
    odd.copy = Some(Stamp { uid: 1000, ..odd.copy.unwrap() });
    odd.hash = Some(ContentHash::of(b"hello"));
    odd.xattrs.insert(b"user.x".to_vec(), b"y".to_vec());
    manifest.rewrite(Edits::from([(rel("a"), Some(odd.clone()))])).unwrap();
    let again = Manifest::load(&temp.path().join("base")).unwrap();
    assert_eq!(again.find(&rel("a")).unwrap().unwrap(), odd);
}

#[test]
fn edits_add_replace_and_remove_whole_directories() {
    let temp = tempfile::tempdir().unwrap();
    let manifest = sample(temp.path());
    let edits = Edits::from([
        (rel("a"), Some(entry("a", DIR))),
        (rel("a/new"), Some(entry("new", FILE))),
        (rel("d/e"), Some(entry("e", FILE))),
        (rel("d/x"), None),
        (rel("nothing/here"), None),
        (rel("nothing"), None),
    ]);
    manifest.rewrite(edits).unwrap();
    let again = Manifest::load(&temp.path().join("base")).unwrap();
    assert_eq!(paths(&again), ["a", "a/new", "d", "d/e"]);
    assert_eq!(again.find(&rel("d/e")).unwrap().unwrap().node_type(), NodeType::File);
    again.rewrite(Edits::from([(rel("d"), None), (rel("a"), Some(entry("a", DIR)))])).unwrap();
    let last = Manifest::load(&temp.path().join("base")).unwrap();
    assert_eq!(paths(&last), ["a", "a/new"]);
    assert!(last.rewrite(Edits::from([(rel("no/parent"), Some(entry("parent", FILE)))])).is_err());
}

#[test]
fn damage_is_noticed() {
    let temp = tempfile::tempdir().unwrap();
    sample(temp.path());
    let path = temp.path().join("base");
    let good = std::fs::read(&path).unwrap();
    for (bytes, reason) in [
        (good[..good.len() - 1].to_vec(), "checksum"),
        (good[..10].to_vec(), "too short"),
        ([b"XXXXXXXX", &good[8..]].concat(), "known version"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = Manifest::load(&path).err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    std::fs::write(&path, flipped).unwrap();
    assert!(Manifest::load(&path).is_err());
}
