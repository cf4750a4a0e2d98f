//! Runs the documentation pages that need no other machine; `stacks/docs.rs` runs the others.

use std::fs;

use crate::common::World;
use crate::common::doc_pages::{Step, fits, line_fits, repository, run_pages, steps};

#[test]
fn every_command_in_the_documentation_works() {
    run_pages(false);
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
