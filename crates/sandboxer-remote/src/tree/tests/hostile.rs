//! A host that lies.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use sandboxer_core::Result;

use super::world::{World, said};
use crate::shell::{Answer, Call, Here, Running, Shell};
use crate::tree::archive::{self, Member};
use crate::tree::entry::Entry;
use crate::tree::scripts;

/// Tells the truth of its tree, and sends whatever is in a file; or tells what is in another.
struct Liar {
    stream: PathBuf,
    tells: Option<Vec<u8>>,
}

impl Shell for Liar {
    fn run(&self, call: &Call<'_>) -> Result<Answer> {
        match &self.tells {
            Some(told) if call.script == scripts::COMPARE => {
                Ok(Answer { stdout: told.clone(), ..Answer::default() })
            }
            _ => Here.run(call),
        }
    }

    fn start(&self, _: &str, _: &[&OsStr]) -> Result<Running> {
        Here.start("cat \"$1\"; cat > /dev/null", &[self.stream.as_os_str()])
    }

    fn name(&self) -> &str {
        "the lying host"
    }
}

fn entry(path: &[u8], size: usize) -> Entry {
    Entry {
        path: path.to_vec(),
        ..Entry::parse(format!("f 644 {size} 5000000000 1 1 x//").as_bytes()).unwrap()
    }
}

fn member(out: &mut Vec<u8>, path: &[u8], link: Option<&[u8]>) {
    archive::header(out, &entry(path, 4), &Member { link, ..Member::default() }).unwrap();
    if link.is_none() {
        out.extend_from_slice(b"evil");
        out.resize(out.len() + archive::padding(4), 0);
    }
}

/// Fetches `changed` (which differs there) from a host that sends this instead.
fn fetched(stream: impl Fn(&mut Vec<u8>)) -> (World, Result<crate::tree::Moved>) {
    let world = World::new();
    fs::create_dir(world.here("dir")).unwrap();
    fs::write(world.here("changed"), "mine").unwrap();
    fs::write(world.here("other"), "mine").unwrap();
    fs::write(world.temp.path().join("canary"), "alive").unwrap();
    world.send().unwrap();
    fs::write(world.there("changed"), "theirs").unwrap();
    fs::write(world.there("dir/also"), "theirs").unwrap();
    let mut bytes = Vec::new();
    stream(&mut bytes);
    let file = world.temp.path().join("stream");
    fs::write(&file, bytes).unwrap();
    let result = world.with(&Liar { stream: file, tells: None }, |m| m.fetch());
    assert_eq!(fs::read(world.temp.path().join("canary")).unwrap(), b"alive");
    assert_eq!(fs::read(world.here("other")).unwrap(), b"mine");
    (world, result)
}

#[test]
fn names_that_lead_out_or_were_not_asked_for_are_refused() {
    for name in
        ["../canary", "../../canary", "dir/../../canary", "other", "changed/x", "", ".", "dir", "dir/new"]
    {
        let (world, result) = fetched(|out| {
            member(out, name.as_bytes(), None);
            archive::end(out).unwrap();
        });
        let error = result.unwrap_err();
        assert!(error.to_string().contains("nobody asked for"), "{name}: {}", said(&error));
        assert_eq!(fs::read(world.here("changed")).unwrap(), b"mine", "{name}");
    }
}

#[test]
fn absolute_names_are_refused() {
    // The writer puts `./` before names; a host need not.
    let (world, result) = fetched(|out| {
        let canary = b"/tmp/sandboxer-canary";
        member(out, b"changed", None);
        out[..100].fill(0);
        out[..canary.len()].copy_from_slice(canary);
        out[148..156].fill(b' ');
        let sum: u64 = out[..512].iter().map(|byte| u64::from(*byte)).sum();
        out[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive::end(out).unwrap();
    });
    assert!(result.unwrap_err().to_string().contains("nobody asked for"));
    assert_eq!(fs::read(world.here("changed")).unwrap(), b"mine");
}

#[test]
fn nothing_comes_twice_and_further_names_are_of_what_came() {
    let (_, twice) = fetched(|out| {
        member(out, b"changed", None);
        member(out, b"changed", None);
    });
    assert!(twice.unwrap_err().to_string().contains("nobody asked for"));
    for target in [&b"../canary"[..], b"other", b"dir/also", b"changed", b"/etc/passwd"] {
        let (world, result) = fetched(|out| {
            member(out, b"changed", Some(target));
            archive::end(out).unwrap();
        });
        result.unwrap_err();
        assert_eq!(fs::read(world.here("changed")).unwrap(), b"mine");
    }
}

#[test]
fn a_stream_that_ends_early_or_has_not_all_is_an_error_and_leaves_no_half_files() {
    let mut whole = Vec::new();
    member(&mut whole, b"changed", None);
    member(&mut whole, b"dir/also", None);
    archive::end(&mut whole).unwrap();
    for length in (0..whole.len()).step_by(129) {
        let (world, result) = fetched(|out| out.extend_from_slice(&whole[..length]));
        result.unwrap_err();
        let names: Vec<_> =
            fs::read_dir(world.here("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        world.fetch().unwrap();
        world.assert_equal("an honest fetch completes it");
    }
    let (_, missing) = fetched(|out| {
        member(out, b"changed", None);
        archive::end(out).unwrap();
    });
    assert!(missing.unwrap_err().to_string().contains("did not send dir/also"));
}

#[test]
fn a_host_that_tells_nonsense_is_not_believed() {
    let tales: [&[u8]; 6] = [
        b"",
        b"#x\0",
        b"garbage\0\0\0",
        b"#x\0f 644 1 1 1 1 ./../canary//\0\0\0",
        b"#x\0f 644 1 1 1 1 /etc/passwd//\0\0\0",
        b"#x\0\0#unknown\0f 644 1 1 1 1 ./changed//\0\0",
    ];
    for told in tales {
        let world = World::new();
        fs::write(world.here("changed"), "mine").unwrap();
        world.send().unwrap();
        let liar = Liar { stream: world.temp.path().join("record"), tells: Some(told.to_vec()) };
        world.with(&liar, |m| m.fetch()).unwrap_err();
        assert_eq!(fs::read(world.here("changed")).unwrap(), b"mine", "{}", String::from_utf8_lossy(told));
    }
}

#[test]
fn a_link_that_was_told_is_written_as_a_link_and_never_followed() {
    let world = World::new();
    fs::create_dir(world.here("dir")).unwrap();
    world.send().unwrap();
    let outside = world.temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    // The directory becomes a link, and a file is said to be behind it.
    let generation = {
        let list = fs::read(world.temp.path().join("lists/list")).unwrap();
        String::from_utf8(list[1..33].to_vec()).unwrap()
    };
    let target = outside.to_str().unwrap();
    let told = format!(
        "#x\0l 777 1 1 1 1 ./dir//{target}\0f 644 4 1 1 1 ./dir/evil//\0\0#{generation}\0d 755 0 1 0 0 ./dir//\0\0"
    );
    let mut stream = Vec::new();
    member(&mut stream, b"dir/evil", None);
    archive::end(&mut stream).unwrap();
    fs::write(world.temp.path().join("stream"), stream).unwrap();
    let liar = Liar { stream: world.temp.path().join("stream"), tells: Some(told.into_bytes()) };
    world.with(&liar, |m| m.fetch()).unwrap_err();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// Tells of a file and sends the beginning of it.
fn huge(bytes: u64) -> (World, Result<crate::tree::Moved>) {
    let world = World::new();
    world.send().unwrap();
    for (name, length) in [("db/huge", bytes), ("b", 3), ("c", 2), ("d", 1)] {
        fs::create_dir_all(world.there("db")).unwrap();
        fs::File::create(world.there(name)).unwrap().set_len(length).unwrap();
    }
    let mut stream = Vec::new();
    let long = Entry { size: bytes, ..entry(b"db/huge", 0) };
    archive::header(&mut stream, &long, &Member::default()).unwrap();
    stream.extend_from_slice(b"only this");
    fs::write(world.temp.path().join("stream"), stream).unwrap();
    let liar = Liar { stream: world.temp.path().join("stream"), tells: None };
    let result = world.with(&liar, |m| m.fetch());
    (world, result)
}

#[test]
fn what_has_no_room_here_is_not_begun_and_the_largest_are_named() {
    let (world, result) = huge(1 << 43);
    let Err(sandboxer_core::Error::Refused { reason, hint }) = result else { panic!("{result:?}") };
    assert!(reason.contains("the lying host") && reason.contains("needs 8192 GiB"), "{reason}");
    assert!(reason.ends_with("the largest are db/huge (8192 GiB), b (3 bytes), c (2 bytes)"), "{reason}");
    assert!(hint.unwrap().contains("remove them on the lying host"));
    assert_eq!(fs::read_dir(world.here("db")).unwrap().count(), 0);
    // What is mostly holes has room.
    world.fetch().unwrap();
    assert_eq!(fs::metadata(world.here("db/huge")).unwrap().len(), 1 << 43);
}

#[test]
fn what_stays_free_stays_free_however_little_comes() {
    let world = World::new();
    world.send().unwrap();
    fs::create_dir(world.there("dir")).unwrap();
    let error = world.with(&Here, |m| crate::tree::fetch::fetch(m, |_| u64::MAX)).unwrap_err();
    assert!(error.to_string().contains("no room"), "{}", said(&error));
    assert!(!world.here("dir").exists());
}
