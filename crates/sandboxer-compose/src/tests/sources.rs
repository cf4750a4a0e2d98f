//! From several files to one model.

use super::{Workspace, service};

#[test]
fn variables_come_from_the_profile_then_from_the_file_beside_and_from_nowhere_else() {
    let mut workspace =
        service("command: ['$A', '$B', '$HOME', '$$C']\nenvironment:\n  - A\n  - PATH\n  - SET=$A");
    workspace.write("e2e/.env", "A=beside\nB=${A}-b\n");
    workspace.variables = [("A".to_owned(), "given".to_owned())].into();
    let web = &workspace.written()["services"]["web"];
    assert_eq!(web["command"], serde_json::json!(["given", "given-b", "", "$$C"]));
    assert_eq!(web["environment"]["A"], "given");
    assert_eq!(web["environment"]["SET"], "given");
    assert!(web["environment"].get("PATH").is_none());
    let notes = workspace.stack().unwrap().notes.join("\n");
    assert!(notes.contains("nothing is known for HOME"), "{notes}");
    assert!(notes.contains("services.web.environment.PATH: left out"), "{notes}");
}

#[test]
fn what_a_dollar_stands_for_is_settled() {
    let workspace = service("environment:\n  A: a$$b\n  B: $${C}\n  C: '${X:-$$}'");
    let stack = workspace.stack().unwrap();
    assert!(stack.yaml.contains("\"A\": \"a$$b\""), "{}", stack.yaml);
    assert!(stack.yaml.contains("\"B\": \"$${C}\""), "{}", stack.yaml);
    assert!(stack.yaml.contains("\"C\": \"$$\""), "{}", stack.yaml);
}

#[test]
fn environment_files_are_written_out() {
    let workspace = service(
        "env_file: [a.env, {path: gone.env, required: false}, {path: raw.env, format: raw}]\nenvironment: {A: own}",
    );
    workspace.write("e2e/a.env", "A=1\nB=${X:-two}\nC='$lit'\n");
    workspace.write("e2e/raw.env", "D=${X}'\n");
    let web = &workspace.written()["services"]["web"];
    assert!(web.get("env_file").is_none());
    let environment = &web["environment"];
    for (name, value) in [("A", "own"), ("B", "two"), ("C", "$$lit"), ("D", "$${X}'")] {
        assert_eq!(environment[name], value, "{name}");
    }
}

#[test]
fn a_service_extends_others_and_its_paths_begin_at_its_file() {
    let workspace = Workspace::new(
        "services:\n  web:\n    extends: {file: base/base.yml, service: base}\n    environment: [B=own]\n    \
         volumes: ['./conf:/conf:ro']\n    command: [run]\n",
    );
    workspace.write(
        "e2e/base/base.yml",
        "services:\n  base:\n    extends: root\n    env_file: base.env\n    volumes: ['./here:/here:ro', '/anonymous']\n  \
         root:\n    image: alpine\n    command: [sleep, '1']\n    environment: {A: a, B: b}\n    ports: ['80']\n",
    );
    workspace.write("e2e/base/base.env", "E=e\n");
    workspace.write("e2e/base/here/x", "");
    let web = &workspace.written()["services"]["web"];
    assert_eq!(web["image"], "alpine");
    assert_eq!(web["command"], serde_json::json!(["run"]));
    for (name, value) in [("A", "a"), ("B", "own"), ("E", "e")] {
        assert_eq!(web["environment"][name], value, "{name}");
    }
    let sources: Vec<&str> =
        web["volumes"].as_array().unwrap().iter().filter_map(|mount| mount["source"].as_str()).collect();
    assert_eq!(sources, ["/remote/ws/e2e/base/here", "/remote/ws/e2e/conf"]);
    let stack = workspace.stack().unwrap();
    assert_eq!(stack.services[0].ports[0].container, 80);
}

#[test]
fn what_is_included_has_its_own_directory_and_variables() {
    let workspace = Workspace::new(
        "include:\n  - sub/one.yml\n  - path: [sub/two.yml, sub/more.yml]\n    env_file: other.env\n    \
         project_directory: .\nservices: {web: {image: alpine, depends_on: [one, two]}}\n",
    );
    workspace.write("e2e/sub/one.yml", "services: {one: {image: 'a:${T:-none}', volumes: ['./x:/x']}}\n");
    workspace.write("e2e/sub/.env", "T=one\n");
    workspace.write("e2e/sub/x/y", "");
    workspace.write("e2e/sub/two.yml", "services: {two: {image: 'a:$T', volumes: ['./conf:/x:ro']}}\n");
    workspace.write("e2e/sub/more.yml", "services: {two: {tty: true}}\n");
    workspace.write("e2e/other.env", "T=two\n");
    let written = workspace.written();
    let services = &written["services"];
    assert_eq!(services["one"]["image"], "a:one");
    assert_eq!(services["one"]["volumes"][0]["source"], "/remote/ws/e2e/sub/x");
    assert_eq!(services["two"]["image"], "a:two");
    assert_eq!(services["two"]["tty"], true);
    assert_eq!(services["two"]["volumes"][0]["source"], "/remote/ws/e2e/conf");
    let twice = Workspace::new("include: [a.yml]\nservices: {web: {image: alpine}}\n");
    twice.write("e2e/a.yml", "services: {web: {image: other}}\n");
    assert!(twice.refusal().0.contains("there already"), "{:?}", twice.refusal());
}

#[test]
fn an_override_beside_the_file_counts_unless_a_file_is_named() {
    let workspace = service("ports: ['80']");
    workspace.write("e2e/docker-compose.override.yml", "services: {web: {image: other, ports: ['81']}}\n");
    let stack = workspace.stack().unwrap();
    assert_eq!(stack.services[0].image, "other");
    assert_eq!(stack.services[0].ports.iter().map(|port| port.container).collect::<Vec<_>>(), [80, 81]);
    let variables = Default::default();
    let named = crate::Source {
        root: workspace.path(),
        file: Some("./e2e/docker-compose.yml"),
        variables: &variables,
    };
    let model = crate::resolve(&named).unwrap();
    assert_eq!(model.services["web"].keys["image"], "alpine");
    assert_eq!(model.file().to_string(), "e2e/docker-compose.yml");
    for file in ["/etc/passwd", "../x.yml", "", "."] {
        assert!(crate::resolve(&crate::Source { file: Some(file), ..named }).is_err(), "{file}");
    }
}

#[test]
fn services_of_profiles_run_when_asked_for() {
    let text = "services:\n  web: {image: a, depends_on: {debug: {condition: service_started, required: false}}}\n  \
        debug: {image: a, profiles: [debug, other]}\n";
    let mut workspace = Workspace::new(text);
    let stack = workspace.stack().unwrap();
    assert_eq!((stack.services.len(), stack.left_out), (1, vec!["debug".to_owned()]));
    workspace.variables.insert("COMPOSE_PROFILES".to_owned(), "x, debug".to_owned());
    assert_eq!(workspace.stack().unwrap().services.len(), 2);
    let needed = Workspace::new(
        "services:\n  web: {image: a, depends_on: [debug]}\n  debug: {image: a, profiles: [d]}\n",
    );
    assert!(needed.refusal().1.contains("COMPOSE_PROFILES"), "{:?}", needed.refusal());
}

#[test]
fn what_files_come_to_is_bounded() {
    let many: String = (0..70).map(|n| format!("  - f{n}.yml\n")).collect();
    let workspace = Workspace::new(&format!("include:\n{many}services: {{}}\n"));
    for n in 0..70 {
        workspace.write(&format!("e2e/f{n}.yml"), &format!("services: {{s{n}: {{image: a}}}}\n"));
    }
    assert!(workspace.refusal().0.contains("64 files"), "{:?}", workspace.refusal());
    let chain: String = (0..20).map(|n| format!("  s{n}: {{extends: s{}}}\n", n + 1)).collect();
    let workspace = Workspace::new(&format!("services:\n{chain}  s20: {{image: a}}\n"));
    assert!(workspace.refusal().1.contains("16 links"), "{:?}", workspace.refusal());
    let big = format!("services:\n  big: {{image: a, command: '{}'}}\n", "x".repeat(500_000));
    let many: String = (0..190).map(|n| format!("  s{n}: {{extends: big}}\n")).collect();
    assert!(Workspace::new(&(big + &many)).refusal().0.contains("too much"));
    let many: String = (0..300).map(|n| format!("  s{n}: {{image: a}}\n")).collect();
    assert!(Workspace::new(&format!("services:\n{many}")).refusal().0.contains("200 services"));
}
