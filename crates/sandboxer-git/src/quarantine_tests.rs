#![allow(clippy::unwrap_used)]

use super::*;
use crate::fixtures::{self, git};

/// An original, and an agent's repository with the original's objects behind it.
struct Case {
    temp: tempfile::TempDir,
    original: PathBuf,
    agent: PathBuf,
    format: ObjectFormat,
    base: Oid,
}

impl Case {
    fn new(format: ObjectFormat) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (original, agent) = (temp.path().join("original"), temp.path().join("agent"));
        fixtures::repository(&original, format);
        git(temp.path(), &["clone", "-q", "-s", original.to_str().unwrap(), agent.to_str().unwrap()]);
        git(&agent, &["config", "user.name", "Agent"]);
        git(&agent, &["config", "user.email", "agent@example.com"]);
        let base = fixtures::head(&original);
        std::fs::create_dir_all(temp.path().join("incoming/info")).unwrap();
        std::fs::create_dir_all(temp.path().join("work")).unwrap();
        Self { temp, original, agent, format, base }
    }

    fn commit(&self, path: &str, content: &str) -> Oid {
        fixtures::write(&self.agent, path, content);
        fixtures::commit(&self.agent, &format!("write {path}"))
    }

    fn take_up_to(&self, tip: &Oid, limit: u64) -> Result<Kept> {
        let (work, incoming) = (self.temp.path().join("work"), self.temp.path().join("incoming"));
        let objects = self.original.join(".git/objects");
        let taken = take(
            &Root::open(&self.agent).unwrap(),
            &Quarantine {
                work: &work,
                objects: &objects,
                incoming: &incoming,
                format: self.format,
                base: Some(&self.base),
                tip,
                limit,
            },
        );
        assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "nothing is left behind");
        taken
    }

    fn take(&self, tip: &Oid) -> Result<Kept> {
        self.take_up_to(tip, SIZE_LIMIT)
    }

    fn refused(&self, tip: &Oid) -> String {
        let reason = match self.take(tip) {
            Err(Error::Refused { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        let left = fixtures::contents(&self.temp.path().join("incoming"));
        assert!(left.is_empty(), "{:?}", left.keys());
        reason
    }

    /// The original with what came in, as it is once it was decided.
    fn merge(&self, kept: &Kept) {
        let pack = kept.pack.as_ref().unwrap();
        for kind in ["pack", "idx"] {
            let from = pack.with_extension(kind);
            std::fs::copy(&from, self.original.join(".git/objects/pack").join(from.file_name().unwrap()))
                .unwrap();
        }
    }
}

#[test]
fn commits_come_out_whole_from_loose_objects_and_packs() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let case = Case::new(format);
        let first = case.commit("one", "1");
        case.commit("deep/er/two", "2");
        git(&case.agent, &["repack", "-q", "-a", "-d", "-l"]);
        git(&case.agent, &["checkout", "-q", "-b", "side", first.as_str()]);
        case.commit("three", "3");
        git(&case.agent, &["checkout", "-q", "main"]);
        git(&case.agent, &["merge", "-q", "--no-ff", "-m", "merge side", "side"]);
        let tip = fixtures::head(&case.agent);
        let kept = case.take(&tip).unwrap();
        let subjects: Vec<&str> = kept.commits.iter().map(|commit| commit.subject.as_str()).collect();
        assert_eq!(subjects.len(), 4, "{subjects:?}");
        assert_eq!((subjects[0], subjects[3]), ("write one", "merge side"));
        assert_eq!(kept.commits[0].author, "Agent <agent@example.com>");
        assert_eq!(kept.commits[3].id, tip);
        case.merge(&kept);
        git(&case.original, &["update-ref", "refs/heads/kept", tip.as_str()]);
        git(&case.original, &["fsck", "--full", "--strict"]);
        assert_eq!(git(&case.original, &["show", "kept:deep/er/two"]), "2");
        assert_eq!(case.take(&case.base).unwrap(), Kept::default());
    }
}

#[test]
fn commits_that_do_not_follow_the_base_are_refused() {
    let case = Case::new(ObjectFormat::Sha1);
    git(&case.agent, &["checkout", "-q", "--orphan", "fresh"]);
    let tip = case.commit("x", "x");
    assert!(case.refused(&tip).contains("do not follow"));
    let nowhere: Oid = "1".repeat(40).parse().unwrap();
    assert!(case.refused(&nowhere).contains("not in its repository"));
}

#[test]
fn missing_and_broken_objects_are_refused() {
    let case = Case::new(ObjectFormat::Sha1);
    let tip = case.commit("x", "content of x");
    let blob = git(&case.agent, &["rev-parse", "HEAD:x"]);
    let path = case.agent.join(".git/objects").join(&blob[..2]).join(&blob[2..]);
    let whole = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    case.refused(&tip);
    // The content of another object under this one's name.
    let other = git(&case.agent, &["rev-parse", "HEAD:a.txt"]);
    let other = case.original.join(".git/objects").join(&other[..2]).join(&other[2..]);
    std::fs::copy(other, &path).unwrap();
    case.refused(&tip);
    std::fs::write(&path, "garbage").unwrap();
    case.refused(&tip);
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    case.refused(&tip);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, whole).unwrap();
    assert_eq!(case.take(&tip).unwrap().commits.len(), 1);
}

#[test]
fn alternates_of_the_agent_are_not_followed() {
    let case = Case::new(ObjectFormat::Sha1);
    let secret = case.temp.path().join("secret");
    fixtures::repository(&secret, ObjectFormat::Sha1);
    fixtures::write(&secret, "secret", "secret\n");
    fixtures::commit(&secret, "secret");
    let blob = git(&secret, &["rev-parse", "HEAD:secret"]);
    let objects = [case.original.join(".git/objects"), secret.join(".git/objects")];
    let lines: String = objects.iter().map(|path| format!("{}\n", path.display())).collect();
    std::fs::write(case.agent.join(".git/objects/info/alternates"), lines).unwrap();
    git(&case.agent, &["update-index", "--add", "--cacheinfo", &format!("100644,{blob},stolen")]);
    git(&case.agent, &["commit", "-q", "-m", "steal"]);
    case.refused(&fixtures::head(&case.agent));
}

#[test]
fn trees_with_bad_names_and_submodules_are_refused() {
    let case = Case::new(ObjectFormat::Sha1);
    let blob = git(&case.agent, &["rev-parse", "HEAD:a.txt"]);
    let base = case.base.to_string();
    for entry in [
        format!("100644 blob {blob}\t.git"),
        format!("100644 blob {blob}\t.GIT"),
        format!("100644 blob {blob}\tgit~1"),
        format!("100644 blob {blob}\t..."),
        format!("120000 blob {blob}\t.gitmodules"),
        format!("160000 commit {base}\tsub"),
    ] {
        let file = case.temp.path().join("entries");
        std::fs::write(&file, format!("{entry}\n")).unwrap();
        let shell = format!("git mktree --missing < '{}'", file.display());
        let made =
            std::process::Command::new("sh").args(["-c", &shell]).current_dir(&case.agent).output().unwrap();
        let tree = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let tip: Oid = git(&case.agent, &["commit-tree", "-p", &base, "-m", "x", &tree]).parse().unwrap();
        // Three dots are a name like any other.
        if entry.ends_with("...") {
            assert!(case.take(&tip).is_ok());
            std::fs::remove_dir_all(case.temp.path().join("incoming/pack")).unwrap();
        } else {
            case.refused(&tip);
        }
    }
}

#[test]
fn too_much_is_refused_and_nothing_runs() {
    let case = Case::new(ObjectFormat::Sha1);
    let (marker, script) = fixtures::marker(case.temp.path());
    let tip = case.commit("x", "x");
    for key in ["core.fsmonitor", "core.alternateRefsCommand", "uploadpack.packObjectsHook", "diff.external"]
    {
        git(&case.agent, &["config", key, &script]);
    }
    assert!(matches!(case.take_up_to(&tip, 100), Err(Error::Refused { .. })));
    let huge = case.agent.join(".git/objects/pack").join(format!("pack-{}.pack", "0".repeat(40)));
    std::fs::File::create(&huge).unwrap().set_len(SIZE_LIMIT + 1).unwrap();
    case.refused(&tip);
    std::fs::write(&huge, "PACK garbage").unwrap();
    case.refused(&tip);
    std::fs::remove_file(&huge).unwrap();
    assert!(case.take(&tip).is_ok());
    assert!(!marker.exists());
}

#[test]
fn a_store_that_is_none_is_refused() {
    let case = Case::new(ObjectFormat::Sha1);
    let tip = case.commit("x", "x");
    let objects = case.agent.join(".git/objects");
    std::fs::rename(&objects, case.temp.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(case.temp.path().join("moved"), &objects).unwrap();
    assert!(case.refused(&tip).contains("no store"));
}

#[test]
fn objects_of_the_original_cannot_be_forged() {
    let case = Case::new(ObjectFormat::Sha1);
    let tip = case.commit("x", "x");
    // Under the names of the base's tree and of the base itself, other objects of their kinds.
    let names = [(format!("{}^{{tree}}", case.base), "HEAD^{tree}"), (case.base.to_string(), "HEAD")];
    for (victim, other) in names {
        let place = |dir: &Path, rev: &str| {
            let oid = git(&case.agent, &["rev-parse", rev]);
            dir.join(".git/objects").join(&oid[..2]).join(&oid[2..])
        };
        let (forged, source) = (place(&case.agent, &victim), place(&case.agent, other));
        std::fs::create_dir_all(forged.parent().unwrap()).unwrap();
        std::fs::copy(source, &forged).unwrap();
        // Either it is refused, or what came in is whole beside the original's own objects.
        if let Ok(kept) = case.take(&tip) {
            case.merge(&kept);
            git(&case.original, &["update-ref", "refs/heads/kept", tip.as_str()]);
            git(&case.original, &["fsck", "--full", "--strict"]);
            std::fs::remove_dir_all(case.temp.path().join("incoming/pack")).unwrap();
        }
        std::fs::remove_file(&forged).unwrap();
    }
}

#[test]
fn more_commits_than_anyone_reads_are_refused() {
    let case = Case::new(ObjectFormat::Sha1);
    let mut stream = String::new();
    for number in 0..=COMMIT_LIMIT {
        stream.push_str("commit refs/heads/many\ncommitter A <a@b> 1 +0000\ndata 1\nx\n");
        if number == 0 {
            stream.push_str(&format!("from {}\n", case.base));
        }
    }
    let import = Git::at(crate::git::Place::Dir(&case.agent.join(".git"))).args(["fast-import", "--quiet"]);
    import.feed(stream.as_bytes()).unwrap();
    let tip: Oid = git(&case.agent, &["rev-parse", "many"]).parse().unwrap();
    assert!(case.refused(&tip).contains("more than 10000"));
    let tip: Oid = git(&case.agent, &["rev-parse", "many~9000"]).parse().unwrap();
    assert_eq!(case.take(&tip).unwrap().commits.len(), COMMIT_LIMIT + 1 - 9000);
}

#[test]
fn a_shallow_original_is_enough() {
    let mut case = Case::new(ObjectFormat::Sha1);
    fixtures::write(&case.original, "later", "x");
    fixtures::commit(&case.original, "second");
    let shallow = case.temp.path().join("shallow");
    let url = format!("file://{}", case.original.display());
    git(case.temp.path(), &["clone", "-q", "--depth", "1", &url, shallow.to_str().unwrap()]);
    std::fs::remove_dir_all(&case.agent).unwrap();
    fixtures::copy_tree(&shallow, &case.agent);
    let copy = format!("cp -a '{}/.git' '{}/.git'", shallow.display(), case.agent.display());
    assert!(std::process::Command::new("sh").args(["-c", &copy]).status().unwrap().success());
    git(&case.agent, &["config", "user.name", "Agent"]);
    git(&case.agent, &["config", "user.email", "agent@example.com"]);
    (case.base, case.original) = (fixtures::head(&shallow), shallow);
    let tip = case.commit("x", "x");
    assert_eq!(case.take(&tip).unwrap().commits.len(), 1);
}
