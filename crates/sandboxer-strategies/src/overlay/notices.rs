//! What a sandbox's user has to know about it: one line each, kept beside the workspace.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sandboxer_core::{Error, Result};
use sandboxer_fs::overlay::stack::Places;

/// Files written this long before the last one may not have reached the disk.
const UNCERTAIN: Duration = Duration::from_secs(60);

/// How many files are named.
const NAMED: usize = 10;

/// Where the notices of the workspace at `home` are.
pub fn place(home: &Path) -> PathBuf {
    home.join("notices")
}

/// Adds a line.
pub fn add(home: &Path, text: &str) -> Result<()> {
    let path = place(home);
    let failed = |e| Error::io("write", &path, e);
    let mut file = std::fs::File::options().create(true).append(true).open(&path).map_err(failed)?;
    file.write_all(format!("{}\n", text.replace('\n', " ")).as_bytes()).map_err(failed)
}

/// The machine went down while the overlay was open: names what was written last.
pub fn went_down(home: &Path, places: &Places) -> Result<()> {
    let mut files = Vec::new();
    gather(&places.upper(), &mut files);
    let Some(last) = files.iter().map(|(time, _)| *time).max() else { return Ok(()) };
    files.retain(|(time, _)| last.duration_since(*time).is_ok_and(|age| age <= UNCERTAIN));
    files.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let upper = places.upper();
    let shown = |path: &PathBuf| path.strip_prefix(&upper).unwrap_or(path).display().to_string();
    let names: Vec<String> =
        files.iter().take(NAMED).map(|(_, path)| shown(path).escape_debug().to_string()).collect();
    let more = files.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    add(
        home,
        &format!(
            "the machine went down while this sandbox was open; what was written last may be incomplete: {}{more}",
            names.join(", ")
        ),
    )
}

fn gather(dir: &Path, files: &mut Vec<(SystemTime, PathBuf)>) {
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else if metadata.is_file()
                && let Ok(modified) = metadata.modified()
            {
                files.push((modified, entry.path()));
            }
        }
    }
}
