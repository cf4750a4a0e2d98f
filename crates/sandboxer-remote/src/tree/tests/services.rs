//! What programs do to the tree there.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use sandboxer_core::Result;

use super::world::World;
use crate::shell::{Answer, Call, Here, Running, Shell};
use crate::tree::scripts;

/// Maps a file and writes a byte to it for each line that it gets.
const MAPPER: &str = "
import mmap, sys
with open(sys.argv[1], 'r+b') as file:
    page = mmap.mmap(file.fileno(), 0)
for line in sys.stdin:
    page[0:1] = line[:1].encode()
    print('done', flush=True)
";

fn is_on_a_disk(world: &World) -> bool {
    let kind = rustix::fs::statfs(world.temp.path()).unwrap().f_type;
    // That of tmpfs, whose mappings leave no trace at all.
    kind != 0x0102_1994
}

#[test]
fn what_is_written_through_a_mapping_comes_each_time() {
    let world = World::new();
    fs::write(world.here("mapped"), vec![b'0'; 4096]).unwrap();
    world.send().unwrap();
    if !is_on_a_disk(&world) {
        return sandboxer_testkit::skip("the temporary directory is in memory");
    }
    let started = Command::new("python3")
        .args(["-c", MAPPER])
        .arg(world.there("mapped"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut mapper) = started else { return sandboxer_testkit::skip("there is no python3") };
    let mut answers = BufReader::new(mapper.stdout.take().unwrap()).lines();
    for round in b"123456" {
        mapper.stdin.as_mut().unwrap().write_all(&[*round, b'\n']).unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "done");
        world.fetch().unwrap();
        assert_eq!(fs::read(world.here("mapped")).unwrap()[0], *round);
    }
    drop(mapper.stdin.take());
    mapper.wait().unwrap();
}

/// Runs a line there, as a service might.
pub(super) fn run(world: &World, line: &str) {
    let status = Command::new("sh").args(["-c", line]).current_dir(world.there("")).status().unwrap();
    assert!(status.success(), "{line}");
}

/// Fetches, finds nothing more to do, and takes a change of what came.
fn comes_and_stays(world: &World, file: &str) {
    world.fetch().unwrap();
    assert_eq!((world.fetch().unwrap(), world.send().unwrap()), Default::default());
    fs::write(world.there(file), "later").unwrap();
    world.fetch().unwrap();
    assert_eq!(fs::read(world.here(file)).unwrap(), b"later");
    fs::write(world.here(file), "ours").unwrap();
    world.send().unwrap();
    assert_eq!(fs::read(world.there(file)).unwrap(), b"ours");
}

#[test]
fn no_time_is_too_early_or_too_late() {
    for time in
        ["2300-01-01", "2446-01-01", "9999-12-31", "1800-01-01", "1600-06-06", "1969-12-31T23:59:58.5Z"]
    {
        let world = World::new();
        world.send().unwrap();
        run(&world, &format!("mkdir d; echo x > d/f; ln -s x l; touch -h -d {time} d/f l d"));
        comes_and_stays(&world, "d/f");
        assert!(world.here("l").is_symlink());
    }
}

#[test]
fn names_like_those_of_our_own_files_are_names_like_any_other() {
    let ours = ".sandboxer-fetch-0123456789abcdef0123456789abcdef";
    let world = World::new();
    fs::write(world.here(".sandboxer-fetch-mine"), "kept").unwrap();
    world.send().unwrap();
    run(
        &world,
        &format!(
            "mkdir .sandboxer-fetch-x {ours}; echo x > .sandboxer-fetch-x/.sandboxer-fetch-y; echo x > {ours}/f"
        ),
    );
    comes_and_stays(&world, ".sandboxer-fetch-x/.sandboxer-fetch-y");
    comes_and_stays(&world, &format!("{ours}/f"));
    world.assert_equal("all of it");
    assert!(world.here(".sandboxer-fetch-mine").exists() && world.there(".sandboxer-fetch-mine").exists());
    // Only what could be one of them does not come.
    run(&world, &format!("echo x > .sandboxer-fetch-x/{ours}"));
    let moved = world.fetch().unwrap();
    assert_eq!(moved.refused, [format!(".sandboxer-fetch-x/{ours}: a name that is kept for us")]);
    assert!(!world.here(&format!(".sandboxer-fetch-x/{ours}")).exists());
    comes_and_stays(&world, ".sandboxer-fetch-x/.sandboxer-fetch-y");
}

#[test]
fn holes_are_not_carried_and_stay_holes() {
    for compress in [false, true] {
        let world = World { compress, ..World::new() };
        world.send().unwrap();
        run(
            &world,
            "head -c 70000 /dev/urandom > tail; truncate -s 100M tail; truncate -s 300000 small; printf end >> small",
        );
        let moved = world.fetch().unwrap();
        assert!(moved.bytes < 1 << 20, "{moved:?}");
        let name = "n".repeat(200);
        run(
            &world,
            &format!(
                "truncate -s 10T {name}; truncate -s 3M some; printf data | dd of=some bs=1 seek=1500000 conv=notrunc status=none; ln some other"
            ),
        );
        world.fetch().unwrap();
        let found = fs::metadata(world.here(&name)).unwrap();
        assert_eq!((found.len(), found.blocks()), (10 << 40, 0));
        for name in ["some", "other", "small"] {
            assert_eq!(fs::read(world.here(name)).unwrap(), fs::read(world.there(name)).unwrap(), "{name}");
        }
        let same = Command::new("cmp").arg(world.here("tail")).arg(world.there("tail")).status().unwrap();
        assert!(same.success() && fs::metadata(world.here("tail")).unwrap().blocks() < 1000);
        assert_eq!((world.fetch().unwrap(), world.send().unwrap()), Default::default());
    }
}

/// Root needs no permission; run as anybody else, this shows that a closed directory stays one that we can fetch into.
#[test]
fn a_directory_that_is_closed_to_everybody_comes() {
    for mode in ["000", "200", "400", "100", "300"] {
        let world = World::new();
        world.send().unwrap();
        run(
            &world,
            &format!(
                "mkdir -p closed/below; echo x > closed/below/f; echo x > file; chmod {mode} closed/below closed file"
            ),
        );
        let moved = world.fetch().unwrap();
        assert_eq!(fs::read(world.here("closed/below/f")).unwrap(), b"x\n");
        if !rustix::process::geteuid().is_root() {
            assert!(moved.refused.iter().any(|line| line.starts_with("closed/below: ")), "{moved:?}");
        }
        comes_and_stays(&world, "closed/below/f");
        assert_eq!(fs::read(world.here("file")).unwrap(), b"x\n");
        run(&world, "chmod -R u+rwx closed file");
        world.fetch().unwrap();
        world.assert_equal("opened again");
    }
}

/// A host where we are root, to whom closed directories are open.
struct Privileged;

impl Shell for Privileged {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        let mut answer = Here.run(call)?;
        if call.script == scripts::COMPARE {
            let told = String::from_utf8(answer.stdout).unwrap();
            answer.stdout = told.replace("d 711 ", "d 0 ").into_bytes();
        }
        Ok(answer)
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        Here.start(script, arguments)
    }

    fn name(&self) -> &str {
        "the privileged host"
    }
}

/// Run as anybody but root, this shows that what root fetches there does not shut us out here.
#[test]
fn a_directory_that_only_root_could_read_stays_readable_here() {
    let world = World::new();
    world.send().unwrap();
    run(&world, "mkdir -p closed/below; echo x > closed/below/f; chmod 711 closed/below closed");
    let moved = world.with(&Privileged, |m| m.fetch()).unwrap();
    assert_eq!(fs::read(world.here("closed/below/f")).unwrap(), b"x\n");
    if !rustix::process::geteuid().is_root() {
        assert_eq!(moved.refused.len(), 2, "{moved:?}");
    }
    comes_and_stays(&world, "closed/below/f");
}

/// Looks at a file here at the moment when the host is to remember that it was fetched.
struct Looking {
    file: PathBuf,
    seen: Mutex<Option<String>>,
}

impl Shell for Looking {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        if call.script == scripts::ACCEPT {
            *self.seen.lock().unwrap() = extents(&self.file);
        }
        Here.run(call)
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        Here.start(script, arguments)
    }

    fn name(&self) -> &str {
        "the looking host"
    }
}

/// Where the file is on the disk; what is in memory alone has no place yet.
fn extents(file: &Path) -> Option<String> {
    let said = Command::new("filefrag").arg("-v").arg(file).output().ok()?;
    said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned())
}

#[test]
fn what_came_is_on_the_disk_before_either_side_remembers_it() {
    let world = World::new();
    world.send().unwrap();
    fs::write(world.temp.path().join("probe"), vec![7; 100_000]).unwrap();
    if !extents(&world.temp.path().join("probe")).is_some_and(|seen| seen.contains("delalloc")) {
        return sandboxer_testkit::skip("nothing tells what is on the disk");
    }
    fs::write(world.there("large"), vec![7; 1 << 20]).unwrap();
    let looking = Looking { file: world.here("large"), seen: Mutex::new(None) };
    world.with(&looking, |m| m.fetch()).unwrap();
    let seen = looking.seen.into_inner().unwrap().unwrap();
    assert!(!seen.contains("delalloc"), "{seen}");
}

/// Does not answer when the host is to remember.
pub(super) struct Forgetful;

impl Shell for Forgetful {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        match call.script == scripts::ACCEPT {
            true => Err(sandboxer_core::Error::refused("the connection was cut")),
            false => Here.run(call),
        }
    }

    fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Running> {
        Here.start(script, arguments)
    }

    fn name(&self) -> &str {
        "the forgetful host"
    }
}

#[test]
fn what_a_cut_fetch_has_written_is_nobody_elses_work() {
    let world = World::new();
    fs::write(world.here("stays"), "old").unwrap();
    fs::write(world.here("goes"), "old").unwrap();
    world.send().unwrap();
    fs::write(world.there("new"), "one").unwrap();
    fs::write(world.there("stays"), "one").unwrap();
    fs::remove_file(world.there("goes")).unwrap();
    world.with(&Forgetful, |m| m.fetch()).unwrap_err();
    fs::write(world.there("new"), "two, longer").unwrap();
    fs::write(world.there("stays"), "two, longer").unwrap();
    fs::write(world.there("goes"), "back").unwrap();
    world.fetch().unwrap();
    world.assert_equal("fetched at last");
    fs::write(world.here("stays"), "by hand").unwrap();
    fs::write(world.there("stays"), "by a service").unwrap();
    assert!(world.fetch().unwrap_err().to_string().contains("stays"), "others' work is");
}

#[test]
fn what_was_fetched_in_part_is_forgotten_once_both_sides_are_equal_by_a_send() {
    let world = World::new();
    fs::write(world.here("stays"), "old").unwrap();
    world.send().unwrap();
    fs::write(world.there("new"), "one").unwrap();
    world.with(&Forgetful, |m| m.fetch()).unwrap_err();
    // The file is removed on both sides independently, so there is nothing to send.
    for side in [world.there("."), world.here(".")] {
        fs::remove_file(side.join("new")).unwrap();
        // A directory whose time differs would be sent.
        fs::File::open(side).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    assert_eq!(world.send().unwrap().entries, 0);
    fs::write(world.here("new"), "made here, later").unwrap();
    world.fetch().unwrap();
    assert_eq!(fs::read(world.here("new")).unwrap(), b"made here, later");
}
