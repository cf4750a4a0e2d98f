//! What an entry may say, and what is told of one that may not.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::yaml;

fn read(entry: &str) -> Result<CustomStrategy> {
    let written: Written = yaml::parse(entry, Path::new("c.yaml"))?.unwrap();
    written.read("mine")
}

fn complaint(entry: &str) -> String {
    match read(entry) {
        Ok(CustomStrategy { invalid: Some(InvalidEntry { message, .. }), .. }) => message,
        Err(Error::Config { message, .. }) => message,
        other => panic!("{entry}: {other:?}"),
    }
}

#[test]
fn a_module_says_what_it_is() {
    let python = Source::Python { module: "a.b_1", class: "Mine" };
    let table = [
        ("{module: \"builtin:filesystem_copy\"}", Source::Builtin("filesystem_copy")),
        ("{module: \"a.b_1:Mine\"}", python),
        ("{module: a.b_1, class: Mine}", python),
        ("{module: \"a:Outer.Inner\"}", Source::Python { module: "a", class: "Outer.Inner" }),
        ("{module: \"a.b_1:Mine\", class: Mine}", python),
        ("{module: \"exec:/opt/p q\"}", Source::Program { path: Path::new("/opt/p q"), class: None }),
        (
            "{module: \"exec:/opt/p\", class: two words}",
            Source::Program { path: Path::new("/opt/p"), class: Some("two words") },
        ),
    ];
    for (entry, source) in table {
        let strategy = read(entry).unwrap();
        assert_eq!(strategy.source(), source, "{entry}");
        let builtin = matches!(source, Source::Builtin(_)).then_some("filesystem_copy");
        assert_eq!(strategy.builtin(), builtin, "{entry}");
    }
}

#[test]
fn everything_that_can_be_said_arrives() {
    let strategy = read(
        "{module: \"a:B\", python: python3.12, env: {TOKEN: \"s=1\", EMPTY: \"\"}, timeout: 1m30s, \
         resource_types: [s3-bucket], options: {bucket: x}}",
    );
    let strategy = strategy.unwrap();
    assert_eq!(strategy.python.as_deref(), Some("python3.12"));
    assert_eq!((strategy.env["TOKEN"].as_str(), strategy.env["EMPTY"].as_str()), ("s=1", ""));
    assert_eq!(strategy.timeout, Some(Duration::from_secs(90)));
    assert_eq!(strategy.resource_types, ["s3-bucket"]);
    assert_eq!(strategy.options["bucket"], "x");
    assert_eq!(read("{module: \"a:B\"}").unwrap().timeout, None);
}

#[test]
fn an_entry_that_cannot_be_used_says_why() {
    let table = [
        ("{module: \"\"}", "\"\" is not a module"),
        ("{module: \"my-pkg.x:C\"}", "\"my-pkg.x:C\" is not a module"),
        ("{module: \"a..b:C\"}", "is not a module"),
        ("{module: \"3a:C\"}", "is not a module"),
        ("{module: \"builtin:\"}", "\"\" is not a name"),
        ("{module: \"exec:bin/p\"}", "\"bin/p\" is not an absolute path"),
        ("{module: \"exec:~/p\"}", "\"~/p\" is not an absolute path"),
        ("{module: \"exec:\"}", "\"\" is not an absolute path"),
        ("{module: \"exec:/bin/\"}", "is not the path of a program"),
        ("{module: \"exec:/a\\nb\"}", "is not the path of a program"),
        ("{module: a.b}", "the Python module a.b needs the class to make"),
        ("{module: \"a.b:\"}", "needs the class"),
        ("{module: \"a:B:C\"}", "\"B:C\" is not the name of a Python class"),
        ("{module: a, class: B..C}", "\"B..C\" is not the name of a Python class"),
        ("{module: \"a:B\", class: C}", "module says class \"B\", class says \"C\""),
        ("{module: \"builtin:x\", class: C}", "class is for plugins; builtin:x is none"),
        ("{module: \"builtin:x\", python: p}", "python is for plugins"),
        ("{module: \"builtin:x\", env: {A: b}}", "env is for plugins"),
        ("{module: \"builtin:x\", timeout: 1s}", "timeout is for plugins"),
        ("{module: \"builtin:x\", resource_types: [a]}", "resource_types is for plugins"),
        ("{module: \"exec:/p\", python: python3}", "python is for Python modules; exec:/p is none"),
        ("{module: \"exec:/p\", class: \" \"}", "\" \" is not a name"),
        ("{module: \"a:B\", python: bin/python}", "\"bin/python\" is not an absolute path"),
        ("{module: \"a:B\", python: \"\"}", "\"\" is not a name"),
        ("{module: \"a:B\", timeout: 0s}", "\"0s\" is no time at all"),
        ("{module: \"a:B\", timeout: soon}", "\"soon\" is not a duration"),
        ("{module: \"a:B\", env: {\"A=B\": c}}", "\"A\" in env is written with `=`: write `A: value`"),
        ("{module: \"a:B\", env: {\"\": c}}", "\"\" in env is not the name of a variable"),
        ("{module: \"a:B\", resource_types: [S3]}", "\"S3\" in resource_types is not the name"),
    ];
    for (entry, message) in table {
        let complaint = complaint(entry);
        assert!(complaint.contains(message), "{entry}: {complaint}");
    }
    assert!(complaint("{module: \"a:B\", clas: C}").contains("unknown key \"clas\""));
}

#[test]
fn a_name_is_one_for_a_file_too() {
    let read = |name: &str| {
        yaml::parse::<Written>("{module: \"a:B\"}", Path::new("c.yaml")).unwrap().unwrap().read(name)
    };
    for name in ["team_bucket", "a-1.2"] {
        assert_eq!(read(name).unwrap().invalid, None);
    }
    for name in ["", "../none", "a b", ".hidden", "a/b", &"x".repeat(101)] {
        let InvalidEntry { message, .. } = read(name).unwrap().invalid.unwrap();
        assert!(message.contains("is no name for a custom strategy"), "{name}: {message}");
    }
}

#[test]
fn values_of_the_environment_are_told_to_nobody() {
    let strategy = read("{module: \"a:B\", env: {TOKEN: hunter2}}").unwrap();
    let shown = format!("{strategy:?}");
    assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
    for value in ["4711", "4711.5", "471100000000000000000000000000", "true", "~", "\"4711\\0\""] {
        let error = complaint(&format!("{{module: \"a:B\", env: {{PIN: {value}}}}}"));
        assert!(error.contains("\"PIN\" in env") && !error.contains("4711"), "{value}: {error}");
    }
    for value in ["[4711]", "{a: 4711}"] {
        let error = complaint(&format!("{{module: \"a:B\", env: {{PIN: {value}}}}}"));
        assert!(!error.contains("4711"), "{value}: {error}");
    }
}
