//! Precedence, and what an untrusted project may say.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::{Durability, Isolation, NetworkAccess};
use jiff::SignedDuration;
use std::time::Duration;

/// A user's file, a project with its file, and a state directory.
struct Place {
    dir: tempfile::TempDir,
    layers: Layers,
    trust: TrustStore,
}

fn place(user: &str, project: &str) -> Place {
    let dir = tempfile::tempdir().unwrap();
    let (user_file, project_file) = (dir.path().join("config.yaml"), dir.path().join("p").join(PROJECT_FILE));
    std::fs::create_dir(dir.path().join("p")).unwrap();
    std::fs::write(&user_file, user).unwrap();
    std::fs::write(&project_file, project).unwrap();
    let layers = Layers { user_file: Some(user_file), project_file: Some(project_file), ..Layers::default() };
    let trust = TrustStore::new(dir.path().join("home"));
    Place { dir, layers, trust }
}

impl Place {
    fn env(mut self, variable: &str, value: &str) -> Self {
        self.layers.env.insert(variable.to_owned(), value.to_owned());
        self
    }

    fn flag(mut self, key: &str, value: &str) -> Self {
        self.layers.overrides.insert(key.to_owned(), value.to_owned());
        self
    }

    fn trusted(self) -> Self {
        self.trust.trust(&self.dir.path().join("p")).unwrap();
        self
    }

    fn load(&self) -> Result<Settings> {
        load(&self.layers, &self.trust)
    }
}

#[test]
fn without_layers_everything_is_default() {
    let settings = load(&Layers::default(), &TrustStore::new("/nonexistent")).unwrap();
    assert_eq!(settings.sandbox_strategy, None);
    assert!(settings.origins.values().all(|origin| origin == "default"));
}

#[test]
fn the_first_layer_with_a_value_decides() {
    let user = "sandbox: {strategy: from_user}\nproject: user\nstate: {lock_wait: 1s}\nactor_type: adm\n";
    let project = "sandbox: {strategy: from_project}\nproject: project\nactor_type: agt\n";
    let place = place(user, project).trusted();
    let place = place.env("SANDBOXER_STRATEGY", "from_env").env("SANDBOXER_PROJECT", "env");
    let settings = place.flag("sandbox.strategy", "from_flag").load().unwrap();
    assert_eq!(settings.sandbox_strategy.as_deref(), Some("from_flag"));
    assert_eq!(settings.project.as_deref(), Some("env"));
    assert_eq!(settings.actor_type.as_deref(), Some("agt"));
    assert_eq!(settings.lock_wait, Duration::from_secs(1));
    assert_eq!(settings.origin("sandbox.strategy"), "flag");
    assert_eq!(settings.origin("project"), "environment SANDBOXER_PROJECT");
    assert!(settings.origin("actor_type").starts_with("project file /"));
    assert!(settings.origin("state.lock_wait").starts_with("user file /"));
    assert_eq!(settings.origin("copy.threads"), "default");
}

#[test]
fn variables_that_are_no_keys_are_passed_over() {
    let settings = place("", "").env("SANDBOXER_HOME", "/x").env("SANDBOXER_STRATEGY", "").load().unwrap();
    assert_eq!(settings.sandbox_strategy, None);
}

#[test]
fn a_wrong_variable_or_flag_is_named() {
    let error = place("", "").env("SANDBOXER_THREADS", "lots").load().unwrap_err();
    assert!(error.to_string().starts_with("SANDBOXER_THREADS: "), "{error}");
    let error = place("", "").flag("copy.thread", "2").load().unwrap_err();
    assert!(matches!(error, Error::Usage { hint: Some(hint), .. } if hint.contains("copy.threads")));
}

#[test]
fn a_wrong_file_is_named_with_its_line() {
    let error = place("project: a\nsandbx:\n  strategy: x\n", "").load().unwrap_err();
    let Error::Config { file, line, hint, .. } = error else { panic!("{error:?}") };
    assert!(file.ends_with("config.yaml"));
    assert_eq!((line, hint.as_deref()), (Some(2), Some("did you mean \"sandbox\"?")));
    let missing = Layers { user_file: Some("/nonexistent/config.yaml".into()), ..Layers::default() };
    assert!(matches!(load(&missing, &TrustStore::new("/nonexistent")), Err(Error::Io { step: "open", .. })));
}

#[test]
fn an_untrusted_project_may_tighten() {
    let user = "sandbox: {default_ttl: 2h}\ncopy: {exclude: [.env]}\n";
    let project = "\
sandbox: {strategy: filesystem_copy, default_ttl: 1h}
copy: {exclude: [target]}
overlay: {durability: strict}
run: {isolation: strict, network: none, hide: [~/theirs], memory: 1G, timeout: 1m}
";
    let user = format!("{user}run: {{network: host, hide: [/mine], memory: 2G, pids: 9}}\n");
    let place = place(&user, project);
    let settings = place.load().unwrap();
    assert_eq!(settings.sandbox_strategy.as_deref(), Some("filesystem_copy"));
    assert_eq!(settings.default_ttl, Some(SignedDuration::from_hours(1)));
    assert_eq!(settings.exclude, [".env", "target"]);
    assert_eq!(settings.durability, Durability::Strict);
    assert_eq!(settings.run.isolation, Isolation::Strict);
    assert_eq!(settings.run.network, NetworkAccess::None);
    assert_eq!(settings.run.hide, ["/mine", "~/theirs"]);
    assert_eq!((settings.run.memory, settings.run.pids), (Some(1 << 30), Some(9)));
    assert_eq!(settings.untrusted_strategy, place.layers.project_file);
    assert!(settings.origin("sandbox.strategy").starts_with("untrusted project file /"));
}

#[test]
fn an_untrusted_project_may_do_nothing_else() {
    let user = "sandbox:\n  default_ttl: 2h\n  custom_strategies:\n    direct: {module: \"builtin:none\"}\n\
                run: {memory: 1G, pids: 100, cpus: 1.5, timeout: 1m}\n";
    let table = [
        ("sandbox: {strategy: none}\n", "sandbox.strategy"),
        ("sandbox: {strategy: direct}\n", "sandbox.strategy"),
        ("sandbox: {default_ttl: 3h}\n", "sandbox.default_ttl"),
        ("sandbox: {custom_strategies: {x: {module: \"builtin:none\"}}}\n", "sandbox.custom_strategies"),
        ("sandbox: {custom_strategies: {x: {module: \"exec:/bin/theirs\"}}}\n", "sandbox.custom_strategies"),
        ("state: {scratch: /tmp/theirs}\n", "state.scratch"),
        ("state: {lock_wait: 9d}\n", "state.lock_wait"),
        ("copy: {include: [\"**\"]}\n", "copy.include"),
        ("copy: {threads: 256}\n", "copy.threads"),
        ("overlay: {durability: volatile}\n", "overlay.durability"),
        ("run: {isolation: files}\n", "run.isolation"),
        ("run: {network: host}\n", "run.network"),
        ("run: {allow_hosts: [evil.example]}\n", "run.allow_hosts"),
        ("run: {show: [~/.ssh]}\n", "run.show"),
        ("run: {env: [AWS_SECRET_ACCESS_KEY]}\n", "run.env"),
        ("run: {memory: 2G}\n", "run.memory"),
        ("run: {pids: 101}\n", "run.pids"),
        ("run: {cpus: 1.6}\n", "run.cpus"),
        ("run: {timeout: 2m}\n", "run.timeout"),
        ("run: {disk_reserve: 0%}\n", "run.disk_reserve"),
        ("actor_type: adm\n", "actor_type"),
        ("project: theirs\n", "project"),
    ];
    for (project, key) in table {
        let place = place(user, project);
        let error = place.load().unwrap_err();
        let Error::Refused { reason, hint: Some(hint) } = &error else { panic!("{project}: {error:?}") };
        assert!(reason.contains(key) && reason.contains("sandboxer.yaml:1"), "{project}: {reason}");
        assert!(hint.contains("sandbox trust"), "{hint}");
        assert!(place.trusted().load().is_ok(), "{project} is fine once trusted");
    }
}

#[test]
fn whether_a_plugin_isolates_is_asked_when_it_is_known() {
    let user = "sandbox: {custom_strategies: {bucket: {module: \"my_pkg:Bucket\"}}}\n";
    let place = place(user, "sandbox: {strategy: bucket}\n");
    let settings = place.load().unwrap();
    assert_eq!(settings.sandbox_strategy.as_deref(), Some("bucket"));
    assert_eq!(settings.untrusted_strategy, place.layers.project_file, "resolution looks at it again");
}

#[test]
fn flags_do_not_excuse_an_untrusted_file() {
    let place = place("", "sandbox: {strategy: none}\n").flag("sandbox.strategy", "copy_on_write");
    assert!(matches!(place.load(), Err(Error::Refused { .. })));
}

#[test]
fn the_callers_own_choice_is_not_the_projects() {
    let project = "sandbox: {strategy: filesystem_copy}\n";
    let by_env = place("", project).env("SANDBOXER_STRATEGY", "none").load().unwrap();
    assert_eq!((by_env.sandbox_strategy.as_deref(), by_env.untrusted_strategy), (Some("none"), None));
    let by_flag = place("", project).flag("sandbox.strategy", "none").load().unwrap();
    assert_eq!((by_flag.sandbox_strategy.as_deref(), by_flag.untrusted_strategy), (Some("none"), None));
}

#[test]
fn any_ttl_is_stricter_than_none() {
    let settings = place("", "sandbox: {default_ttl: 52w}\n").load().unwrap();
    assert_eq!(settings.default_ttl, Some(SignedDuration::from_hours(52 * 7 * 24)));
}

#[test]
fn a_trusted_file_that_changed_is_untrusted() {
    let place = place("", "project: mine\n").trusted();
    assert_eq!(place.load().unwrap().project.as_deref(), Some("mine"));
    std::fs::write(place.layers.project_file.as_ref().unwrap(), "project: theirs\n").unwrap();
    assert!(matches!(place.load(), Err(Error::Refused { .. })));
}

#[test]
fn a_linked_project_file_is_refused() {
    let place = place("", "");
    let file = place.layers.project_file.as_ref().unwrap();
    std::fs::remove_file(file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", file).unwrap();
    assert!(place.load().unwrap_err().to_string().contains("symbolic link"));
}

#[test]
fn the_nearest_project_file_is_found() {
    let place = place("", "");
    let project = place.dir.path().canonicalize().unwrap().join("p");
    let deep = project.join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    assert_eq!(find_project_file(&deep), Some(project.join(PROJECT_FILE)));
    assert_eq!(find_project_file(&deep.join("..")), Some(project.join(PROJECT_FILE)));
    assert_eq!(find_project_file(&deep.join("not-there-yet")), Some(project.join(PROJECT_FILE)));
    std::os::unix::fs::symlink("/nowhere", deep.join(PROJECT_FILE)).unwrap();
    assert_eq!(find_project_file(&deep), Some(deep.join(PROJECT_FILE)));
    assert_eq!(find_project_file(Path::new("/proc/self")), None);
}

#[test]
fn a_hub_is_the_users_alone_to_name() {
    let project = "events:\n  hub: https://elsewhere.example/\n";
    for place in [place("", project), place("", project).trusted()] {
        match place.load().unwrap_err() {
            Error::Config { line, message, hint, .. } => {
                assert_eq!((line, message.as_str()), (Some(2), "events.hub is not for a project to set"));
                assert!(hint.unwrap().contains("the user's configuration file"));
            }
            other => panic!("{other:?}"),
        }
    }
    let user = place("events: {hub: \"https://hub.example/\", token: env:HUB}", "").load().unwrap();
    assert_eq!(user.events.hub.as_deref(), Some("https://hub.example/"));
    let wrong = place("events:\n  token: hunter2\n", "").load().unwrap_err();
    assert!(!format!("{wrong} {wrong:?}").contains("hunter2"), "{wrong:?}");
}

#[test]
fn quotas_are_the_users_alone_to_set() {
    let project = "quotas:\n  \"*\": {sandboxes: 1000}\n";
    for place in [place("", project), place("", project).trusted()] {
        let error = place.load().unwrap_err().to_string();
        assert!(error.contains("quotas is not for a project to set"), "{error}");
    }
    let settings = place(project, "").load().unwrap();
    assert_eq!(settings.quotas.entries.len(), 1);
    assert!(settings.quotas.file.unwrap().ends_with("config.yaml"));
    assert!(place("", "").flag("quotas", "x").load().is_err());
}
