//! The words of a statement, without its comments: enough to tell what kind of statement it is and what it names.

/// How many words of a statement are looked at.
const ENOUGH: usize = 200;

/// A word, a name in quotes, or a sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// As it was written.
    pub text: String,
    /// Whether it can be a name: a word or something in double quotes.
    pub name: bool,
}

impl Word {
    /// Whether it is this keyword, which a name in quotes never is.
    pub fn is(&self, keyword: &str) -> bool {
        self.text.eq_ignore_ascii_case(keyword)
    }
}

/// The first words of a statement.
pub fn words(statement: &str) -> Vec<Word> {
    let mut rest = statement;
    let mut words = Vec::new();
    while words.len() < ENOUGH {
        rest = skip_blank(rest);
        let Some(first) = rest.chars().next() else { break };
        let length = length_of(first, rest);
        let (text, tail) = rest.split_at(length);
        words.push(Word { text: text.to_owned(), name: first == '"' || starts_word(first) });
        rest = tail;
    }
    words
}

fn starts_word(c: char) -> bool {
    c.is_alphabetic() || c == '_' || !c.is_ascii()
}

fn length_of(first: char, rest: &str) -> usize {
    match first {
        '"' | '\'' => quoted_length(first, rest),
        c if starts_word(c) => {
            rest.find(|c: char| !(starts_word(c) || c.is_ascii_digit() || c == '$')).unwrap_or(rest.len())
        }
        c => c.len_utf8(),
    }
}

/// Up to the quote that ends it, past those that are doubled.
fn quoted_length(quote: char, rest: &str) -> usize {
    let mut places = rest.char_indices().skip(1).peekable();
    while let Some((place, c)) = places.next() {
        if c == quote && places.next_if(|(_, next)| *next == quote).is_none() {
            return place + 1;
        }
    }
    rest.len()
}

/// Without the blanks and comments at its beginning; comments can be nested.
fn skip_blank(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        if text.starts_with("--") {
            text = text.find(['\n', '\r']).map(|end| &text[end..]).unwrap_or_default();
        } else if text.starts_with("/*") {
            text = after_comment(text);
        } else {
            return text;
        }
    }
}

fn after_comment(text: &str) -> &str {
    let (mut depth, mut place) = (0_usize, 0);
    while place < text.len() {
        let rest = &text.as_bytes()[place..];
        if rest.starts_with(b"/*") {
            depth += 1;
            place += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            place += 2;
            if depth == 0 {
                return &text[place..];
            }
        } else {
            place += 1;
        }
    }
    ""
}
