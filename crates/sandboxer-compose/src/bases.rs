//! Which images a Dockerfile builds from.
//!
//! An image can hold instructions for whoever builds from it (`ONBUILD`), and an `ADD https://…` among them happens in the engine. Nobody sees
//! those but the engine, so it is asked about each image beforehand. The file is a stranger's: a name too many is no harm, one too few is. Engines differ
//! in what they take for a script in the middle of the file (`RUN <<EOF`), so an image counts wherever one could be named, and a stage, which hides an
//! image of its name, only where all of them see one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::dockerfile::{Fetch, continued};

/// What separates words; a space of any other kind is part of one.
const SPACE: [char; 5] = [' ', '\t', '\u{b}', '\u{c}', '\r'];

/// How many lines that may be instructions, and are continued, are looked at.
const DOUBTFUL: usize = 5000;

/// What a Dockerfile says about images, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bases(Vec<Said>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    line: usize,
    /// Whether an instruction begins here for every engine.
    certain: bool,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// `NAME[=VALUE]` of an `ARG`.
    Argument(String),
    From {
        image: String,
        stage: Option<String>,
    },
    /// What something is copied or mounted from.
    Source(String),
    Unclear(&'static str),
}

impl Bases {
    pub fn read(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines: Vec<&str> = text.split('\n').collect();
        let (certain, unclear) = instructions(&lines);
        let has_scripts = text.contains("<<");
        let (mut said, mut doubtful) = (Vec::new(), 0);
        for (index, line) in lines.iter().enumerate().filter(|(_, line)| could_tell(line)) {
            let is_certain = certain.contains(&index);
            // Where there is no script, only continued lines look like instructions and are none.
            if !is_certain && !has_scripts {
                continue;
            }
            doubtful += usize::from(!is_certain && line.contains('\\'));
            let whole = continued(&lines[index..]).filter(|_| doubtful <= DOUBTFUL);
            let told = whole.map_or_else(|| vec![What::Unclear("too many continued lines")], tell);
            said.extend(told.into_iter().map(|what| Said { line: index + 1, certain: is_certain, what }));
            if doubtful > DOUBTFUL {
                break;
            }
        }
        said.extend(unclear.map(|(line, what)| Said { line, certain: true, what: What::Unclear(what) }));
        Self(said)
    }

    /// The images, when the build is given these arguments; or what leaves in doubt which.
    pub fn images(
        &self,
        given: &Value,
        is_reference: impl Fn(&str) -> bool,
    ) -> Result<BTreeSet<String>, Fetch> {
        let (mut arguments, mut stages, mut images) = (Arguments::new(), BTreeSet::new(), BTreeSet::new());
        let mut inside = false;
        for Said { line, certain, what } in &self.0 {
            let doubt = |what| Fetch { line: *line, what };
            let named = match what {
                What::Unclear(what) => return Err(doubt(what)),
                What::Argument(_) if inside || !certain => continue,
                What::Argument(text) => {
                    declare(&mut arguments, text, given).map_err(doubt)?;
                    continue;
                }
                What::Source(name) if name.bytes().all(|byte| byte.is_ascii_digit()) => continue,
                What::Source(name) => name.clone(),
                What::From { image, .. } => expand(&bare(image), &arguments).map_err(doubt)?,
            };
            let is_stage = stages.contains(&named.to_ascii_lowercase()) || named == "scratch";
            if !is_stage && is_reference(&named) {
                images.insert(named);
            } else if !is_stage && (*certain || named.contains(':')) {
                return Err(doubt("what is not the name of an image"));
            }
            if let (true, What::From { stage, .. }) = (*certain, what) {
                inside = true;
                stages.extend(stage.as_ref().map(|stage| stage.to_ascii_lowercase()));
            }
        }
        Ok(images)
    }
}

/// Whether the instruction that begins here could be one of those that name images.
fn could_tell(line: &str) -> bool {
    line.trim_start().starts_with(['a', 'A', 'c', 'C', 'f', 'F', 'o', 'O', 'r', 'R', '\\'])
}

/// What one instruction says about images.
fn tell(whole: String) -> Vec<What> {
    let mut words = whole.split(SPACE).filter(|word| !word.is_empty());
    let mut first = words.next().unwrap_or_default().to_ascii_uppercase();
    while first == "ONBUILD" {
        first = words.next().unwrap_or_default().to_ascii_uppercase();
    }
    let is_option = |word: &&str| word.starts_with("--");
    match first.as_str() {
        "ARG" => words.map(|word| What::Argument(word.to_owned())).collect(),
        "FROM" => from(&words.skip_while(is_option).collect::<Vec<_>>()).into_iter().collect(),
        "COPY" | "ADD" | "RUN" => words.take_while(is_option).flat_map(option).collect(),
        _ => Vec::new(),
    }
}

/// Of any other form, no engine takes it.
fn from(words: &[&str]) -> Option<What> {
    match words {
        [image] => Some(What::From { image: (*image).to_owned(), stage: None }),
        [image, link, stage] if link.eq_ignore_ascii_case("as") => {
            Some(What::From { image: (*image).to_owned(), stage: Some((*stage).to_owned()) })
        }
        _ => None,
    }
}

/// `--from=NAME`, or `--mount=KEY=VALUE,…` with a `from`.
fn option(word: &str) -> Vec<What> {
    if word.contains(['"', '\'', '\\']) {
        return vec![What::Unclear("an option in quotes")];
    }
    let fields = word.trim_start_matches('-').split(',');
    let values = fields.filter_map(|field| field.strip_prefix("mount=").unwrap_or(field).split_once('='));
    let named = values.filter(|(key, _)| key.trim().eq_ignore_ascii_case("from")).map(|(_, value)| value);
    let told = |value: &str| match value.contains('$') {
        true => What::Unclear("a variable in place of what is copied or mounted from"),
        false => What::Source(value.trim().to_owned()),
    };
    named.map(told).collect()
}

/// Where instructions begin for every engine; or the line from which on that can be told in two ways.
fn instructions(lines: &[&str]) -> (BTreeSet<usize>, Option<(usize, &'static str)>) {
    let (mut begins, mut index) = (BTreeSet::new(), 0);
    while index < lines.len() {
        if is_passed_over(lines[index]) {
            index += 1;
            continue;
        }
        begins.insert(index);
        match after(lines, index) {
            Ok(next) => index = next,
            Err(what) => return (begins, Some((index + 1, what))),
        }
    }
    (begins, None)
}

/// The line after an instruction and the scripts that follow it.
fn after(lines: &[&str], first: usize) -> Result<usize, &'static str> {
    let mut next = end_of(lines, first)?;
    for (word, indented) in scripts(&lines[first..next])? {
        let is_end = |line: &&str| match indented {
            true => line.trim_start_matches('\t') == word,
            false => **line == word,
        };
        let end = lines[next..].iter().position(is_end).map_or(lines.len(), |length| next + length + 1);
        // Engines do not agree on whether that belongs to the word.
        if lines[next..end].iter().any(|line| line.ends_with('\r')) {
            return Err("a script with carriage returns");
        }
        next = end;
    }
    Ok(next)
}

fn is_passed_over(line: &str) -> bool {
    let bare = line.trim_matches(SPACE);
    bare.is_empty() || bare.starts_with('#')
}

/// The line after an instruction.
fn end_of(lines: &[&str], first: usize) -> Result<usize, &'static str> {
    for (index, line) in lines.iter().enumerate().skip(first) {
        if index > first && is_passed_over(line) {
            continue;
        }
        match line.trim_end_matches(SPACE).strip_suffix('\\') {
            // Some engines go on after these, and some do not.
            Some(before) if before.ends_with('\\') => return Err("two backslashes at the end of a line"),
            Some(_) => {}
            None => return Ok(index + 1),
        }
    }
    Ok(lines.len())
}

/// The words that end the scripts which follow an instruction, and whether tabs may stand before them.
fn scripts(lines: &[&str]) -> Result<Vec<(String, bool)>, &'static str> {
    let said = lines.iter().enumerate().filter(|(index, line)| *index == 0 || !is_passed_over(line));
    let bare = said
        .map(|(_, line)| line.trim_end_matches(SPACE))
        .map(|line| line.strip_suffix('\\').unwrap_or(line));
    let whole: String = bare.collect();
    let mut words = whole.split(SPACE).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default().to_ascii_uppercase();
    if !whole.contains("<<") || !["ADD", "COPY", "RUN", "ONBUILD"].contains(&first.as_str()) {
        return Ok(Vec::new());
    }
    let (marks, rest): (Vec<&str>, Vec<&str>) = words.partition(|word| word.contains("<<"));
    let ends: Option<Vec<_>> = marks.into_iter().map(script).collect();
    let is_clear = first != "ONBUILD" && rest.into_iter().all(is_closed);
    ends.filter(|_| is_clear).ok_or("`<<` in a form that can be read in two ways")
}

/// `<<WORD`, `<<-WORD`, `<<"WORD"`.
fn script(mark: &str) -> Option<(String, bool)> {
    let name = mark.trim_start_matches(|first: char| first.is_ascii_digit()).strip_prefix("<<")?;
    let (name, indented) = name.strip_prefix('-').map_or((name, false), |name| (name, true));
    let quoted = ['"', '\''].iter().find_map(|quote| name.strip_prefix(*quote)?.strip_suffix(*quote));
    let name = quoted.unwrap_or(name);
    is_name(name).then(|| (name.to_owned(), indented))
}

/// Whether nothing that begins in this word ends in another.
fn is_closed(word: &str) -> bool {
    let count = |letter: char| word.matches(letter).count();
    let quotes = match (count('"'), count('\'')) {
        (0, some) | (some, 0) => some.is_multiple_of(2),
        _ => false,
    };
    quotes && !word.contains(['\\', '`']) && count('{') == count('}')
}

fn is_name(text: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.starts_with(|first: char| fits(first) && !first.is_ascii_digit()) && text.chars().all(fits)
}

/// Values of arguments that are declared before the first image; `None` where one has none.
type Arguments = BTreeMap<String, Option<String>>;

fn declare(arguments: &mut Arguments, text: &str, given: &Value) -> Result<(), &'static str> {
    let odd = |quote: char| !text.matches(quote).count().is_multiple_of(2);
    if text.contains('\\') || odd('"') || odd('\'') {
        return Err("an `ARG` whose end is not clear");
    }
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let given = given.get(name).and_then(Value::as_str).map(str::to_owned);
    // One that cannot be told matters only where it is used.
    let value = given.or_else(|| expand(&bare(value?), arguments).ok());
    if value.is_none() && arguments.get(name).is_some_and(Option::is_some) {
        return Err("an `ARG` that is declared twice");
    }
    arguments.insert(name.to_owned(), value);
    Ok(())
}

/// No name of an image has these: whatever they do, they are not left in it.
fn bare(word: &str) -> String {
    word.chars().filter(|letter| !matches!(letter, '"' | '\'' | '\\')).collect()
}

/// `$NAME`, `${NAME}` and `${NAME:-VALUE}`.
fn expand(word: &str, arguments: &Arguments) -> Result<String, &'static str> {
    let unclear = "the name of an image that depends on what is not known";
    let (mut out, mut rest) = (String::new(), word);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, otherwise, left) = variable(after).ok_or(unclear)?;
        let value = match arguments.get(name).ok_or(unclear)? {
            Some(value) if !value.is_empty() => value,
            Some(empty) => otherwise.unwrap_or(empty),
            None => otherwise.ok_or(unclear)?,
        };
        out.push_str(value);
        rest = left;
    }
    Ok(out + rest)
}

/// The name after a `$`, what stands for it where it is empty, and what follows.
fn variable(text: &str) -> Option<(&str, Option<&str>, &str)> {
    if let Some(text) = text.strip_prefix('{') {
        let (inside, left) = text.split_once('}')?;
        let (name, otherwise) =
            inside.split_once(":-").map_or((inside, None), |(name, otherwise)| (name, Some(otherwise)));
        let plain = !otherwise.unwrap_or_default().contains(['$', '{']);
        return (plain && is_name(name)).then_some((name, otherwise, left));
    }
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let (name, left) = text.split_at(text.find(|letter| !fits(letter)).unwrap_or(text.len()));
    is_name(name).then_some((name, None, left))
}

#[cfg(test)]
#[path = "bases_tests.rs"]
mod tests;
