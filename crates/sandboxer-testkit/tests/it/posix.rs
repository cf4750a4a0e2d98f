//! A sandbox's tree is a filesystem like any other: a public tester says so, at work in an overlay.
//!
//! The testers that are made for nothing else (fsx, fsstress and the rest of xfstests, ltp, pjdfstest) are no packages of Debian 12, and
//! nothing is built from the network here. So it is `stress-ng`, which is one: its stressors of the class `filesystem` check with
//! `--verify` what they read back. They are made to find weak kernels rather than wrong answers, and cover less of POSIX than
//! pjdfstest would: what is created, renamed, linked, locked, punched or sought is looked at again, error codes hardly are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sandboxer_keeper::mount;
use sandboxer_testkit::faults::{Cli, Created};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::mounts::{DetachBelow, mounts_below};
use sandboxer_testkit::skip;
use tempfile::TempDir;

/// Names of stressors, the ones first that check most. `symlink` is not among them: it makes eight thousand links at a time and does not
/// look at the clock meanwhile.
const STRESSORS: &str = "hdd rename dir link xattr fallocate fpunch seek copy-file filename dentry dirdeep utime \
                         chmod chown getdent lockf flock open touch mknod iomix";

/// As little as they take: whole runs are for machines with an hour to spare.
const SIZES: &str = "--hdd-bytes 4m --fallocate-bytes 1m --seek-size 1m --iomix-bytes 1m";

/// No stressor is started later than this once [`ENOUGH`] have passed.
const LIMIT: Duration = Duration::from_secs(14);

/// As many stressors have to pass.
const ENOUGH: usize = 4;

/// What `stress-ng` exits with where it lacks something, rather than having found something.
const NOT_HERE: [i32; 2] = [3, 4];

struct Bench {
    cli: Cli,
    resource: PathBuf,
    sandbox: Created,
    _mounts: DetachBelow,
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = TempDir::with_prefix("sandboxer-posix-").unwrap();
        let resource = dir.path().join("resource");
        fs::create_dir_all(resource.join("src/below")).unwrap();
        for path in ["readme", "src/main", "src/below/more"] {
            fs::write(resource.join(path), path).unwrap();
        }
        let cli = Cli::new(&dir.path().join("home"));
        let _mounts = DetachBelow(dir.path().to_path_buf());
        let sandbox = cli.create(&resource, &["--strategy", "overlay", "--no-fallback"]);
        Self { cli, resource, sandbox, _mounts, dir }
    }
}

/// Why it cannot be tried here.
fn unavailable() -> Option<String> {
    let version = Command::new("stress-ng").arg("--version").output();
    let missing = version.err().map(|e| format!("no stress-ng (Debian package stress-ng): {e}"));
    missing.or(mount::try_host(&std::env::temp_dir()).err())
}

/// Runs one stressor for a second at most; one that does not end is ended.
fn stress(name: &str, at: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120", "stress-ng", "--verify", "--timeout", "1"]);
    command.args([&format!("--{name}"), "1", &format!("--{name}-ops"), "200"]).args(SIZES.split(' '));
    command.arg("--temp-path").arg(at).current_dir(at).output().unwrap()
}

#[test]
fn stress_ng_finds_nothing_wrong_in_an_overlay() {
    if let Some(reason) = unavailable() {
        return skip(&reason);
    }
    let bench = Bench::new();
    let before = Manifest::capture(&bench.resource);
    let (started, mut passed) = (Instant::now(), 0);
    for name in STRESSORS.split_whitespace() {
        if started.elapsed() > LIMIT && passed >= ENOUGH {
            skip(&format!("no time left for {name}"));
            continue;
        }
        let output = stress(name, &bench.sandbox.path.join("src"));
        let told =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => passed += 1,
            Some(code) if NOT_HERE.contains(&code) => {
                skip(&format!("{name} does not work here: {}", told.trim()))
            }
            code => panic!("{name} ended with {code:?}: {told}"),
        }
    }
    println!("{passed} of {} stressors passed", STRESSORS.split_whitespace().count());
    assert!(passed >= ENOUGH, "hardly one of them ran");
    assert_nothing_is_left(&bench, &before);
}

/// They clean up after themselves, so that afterwards there is no difference; and the original was never theirs.
fn assert_nothing_is_left(bench: &Bench, before: &Manifest) {
    assert_eq!(bench.cli.json(&["diff", &bench.sandbox.id])["entries"], serde_json::json!([]));
    before.assert_same(&Manifest::capture(&bench.sandbox.path), Facets::CONTENT, "the sandbox");
    bench.cli.ok(&["commit", &bench.sandbox.id]);
    before.assert_same(&Manifest::capture(&bench.resource), Facets::UNTOUCHED, "the original");
    bench.cli.ok(&["destroy", &bench.sandbox.id]);
    assert_eq!(mounts_below(bench.dir.path()), Vec::<PathBuf>::new());
}
