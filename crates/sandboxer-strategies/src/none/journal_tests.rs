//! The log itself: what is left of it after crashes and damage.

use std::fs;

use super::*;

/// A resource with one file, and its log.
struct Logged {
    dir: tempfile::TempDir,
    log: WriteLog,
}

impl Logged {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["resource", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("resource/file"), "old").unwrap();
        let log = WriteLog::create(&dir.path().join("home"), &dir.path().join("resource")).unwrap();
        Self { dir, log }
    }

    fn write(&self, content: &str) {
        self.log.write(&rel("file"), content.as_bytes()).unwrap();
    }

    /// Everything up to the write itself, as a crash right before it leaves it.
    fn record_only(&self, content: &str) {
        let (path, number) = (rel("file"), self.log.numbers().unwrap().last().map_or(1, |n| n + 1));
        let existed = self.log.keep_old(&path).unwrap();
        let after = ContentHash::of(content.as_bytes());
        self.log.publish(number, &Record { path, existed, made_dirs: Vec::new(), after }).unwrap();
    }

    fn text(&self) -> String {
        fs::read_to_string(self.dir.path().join("resource/file")).unwrap()
    }

    fn kept(&self, name: &str) -> PathBuf {
        self.dir.path().join("home").join(name)
    }
}

fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

#[test]
fn a_write_that_was_recorded_and_never_happened_is_nobody_elses() {
    let logged = Logged::new();
    logged.write("first");
    logged.record_only("second");
    let view = logged.log.diff().unwrap();
    assert_eq!((view.entries.len(), view.entries[0].moved), (1, false));
    assert_eq!(logged.log.undo(0, &[]).unwrap(), 1);
    assert_eq!(logged.text(), "old");
    logged.record_only("third");
    assert!(logged.log.diff().unwrap().is_empty());
    assert_eq!(logged.log.undo(0, &[]).unwrap(), 0);
}

#[test]
fn an_undo_that_was_interrupted_is_finished_by_the_next() {
    let logged = Logged::new();
    logged.log.write(&rel("made/new"), b"x").unwrap();
    logged.write("mine");
    fs::remove_file(logged.dir.path().join("resource/made/new")).unwrap();
    let leftover = format!("resource/{}", logged.log.announce(&rel("file")).unwrap());
    fs::write(logged.dir.path().join(&leftover), "half").unwrap();
    assert_eq!(logged.log.undo(0, &[]).unwrap(), 1);
    assert_eq!(logged.text(), "old");
    assert!(!logged.dir.path().join("resource/made").exists());
    assert!(!logged.dir.path().join(leftover).exists());
    assert!(logged.log.numbers().unwrap().is_empty());
}

#[test]
fn an_accept_that_was_interrupted_leaves_nothing_to_undo() {
    let logged = Logged::new();
    logged.write("first");
    logged.write("second");
    fs::write(logged.kept("accepted"), "2").unwrap();
    assert!(logged.log.diff().unwrap().is_empty());
    assert_eq!(logged.log.undo(0, &[]).unwrap(), 0);
    assert_eq!(logged.text(), "second");
    logged.write("third");
    assert_eq!(logged.log.undo(0, &[]).unwrap(), 1);
    assert_eq!(logged.text(), "second");
    logged.log.accept().unwrap();
    assert_eq!(logged.log.numbers().unwrap(), [2], "a number is not used twice");
}

#[test]
fn a_place_without_a_record_is_passed_over() {
    let logged = Logged::new();
    logged.write("mine");
    fs::create_dir(logged.log.place(7)).unwrap();
    fs::create_dir(logged.kept("writes/no number")).unwrap();
    assert_eq!(logged.log.diff().unwrap().entries.len(), 1);
    assert_eq!(logged.log.undo(0, &[]).unwrap(), 1);
    assert_eq!(logged.text(), "old");
}

#[test]
fn a_damaged_record_stops_everything_before_anything_is_changed() {
    let logged = Logged::new();
    logged.write("mine");
    logged.write("mine again");
    let record = logged.log.place(2).join("record.json");
    fs::write(&record, "{").unwrap();
    for result in [logged.log.diff().map(drop), logged.log.undo(0, &[]).map(drop)] {
        assert!(matches!(&result, Err(Error::Corrupt { path, .. }) if *path == record), "{result:?}");
    }
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    assert!(matches!(logged.log.diff(), Err(Error::Io { step: "read", .. })));
    assert_eq!(logged.text(), "mine again");
}

#[test]
fn lost_old_content_is_an_error_and_not_an_empty_file() {
    let logged = Logged::new();
    logged.write("mine");
    fs::remove_file(logged.log.place(1).join("old")).unwrap();
    assert!(matches!(logged.log.diff(), Err(Error::Io { step: "read", .. })));
    assert!(matches!(logged.log.undo(0, &[]), Err(Error::Io { step: "read", .. })));
    assert_eq!(logged.text(), "mine");
}

#[test]
fn damaged_marks_are_told_apart() {
    let logged = Logged::new();
    let path = logged.log.mark("one").unwrap();
    assert_eq!(logged.log.marked("one").unwrap(), 0);
    fs::write(&path, "many").unwrap();
    assert!(matches!(logged.log.marked("one"), Err(Error::Corrupt { .. })));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(logged.log.marked("one"), Err(Error::Io { step: "read", .. })));
    fs::remove_dir_all(logged.kept("marks")).unwrap();
    logged.write("mine");
    assert!(matches!(logged.log.undo(0, &[]), Err(Error::Io { step: "list directory", .. })));
    assert_eq!(logged.text(), "mine");
}

#[test]
fn a_log_that_is_gone_is_an_error() {
    let logged = Logged::new();
    logged.write("mine");
    fs::remove_dir_all(logged.kept("writes")).unwrap();
    assert!(matches!(logged.log.diff(), Err(Error::Io { step: "list directory", .. })));
    let (nowhere, resource) = (logged.kept("nowhere"), logged.dir.path().join("resource"));
    assert!(matches!(WriteLog::create(&nowhere, &resource), Err(Error::Io { step: "create directory", .. })));
    assert!(!nowhere.exists());
    let no_directory = resource.join("file");
    assert!(matches!(WriteLog::open(&no_directory, &resource), Err(Error::Io { step: "read", .. })));
}
