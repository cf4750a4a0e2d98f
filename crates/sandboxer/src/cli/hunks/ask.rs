//! The conversation: entry by entry, hunk by hunk, with the letters that git's users know.
//!
//! It speaks through a [`Console`], so that tests can hold it with a script. Content is loaded file by file, as the
//! questions come to it: the first one does not wait for the last.

use std::ops::ControlFlow;

use anstyle::Style;
use sandboxer_core::model::DiffEntry;
use sandboxer_documents::patch::is_huge;
use sandboxer_fs::content::Sides;
use sandboxer_fs::patch::{self, Hunk, render_entry};

use super::edit::{read_back, text_for_editor};
use super::offer::{BINARY, Offer, Part, offers, taken_along};
use super::{Chosen, FileHunks, Purpose, Texts};
use crate::cli::diffs;
use crate::cli::error::CliError;
use crate::cli::output::{count, sentence, style};

/// Where the conversation takes place.
pub trait Console {
    /// Shows one line.
    fn line(&mut self, text: &str) -> Result<(), CliError>;
    /// Text in a style, if there is colour here.
    fn paint(&self, style: Style, text: &str) -> String;
    /// Asks for a line; `None` at the end of the input.
    fn ask(&mut self, prompt: &str) -> Result<Option<String>, CliError>;
    /// Lets the person edit a text.
    fn edit(&mut self, text: &[u8]) -> Result<Vec<u8>, CliError>;
}

/// Reads both sides of an entry.
pub type Load<'a> = &'a dyn Fn(&DiffEntry) -> Result<Sides, CliError>;

/// Asks about a difference.
pub struct Selector<'a, C> {
    console: &'a mut C,
    purpose: Purpose,
    load: Load<'a>,
    chosen: Chosen,
}

/// Whether there are more questions, or the person has had enough.
type Flow = Result<ControlFlow<()>, CliError>;

const ON: Flow = Ok(ControlFlow::Continue(()));
const STOP: Flow = Ok(ControlFlow::Break(()));

/// Below a directory that goes or moves, no more entries than this are listed.
const LISTED: usize = 20;

impl<'a, C: Console> Selector<'a, C> {
    pub fn new(console: &'a mut C, purpose: Purpose, load: Load<'a>) -> Self {
        Self { console, purpose, load, chosen: Chosen::default() }
    }

    /// Asks about every entry, until there are no more or the person stops.
    pub fn run(mut self, entries: &[DiffEntry]) -> Result<Chosen, CliError> {
        for offer in offers(entries, self.purpose) {
            if self.decide(&offer, entries)?.is_break() {
                break;
            }
        }
        Ok(self.chosen)
    }

    fn decide(&mut self, offer: &Offer<'_>, all: &[DiffEntry]) -> Flow {
        let entry = offer.entry;
        self.show_entry(entry)?;
        match &offer.part {
            Part::Nothing(reason) => {
                self.console.line(&format!("  not asked about: {reason}"))?;
                ON
            }
            Part::Whole(noun) => {
                self.show_whole(entry, all)?;
                self.ask_whole(entry, all, noun)
            }
            Part::Hunks => match Texts::of((self.load)(entry)?) {
                Some(sides) => self.ask_file(entry, all, sides),
                None => self.ask_whole(entry, all, BINARY),
            },
        }
    }

    fn show_entry(&mut self, entry: &DiffEntry) -> Result<(), CliError> {
        let line = diffs::line_of(entry, |style, text| self.console.paint(style, &text));
        self.console.line(&line)
    }

    /// What a whole entry is about: its content, if that is text, or what else comes with it.
    fn show_whole(&mut self, entry: &DiffEntry, all: &[DiffEntry]) -> Result<(), CliError> {
        let below = taken_along(entry, all);
        for other in below.iter().take(LISTED) {
            let line = diffs::line_of(other, |style, text| self.console.paint(style, &text));
            self.console.line(&format!("  {line}"))?;
        }
        if below.len() > LISTED {
            self.console.line(&format!("  and {} more", below.len() - LISTED))?;
        }
        if entry.binary || entry.moved || entry.text.is_some() || is_huge(entry) {
            return Ok(());
        }
        let sides = (self.load)(entry)?;
        let is_text = [&sides.old, &sides.new].into_iter().flatten().all(|side| !patch::is_binary(side));
        let mut rendered = Vec::new();
        let rendering = render_entry(entry, sides.old.as_deref(), sides.new.as_deref(), &mut rendered);
        if is_text && rendering.is_ok() { self.show_lines(hunks_in(&rendered)) } else { Ok(()) }
    }

    fn show_lines(&mut self, rendered: &[u8]) -> Result<(), CliError> {
        for (style, line) in diffs::patch_lines(rendered) {
            let line = self.console.paint(style, &line);
            self.console.line(&line)?;
        }
        Ok(())
    }

    /// One question about all of an entry.
    fn ask_whole(&mut self, entry: &DiffEntry, all: &[DiffEntry], noun: &str) -> Flow {
        match self.question(&format!("(1/1) {} {noun}", self.purpose.verb()), "ynqad")? {
            'y' | 'a' => {
                self.chosen.take_whole(entry, all);
                ON
            }
            'q' => STOP,
            _ => ON,
        }
    }

    /// The questions about a text file. Metadata cannot be had without the content, so they are offered together first.
    fn ask_file(&mut self, entry: &DiffEntry, all: &[DiffEntry], sides: Texts) -> Flow {
        if !diffs::changed_metadata(entry).is_empty() {
            let noun = "all of this file, with its metadata";
            match self.question(&format!("{} {noun}", self.purpose.verb()), "ynq")? {
                'y' => {
                    self.chosen.take_whole(entry, all);
                    return ON;
                }
                'q' => return STOP,
                _ => (),
            }
        }
        let mut file = File::new(&sides, self.purpose);
        let flow = self.ask_hunks(&mut file)?;
        let hunks = file.patch();
        if !hunks.is_empty() {
            self.chosen.files.push(FileHunks { path: entry.path.clone(), hunks, sides });
        }
        Ok(flow)
    }

    fn ask_hunks(&mut self, file: &mut File<'_>) -> Flow {
        let (mut at, mut shown) = (0, None);
        while let Some(index) = file.undecided_from(at) {
            if shown != Some(index) {
                self.show_lines(&file.pieces[index].text())?;
                shown = Some(index);
            }
            let total = file.pieces.len();
            let question = format!("({}/{total}) {} this hunk", index + 1, self.purpose.verb());
            let answer = self.question(&question, &file.letters(index))?;
            at = index;
            match answer {
                'y' => self.tell(file.decide(index..index + 1, true))?,
                'n' => self.tell(file.decide(index..index + 1, false))?,
                'a' => self.tell(file.decide(index..total, true))?,
                'd' => self.tell(file.decide(index..total, false))?,
                'j' => at = index + 1,
                'k' => at = file.undecided_before(index).unwrap_or(index),
                's' => {
                    let parts = file.split(index);
                    self.console.line(&format!("split into {}", count(parts, "hunk")))?;
                    shown = None;
                }
                'e' => self.edit(file, index)?,
                _ => return STOP,
            }
        }
        ON
    }

    /// Says why a decision did not hold.
    fn tell(&mut self, decided: Result<(), String>) -> Result<(), CliError> {
        match decided {
            Ok(()) => Ok(()),
            Err(reason) => {
                let line = self.console.paint(style::WARN, &sentence(&reason));
                self.console.line(&line)
            }
        }
    }

    fn edit(&mut self, file: &mut File<'_>, index: usize) -> Result<(), CliError> {
        let hunk = file.pieces[index].text();
        let edited = self.console.edit(&text_for_editor(&hunk, self.purpose));
        let decided = match edited.map(|edited| read_back(&edited, &hunk)) {
            Ok(Some(edited)) => file.decide_edited(index, edited),
            Ok(None) => Err("nothing is left of the hunk, so nothing was done".to_owned()),
            Err(error) => Err(error.message.clone()),
        };
        self.tell(decided)
    }

    /// Asks until the answer is one of `letters`; the end of the input is `q`.
    fn question(&mut self, question: &str, letters: &str) -> Result<char, CliError> {
        let listed: Vec<String> = letters.chars().chain(['?']).map(String::from).collect();
        let prompt = self.console.paint(style::HEAD, &format!("{question} [{}]?", listed.join(",")));
        loop {
            let Some(answer) = self.console.ask(&format!("{prompt} "))? else { return Ok('q') };
            let mut typed = answer.trim().chars();
            match (typed.next(), typed.next()) {
                (Some(letter), None) if letters.contains(letter) => return Ok(letter),
                (None, _) => (),
                _ => self.help(letters)?,
            }
        }
    }

    fn help(&mut self, letters: &str) -> Result<(), CliError> {
        for letter in letters.chars() {
            self.console.line(&format!("{letter} - {}", self.meaning(letter)))?;
        }
        self.console.line("? - show this help")
    }

    fn meaning(&self, letter: char) -> &'static str {
        let commit = self.purpose == Purpose::Commit;
        match letter {
            'y' if commit => "commit this",
            'y' => "throw this away",
            'n' if commit => "leave this pending",
            'n' => "keep this in the sandbox",
            'q' => "stop asking: what was chosen so far is taken, this and the rest is not",
            'a' => "take this and all later hunks of this file",
            'd' => "take neither this nor any later hunk of this file",
            'j' => "decide later, see the next undecided hunk",
            'k' => "decide later, see the previous undecided hunk",
            's' => "split this hunk into smaller ones",
            _ => "edit this hunk, and take what is left of it",
        }
    }
}

/// The hunks of a rendered entry, without the headers before them, which repeat what was said.
fn hunks_in(rendered: &[u8]) -> &[u8] {
    let is_header = |at: &usize| rendered[*at..].starts_with(b"\n@@ ");
    (0..rendered.len()).find(is_header).map_or(&[], |at| &rendered[at + 1..])
}

/// A text file under discussion.
struct File<'s> {
    sides: &'s Texts,
    purpose: Purpose,
    pieces: Vec<Piece<'s>>,
}

/// A hunk, or what came of splitting or editing one.
struct Piece<'s> {
    hunk: Hunk<'s>,
    edited: Option<Vec<u8>>,
    taken: Option<bool>,
}

impl<'s> Piece<'s> {
    fn new(hunk: Hunk<'s>) -> Self {
        Self { hunk, edited: None, taken: None }
    }

    fn text(&self) -> Vec<u8> {
        if let Some(edited) = &self.edited {
            return edited.clone();
        }
        let mut text = Vec::new();
        // Writing to memory cannot fail.
        let _ = patch::render_hunk(&self.hunk, &mut text);
        text
    }
}

impl<'s> File<'s> {
    fn new(sides: &'s Texts, purpose: Purpose) -> Self {
        let pieces = patch::hunks(&sides.old, &sides.new).into_iter().map(Piece::new).collect();
        Self { sides, purpose, pieces }
    }

    /// The hunks that are taken.
    fn patch(&self) -> Vec<u8> {
        let taken = self.pieces.iter().filter(|piece| piece.taken == Some(true));
        taken.map(Piece::text).collect::<Vec<_>>().concat()
    }

    /// The first undecided piece from `at` on, or before it.
    fn undecided_from(&self, at: usize) -> Option<usize> {
        let undecided = |index: &usize| self.pieces[*index].taken.is_none();
        (at..self.pieces.len()).find(undecided).or_else(|| (0..at.min(self.pieces.len())).find(undecided))
    }

    fn undecided_before(&self, at: usize) -> Option<usize> {
        (0..at).rev().find(|index| self.pieces[*index].taken.is_none())
    }

    /// What can be answered about a piece.
    fn letters(&self, index: usize) -> String {
        let mut letters = "ynqad".to_owned();
        let later = self.pieces[index + 1..].iter().any(|piece| piece.taken.is_none());
        letters.push_str(if later { "j" } else { "" });
        letters.push_str(if self.undecided_before(index).is_some() { "k" } else { "" });
        letters.push_str(if patch::split(&self.pieces[index].hunk).len() > 1 { "s" } else { "" });
        letters + "e"
    }

    /// Cuts a piece into its parts; how many there are.
    fn split(&mut self, index: usize) -> usize {
        let parts: Vec<Piece<'s>> =
            patch::split(&self.pieces[index].hunk).into_iter().map(Piece::new).collect();
        let number = parts.len();
        self.pieces.splice(index..=index, parts);
        number
    }

    /// Decides about all undecided pieces of a range; about none if they do not go together with what was edited.
    fn decide(&mut self, range: std::ops::Range<usize>, take: bool) -> Result<(), String> {
        let undecided: Vec<usize> = range.filter(|index| self.pieces[*index].taken.is_none()).collect();
        undecided.iter().for_each(|index| self.pieces[*index].taken = Some(take));
        let edited = self.pieces.iter().any(|piece| piece.edited.is_some());
        let result = if take && edited { self.check() } else { Ok(()) };
        if result.is_err() {
            undecided.iter().for_each(|index| self.pieces[*index].taken = None);
        }
        result.map_err(|reason| format!("this does not go together with what you edited: {reason}"))
    }

    /// Takes a piece as it was edited, if it applies.
    fn decide_edited(&mut self, index: usize, edited: Vec<u8>) -> Result<(), String> {
        (self.pieces[index].edited, self.pieces[index].taken) = (Some(edited), Some(true));
        let result = self.check();
        if result.is_err() {
            (self.pieces[index].edited, self.pieces[index].taken) = (None, None);
        }
        result.map_err(|reason| format!("the edited hunk does not apply: {reason}"))
    }

    fn check(&self) -> Result<(), String> {
        self.purpose.apply(self.sides, &self.patch()).map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
