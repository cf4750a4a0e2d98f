//! What reaches the screen. Data goes to stdout, everything else to stderr; colour is decoration that can be missing.
//!
//! File names come from programs that nobody vouches for: a name may hold a newline that fakes a line of our output, an
//! escape sequence that repaints the terminal, or characters that reverse the reading order. [`name`] makes every such
//! byte visible. JSON does not pass through here: it is exact by construction.

use std::fmt::{Display, Write as _};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use sandboxer_documents::PathText;
use serde::Serialize;

use super::error::CliError;

pub use sandboxer_documents::words::{content, count, name, sentence, shell_word, size};

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorWhen {
    /// On a terminal that wants it; `NO_COLOR` and `TERM=dumb` are heard.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorWhen {
    /// Whether a stream gets colour.
    fn decide(self, stream: &impl anstream::stream::RawStream) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never,
        }
    }
}

/// Styles by meaning, so that a theme would have one place to change.
pub mod style {
    use super::{AnsiColor, Style};

    /// Something that was added or is well.
    pub const GOOD: Style = AnsiColor::Green.on_default();
    /// Something that was removed or is wrong.
    pub const BAD: Style = AnsiColor::Red.on_default();
    /// Something to look at.
    pub const WARN: Style = AnsiColor::Yellow.on_default();
    /// A command to type, or a hunk header.
    pub const HINT: Style = AnsiColor::Cyan.on_default();
    /// A heading.
    pub const HEAD: Style = Style::new().bold();
}

/// A path of a document.
pub fn path(text: &PathText) -> String {
    name(text.bytes())
}

/// The two streams and how to write on them.
pub struct Ui {
    /// One JSON document instead of text.
    pub json: bool,
    quiet: bool,
    /// What has to be typed after `sandbox` for the next command to be sent where this one is.
    aim: Option<String>,
    colour_out: bool,
    colour_err: bool,
    out_is_terminal: bool,
    out: BufWriter<io::Stdout>,
}

/// Standard output for somebody who fills it, and what failed there.
struct Sink<'a> {
    out: &'a mut BufWriter<io::Stdout>,
    failure: Option<io::Error>,
}

impl Sink<'_> {
    fn noting<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| {
            let kind = error.kind();
            self.failure = Some(error);
            kind.into()
        })
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // What is interrupted goes on: that is no failure to tell of.
        let done = self.out.write_all(bytes).map(|()| bytes.len());
        self.noting(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.out.flush();
        self.noting(done)
    }
}

impl Ui {
    /// Streams of this process.
    pub fn new(json: bool, quiet: bool, color: ColorWhen) -> Self {
        let stdout = io::stdout();
        Self {
            json,
            quiet,
            aim: None,
            colour_out: color.decide(&stdout),
            colour_err: color.decide(&io::stderr()),
            out_is_terminal: stdout.is_terminal(),
            out: BufWriter::new(stdout),
        }
    }

    /// Whether stdout gets bytes exactly as they are: nobody looks at it on a screen.
    pub fn is_raw(&self) -> bool {
        !self.out_is_terminal && !self.colour_out
    }

    /// One line of data.
    pub fn line(&mut self, text: impl Display) -> Result<(), CliError> {
        writeln!(self.out, "{text}").map_err(CliError::output)
    }

    /// Data as it is.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.out.write_all(bytes).map_err(CliError::output)
    }

    /// Data as it comes. Where it cannot be written, that is what failed, whatever `fill` makes of it.
    pub fn stream<T>(
        &mut self,
        fill: impl FnOnce(&mut dyn Write) -> sandboxer_core::Result<T>,
    ) -> Result<T, CliError> {
        let mut sink = Sink { out: &mut self.out, failure: None };
        let filled = fill(&mut sink);
        match sink.failure {
            Some(failure) => Err(CliError::output(failure)),
            None => Ok(filled?),
        }
    }

    /// The one JSON document of a command.
    pub fn document(&mut self, document: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(document).map_err(|e| CliError::output(e.into()))?;
        self.line(text)
    }

    /// Writes what is buffered; the last thing a command does.
    pub fn flush(&mut self) -> Result<(), CliError> {
        self.out.flush().map_err(CliError::output)
    }

    /// Something the user should know, on stderr; `-q` silences it, and so does `--json`, where stderr is for the
    /// error document alone. Nobody hears of it if stderr is closed.
    pub fn note(&self, text: impl Display) {
        if !self.quiet && !self.json {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Has what to type next go to a server that was named by a flag.
    pub fn aim_at(&mut self, server: &str, token_file: Option<&Path>) {
        let token = token_file.map(|file| format!("--token-file {} ", shell_word(&file.to_string_lossy())));
        self.aim = Some(format!("sandbox --server {} {}", shell_word(server), token.unwrap_or_default()));
    }

    /// A hint, its commands going to that server.
    pub fn aimed(&self, hint: &str) -> String {
        match &self.aim {
            Some(aim) => {
                let mut parts = hint.split("`sandbox ");
                let first = parts.next().unwrap_or_default().to_owned();
                parts.fold(first, |text, rest| {
                    let command = if is_sent(rest) { aim.as_str() } else { "sandbox " };
                    format!("{text}`{command}{rest}")
                })
            }
            None => hint.to_owned(),
        }
    }

    /// What to type next, on stderr.
    pub fn next(&self, why: &str, command: &str) {
        let aimed =
            self.aim.as_ref().zip(command.strip_prefix("sandbox ")).map(|(aim, rest)| format!("{aim}{rest}"));
        let command = aimed.as_deref().unwrap_or(command);
        self.note(format_args!("{why} {}", self.paint_err(style::HINT, command)));
    }

    /// A warning on stderr, which `-q` does not silence.
    pub fn warn(&self, text: impl Display) {
        if !self.json {
            let _ = writeln!(io::stderr(), "{} {text}", self.paint_err(style::WARN, "warning:"));
        }
    }

    /// The same as [`Self::note`], for whoever cannot hold on to this.
    pub fn teller(&self) -> impl Fn(&str) + use<> {
        let silent = self.quiet || self.json;
        move |text| {
            if !silent {
                let _ = writeln!(io::stderr(), "{text}");
            }
        }
    }

    /// The same as [`Self::warn`], for whoever cannot hold on to this: of what is removed to keep within the budgets, of what is left out.
    pub fn warner(&self) -> Arc<dyn Fn(&str) + Send + Sync> {
        let (json, warning) = (self.json, self.paint_err(style::WARN, "warning:"));
        Arc::new(move |told| {
            if !json {
                let _ = writeln!(io::stderr(), "{warning} {}", sentence(told));
            }
        })
    }

    /// `text` in that style on stdout.
    pub fn paint(&self, style: Style, text: impl Display) -> String {
        painted(self.colour_out, style, text)
    }

    /// `text` in that style on stderr.
    pub fn paint_err(&self, style: Style, text: impl Display) -> String {
        painted(self.colour_err, style, text)
    }
}

fn painted(colour: bool, style: Style, text: impl Display) -> String {
    if colour { format!("{style}{text}{style:#}") } else { text.to_string() }
}

/// How long ago, in one unit: `just now`, `5m`, `3h`, `2d`.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    match now.as_second() - then.as_second() {
        ..=4 => "just now".to_owned(),
        seconds => span(seconds),
    }
}

/// How long, in one unit.
pub fn span(seconds: i64) -> String {
    match seconds {
        ..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m", seconds / 60),
        3600..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// When a sandbox ends, seen from now.
pub fn expiry(expires: Option<Timestamp>, now: Timestamp) -> String {
    match expires {
        None => "never".to_owned(),
        Some(at) if at <= now => "expired".to_owned(),
        Some(at) => format!("in {}", rounded(at.as_second() - now.as_second())),
    }
}

/// A span to the nearest unit: what was made for two hours a moment ago ends in two hours, not in one.
fn rounded(seconds: i64) -> String {
    match seconds {
        ..=59 => span(seconds),
        60..=3569 => span(seconds + 30),
        3570..=171_000 => span(seconds + 1800),
        _ => span(seconds + 43_200),
    }
}

/// A moment as documents have it; the beginning of time where it is none.
pub fn instant(text: &str) -> Timestamp {
    text.parse().unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A moment to the second, UTC.
pub fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Rows under headings, columns padded to the widest cell; the last column is never padded.
pub fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    push_row(&mut text, headings, &widths);
    for row in rows {
        push_row(&mut text, row, &widths);
    }
    text
}

fn push_row(text: &mut String, cells: &[impl AsRef<str>], widths: &[usize]) {
    let mut row = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let padding = width.saturating_sub(cell.as_ref().chars().count()) + 2;
        let _ = write!(row, "{}{:padding$}", cell.as_ref(), "");
    }
    text.push_str(row.trim_end());
    text.push('\n');
}

/// Whether what follows `sandbox` is a command that a server does.
fn is_sent(typed: &str) -> bool {
    const SENT: [&str; 22] = [
        "create",
        "list",
        "get",
        "extend",
        "recreate",
        "destroy",
        "diff",
        "commit",
        "undo",
        "rollback",
        "checkpoint",
        "checkpoints",
        "restore",
        "unpark",
        "read",
        "write",
        "exec",
        "events",
        "usage",
        "profiles",
        "extensions",
        "hosts",
    ];
    let word = typed.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
    SENT.contains(&word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ages_take_one_unit() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let before = |seconds: i64| age(Timestamp::from_second(1_000_000 - seconds).unwrap(), now);
        assert_eq!(before(1), "just now");
        assert_eq!(before(59), "59s");
        assert_eq!(before(3599), "59m");
        assert_eq!(before(7200), "2h");
        assert_eq!(before(172_800), "2d");
        assert_eq!(age(Timestamp::from_second(1_000_100).unwrap(), now), "just now");
    }

    #[test]
    fn expiry_is_told_from_now() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert_eq!(expiry(None, now), "never");
        assert_eq!(expiry(Some(now), now), "expired");
        let ends_in = |seconds: i64| expiry(Some(Timestamp::from_second(1_000_000 + seconds).unwrap()), now);
        assert_eq!([ends_in(59), ends_in(119), ends_in(120)], ["in 59s", "in 2m", "in 2m"]);
        assert_eq!([ends_in(3599), ends_in(7199), ends_in(604_790)], ["in 1h", "in 2h", "in 7d"]);
    }

    #[test]
    fn a_path_is_shown_to_its_last_byte() {
        assert_eq!(path(&PathText::new(b"bad\xff")), "bad\\xff");
    }

    #[test]
    fn tables_pad_all_but_the_last_column() {
        let rows = vec![vec!["a".to_owned(), "long cell".to_owned()], vec!["bbb".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["N", "M"], &rows), "N    M\na    long cell\nbbb  x\n");
    }
}
