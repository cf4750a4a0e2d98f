//! The conversation on a real terminal: lines out, lines in, and the person's own editor.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;

use anstyle::Style;
use sandboxer_core::Error;

use super::ask::Console;
use crate::cli::error::{CliError, Kind};
use crate::cli::output::{self, Ui};
use crate::cli::signals::Signals;

/// The terminal that the command was typed on.
pub struct Terminal<'a> {
    ui: &'a mut Ui,
    signals: &'a Signals,
}

impl<'a> Terminal<'a> {
    pub fn new(ui: &'a mut Ui, signals: &'a Signals) -> Self {
        Self { ui, signals }
    }
}

impl Console for Terminal<'_> {
    fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.ui.line(text)
    }

    fn paint(&self, style: Style, text: &str) -> String {
        self.ui.paint(style, text)
    }

    /// At the prompt Ctrl-C ends the program, and nothing has been done; one that came before it is seen here.
    fn ask(&mut self, prompt: &str) -> Result<Option<String>, CliError> {
        if self.signals.cancel_flag().is_cancelled() {
            return Err(Error::Cancelled.into());
        }
        self.ui.bytes(prompt.as_bytes())?;
        self.ui.flush()?;
        let mut line = Vec::new();
        let read = self.signals.interruptible(|| io::stdin().lock().read_until(b'\n', &mut line));
        let read = read.map_err(|error| Error::io("read", "standard input", error))?;
        if read == 0 {
            self.ui.line("")?;
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }

    fn edit(&mut self, text: &[u8]) -> Result<Vec<u8>, CliError> {
        self.ui.flush()?;
        let draft = Draft::new(text)?;
        let editor = editor();
        let status =
            Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(&draft.path).status();
        // A Ctrl-C meanwhile was meant for the editor.
        self.signals.forget();
        let status = status.map_err(|error| Error::io("start an editor through", "sh", error))?;
        if !status.success() {
            let message =
                format!("the editor {} failed ({status}), so nothing was done", output::name(&editor));
            return Err(CliError::new(Kind::Error, message));
        }
        fs::read(&draft.path).map_err(|error| Error::io("read", &draft.path, error).into())
    }
}

/// The person's editor, as git and others find it.
fn editor() -> String {
    let named = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    named.into_iter().find(|value| !value.trim().is_empty()).unwrap_or_else(|| "vi".to_owned())
}

/// A file for the editor, which goes when it is done with.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn new(text: &[u8]) -> Result<Self, CliError> {
        let (path, mut file) = create_private()?;
        let draft = Self { path };
        file.write_all(text).map_err(|error| Error::io("write", &draft.path, error))?;
        Ok(draft)
    }
}

/// A new file that is nobody else's; a name that is taken, by a link perhaps, is passed over.
fn create_private() -> Result<(PathBuf, File), Error> {
    let directory = std::env::temp_dir();
    for attempt in 0..100 {
        let path = directory.join(format!("sandbox-hunk-{}-{attempt}.diff", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(Error::io("create", path, error)),
        }
    }
    Err(Error::io("create a file in", directory, io::ErrorKind::AlreadyExists))
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_draft_is_private_and_goes() {
        let (one, other) = (Draft::new(b"x").unwrap(), Draft::new(b"y").unwrap());
        assert_ne!(one.path, other.path);
        assert_eq!(fs::read(&one.path).unwrap(), b"x");
        assert_eq!(fs::metadata(&one.path).unwrap().permissions().mode() & 0o777, 0o600);
        let path = one.path.clone();
        drop(one);
        assert!(!path.exists());
    }
}
