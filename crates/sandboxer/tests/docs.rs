//! Every command shown in the documentation is run, and what it prints is compared with what the page shows.
//!
//! A page's ```` ```console ```` blocks run in order, in one fresh directory with a state directory of its own:
//! - `$ command` runs in bash; lines that start with `> ` continue it; `cd` and variables of one line hold for the next
//!   only as far as the directory goes;
//! - `# exit N` at its end is the exit code expected instead of 0;
//! - what follows, up to the next command, is its output, stderr included; none means that it does not matter;
//! - a block that starts with ```` ```console overlay ```` is left out where no overlay can be mounted;
//! - one that starts with ```` ```console host ```` has another machine, `build-1`, that ssh reaches; it is left out where there can be none;
//! - a runbook is read in the repository: `contrib` is there;
//! - a block that starts with a language and the name of a file, such as ```` ```yaml config.yaml ````, is written to that file in the
//!   user's configuration directory;
//! - `[..]` stands for anything within a line, a line `...` for any number of lines.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::World;
use sandboxer_testkit::host::RemoteHost;

/// One command of a page.
#[derive(Debug, Default, PartialEq)]
struct Step {
    line: usize,
    command: String,
    exit: i32,
    output: Vec<String>,
    /// What it shows more than files: nothing, `overlay` or `host`.
    needs: String,
}

fn steps(page: &str) -> Vec<Step> {
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
fn fits(expected: &[String], lines: &[&str]) -> bool {
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

fn line_fits(expected: &str, line: &str) -> bool {
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
        let contrib = repository().canonicalize().unwrap().join("contrib");
        std::os::unix::fs::symlink(contrib, directory.join("contrib")).unwrap();
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

/// A machine that `ssh build-1` reaches, for whoever finds our `ssh` first.
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
    let report = World::new().json(&["doctor"]);
    let healthy = |s: &serde_json::Value| s["strategy"] == "overlay" && s["healthy"] == true;
    report["strategies"].as_array().unwrap().iter().any(healthy)
}

/// Runs one command and gives the directory it ended in.
fn run_step(page: &Path, world: &World, directory: &Path, step: &Step) -> PathBuf {
    let ended_in = world.path("ended-in");
    let mut bash = Command::new("bash");
    world.furnish(&mut bash);
    let binaries = Path::new(common::SANDBOX).parent().unwrap();
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

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_command_in_the_documentation_works() {
    let mut pages = vec![repository().join("README.md")];
    for place in ["docs", "docs/runbooks"] {
        pages.extend(fs::read_dir(repository().join(place)).unwrap().map(|entry| entry.unwrap().path()));
    }
    pages.retain(|page| page.extension().is_some_and(|e| e == "md") && page.exists());
    pages.sort();
    let overlays = overlays_work();
    if !overlays {
        sandboxer_testkit::skip("no overlay can be mounted, so what the pages show of them is left out");
    }
    pages.iter().for_each(|page| run_page(page, overlays));
}

/// What is shown in another kind of block is not run, and need not work.
#[test]
fn runbooks_show_commands_that_are_run() {
    for entry in fs::read_dir(repository().join("docs/runbooks")).unwrap() {
        let page = entry.unwrap().path();
        let text = fs::read_to_string(&page).unwrap();
        assert!(!steps(&text).is_empty(), "{}", page.display());
        let idle = |line: &&str| matches!(line.trim_end(), "```sh" | "```bash" | "```shell");
        assert_eq!(text.lines().find(idle), None, "{}", page.display());
    }
}

#[test]
fn the_page_on_plugins_shows_the_example_as_it_is() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    assert!(read("docs/plugins.md").contains(&read("examples/strategies/minimal/minimal.py")));
    assert!(read("examples/strategies/minimal/minimal.py").lines().count() < 60);
}

#[test]
fn the_command_reference_shows_every_command() {
    let page = fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let world = World::new();
    let help = world.ok(&["-h"]);
    let section =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for command in section.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help") {
        assert!(page.contains(&format!("\n## {command}\n")), "docs/cli.md has no section on {command}");
        let shown = steps(&page).iter().any(|step| step.command.contains(&format!("sandbox {command}")));
        assert!(shown, "docs/cli.md shows no example of {command}");
    }
}

#[test]
fn blocks_are_read_as_documented() {
    let file = steps("```yaml a/config.yaml\nkey: 1\n```\n```yaml\nnot: this\n```\n");
    assert!(file.len() == 1 && file[0].command.contains("sandboxer/a/config.yaml"), "{file:?}");
    assert!(file[0].command.ends_with("\nkey: 1\nEND OF FILE"), "{file:?}");
    let page = "text\n```console\n$ one # exit 3\nout\n```\n```console overlay\n$ two\n> more\n```\n$ not this\n```sh\n$ nor this\n```\n";
    let expected = [
        Step { line: 3, command: "one".into(), exit: 3, output: vec!["out".into()], needs: String::new() },
        Step { line: 7, command: "two\nmore".into(), exit: 0, output: vec![], needs: "overlay".into() },
    ];
    assert_eq!(steps(page), expected);
}

#[test]
fn wildcards_stand_for_what_varies() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(fits(&lines("a\n...\nz"), &["a", "b", "c", "z"]));
    assert!(fits(&lines("id [..] of [..]!"), &["id sbx_1 of x!"]));
    assert!(!fits(&lines("a"), &["a", "b"]));
    assert!(!fits(&lines("a\nb"), &["a"]));
    assert!(!line_fits("x[..]y", "x z"));
}
