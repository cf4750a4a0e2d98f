//! Scripts, cut into statements the way the server would read them.
//!
//! What ends a statement depends on strings, quoted names and three kinds of comments, and `DELIMITER`, which only clients know. Comments of the kind
//! `/*! … */` are code for some servers and comments for others, so a statement that has one has two readings.

use sandboxer_core::{Error, Result};

/// What of `sql_mode` changes how text is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mode {
    /// `"` quotes a name instead of a text.
    pub(super) ansi_quotes: bool,
    /// A backslash in a text is only a backslash.
    pub(super) no_backslash: bool,
}

impl Mode {
    pub(super) fn of(sql_mode: &str) -> Self {
        let has = |name| sql_mode.split(',').any(|mode| mode.eq_ignore_ascii_case(name));
        Self { ansi_quotes: has("ANSI_QUOTES"), no_backslash: has("NO_BACKSLASH_ESCAPES") }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword, a name or a number.
    Word(String),
    /// A name in quotes.
    Name(String),
    /// A text; what it says is nobody's business here.
    Text,
    Symbol(char),
}

impl Token {
    pub(super) fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    /// As a name, if it can be one; names are compared in lower case.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Word(name) | Self::Name(name) => Some(name.to_lowercase()),
            _ => None,
        }
    }
}

/// One statement, as it stands in the script.
#[derive(Debug, Default)]
pub(super) struct Statement {
    pub(super) text: String,
    tokens: Vec<(Token, bool)>,
    /// How many executable comments there are.
    pub(super) conditional: usize,
}

impl Statement {
    /// All of it, also what stands in executable comments.
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.tokens.iter().map(|(token, _)| token.clone()).collect()
    }

    /// What a server sees that skips the executable comments.
    pub(super) fn bare_tokens(&self) -> Vec<Token> {
        self.tokens.iter().filter(|(_, conditional)| !conditional).map(|(token, _)| token.clone()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Its beginning, for messages.
    pub(super) fn short(&self) -> String {
        let line = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(60) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

/// The rest of a script. The mode is asked for anew with each statement, because the one before may have changed it.
pub(super) struct Script<'a> {
    rest: &'a str,
    delimiter: String,
}

impl<'a> Script<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, delimiter: ";".to_owned() }
    }

    /// The next statement that is not empty.
    pub(super) fn next(&mut self, mode: Mode) -> Result<Option<Statement>> {
        loop {
            self.skip_comments(mode)?;
            if self.rest.is_empty() {
                return Ok(None);
            }
            if self.take_delimiter()? {
                continue;
            }
            let statement = self.cut(mode)?;
            if !statement.is_empty() {
                return Ok(Some(statement));
            }
        }
    }

    /// To the first character of a statement, or an executable comment.
    fn skip_comments(&mut self, mode: Mode) -> Result<()> {
        loop {
            self.rest = self.rest.trim_start();
            let mut scan = Scan::new(self.rest, mode);
            match scan.peek() {
                Some('#') => scan.line()?,
                Some('-') if scan.is_dash_comment() => scan.line()?,
                Some('/') if self.rest.starts_with("/*") && !is_executable(self.rest) => scan.comment()?,
                _ => return Ok(()),
            }
            self.rest = &self.rest[scan.at..];
        }
    }

    /// `DELIMITER x` at the beginning of a statement reaches to the end of its line.
    fn take_delimiter(&mut self) -> Result<bool> {
        let word = "delimiter";
        let is_one = self.rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        let after = if is_one { &self.rest[word.len()..] } else { return Ok(false) };
        if !after.starts_with([' ', '\t']) {
            return Ok(false);
        }
        let (line, rest) = after.split_once('\n').unwrap_or((after, ""));
        if line.trim().is_empty() || line.contains('\\') {
            return Err(Error::usage(format!("DELIMITER{line:?} names no delimiter")));
        }
        (self.delimiter, self.rest) = (line.trim().to_owned(), rest);
        Ok(true)
    }

    fn cut(&mut self, mode: Mode) -> Result<Statement> {
        let mut scan = Scan::new(self.rest, mode);
        scan.until(&self.delimiter)?;
        let (mut statement, end) = (scan.statement, scan.at);
        statement.text = self.rest[..end].trim().to_owned();
        self.rest = self.rest[end..].strip_prefix(self.delimiter.as_str()).unwrap_or("");
        Ok(statement)
    }
}

/// The tokens of a text that is not to be cut: the body of a routine.
pub(super) fn tokens_of(text: &str, mode: Mode) -> Result<Vec<Token>> {
    let mut scan = Scan::new(text, mode);
    scan.until("\0")?;
    Ok(scan.statement.tokens())
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    mode: Mode,
    statement: Statement,
    /// Inside an executable comment.
    inside: bool,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str, mode: Mode) -> Self {
        Self { text, at: 0, mode, statement: Statement::default(), inside: false }
    }

    fn until(&mut self, delimiter: &str) -> Result<()> {
        while let Some(c) = self.peek() {
            if !self.inside && self.rest().starts_with(delimiter) {
                return Ok(());
            }
            self.step(c)?;
        }
        if self.inside { Err(unterminated("comment", self.text)) } else { Ok(()) }
    }

    fn step(&mut self, c: char) -> Result<()> {
        match c {
            '\'' => self.quoted(c, !self.mode.no_backslash).map(|_| self.push(Token::Text)),
            '"' if !self.mode.ansi_quotes => {
                self.quoted(c, !self.mode.no_backslash).map(|_| self.push(Token::Text))
            }
            '`' | '"' => self.quoted(c, false).map(|name| self.push(Token::Name(name))),
            '#' => self.line(),
            '-' if self.is_dash_comment() => self.line(),
            '/' if self.rest().starts_with("/*") => self.comment(),
            '*' if self.inside && self.rest().starts_with("*/") => {
                (self.inside, self.at) = (false, self.at + 2);
                Ok(())
            }
            c if is_word(c) => self.word(),
            c => {
                self.at += c.len_utf8();
                if !c.is_whitespace() {
                    self.push(Token::Symbol(c));
                }
                Ok(())
            }
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn push(&mut self, token: Token) {
        self.statement.tokens.push((token, self.inside));
    }

    /// `--` begins a comment only before white space, or at the end.
    fn is_dash_comment(&self) -> bool {
        let after = self.rest().strip_prefix("--");
        after.is_some_and(|rest| rest.chars().next().is_none_or(|c| c.is_whitespace() || c.is_control()))
    }

    fn line(&mut self) -> Result<()> {
        self.at = self.rest().find('\n').map_or(self.text.len(), |end| self.at + end + 1);
        Ok(())
    }

    fn comment(&mut self) -> Result<()> {
        let rest = self.rest();
        let opening = EXECUTABLE.into_iter().find(|opening| rest.starts_with(opening));
        if let Some(opening) = opening.filter(|_| !self.inside) {
            let digits = rest[opening.len()..].bytes().take(6).take_while(u8::is_ascii_digit).count();
            self.at += opening.len() + digits;
            (self.inside, self.statement.conditional) = (true, self.statement.conditional + 1);
            return Ok(());
        }
        let end = rest[2..].find("*/").ok_or_else(|| unterminated("comment", rest))?;
        self.at += 2 + end + 2;
        Ok(())
    }

    fn word(&mut self) -> Result<()> {
        let rest = self.rest();
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let word = rest[..end].to_owned();
        self.at += end;
        self.push(Token::Word(word));
        Ok(())
    }

    /// What stands between two quotes; a doubled quote is one, and after a backslash there is no quote.
    fn quoted(&mut self, quote: char, backslash: bool) -> Result<String> {
        let start = self.at;
        let mut content = String::new();
        let mut chars = self.rest().char_indices().skip(1).peekable();
        while let Some((offset, c)) = chars.next() {
            if backslash && c == '\\' {
                chars.next();
            } else if c != quote {
                content.push(c);
            } else if chars.peek().is_some_and(|(_, next)| *next == quote) {
                chars.next();
                content.push(quote);
            } else {
                self.at = start + offset + quote.len_utf8();
                return Ok(content);
            }
        }
        Err(unterminated("quote", &self.text[start..]))
    }
}

/// What begins a comment that is code.
const EXECUTABLE: [&str; 2] = ["/*!", "/*M!"];

fn is_executable(text: &str) -> bool {
    EXECUTABLE.iter().any(|opening| text.starts_with(opening))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

fn unterminated(what: &str, text: &str) -> Error {
    let start: String = text.chars().take(40).collect();
    Error::usage(format!("a {what} is not closed, in the statement at {start:?}"))
}

#[cfg(test)]
#[path = "lexer_tests.rs"]
mod tests;
