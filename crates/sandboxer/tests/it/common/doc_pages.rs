//! Runs the commands shown in the documentation and compares their output with the page.
//!
//! The ```` ```console ```` blocks of a page run in order, in one fresh directory with its own state directory:
//! - `$ command` runs in bash; lines that start with `> ` continue it. The next command starts in the directory in
//!   which this one ended, but without its variables;
//! - `# exit N` at the end of a command is the expected exit code; without it the command has to exit with 0;
//! - the lines up to the next command are its expected output, including stderr; without such lines the output is not
//!   compared;
//! - a ```` ```console overlay ```` block is skipped where overlays cannot be mounted;
//! - a ```` ```console host ```` block can reach another machine, `build-1`, by ssh; it is skipped where no such machine
//!   can be started;
//! - a runbook has the repository's `scripts` directory in its working directory;
//! - a block with a language and a file name, such as ```` ```yaml config.yaml ````, is written to that file in the user's
//!   configuration directory;
//! - `[..]` matches any text within a line, a line `...` matches any number of lines.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandboxer_testkit::host::RemoteHost;

use crate::common::{SANDBOX, World};

/// One command of a page.
#[derive(Debug, Default, PartialEq)]
pub struct Step {
    pub line: usize,
    pub command: String,
    pub exit: i32,
    pub output: Vec<String>,
    /// What the block requires: an empty string, `overlay` or `host`.
    pub needs: String,
}

pub fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut inside, mut needs) = (false, "");
    let mut file: Option<Step> = None;
    for (index, line) in page.lines().enumerate() {
        match line.trim_end() {
            "```" if file.is_some() => {
                let step = file.take().unwrap();
                steps.push(Step { command: step.command + "\nEND OF FILE", ..step });
            }
            text if file.is_some() => file.iter_mut().for_each(|step| step.command += &format!("\n{text}")),
            start if is_file(start) => file = Some(file_step(index + 1, start)),
            start @ ("```console" | "```console overlay" | "```console host") => {
                (inside, needs) = (true, start.trim_start_matches("```console").trim_start())
            }
            "```" => inside = false,
            text if !inside => _ = text,
            text => add_line(&mut steps, index + 1, text, needs),
        }
    }
    steps
}

/// Whether a block is a file that the page has the user write.
fn is_file(start: &str) -> bool {
    let languages = ["```python ", "```yaml "];
    languages.iter().any(|language| start.strip_prefix(language).is_some_and(|name| name.contains('.')))
}

fn file_step(line: usize, start: &str) -> Step {
    let name = start.split_once(' ').unwrap().1;
    let command = format!(
        "file=~/.config/sandboxer/{name}; mkdir -p \"${{file%/*}}\"; sed 1d > \"$file\" <<'END OF FILE'\n"
    );
    Step { line, command, ..Step::default() }
}

fn add_line(steps: &mut Vec<Step>, line: usize, text: &str, needs: &str) {
    if let Some(command) = text.strip_prefix("$ ") {
        let (command, exit) = match command.rsplit_once("# exit ") {
            Some((command, code)) => (command.trim_end(), code.trim().parse().unwrap()),
            None => (command, 0),
        };
        steps.push(Step {
            line,
            command: command.to_owned(),
            exit,
            output: Vec::new(),
            needs: needs.to_owned(),
        });
    } else if let (Some(more), Some(step)) =
        (text.strip_prefix("> "), steps.last_mut().filter(|s| s.output.is_empty()))
    {
        step.command = format!("{}\n{more}", step.command);
    } else if let Some(step) = steps.last_mut() {
        step.output.push(text.to_owned());
    }
}

/// Whether the lines fit the expectation with its wildcards.
pub fn fits(expected: &[String], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..]))
        }
        Some((first, rest)) => match lines.split_first() {
            Some((line, others)) => line_fits(first, line) && fits(rest, others),
            None => false,
        },
    }
}

pub fn line_fits(expected: &str, line: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected == line,
        Some((start, rest)) => match line.strip_prefix(start) {
            Some(after) => (0..=after.len())
                .filter(|at| after.is_char_boundary(*at))
                .any(|at| line_fits(rest, &after[at..])),
            None => false,
        },
    }
}

/// Runs a page's commands in order.
fn run_page(page: &Path, overlays: bool) {
    let world = World::new();
    let mut directory = world.path("page");
    fs::create_dir(&directory).unwrap();
    if page.parent().is_some_and(|within| within.ends_with("runbooks")) {
        let scripts = repository().canonicalize().unwrap().join("scripts");
        std::os::unix::fs::symlink(scripts, directory.join("scripts")).unwrap();
    }
    let mut steps = steps(&fs::read_to_string(page).unwrap());
    let host = steps.iter().any(|step| step.needs == "host").then(|| another_machine(&world));
    let host = host.transpose().unwrap_or_else(|reason| {
        sandboxer_testkit::skip(&format!("what {} shows of other machines: {reason}", page.display()));
        None
    });
    steps.retain(|step| match step.needs.as_str() {
        "overlay" => overlays,
        "host" => host.is_some(),
        _ => true,
    });
    for step in &steps {
        directory = run_step(page, &world, &directory, step);
    }
}

/// Starts a machine, and puts an `ssh` into the page's search path that reaches it as `build-1`.
fn another_machine(world: &World) -> Result<RemoteHost, String> {
    let host = RemoteHost::start()?;
    let config = world.path("ssh_config");
    let known = fs::read_to_string(host.ssh_config()).unwrap();
    fs::write(&config, known.replace(&format!("Host {}", host.name()), "Host build-1")).unwrap();
    fs::create_dir(world.path("bin")).unwrap();
    let ssh = world.path("bin/ssh");
    fs::write(&ssh, format!("#!/bin/sh\nexec /usr/bin/ssh -F '{}' \"$@\"\n", config.display())).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    Ok(host)
}

/// Whether overlays can be mounted here, by any way.
fn overlays_work() -> bool {
    let tried = sandboxer_testkit::once_per_run("overlay by any way", || {
        let report = World::new().json(&["doctor"]);
        let healthy = |s: &serde_json::Value| s["strategy"] == "overlay" && s["healthy"] == true;
        let works = report["strategies"].as_array().unwrap().iter().any(healthy);
        if works { Ok(String::new()) } else { Err("none is healthy".to_owned()) }
    });
    tried.is_ok()
}

/// Runs one command and gives the directory it ended in.
fn run_step(page: &Path, world: &World, directory: &Path, step: &Step) -> PathBuf {
    let ended_in = world.path("ended-in");
    let mut bash = Command::new("bash");
    world.furnish(&mut bash);
    let binaries = Path::new(SANDBOX).parent().unwrap();
    let own = world.path("bin");
    let path = format!("{}:{}:{}", own.display(), binaries.display(), std::env::var("PATH").unwrap());
    let script =
        format!("exec 2>&1\n{}\ncode=$?\npwd > '{}'\nexit $code\n", step.command, ended_in.display());
    let output = bash.env("PATH", path).current_dir(directory).args(["-c", &script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let place = format!("{}:{}: {}", page.display(), step.line, step.command);
    assert_eq!(output.status.code(), Some(step.exit), "{place}\n{text}");
    let expected: Vec<String> = step.output.iter().map(|line| line.trim_end().to_owned()).collect();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert!(expected.is_empty() || fits(&expected, &lines), "{place}\nprinted:\n{text}");
    PathBuf::from(fs::read_to_string(&ended_in).unwrap_or(directory.display().to_string()).trim_end())
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page whose commands are run: the README, `docs` and the runbooks.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![repository().join("README.md")];
    for directory in ["docs", "docs/runbooks"] {
        pages.extend(fs::read_dir(repository().join(directory)).unwrap().map(|entry| entry.unwrap().path()));
    }
    pages.retain(|page| page.extension().is_some_and(|e| e == "md") && page.exists());
    pages.sort();
    pages
}

/// Runs the pages that have a `console host` block, or those that have none.
pub fn run_pages(with_host: bool) {
    let overlays = overlays_work();
    if !overlays {
        sandboxer_testkit::skip("no overlay can be mounted, so what the pages show of them is left out");
    }
    let needs_host =
        |page: &PathBuf| steps(&fs::read_to_string(page).unwrap()).iter().any(|step| step.needs == "host");
    let selected: Vec<PathBuf> = pages().into_iter().filter(|page| needs_host(page) == with_host).collect();
    assert!(!selected.is_empty(), "no page {} a host", if with_host { "needs" } else { "works without" });
    selected.iter().for_each(|page| run_page(page, overlays));
}
