//! Compose files that ask for the host, and services that send back what is not to be followed.

use std::os::unix::fs::symlink;
use std::process::Command;

use sandboxer_testkit::faults::sample_of;
use serde_json::json;

use crate::common::World;
use crate::common::stack::{ONE, Yard, create, diff, what_is_there, write_host, write_stack};

/// What a service may not say, the key that is named, and the word by which a host would allow it.
const REFUSED: &[(&str, &str, &str)] = &[
    ("privileged: true", "services.web.privileged", "privileged"),
    ("network_mode: host", "services.web.network_mode", "host-network"),
    ("pid: host", "services.web.pid", "host-pid"),
    ("ipc: host", "services.web.ipc", "host-ipc"),
    ("uts: host", "services.web.uts", "host-uts"),
    ("userns_mode: host", "services.web.userns_mode", "host-userns"),
    ("cgroup: host", "services.web.cgroup", "host-cgroup"),
    ("volumes: ['/:/host']", "services.web.volumes", "engine-socket"),
    ("volumes: ['/srv:/host']", "services.web.volumes", "host-mounts"),
    ("volumes: ['/var/run/docker.sock:/s']", "services.web.volumes", "engine-socket"),
    ("volumes: ['../../../etc:/e']", "services.web.volumes", ""),
    ("volumes: ['../way-out:/e']", "services.web.volumes", ""),
    ("devices: ['/dev/kmsg']", "services.web.devices", "devices"),
    ("cap_add: [SYS_ADMIN]", "services.web.cap_add", "cap-add"),
    ("security_opt: ['seccomp:unconfined']", "services.web.security_opt", "unconfined"),
    ("sysctls: {kernel.shmmax: 1}", "services.web.sysctls", "sysctls"),
    ("runtime: runc", "services.web.runtime", "runtime"),
    ("cgroup_parent: /x", "services.web.cgroup_parent", "cgroup-parent"),
    ("env_file: /etc/passwd", "services.web.env_file", ""),
    ("env_file: ../../../../../../etc/passwd", "services.web.env_file", ""),
    ("env_file: ../way-out/passwd", "services.web.env_file", ""),
    ("env_file: ../passwd", "services.web.env_file", ""),
    ("build: /etc", "services.web.build", ""),
    ("build: ../way-out", "services.web.build", ""),
    ("build: https://example.com/x.git", "services.web.build", ""),
    ("extends: {file: /etc/passwd, service: x}", "services.web.extends", ""),
    ("extends: {file: ../way-out/passwd, service: x}", "services.web.extends", ""),
    ("secrets: [s]", "secrets.s", ""),
    ("external_links: [other]", "services.web.external_links", ""),
    ("volumes_from: ['container:other']", "services.web.volumes_from", ""),
    ("network_mode: 'container:other'", "services.web.network_mode", ""),
    ("privilegd: true", "services.web: the key \"privilegd\"", "privileged"),
];

/// Whole files, and words of what is said.
const WHOLE: &[(&str, &str)] = &[
    ("include: [/etc/passwd]\nservices: {web: {image: 'busybox:test'}}\n", "include"),
    ("include: [../way-out/passwd]\nservices: {web: {image: 'busybox:test'}}\n", "include"),
    (
        "x-a: &a {privileged: true}\nservices: {web: {<<: *a, image: 'busybox:test'}}\n",
        "services.web.privileged",
    ),
    (
        "services: {web: {image: 'busybox:test', volumes: ['v:/v']}}\nvolumes: {v: {driver_opts: {type: none, o: bind, device: /etc}}}\n",
        "volumes.v",
    ),
    (
        "services: {web: {image: 'busybox:test', volumes: ['v:/v']}}\nvolumes: {v: {external: true}}\n",
        "volumes.v",
    ),
    (
        "services: {web: {image: 'busybox:test', networks: [n]}}\nnetworks: {n: {external: true}}\n",
        "networks.n",
    ),
    (
        "services: {web: {image: 'busybox:test', networks: [n]}}\nnetworks: {n: {driver: host}}\n",
        "networks.n",
    ),
    (
        "services: {web: {image: 'busybox:test', configs: [c]}}\nconfigs: {c: {file: /etc/passwd}}\n",
        "configs.c",
    ),
    ("services: [1, 2]\n", "services"),
    ("just text\n", "docker-compose.yml"),
    ("", "docker-compose.yml"),
];

fn hostile_world(yard: &Yard) {
    symlink("/etc", yard.world.path("project/way-out")).unwrap();
    symlink("/etc/passwd", yard.world.path("project/passwd")).unwrap();
}

fn is_refused(yard: &Yard, compose: &str, words: &str) -> String {
    write_stack(&yard.world, compose);
    let ran = yard.world.run(&create("profile.stack", "h1"));
    assert_eq!(ran.code, 5, "{compose}\n{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stderr.contains("e2e/docker-compose.yml") && ran.stderr.contains(words),
        "{compose}\n{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("root:"), "{compose}\n{}", ran.stderr);
    ran.stderr
}

#[test]
fn a_compose_file_that_asks_for_the_host_is_refused_before_anything_is_made() {
    let Some(yard) = Yard::new(ONE) else { return };
    hostile_world(&yard);
    // The compose crate refuses each of them in a test of its own.
    for (line, key, word) in sample_of(REFUSED, 6) {
        let image = if line.starts_with("build") { "" } else { "    image: busybox:test\n" };
        let compose =
            format!("services:\n  web:\n{image}    {line}\nsecrets: {{s: {{file: /etc/passwd}}}}\n");
        let said = is_refused(&yard, &compose, key);
        assert!(said.contains(word), "{line}: {said}");
    }
    for (compose, words) in sample_of(WHOLE, 3) {
        is_refused(&yard, compose, words);
    }
    let bomb: String =
        (1..9).map(|n| format!("x-{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", "))).collect();
    write_stack(
        &yard.world,
        &format!("x-0: &a0 [lol]\n{bomb}services: {{web: {{image: 'busybox:test'}}}}\n"),
    );
    let ran = yard.world.run(&create("profile.stack", "h1"));
    assert!(ran.code == 1 && ran.stderr.contains("too large or too complex"), "{}", ran.stderr);
    // The file itself may be a link that leads out.
    std::fs::remove_file(yard.world.path("project/e2e/docker-compose.yml")).unwrap();
    symlink("/etc/passwd", yard.world.path("project/e2e/docker-compose.yml")).unwrap();
    let ran = yard.world.run(&create("profile.stack", "h1"));
    assert!(ran.code == 5 && !ran.stderr.contains("root:"), "{}", ran.stderr);
    assert_eq!(yard.world.json(&["list"])["sandboxes"], json!([]));
    yard.is_clean();
}

#[test]
fn what_a_host_allows_is_given() {
    let Some(yard) = Yard::new(ONE) else { return };
    let policy = json!({"policy": {"allow": ["cap-add", "host-mounts"]}});
    write_host(&yard.world, "h1", yard.host.name(), yard.host.ssh_config(), &policy);
    write_stack(
        &yard.world,
        "services:\n  web: {image: 'busybox:test', command: sleep 999, init: true, cap_add: [SYS_TIME], volumes: ['/usr/share:/there:ro']}\n",
    );
    yard.create();
    assert_eq!(yard.inside("web", "test -d /there && echo yes"), "yes\n");
    // 25 is CAP_SYS_TIME.
    let capable = yard.inside("web", "echo $(( (0x$(sed -n 's/CapEff:.//p' /proc/1/status) >> 25) & 1 ))");
    assert_eq!(capable, "1\n");
    yard.destroy();
    is_refused(
        &yard,
        "services:\n  web: {image: 'busybox:test', privileged: true}\n",
        "services.web.privileged",
    );
    // A project's own file allows nothing.
    yard.world.file("project/.sandboxer/hosts/h1.yaml", json!({"id": "h1", "address": format!("ssh://{}", yard.host.name()), "extensions": ["ext.compose-ssh"], "policy": {"allow": ["privileged"]}}).to_string());
    is_refused(
        &yard,
        "services:\n  web: {image: 'busybox:test', privileged: true}\n",
        "services.web.privileged",
    );
    yard.is_clean();
}

/// What is not to be touched, beside the project and above it.
fn canaries(world: &World) -> String {
    world.file("outside/secret", "canary\n");
    world.file("outside/dir/file", "canary\n");
    world.path("outside").display().to_string()
}

fn untouched(world: &World) {
    let said = Command::new("find")
        .arg(world.path("outside"))
        .args(["-type", "f", "-printf", "%m %s %P\n"])
        .output()
        .unwrap();
    let mut lines: Vec<String> = String::from_utf8(said.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["644 7 dir/file", "644 7 secret"]);
    assert_eq!(world.text("outside/secret"), "canary\n");
}

#[test]
fn links_devices_and_odd_names_come_back_as_what_they_are_or_not_at_all() {
    let Some(yard) = Yard::new(ONE) else { return };
    let (world, outside) = (&yard.world, canaries(&yard.world));
    yard.create();
    yard.inside("web", &format!(
        "ln -s /etc/passwd shadow; ln -s ../../../../../../etc up; ln -s {outside} out; ln hello.txt hard; \
         cp run.sh suid; chmod 6755 suid; mkfifo pipe; mknod null c 1 3; mknod disk b 8 0; \
         touch -- \"$(printf 'a\\nb')\" \"$(printf 'e\\033[31mred')\" \"$(printf 'x\\377')\" ' ' '-rf' '*'; \
         dd if=/dev/zero of=sparse bs=1 count=1 seek=256M 2>/dev/null"
    ));
    let lines = diff(world);
    let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
    for line in ["A shadow", "A up", "A out", "A hard", "A suid", "A -rf", "A *", "A a\\nb", "A sparse"] {
        assert!(has(line), "{line}: {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains('\x1b')), "{lines:?}");
    for line in ["A pipe", "A null", "A disk"] {
        assert!(!has(line), "{line}: {lines:#?}");
    }
    assert!(!has("A shadow/") && !has("A out/"), "{lines:#?}");
    let place = world.inside("e2e");
    let mode = std::os::unix::fs::PermissionsExt::mode(&place.join("suid").metadata().unwrap().permissions());
    assert_eq!(mode & 0o7000, 0, "{mode:o}");
    let blocks = std::os::unix::fs::MetadataExt::blocks(&place.join("sparse").metadata().unwrap());
    assert!(blocks * 512 < 64 << 20, "a hole takes {blocks} blocks here");
    assert!(world.run(&["read", "e2e", "shadow"]).code != 0);
    assert!(world.run(&["read", "e2e", "out/secret"]).code != 0);
    assert!(world.run_with_input(&["write", "e2e", "out/secret"], b"owned").code != 0);
    untouched(world);
    world.ok(&["rollback", "e2e"]);
    assert_eq!(diff(world), Vec::<String>::new());
    // Pipes and devices were never brought here, and stay where they are.
    assert_eq!(yard.inside("web", "ls | sort | tr '\\n' ' '"), "disk e2e hello.txt null pipe run.sh src ");
    untouched(world);
    yard.destroy();
}

#[test]
fn a_directory_that_becomes_a_link_leads_nobody_out() {
    let Some(yard) = Yard::with_own_host(ONE) else { return };
    let (world, outside) = (&yard.world, canaries(&yard.world));
    yard.create();
    yard.inside("web", "mkdir -p dir/deep; echo 1 > dir/file; echo 2 > dir/deep/secret");
    assert!(diff(world).contains(&"A dir/file".to_owned()));
    // The same names are outside, where the link leads.
    yard.inside("web", &format!("rm -r dir src; ln -s {outside}/dir dir; ln -s {outside} src"));
    assert_eq!(
        diff(world),
        [
            "A dir  (look: link leaves the tree)",
            "T src  directory → symlink  (look: link leaves the tree)",
            "D src/main.rs"
        ],
        "{:?}",
        diff(world)
    );
    untouched(world);
    world.ok(&["rollback", "e2e", "src"]);
    yard.inside("web", "rm dir; mkdir dir; echo 3 > dir/file");
    assert_eq!(diff(world), ["A dir/", "A dir/file"]);
    assert_eq!(yard.inside("web", "cat src/main.rs"), "fn main() {}\n");
    // And the copy on the host: its workspace replaced by a link as a whole is nobody's to follow.
    let at = yard.host.there("sh", &["-c", "ls -d /root/.sandboxer/*/sbx_*/workspaces/repo"]);
    yard.host.there(
        "sh",
        &[
            "-c",
            &format!(
                "mv {at} {at}.away && mkdir /root/bait && echo canary > /root/bait/x && ln -s /root/bait {at}"
            ),
        ],
    );
    let refused = world.run(&["diff", "e2e"]);
    assert!(refused.code != 0 && refused.stderr.contains("symbolic link"), "{}", refused.stderr);
    world.ok(&["destroy", "e2e", "--discard"]);
    assert_eq!(yard.host.there("cat", &["/root/bait/x"]), "canary");
    assert_eq!(what_is_there(world, yard.host), Vec::<String>::new());
    untouched(world);
}

#[test]
fn a_tree_that_is_very_deep_comes_back_and_goes_again() {
    let Some(yard) = Yard::new(ONE) else { return };
    yard.create();
    let depth = if sandboxer_testkit::full() { 5_000 } else { 1_500 };
    yard.inside("web", &format!("i=0; while [ $i -lt {depth} ]; do mkdir d && cd -P d || exit 1; i=$((i+1)); done; echo deep > end"));
    let ran = yard.world.run(&["diff", "e2e"]);
    // All of it, or a sentence.
    match ran.code {
        0 => assert_eq!(ran.stdout.lines().count(), depth + 1),
        _ => assert!(!ran.stderr.contains("panicked") && ran.stderr.contains("error: "), "{}", ran.stderr),
    }
    yard.destroy();
}

#[test]
fn files_that_are_replaced_while_they_are_looked_at_are_old_or_new() {
    let Some(yard) = Yard::new(ONE) else { return };
    let world = &yard.world;
    yard.create();
    let script = "(i=0; while :; do i=$((i+1)); yes $i | head -n 20000 > n; mv n both; cp both other; rm -rf d; mkdir d; echo $i > d/$i; done) >/dev/null 2>&1 &";
    yard.inside("web", script);
    for _ in 0..5 {
        let ran = world.run(&["diff", "e2e", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let place = world.inside("e2e");
        let Ok(text) = std::fs::read_to_string(place.join("both")) else { continue };
        let first = text.lines().next().unwrap_or_default();
        assert!(text.lines().all(|line| line == first), "mixed");
    }
    yard.destroy();
}
