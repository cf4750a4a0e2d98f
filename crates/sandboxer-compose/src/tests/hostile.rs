//! What a hostile file asks for, in every spelling that compose programs understand.

use super::{Workspace, indented, service};
use crate::{Allowance, Network};

/// Keys of a service, what the refusal names, and the word that would allow it.
const SERVICES: &[(&str, &str, &str)] = &[
    ("privileged: true", "services.web.privileged", "privileged"),
    ("privileged: 'true'", "services.web.privileged", "privileged"),
    ("privileged: yes", "services.web.privileged", "privileged"),
    ("privileged: 1", "services.web.privileged", "privileged"),
    ("\"privileged\": true", "services.web.privileged", "privileged"),
    ("\"privi\\x6ceged\": true", "services.web.privileged", "privileged"),
    ("? privileged\n: true", "services.web.privileged", "privileged"),
    ("privileged: ${X:-true}", "services.web.privileged", "privileged"),
    ("privileged: ${X:-${Y:-tr}ue}", "services.web.privileged", "privileged"),
    ("<<: {privileged: true}", "services.web.privileged", "privileged"),
    ("<<: [{tty: true}, {<<: {privileged: true}}]", "services.web.privileged", "privileged"),
    ("network_mode: host", "services.web.network_mode", "host-network"),
    ("network_mode: \"ho${X-st}\"", "services.web.network_mode", "host-network"),
    ("network_mode: container:other", "a network of others", ""),
    ("network_mode: ns:/proc/1/ns/net", "a network of others", ""),
    ("network_mode: slirp4netns", "a network of others", ""),
    ("network_mode: service:other", "the service \"other\" is not known", ""),
    ("pid: host", "services.web.pid", "host-pid"),
    ("pid: container:x", "services.web.pid", ""),
    ("pid: ns:/proc/1/ns/pid", "services.web.pid", ""),
    ("ipc: host", "services.web.ipc", "host-ipc"),
    ("ipc: container:x", "services.web.ipc", ""),
    ("uts: host", "services.web.uts", "host-uts"),
    ("userns_mode: host", "services.web.userns_mode", "host-userns"),
    ("userns_mode: keep-id", "services.web.userns_mode", ""),
    ("cgroup: host", "services.web.cgroup", "host-cgroup"),
    ("cgroup_parent: /", "services.web.cgroup_parent", "cgroup-parent"),
    ("devices: [/dev/sda]", "services.web.devices", "devices"),
    ("devices: ['/dev/mem:/dev/mem:rwm']", "services.web.devices", "devices"),
    ("device_cgroup_rules: ['b *:* rwm']", "services.web.device_cgroup_rules", "devices"),
    ("gpus: all", "services.web.gpus", ""),
    ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}", "reservations.devices", ""),
    ("cap_add: [SYS_ADMIN]", "services.web.cap_add", "cap-add"),
    ("cap_add: ALL", "services.web.cap_add", "cap-add"),
    ("security_opt: [seccomp=unconfined]", "services.web.security_opt", "unconfined"),
    ("security_opt: ['seccomp:unconfined']", "services.web.security_opt", "unconfined"),
    ("security_opt: ['apparmor=unconfined']", "services.web.security_opt", "unconfined"),
    ("security_opt: ['label:disable']", "services.web.security_opt", "unconfined"),
    ("security_opt: ['systempaths=unconfined']", "services.web.security_opt", "unconfined"),
    ("security_opt: ['no-new-privileges:false']", "services.web.security_opt", "unconfined"),
    ("security_opt: ['no-new-privileges=false']", "services.web.security_opt", "unconfined"),
    ("security_opt: ['seccomp=./profile.json']", "services.web.security_opt", ""),
    ("security_opt: ['seccomp:/etc/shadow']", "services.web.security_opt", ""),
    ("sysctls: {net.ipv4.ip_forward: 1}", "services.web.sysctls", "sysctls"),
    ("sysctls: [kernel.core_pattern=x]", "services.web.sysctls", "sysctls"),
    ("runtime: runc", "services.web.runtime", "runtime"),
    ("volumes_from: ['container:x']", "services.web.volumes_from", ""),
    ("volumes_from: ['container:x:ro']", "services.web.volumes_from", ""),
    ("volumes_from: [nobody]", "services.web.volumes_from", ""),
    ("volumes: ['/:/host']", "services.web.volumes[0]", "engine-socket"),
    ("volumes: ['//:/host']", "services.web.volumes[0]", "engine-socket"),
    ("volumes: ['/etc:/host']", "outside of the workspace", "host-mounts"),
    ("volumes: ['/etc/../root/.ssh:/host:ro']", "outside of the workspace", "host-mounts"),
    ("volumes: ['~:/host']", "outside of the workspace", "host-mounts"),
    ("volumes: ['~/.ssh:/host:ro']", "outside of the workspace", "host-mounts"),
    ("volumes: ['../..:/host']", "outside of the workspace", "host-mounts"),
    ("volumes: ['./../../x:/host']", "outside of the workspace", "host-mounts"),
    ("volumes: ['${X:-/etc}:/host']", "outside of the workspace", "host-mounts"),
    ("volumes: ['./${X:-../..}/etc:/host']", "outside of the workspace", "host-mounts"),
    ("volumes: ['/var/run/docker.sock:/var/run/docker.sock']", "engine is reached", "engine-socket"),
    ("volumes: ['/run/podman/podman.sock:/x']", "engine is reached", "engine-socket"),
    ("volumes: ['/run/containerd/containerd.sock:/x']", "engine is reached", "engine-socket"),
    ("volumes: ['/x/../var/run/docker.sock:/x']", "engine is reached", "engine-socket"),
    ("volumes: ['/srv/docker.sock:/x']", "engine is reached", "engine-socket"),
    ("volumes: ['/run:/x']", "engine is reached", "engine-socket"),
    ("volumes: ['/var:/x:ro']", "engine is reached", "engine-socket"),
    ("volumes: [{type: bind, source: /etc, target: /x}]", "outside of the workspace", "host-mounts"),
    (
        "volumes: [{\"type\": \"bind\", source: /, target: /x, read_only: true}]",
        "engine is reached",
        "engine-socket",
    ),
    ("volumes: [{type: bind, source: {inside: ../..}, target: /x}]", "text is expected", ""),
    ("volumes: [{type: bind, source: ./conf, target: /x, bind: {propagation: rshared}}]", "propagation", ""),
    ("volumes: ['./conf:/x:rshared']", "propagation", ""),
    ("volumes: ['./conf:/x:rslave,ro']", "propagation", ""),
    ("volumes: [{type: bind, source: ./gone, target: /x, bind: {create_host_path: true}}]", "create it", ""),
    ("volumes: ['./gone:/x']", "not in the workspace", ""),
    ("volumes: ['./link:/x']", "symbolic link", ""),
    ("volumes: ['./link/passwd:/x']", "symbolic link", ""),
    ("volumes: ['./pipe:/x']", "not a file or a directory", ""),
    ("volumes: [{type: npipe, source: x, target: /x}]", "volumes[0].type", ""),
    ("volumes: [{type: image, source: x, target: /x}]", "volumes[0].type", ""),
    ("volumes: [{type: volume, source: /etc, target: /x}]", "there is no volume", ""),
    ("volumes: [{type: volume, source: undeclared, target: /x}]", "there is no volume", ""),
    ("volumes: [{type: volume, target: /x, volume: {subpath: ../..}}]", "subpath", ""),
    ("volumes: [{type: tmpfs, source: /etc, target: /x}]", "a tmpfs has no source", ""),
    ("volumes: [{type: bind, source: './a,b', target: /x}]", "separates mounts", ""),
    ("volumes: [{type: bind, source: ./conf, target: '/x,source=/etc'}]", "separates mounts", ""),
    ("volumes: [{type: bind, source: ./conf, target: '/x:/y'}]", "separates mounts", ""),
    ("volumes: ['./conf:../x']", "not a path inside", ""),
    ("volumes: ['./conf:/x/../../y']", "not a path inside", ""),
    ("volumes: ['a:b:c:d']", "more than two colons", ""),
    ("tmpfs: ['/x:suid']", "tmpfs", ""),
    ("tmpfs: ['/x:size=1g,dev']", "tmpfs", ""),
    ("env_file: /etc/passwd", "services.web.env_file[0]", ""),
    ("env_file: [../../../etc/passwd]", "services.web.env_file[0]", ""),
    ("env_file: [{path: /etc/shadow, required: false}]", "services.web.env_file[0]", ""),
    ("env_file: ./link/passwd", "symbolic link", ""),
    ("env_file: ${X:-/etc/passwd}", "outside of the workspace", ""),
    ("env_file: ./pipe", "not a regular file", ""),
    ("env_file: ~/.aws/credentials", "outside of the workspace", ""),
    ("label_file: /etc/passwd", "services.web.label_file", ""),
    ("build: https://github.com/a/b.git", "not a directory of the workspace", ""),
    ("build: {context: 'git@github.com:a/b.git'}", "not a directory of the workspace", ""),
    ("build: {context: 'ssh://x/y'}", "not a directory of the workspace", ""),
    ("build: /etc", "not a directory of the workspace", ""),
    ("build: ../..", "not a directory of the workspace", ""),
    ("build: ./link", "symbolic link", ""),
    ("build: ./gone", "not in the workspace", ""),
    ("build: {context: ., dockerfile: /etc/passwd}", "outside of the workspace", ""),
    ("build: {context: ., dockerfile: ../../x}", "outside of the workspace", ""),
    ("build: {context: ., dockerfile: link/passwd}", "symbolic link", ""),
    ("build: {context: ., network: host}", "build.network", "host-network"),
    ("build: {context: ., network: 'container:x'}", "build.network", ""),
    ("build: {context: ., privileged: true}", "build.privileged", ""),
    ("build: {context: ., ssh: [default]}", "build.ssh", ""),
    ("build: {context: ., secrets: [x]}", "build.secrets", ""),
    ("build: {context: ., additional_contexts: {x: /etc}}", "build.additional_contexts", ""),
    ("build: {context: ., cache_from: [x]}", "build.cache_from", ""),
    ("build: {context: ., cache_to: ['type=local,dest=/etc']}", "build.cache_to", ""),
    ("build: {context: ., entitlements: [security.insecure]}", "build.entitlements", ""),
    ("build: {context: ., extra_hosts: ['a:1.1.1.1']}", "build.extra_hosts", ""),
    ("build: {context: ., isolation: x}", "build.isolation", ""),
    ("build: {context: ., dockerfile_inline: 'FROM x'}", "build.dockerfile_inline", ""),
    ("build: {context: ., args: {BUILDKIT_SYNTAX: evil/frontend}}", "BUILDKIT_SYNTAX", "build-fetch"),
    ("build: {context: ., dockerfile: Fetching}", "line 2", "build-fetch"),
    ("build: {context: ., dockerfile: Unknown}", "line 1 of \"e2e/Unknown\"", "build-fetch"),
    ("build: {context: ., dockerfile: Unknown, args: {X: 'oci:x'}}", "line 1", "build-fetch"),
    ("image: --privileged", "not the name of an image", ""),
    ("image: dir:/etc", "not the name of an image", ""),
    ("extra_hosts: ['host.docker.internal:host-gateway']", "no network", ""),
    ("extra_hosts: {h: host-gateway}", "no network", ""),
    ("extra_hosts: ['h=host-gateway']", "no network", ""),
    ("external_links: [other]", "services.web.external_links", ""),
    ("links: ['other:db']", "services.web.links", ""),
    ("use_api_socket: true", "services.web.use_api_socket", ""),
    ("provider: {type: x}", "services.web.provider", ""),
    ("post_start: [{command: x, privileged: true}]", "services.web.post_start", ""),
    ("credential_spec: {file: /etc/passwd}", "services.web.credential_spec", ""),
    ("privilegd: true", "did you mean \"privileged\"?", ""),
    ("deploy: {replicas: 1000}", "1000 containers", ""),
    ("scale: 21", "21 containers", ""),
    ("ulimits: {rtprio: 99}", "services.web.ulimits.rtprio", ""),
    ("ulimits: {nofile: 1, rtprio: {soft: 99, hard: 99}}", "services.web.ulimits.rtprio", ""),
    ("ulimits: {rttime: -1}", "services.web.ulimits.rttime", ""),
    ("ulimits: {nice: 40}", "take the processors", ""),
    ("ulimits: {NICE: 40}", "the limit \"NICE\" is not known", ""),
    ("ulimits: {nofiles: 40}", "did you mean \"nofile\"?", ""),
    ("hostname: '-x --privileged'", "services.web.hostname", ""),
    ("user: --privileged", "services.web.user", ""),
    ("container_name: 'a b'", "services.web.container_name", ""),
    ("environment: {'A=B': x}", "not a variable's name", ""),
    ("environment: {'$A': x}", "not a variable's name", ""),
    ("labels: {'a$b': x}", "not the name of a label", ""),
    ("networks: {default: {driver_opts: {x: y}}}", "driver_opts", ""),
    ("privileged: !!python/object:os.system x", "tag", ""),
    ("cap_drop: !reset null", "tag", ""),
    ("cap_drop: !override [x]", "tag", ""),
    ("image: alpine", "appears twice", ""),
    ("command: \"a\\0b\"", "NUL", ""),
    ("command: $(id)", "is not a variable", ""),
    ("extends: {file: /etc/passwd, service: x}", "outside of the workspace", ""),
    ("extends: {file: link/passwd, service: x}", "symbolic link", ""),
    ("extends: web", "extends itself", ""),
];

fn workspace_with(compose: &str) -> Workspace {
    let workspace = Workspace::new(compose);
    std::os::unix::fs::symlink("/etc", workspace.path().join("e2e/link")).unwrap();
    let pipe = workspace.path().join("e2e/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    workspace.write("e2e/a,b/x", "x");
    workspace.write("e2e/Unknown", "FROM $X\n");
    workspace.write("e2e/Fetching", "FROM x\nADD https://example.org/x /\n");
    workspace
}

fn hostile(keys: &str) -> Workspace {
    let image =
        if keys.starts_with("image: -") || keys.starts_with("image: d") { "" } else { "    image: alpine\n" };
    workspace_with(&format!("services:\n  web:\n{image}{}", indented(keys, 4)))
}

fn expect(workspace: &Workspace, shown: &str, says: &str, word: &str) {
    let (reason, hint) = workspace.refusal();
    assert!(reason.contains(says) || hint.contains(says), "{shown}\n{reason}\n{hint}");
    assert!(!hint.is_empty(), "{shown}: {reason}");
    let named = hint.contains("policy.allow");
    assert_eq!(named, !word.is_empty(), "{shown}\n{reason}\n{hint}");
    assert!(!named || hint.contains(&format!("[{word}]")), "{shown}\n{reason}\n{hint}");
}

#[test]
fn nothing_of_the_host_is_handed_out() {
    for (keys, says, word) in SERVICES {
        let workspace = hostile(keys);
        expect(&workspace, keys, says, word);
        let (reason, _) = workspace.refusal();
        assert!(reason.starts_with("e2e/docker-compose.yml"), "{keys}: {reason}");
    }
}

#[test]
fn nothing_is_handed_out_by_way_of_other_files() {
    for (keys, says, word) in SERVICES.iter().filter(|(keys, ..)| {
        let own = ["image", "extends", "env_file", "build", "\"", "? ", "<<"];
        !own.iter().any(|own| keys.starts_with(own)) && !keys.contains("!")
    }) {
        let base = format!("services:\n  base:\n    image: alpine\n{}", indented(keys, 4));
        let extending = workspace_with("services:\n  web:\n    extends: {file: base.yml, service: base}\n");
        extending.write("e2e/base.yml", &base);
        let (reason, _) = extending.refusal();
        assert!(reason.starts_with("e2e/base.yml") || reason.contains("containers"), "{keys}: {reason}");
        let included = workspace_with("include: [base.yml]\nservices: {db: {image: alpine}}\n");
        included.write("e2e/base.yml", &base);
        expect(&included, keys, &says.replace("web", "base"), word);
        assert!(included.refusal().0.starts_with("e2e/base.yml"), "{}", included.refusal().0);
        let overridden = workspace_with("services: {base: {image: alpine}}\n");
        overridden.write("e2e/docker-compose.override.yml", &base);
        expect(&overridden, keys, &says.replace("web", "base"), word);
    }
}

#[test]
fn anchors_hide_nothing() {
    for text in [
        "x-evil: &evil {privileged: true}\nservices:\n  web:\n    <<: *evil\n    image: alpine\n",
        "x-evil: &evil\n  image: alpine\n  privileged: true\nservices:\n  web: *evil\n",
        "x-a: &a {privileged: true}\nx-b: &b {<<: *a}\nservices: {web: {image: alpine, <<: *b}}\n",
        "services: &s\n  web: {image: alpine, privileged: &p true}\n",
        "{\"services\":{\"web\":{\"image\":\"alpine\",\"privileged\":true}}}",
    ] {
        expect(&Workspace::new(text), text, "services.web.privileged", "privileged");
    }
}

#[test]
fn what_others_own_stays_theirs() {
    let table = [
        ("volumes: {v: {external: true}}", "external"),
        ("volumes: {v: {external: {name: other}}}", "external"),
        ("volumes: {v: {external: 'true', name: other}}", "external"),
        ("volumes: {v: {driver: nfs}}", "volume-drivers"),
        ("volumes: {v: {driver: local, driver_opts: {type: none, o: bind, device: /etc}}}", "volume-drivers"),
        ("volumes: {v: {driver_opts: {type: tmpfs, device: /etc}}}", "volume-drivers"),
        ("volumes: {v: {driver_opts: {type: tmpfs, o: 'size=1m,bind'}}}", "volume-drivers"),
        ("volumes: {v: {driver_opts: {type: nfs, o: 'addr=1.1.1.1', device: ':/'}}}", "volume-drivers"),
        ("volumes: {v: {driver_opts: {type: overlay, o: 'lowerdir=/', device: overlay}}}", "volume-drivers"),
        ("volumes: {v: {drivr: x}}", ""),
        ("networks: {n: {external: true}}", "external"),
        ("networks: {n: {external: {name: bridge}}}", "external"),
        ("networks: {n: {driver: host}}", "network-drivers"),
        ("networks: {n: {driver: macvlan, driver_opts: {parent: eth0}}}", "network-drivers"),
        (
            "networks: {n: {driver_opts: {com.docker.network.bridge.gateway_mode_ipv4: routed}}}",
            "network-drivers",
        ),
        ("networks: {n: {scope: host}}", ""),
        ("secrets: {s: {external: true}}", ""),
        ("secrets: {s: {file: /etc/shadow}}", ""),
        ("secrets: {s: {file: ./link/shadow}}", ""),
        ("secrets: {s: {file: ../../../etc/shadow}}", ""),
        ("secrets: {s: {environment: HOME}}", ""),
        ("secrets: {s: {file: ./conf}}", ""),
        ("configs: {s: {file: /etc/shadow}}", ""),
        ("configs: {s: {content: x}}", ""),
        ("configs: {s: {external: true}}", ""),
        ("models: {x: {model: y}}", ""),
    ];
    for (section, word) in table {
        let uses = match section.split(':').next().unwrap() {
            "volumes" => "volumes: ['v:/v']",
            "networks" => "networks: [n]",
            "secrets" => "secrets: [s]",
            "configs" => "configs: [s]",
            _ => "tty: true",
        };
        let workspace = workspace_with(&format!("services: {{web: {{image: alpine, {uses}}}}}\n{section}\n"));
        expect(&workspace, section, "", word);
    }
}

#[test]
fn files_that_lead_out_are_not_read() {
    for (text, says) in [
        ("include: [/etc/passwd]\nservices: {}\n", "include[0]"),
        ("include: ['../../x.yml']\nservices: {}\n", "outside of the workspace"),
        ("include: ['link/passwd']\nservices: {}\n", "symbolic link"),
        ("include: [{path: a.yml, env_file: /etc/passwd}]\nservices: {}\n", "outside of the workspace"),
        ("include: [{path: a.yml, project_directory: /}]\nservices: {}\n", "outside of the workspace"),
        ("include: ['oci://x/y']\nservices: {}\n", "is not there"),
        ("include: ['https://github.com/a/b.git']\nservices: {}\n", "is not there"),
        ("include: [docker-compose.yml]\nservices: {}\n", "includes itself"),
        ("include: [b.yml]\nservices: {}\n", "includes itself"),
        ("services: {a: {extends: b}, b: {extends: a}}\n", "extends itself"),
        ("services: {a: {extends: {file: c.yml, service: c}}}\n", "extends itself"),
        ("services: {a: {image: x, extends: {service: c, profile: x}}}\n", "profile"),
        ("[1, 2]\n", "mapping"),
        ("services: {}\n", "no services"),
        ("", ""),
        ("servces: {a: {image: x}}\n", "did you mean \"services\"?"),
        ("services: {'a b': {image: x}}\n", "not a name"),
        ("services: {'../a': {image: x}}\n", "not a name"),
    ] {
        let workspace = workspace_with(text);
        workspace.write("e2e/a.yml", "services: {x: {image: alpine}}\n");
        workspace.write("e2e/b.yml", "include: [docker-compose.yml]\n");
        workspace.write("e2e/c.yml", "services: {c: {extends: {file: docker-compose.yml, service: a}}}\n");
        let (reason, hint) = workspace.refusal();
        assert!(reason.contains(says) || hint.contains(says), "{text}\n{reason}\n{hint}");
    }
}

#[test]
fn a_file_that_is_a_link_is_not_read() {
    let workspace = Workspace::new("");
    let file = workspace.path().join("e2e/docker-compose.yml");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    assert!(workspace.refusal().0.contains("symbolic link"));
    let workspace = service("tty: true");
    std::os::unix::fs::symlink("/etc/passwd", workspace.path().join("e2e/.env")).unwrap();
    assert!(workspace.refusal().0.contains("symbolic link"));
}

#[test]
fn a_word_allows_its_own_thing_only() {
    for (keys, _, word) in SERVICES.iter().filter(|(_, _, word)| !word.is_empty()) {
        let allowed: Allowance = word.parse().unwrap();
        let others: Vec<Allowance> = Allowance::ALL.into_iter().filter(|other| *other != allowed).collect();
        let mut workspace = hostile(keys).allowing(&others);
        workspace.network = Network::Open;
        if *word == "build-fetch" {
            workspace.network = Network::Deny;
        }
        assert!(workspace.stack().is_err(), "{keys}");
    }
}

#[test]
fn messages_carry_no_control_characters() {
    for text in [
        "services:\n  \"a\\e[31m\": {image: x}\n",
        "services: {a: {image: \"x\\e[31m\"}}\n",
        "\"\\e]0;x\": 1\n",
    ] {
        let (reason, hint) = Workspace::new(text).refusal();
        assert!(!format!("{reason}{hint}").contains('\u{1b}'), "{reason:?}");
    }
}
