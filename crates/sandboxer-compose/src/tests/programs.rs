//! Whether compose programs take what comes out.

use std::path::Path;
use std::process::{Command, Output};

use sandboxer_testkit::faults::sample_of;

use super::realistic::{EXAMPLES, workspace};
use crate::Limits;

/// Runs a program that knows nothing of this process's environment.
fn run(program: &str, arguments: &[&str], home: &Path) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir(home).env("HOME", home);
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").output().ok()
}

/// Every example, with and without a network, as files that `check` gets the path of.
fn each_example(check: impl Fn(&str, &Path, &crate::Stack)) {
    for example in sample_of(EXAMPLES, 3) {
        for open in [false, true] {
            let mut workspace = workspace(&example);
            workspace.limits = Limits { memory: Some(4 << 30), cpus: Some(4.0), pids: Some(4000) };
            let workspace = if open { workspace.open() } else { workspace };
            let root = workspace.path().to_str().unwrap().to_owned();
            let stack = workspace.placed(&root, &format!("{root}/sealed")).unwrap();
            workspace.write("out/stack.yaml", &stack.yaml);
            check(example.0, &workspace.path().join("out"), &stack);
        }
    }
}

/// Both versions of the program, as far as they are here.
fn each_program(check: impl Fn(&str)) {
    let plugin = sandboxer_testkit::host::compose_plugin().map(|path| path.to_str().unwrap().to_owned());
    for program in [Ok("docker-compose".to_owned()), plugin] {
        match program {
            Ok(program)
                if run(&program, &["version"], Path::new("/")).is_some_and(|o| o.status.success()) =>
            {
                check(&program);
            }
            Ok(program) => sandboxer_testkit::skip(&format!("{program} is not installed")),
            Err(reason) => sandboxer_testkit::skip(&reason),
        }
    }
}

#[test]
fn docker_compose_takes_every_example() {
    each_program(|program| {
        each_example(|name, out, stack| {
            for (file, text) in [("stack.yaml", &stack.yaml), ("unordered.yaml", &stack.unordered)] {
                std::fs::write(out.join(file), text).unwrap();
                let ran = run(program, &["-f", file, "config", "-q"], out).unwrap();
                let said = String::from_utf8_lossy(&ran.stderr).into_owned();
                assert!(ran.status.success(), "{name} by {program}: {said}");
                assert!(!said.contains("variable is not set"), "{name} by {program}: {said}");
            }
        });
    });
}

/// What the program makes of the file is what the file says: nothing is taken for a variable, a flag or a number.
#[test]
fn docker_compose_reads_texts_as_they_are_meant() {
    each_program(|program| {
        each_example(|name, out, stack| {
            let ran = run(program, &["-f", "stack.yaml", "config"], out).unwrap();
            // It writes YAML 1.1, in which this is a text without quotes too.
            let said = String::from_utf8(ran.stdout).unwrap().replace(" 0o17\n", " '0o17'\n");
            let read = crate::yaml::parse(&said, "config").unwrap();
            let ours = crate::yaml::parse(&stack.yaml, "stack").unwrap();
            for (service, keys) in ours["services"].as_object().unwrap() {
                for (variable, value) in keys["environment"].as_object().unwrap() {
                    let theirs = &read["services"][service]["environment"][variable];
                    assert_eq!(theirs, value, "{name} by {program}: {service}.{variable}");
                }
                if keys.get("command").is_some_and(serde_json::Value::is_array) {
                    let theirs = &read["services"][service]["command"];
                    assert_eq!(theirs, &keys["command"], "{name} by {program}: {service}");
                }
            }
        });
    });
}
