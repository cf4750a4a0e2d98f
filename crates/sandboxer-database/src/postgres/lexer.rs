//! Takes SQL apart as PostgreSQL's own scanner does, as far as statements begin and end: comments (which nest), quotes of every
//! kind, parentheses, and the bodies of SQL functions. What a statement is, [`super::statement`] tells.
//!
//! The server parses the whole of a string before it runs any of it. So where this disagrees with the server about text that the
//! server does not accept, nothing happens; where the server accepts it, both have to agree, byte by byte.

use std::ops::Range;

/// The smallest piece of SQL that has a meaning of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A word without quotes, in small letters: a keyword, or a name.
    Word(String),
    /// A name in quotes, decoded.
    Quoted(String),
    /// A string of any kind; what is in it, undecoded.
    Text(Range<usize>),
    /// A number, without sign.
    Number,
    /// `$1`.
    Parameter,
    /// Anything else, one character each.
    Sign(u8),
}

/// A token and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned {
    /// What.
    pub token: Token,
    /// Where.
    pub range: Range<usize>,
}

/// The tokens of one statement, and where it is without its semicolon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// From its first token to its last; empty where it has none.
    pub range: Range<usize>,
    /// Its tokens.
    pub tokens: Vec<Spanned>,
}

/// The statements of a string, those without any token left out.
pub fn split(sql: &[u8], standard_strings: bool) -> Vec<Piece> {
    let mut splitter = Splitter::default();
    for spanned in (Scanner { sql, at: 0, standard_strings }) {
        splitter.take(spanned);
    }
    splitter.end_piece();
    splitter.pieces
}

/// Where the first statement of a string is.
pub fn first(sql: &[u8], standard_strings: bool) -> Option<Range<usize>> {
    let mut splitter = Splitter::default();
    for spanned in (Scanner { sql, at: 0, standard_strings }) {
        splitter.take(spanned);
        if !splitter.pieces.is_empty() {
            break;
        }
    }
    splitter.end_piece();
    splitter.pieces.first().map(|piece| piece.range.clone())
}

/// Whether a string is read differently depending on `standard_conforming_strings`.
pub fn depends_on_strings(sql: &[u8]) -> bool {
    sql.contains(&b'\\') && split(sql, true) != split(sql, false)
}

/// Puts tokens together to statements.
#[derive(Default)]
struct Splitter {
    pieces: Vec<Piece>,
    present: Piece,
    depth: usize,
    /// In the body of a function that is written as `BEGIN ATOMIC … END`.
    body: bool,
}

impl Splitter {
    fn take(&mut self, spanned: Spanned) {
        match &spanned.token {
            Token::Sign(b'(') => self.depth += 1,
            Token::Sign(b')') => self.depth = self.depth.saturating_sub(1),
            Token::Sign(b';') if self.depth == 0 && !self.body => return self.end_piece(),
            Token::Word(word) => self.body = self.body_after(word),
            _ => {}
        }
        self.present.tokens.push(spanned);
    }

    /// A body begins with `BEGIN ATOMIC` outside of parentheses, and ends with an `END` that follows a semicolon or `ATOMIC`: the `END` of
    /// a `CASE` follows neither.
    fn body_after(&self, word: &str) -> bool {
        let last = self.present.tokens.last().map(|spanned| &spanned.token);
        match word {
            "atomic" if !self.body => self.depth == 0 && is_word(last, "begin") && self.makes_routine(),
            "end" if self.body => !(last == Some(&Token::Sign(b';')) || is_word(last, "atomic")),
            _ => self.body,
        }
    }

    fn makes_routine(&self) -> bool {
        let words = leading_words(&self.present.tokens);
        matches!(
            words.as_slice(),
            ["create", "function" | "procedure", ..]
                | ["create", "or", "replace", "function" | "procedure", ..]
        )
    }

    fn end_piece(&mut self) {
        let mut piece = std::mem::take(&mut self.present);
        (self.depth, self.body) = (0, false);
        if let (Some(first), Some(last)) = (piece.tokens.first(), piece.tokens.last()) {
            piece.range = first.range.start..last.range.end;
            self.pieces.push(piece);
        }
    }
}

fn is_word(token: Option<&Token>, word: &str) -> bool {
    matches!(token, Some(Token::Word(found)) if found == word)
}

/// The words that a statement begins with, up to the first thing that is none.
pub fn leading_words(tokens: &[Spanned]) -> Vec<&str> {
    let word = |spanned: &'_ Spanned| matches!(spanned.token, Token::Word(_));
    let words = tokens.iter().take_while(|spanned| word(spanned));
    words
        .filter_map(|spanned| if let Token::Word(word) = &spanned.token { Some(word.as_str()) } else { None })
        .collect()
}

struct Scanner<'a> {
    sql: &'a [u8],
    at: usize,
    standard_strings: bool,
}

impl Iterator for Scanner<'_> {
    type Item = Spanned;

    fn next(&mut self) -> Option<Spanned> {
        self.skip_blanks();
        let start = self.at;
        let token = match *self.sql.get(start)? {
            b'\'' => self.string(!self.standard_strings),
            b'"' => self.quoted(false),
            b'$' => self.dollar(),
            byte if is_name_start(byte) => self.word(),
            byte if byte.is_ascii_digit() => {
                self.pass(|byte| byte.is_ascii_digit());
                Token::Number
            }
            byte => {
                self.at += 1;
                Token::Sign(byte)
            }
        };
        Some(Spanned { token, range: start..self.at })
    }
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.sql.get(self.at + ahead).copied()
    }

    fn pass(&mut self, holds: impl Fn(u8) -> bool) {
        while self.peek(0).is_some_and(&holds) {
            self.at += 1;
        }
    }

    fn skip_blanks(&mut self) {
        loop {
            self.pass(is_blank);
            match (self.peek(0), self.peek(1)) {
                (Some(b'-'), Some(b'-')) => self.pass(|byte| byte != b'\n' && byte != b'\r'),
                (Some(b'/'), Some(b'*')) => self.skip_comment(),
                _ => return,
            }
        }
    }

    fn skip_comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => (depth, self.at) = (depth + 1, self.at + 2),
                (Some(b'*'), Some(b'/')) => (depth, self.at) = (depth - 1, self.at + 2),
                (Some(_), _) => self.at += 1,
                (None, _) => return,
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn word(&mut self) -> Token {
        let start = self.at;
        self.pass(is_name_part);
        let word = &self.sql[start..self.at];
        match (word, self.peek(0), self.peek(1)) {
            (b"e" | b"E", Some(b'\''), _) => self.string(true),
            (b"b" | b"B" | b"x" | b"X", Some(b'\''), _) => self.string(false),
            // The server reads this as a keyword, then as a string of the usual kind.
            (b"n" | b"N", Some(b'\''), _) => self.string(!self.standard_strings),
            (b"u" | b"U", Some(b'&'), Some(b'\'')) => {
                self.at += 1;
                self.string(false)
            }
            (b"u" | b"U", Some(b'&'), Some(b'"')) => {
                self.at += 1;
                self.quoted(true)
            }
            _ => Token::Word(String::from_utf8_lossy(word).to_ascii_lowercase()),
        }
    }

    /// At the opening quote. A string goes on, in the manner it began, after blanks with a line's end among them.
    fn string(&mut self, escapes: bool) -> Token {
        let start = self.at + 1;
        loop {
            self.at += 1;
            match self.peek(0) {
                None => {
                    self.at = self.sql.len();
                    return Token::Text(start.min(self.at)..self.at);
                }
                Some(b'\\') if escapes => self.at += 1,
                Some(b'\'') if self.peek(1) == Some(b'\'') => self.at += 1,
                Some(b'\'') => match self.continued() {
                    Some(quote) => self.at = quote,
                    None => {
                        self.at += 1;
                        return Token::Text(start..self.at - 1);
                    }
                },
                Some(_) => {}
            }
        }
    }

    /// Where the string that ends here goes on, if it does.
    fn continued(&self) -> Option<usize> {
        let mut ahead = Scanner { sql: self.sql, at: self.at + 1, standard_strings: true };
        let start = ahead.at;
        loop {
            ahead.pass(is_blank);
            if (ahead.peek(0), ahead.peek(1)) != (Some(b'-'), Some(b'-')) {
                break;
            }
            ahead.pass(|byte| byte != b'\n' && byte != b'\r');
        }
        let ends_line =
            self.sql[start..ahead.at.min(self.sql.len())].iter().any(|b| matches!(b, b'\n' | b'\r'));
        (ends_line && ahead.peek(0) == Some(b'\'')).then_some(ahead.at)
    }

    /// At the opening quote of a name.
    fn quoted(&mut self, unicode: bool) -> Token {
        let mut name = Vec::new();
        loop {
            self.at += 1;
            match (self.peek(0), self.peek(1)) {
                (None, _) => break,
                (Some(b'"'), Some(b'"')) => {
                    name.push(b'"');
                    self.at += 1;
                }
                (Some(b'"'), _) => {
                    self.at += 1;
                    break;
                }
                (Some(byte), _) => name.push(byte),
            }
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        Token::Quoted(if unicode { without_escapes(&name) } else { name })
    }

    /// A string in dollars, a parameter, or a lone sign.
    fn dollar(&mut self) -> Token {
        let start = self.at;
        self.at += 1;
        if self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
            self.pass(|byte| byte.is_ascii_digit());
            return Token::Parameter;
        }
        if self.peek(0).is_some_and(is_name_start) {
            self.pass(|byte| is_name_part(byte) && byte != b'$');
        }
        if self.peek(0) != Some(b'$') {
            self.at = start + 1;
            return Token::Sign(b'$');
        }
        self.at += 1;
        let (tag, body) = (&self.sql[start..self.at], self.at);
        let end = find(&self.sql[body..], tag).map(|end| body + end);
        self.at = end.map_or(self.sql.len(), |end| end + tag.len());
        Token::Text(body..end.unwrap_or(self.sql.len()))
    }
}

/// A name with the escapes that are used unless another sign is chosen. Good enough to recognise names of ours: whoever chooses another
/// sign gets a name with that sign in it, and it is decided by the server.
fn without_escapes(name: &str) -> String {
    let mut decoded = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('\\') {
        decoded += before;
        let (skip, digits) = if after.starts_with('+') { (1, 6) } else { (0, 4) };
        let code = after.get(skip..skip + digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => {
                decoded.push(c);
                rest = &after[skip + digits..];
            }
            None => {
                decoded.push('\\');
                rest = after.strip_prefix('\\').unwrap_or(after);
            }
        }
    }
    decoded + rest
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c | 0x0b)
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn is_name_part(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit() || byte == b'$'
}

#[cfg(test)]
#[path = "lexer_tests.rs"]
mod tests;
