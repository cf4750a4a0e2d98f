//! Passwords in files that only their owner reads.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sandboxer_core::{Error, Result};

use super::Account;

/// No such file is longer.
const MAX: u64 = 1 << 20;

/// The first line of a file.
pub(super) fn first_line(path: &Path) -> Result<String> {
    let text = read(path)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(Error::usage(format!("{} has no password in its first line", path.display())));
    }
    Ok(line.to_owned())
}

/// The password of the first line that fits. A file that nobody named need not be there.
pub(super) fn pgpass(path: &Path, account: &Account, named: bool) -> Result<Option<String>> {
    if !named && !path.exists() {
        return Ok(None);
    }
    let port = account.port.to_string();
    let wanted = [&account.host, &port, &account.database, &account.user];
    let text = read(path)?;
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(fields);
    let fits = |line: &[String]| {
        line.len() == 5 && line.iter().zip(wanted).all(|(has, wants)| has == "*" || has == wants)
    };
    Ok(lines.into_iter().find(|line| fits(line)).and_then(|line| line.into_iter().nth(4)))
}

/// The fields of a line; a backslash takes what follows it as it is.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            // The password is the rest of the line, colons and all.
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().into_iter().for_each(|field| field.extend(chars.next())),
            c => fields.last_mut().into_iter().for_each(|field| field.push(c)),
        }
    }
    fields
}

/// The password of the group `client`.
pub(super) fn my_cnf(path: &Path, named: bool) -> Result<Option<String>> {
    if !named && !path.exists() {
        return Ok(None);
    }
    let text = read(path)?;
    let mut in_client = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_client = matches!(line, "[client]" | "[client-mariadb]" | "[mysql]" | "[mariadb]");
        } else if let Some((name, value)) = line.split_once('=')
            && in_client
            && name.trim() == "password"
        {
            found = Some(unquoted(value.trim()).to_owned());
        }
    }
    Ok(found)
}

fn unquoted(value: &str) -> &str {
    let within = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

/// What others can read is no secret any more, and somebody should know.
fn read(path: &Path) -> Result<String> {
    let failed = |e| Error::io("read", path, e);
    let mut file = File::open(path).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    if facts.is_file() && facts.mode() & 0o077 != 0 {
        return Err(Error::Refused {
            reason: format!("{} holds a password and can be read by others", path.display()),
            hint: Some(format!("chmod 600 {}", path.display())),
        });
    }
    let mut text = String::new();
    file.by_ref().take(MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
