#![allow(clippy::unwrap_used)]
//! Conversations by script: what is asked, what is shown, and what comes of it.

use std::collections::VecDeque;

use sandboxer_core::model::{DiffKind, Node, NodeType, RelPath};

use super::*;

/// A person who answers by script, and an editor that does one replacement at a time.
#[derive(Default)]
struct Script {
    answers: VecDeque<String>,
    edits: VecDeque<(&'static str, &'static str)>,
    screen: String,
}

impl Console for Script {
    fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.screen += &format!("{text}\n");
        Ok(())
    }

    fn paint(&self, _: Style, text: &str) -> String {
        text.to_owned()
    }

    fn ask(&mut self, prompt: &str) -> Result<Option<String>, CliError> {
        let answer = self.answers.pop_front();
        self.screen += &format!("{prompt}{}\n", answer.as_deref().unwrap_or("^D"));
        Ok(answer)
    }

    fn edit(&mut self, text: &[u8]) -> Result<Vec<u8>, CliError> {
        let Some((from, to)) = self.edits.pop_front() else { return Err(CliError::usage("no editor")) };
        Ok(String::from_utf8(text.to_vec()).unwrap().replace(from, to).into_bytes())
    }
}

fn node(mode: u32) -> Option<Node> {
    let node_type = NodeType::File;
    Some(Node { node_type, mode, uid: 0, gid: 0, size: 1, digest: None, target: None, xattrs: None })
}

fn entry(name: &str, kind: DiffKind) -> DiffEntry {
    let mut entry = DiffEntry::new(RelPath::parse(name).unwrap(), kind);
    entry.old = if kind == DiffKind::Created { None } else { node(0o644) };
    entry.new = if kind == DiffKind::Deleted { None } else { node(0o644) };
    entry
}

/// Thirty lines; the new side has four changes in three hunks: 2, 10 and 12 together, 25.
fn texts() -> (String, String) {
    let old: String = (1..=30).map(|n| format!("line {n}\n")).collect();
    let new = ["line 2\n", "line 10\n", "line 12\n", "line 25\n"]
        .iter()
        .fold(old.clone(), |text, line| text.replace(line, &line.replace("line", "LINE")));
    (old, new)
}

fn with(old: &str, lines: &[u32]) -> String {
    lines.iter().fold(old.to_owned(), |text, n| text.replace(&format!("line {n}\n"), &format!("LINE {n}\n")))
}

fn load(entry: &DiffEntry) -> Result<Sides, CliError> {
    let (old, new) = texts();
    Ok(match entry.kind {
        DiffKind::Created => Sides { old: None, new: Some(b"created\n\x1b[2J\n".to_vec()) },
        DiffKind::Deleted => Sides { old: Some(b"deleted\n".to_vec()), new: None },
        _ if entry.path.as_bytes() == b"bin" => Sides { old: Some(b"a".to_vec()), new: Some(b"\0".to_vec()) },
        _ => Sides { old: Some(old.into_bytes()), new: Some(new.into_bytes()) },
    })
}

fn hold(script: &mut Script, purpose: Purpose, entries: &[DiffEntry]) -> Chosen {
    Selector::new(script, purpose, &load).run(entries).unwrap()
}

fn script(answers: &str) -> Script {
    Script { answers: answers.split(' ').map(str::to_owned).collect(), ..Script::default() }
}

/// What the answers about `text` make of it: the committed file, or the sandbox's after a rollback.
fn outcome(mut person: Script, purpose: Purpose) -> (String, String) {
    let chosen = hold(&mut person, purpose, &[entry("text", DiffKind::Modified)]);
    let (old, new) = texts();
    let nothing = if purpose == Purpose::Commit { old } else { new };
    let text = chosen.files.first().map(|file| purpose.apply(&file.sides, &file.hunks).unwrap());
    (text.map_or(nothing, |bytes| String::from_utf8(bytes).unwrap()), person.screen)
}

fn committed(answers: &str) -> String {
    outcome(script(answers), Purpose::Commit).0
}

#[test]
fn yes_and_no_decide_hunk_by_hunk() {
    let (old, new) = texts();
    assert_eq!(committed("y n y"), with(&old, &[2, 25]));
    assert_eq!(committed("n n n"), old);
    assert_eq!(committed("y y y"), new);
}

#[test]
fn all_and_none_decide_the_rest_of_the_file() {
    let (old, new) = texts();
    assert_eq!(committed("n a"), with(&old, &[10, 12, 25]));
    assert_eq!(committed("y d"), with(&old, &[2]));
    assert_eq!(committed("a"), new);
}

#[test]
fn quitting_keeps_what_was_decided_and_so_does_the_end_of_the_input() {
    let (old, _) = texts();
    assert_eq!(committed("y q"), with(&old, &[2]));
    assert_eq!(committed("y"), with(&old, &[2]));
    let mut person = script("q");
    let all = [entry("text", DiffKind::Modified), entry("zero", DiffKind::Created)];
    assert!(hold(&mut person, Purpose::Commit, &all).is_nothing());
    assert!(!person.screen.contains("zero"));
}

#[test]
fn a_split_hunk_is_decided_part_by_part() {
    let (old, _) = texts();
    let (text, screen) = outcome(script("n s n y n"), Purpose::Commit);
    assert_eq!(text, with(&old, &[12]));
    assert!(
        screen.contains("(2/3) Commit this hunk [y,n,q,a,d,j,s,e,?]? s\nsplit into 2 hunks\n"),
        "{screen}"
    );
    assert!(screen.contains("(2/4) Commit this hunk [y,n,q,a,d,j,e,?]? n"), "{screen}");
}

#[test]
fn undecided_hunks_are_come_back_to() {
    let (old, _) = texts();
    assert_eq!(committed("j j y y n"), with(&old, &[2, 25]));
    assert_eq!(committed("j k y n n"), with(&old, &[2]));
}

#[test]
fn an_edited_hunk_is_taken_as_edited() {
    let (old, _) = texts();
    let mut person = script("e n n");
    person.edits.push_back(("+LINE 2\n", "+line two\n"));
    assert_eq!(outcome(person, Purpose::Commit).0, old.replace("line 2\n", "line two\n"));
}

#[test]
fn an_edit_that_does_not_apply_is_told_and_asked_again() {
    let (old, _) = texts();
    let mut person = script("e e e y n n");
    person.edits.push_back((" line 3\n", " line three\n"));
    person.edits.push_back(("-line 2\n", "?line 2\n"));
    let (text, screen) = outcome(person, Purpose::Commit);
    assert_eq!(text, with(&old, &[2]));
    assert_eq!(screen.matches("the edited hunk does not apply: ").count(), 2, "{screen}");
    assert!(screen.contains("no editor"));
}

#[test]
fn neighbours_that_clash_with_an_edit_are_told() {
    let (old, _) = texts();
    // The edit removes line 11, which the part after it shows as unchanged.
    let mut person = script("n s e y n n");
    person.edits.push_back((" line 11\n", "-line 11\n"));
    let (text, screen) = outcome(person, Purpose::Commit);
    assert_eq!(text, with(&old, &[10]).replace("line 11\n", ""));
    assert!(screen.contains("this does not go together with what you edited"), "{screen}");
}

#[test]
fn discarding_takes_hunks_out_of_the_sandbox() {
    let (old, _) = texts();
    let (text, screen) = outcome(script("y s n y n"), Purpose::Discard);
    assert_eq!(text, with(&old, &[10, 25]));
    assert!(screen.contains("(1/3) Discard this hunk ["), "{screen}");
    let mut person = script("n e n");
    person.edits.push_back(("-line 12\n+LINE 12\n", " LINE 12\n"));
    assert_eq!(outcome(person, Purpose::Discard).0, with(&old, &[2, 12, 25]));
}

#[test]
fn whole_entries_are_one_question_and_shown_escaped() {
    let all = [
        entry("bin", DiffKind::Modified),
        entry("gone", DiffKind::Deleted),
        entry("meta", DiffKind::Metadata),
        entry("new", DiffKind::Created),
    ];
    let mut person = script("y n y y");
    let chosen = hold(&mut person, Purpose::Commit, &all);
    assert_eq!(chosen.whole, [&all[0], &all[2], &all[3]].map(|entry| entry.path.clone()));
    assert_eq!(chosen.seen.len(), 3);
    for question in ["this binary file", "this deletion", "this change of metadata", "this new file"] {
        assert!(
            person.screen.contains(&format!("(1/1) Commit {question} [y,n,q,a,d,?]? ")),
            "{}",
            person.screen
        );
    }
    assert!(person.screen.contains("+\\x1b[2J\n") && !person.screen.contains('\x1b'));
    assert!(person.screen.contains("-deleted\n"));
}

#[test]
fn metadata_is_offered_with_the_whole_file_and_otherwise_left() {
    let mut run = entry("run.sh", DiffKind::Modified);
    run.new = node(0o755);
    let all = [run];
    let whole = hold(&mut script("y"), Purpose::Commit, &all);
    assert_eq!((whole.whole.len(), whole.files.len()), (1, 0));
    let some = hold(&mut script("n y n n"), Purpose::Commit, &all);
    assert_eq!((some.whole.len(), some.files.len()), (0, 1));
    assert!(hold(&mut script("q"), Purpose::Commit, &all).is_nothing());
}

#[test]
fn help_names_every_letter_that_is_offered() {
    let (_, screen) = outcome(script("? x yes y q"), Purpose::Commit);
    assert_eq!(screen.matches("y - commit this\n").count(), 3, "{screen}");
    assert!(screen.contains("e - edit this hunk"));
    assert!(!screen.contains("s - split"), "{screen}");
}

#[test]
fn names_are_shown_escaped() {
    let mut odd = entry("x", DiffKind::Created);
    odd.path = RelPath::from_bytes(b"a\x1b[2J\nb".to_vec()).unwrap();
    let mut person = script("n");
    hold(&mut person, Purpose::Commit, &[odd]);
    assert!(person.screen.starts_with("A a\\x1b[2J\\nb\n"), "{}", person.screen);
}

#[test]
fn content_is_loaded_when_its_question_comes() {
    let loaded = std::cell::RefCell::new(Vec::new());
    let load = |entry: &DiffEntry| {
        loaded.borrow_mut().push(entry.path.to_string());
        load(entry)
    };
    let all = ["one", "two", "three"].map(|name| entry(name, DiffKind::Modified));
    Selector::new(&mut script("d y q"), Purpose::Commit, &load).run(&all).unwrap();
    assert_eq!(*loaded.borrow(), ["one", "two"]);
}
