//! Hosts that are down, changed, closed or bare: what is said of them, and where stacks go instead.

use std::time::{Duration, Instant};

use sandboxer_testkit::host::{Engine, RemoteHost, Setup};
use serde_json::{Value, json};

use crate::common::World;
use crate::common::stack::{
    ONE, create, nothing_there, own, what_is_there, write_host, write_profile, write_stack,
};

/// A world where stacks go to `h1`, else to `h2`.
fn world(first: &RemoteHost, second: &RemoteHost) -> World {
    let world = World::new();
    write_host(&world, "h1", first.name(), first.ssh_config(), &json!({}));
    write_host(&world, "h2", second.name(), second.ssh_config(), &json!({}));
    write_profile(&world, "stack", &json!({"placement": {"prefer": ["h1"], "fallback": ["h2"]}}));
    write_stack(&world, ONE);
    world
}

const ROUTE: [&str; 3] = ["route", "--profile", "profile.stack"];

fn reason_of(routed: &Value, host: &str) -> String {
    let candidates = routed["considered"].as_array().unwrap();
    let of = |it: &&Value| it["host"] == host && it["extension_id"] == "ext.compose-ssh";
    candidates.iter().find(of).unwrap_or_else(|| panic!("{routed:#}"))["reason"].as_str().unwrap().to_owned()
}

/// What is wrong with `h1` is said, stacks go to `h2`, and who insists is told.
fn goes_elsewhere(world: &World, words: &str, advice: &str) {
    let routed = world.json(&ROUTE);
    assert_eq!(routed["host"], "h2", "{routed:#}");
    let reason = reason_of(&routed, "h1");
    assert!(reason.contains(words), "{reason}");
    let insisted = world.run(&create("profile.stack", "h1"));
    assert_eq!(insisted.code, 6, "{}", insisted.stderr);
    assert!(insisted.stderr.contains(words) && insisted.stderr.contains(advice), "{}", insisted.stderr);
    let checked = world.run(&["hosts", "check", "h1"]);
    assert!(checked.code == 1 && checked.stdout.contains(words), "{}", checked.stdout);
    assert_eq!(world.json(&["list"])["sandboxes"], json!([]));
}

#[test]
fn a_host_that_cannot_be_used_is_passed_over_with_the_reason() {
    let Some(second) = own(RemoteHost::start()) else { return };
    // Without a daemon: whatever else is wrong with it is told first.
    let Some(first) = own(RemoteHost::plain()) else { return };
    let world = world(&first, &second);
    let ssh = json!({"ssh": {"config": first.ssh_config(), "compose": "docker-compose"}});
    write_host(&world, "h1", first.name(), first.ssh_config(), &ssh);
    goes_elsewhere(&world, "Cannot connect to the Docker daemon", "sandbox hosts");
    first.forget_host_key();
    first.cut_connections();
    forget_connections(&world);
    goes_elsewhere(&world, "the key of the host is not known", &format!("ssh {}", first.name()));
    first.trust_host_key();
    first.new_host_key();
    goes_elsewhere(&world, "the key of the host is not the one that is known", "ssh-keygen -R");
    first.trust_host_key();
    first.refuse_logins();
    goes_elsewhere(&world, "it does not let us in", "ssh -v");
    first.stop_sshd();
    goes_elsewhere(&world, "it does not answer", "is it on?");
    write_host(&world, "h1", "no-such-host.invalid", first.ssh_config(), &json!({}));
    goes_elsewhere(&world, "there is no host of that name", "ssh -G");
    // And the other one is really used.
    let words = create("profile.stack", "h2");
    let made = world.json(&[&words[..5], &["--name", "e2e"]].concat());
    assert_eq!(made["host"], "h2");
    world.ok(&["destroy", "e2e", "--discard"]);
    nothing_there(&world, &second);
}

/// A connection that is kept outlives what happens to keys.
fn forget_connections(world: &World) {
    let _ = std::fs::remove_dir_all(world.path("home/ssh"));
}

fn finding(checked: &Value, what: &str) -> Value {
    let findings = checked["hosts"][0]["findings"].as_array().unwrap();
    findings.iter().find(|it| it["what"] == what).unwrap_or_else(|| panic!("{what}: {checked:#}")).clone()
}

fn check(world: &World, code: i32) -> Value {
    let ran = world.run(&["hosts", "check", "h1", "--json"]);
    assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn a_host_that_lacks_something_is_told_what() {
    let setup = Setup { engine: Engine::None, ..Setup::default() };
    let Some(host) = own(RemoteHost::with(&setup)) else { return };
    let world = World::new();
    // Whatever engine this machine has needs no daemon, or is not asked.
    let daemonless = json!({"ssh": {"config": host.ssh_config(), "compose": "docker-compose"}});
    write_host(&world, "h1", host.name(), host.ssh_config(), &daemonless);
    let checked = check(&world, 1);
    assert_eq!(checked["hosts"][0]["fine"], false);
    assert_eq!(finding(&checked, "connection")["fine"], true);
    let engine = finding(&checked, "engine");
    assert!(
        engine["fine"] == false && engine["hint"].as_str().unwrap().contains("install docker"),
        "{engine}"
    );
    for (policy, words) in [(json!(["cap-ad"]), "cannot allow"), (json!([""]), "cannot allow")] {
        write_host(&world, "h1", host.name(), host.ssh_config(), &json!({"policy": {"allow": policy}}));
        let policy = finding(&check(&world, 1), "policy");
        assert!(policy["fine"] == false && policy["told"].as_str().unwrap().contains(words), "{policy}");
    }
    for directory in ["not/absolute", "/proc/nowhere", "/etc/passwd", "/tmp/../../etc"] {
        let ssh = json!({"ssh": {"config": host.ssh_config(), "directory": directory}});
        write_host(&world, "h1", host.name(), host.ssh_config(), &ssh);
        let found = finding(&check(&world, 1), "directory");
        assert_eq!(found["fine"], false, "{directory}: {found}");
    }
    // Somebody else's directory is not taken for ours.
    host.there("sh", &["-c", "mkdir -p /root/d; ln -s /etc /root/l; chown 64321 /root/d"]);
    for directory in ["/root/d", "/root/l"] {
        let ssh = json!({"ssh": {"config": host.ssh_config(), "directory": directory}});
        write_host(&world, "h1", host.name(), host.ssh_config(), &ssh);
        let found = finding(&check(&world, 1), "directory");
        assert!(found["told"].as_str().unwrap().contains("not a directory of ours"), "{found}");
    }
}

#[test]
fn a_host_that_has_everything_says_so_and_is_left_as_it_was() {
    let Some(host) = own(RemoteHost::start()) else { return };
    let world = World::new();
    write_host(&world, "h1", host.name(), host.ssh_config(), &json!({"policy": {"allow": ["cap-add"]}}));
    let checked = check(&world, 0);
    for what in ["policy", "connection", "programs", "directory", "engine", "firewall", "network"] {
        assert_eq!(finding(&checked, what)["fine"], true, "{checked:#}");
    }
    assert_eq!(host.inventory(""), Vec::<String>::new());
    assert!(host.run(&["images", "--quiet"]).lines().count() == 1);
    let rules = || host.there("iptables", &["--wait", "-S", "INPUT"]);
    assert!(!rules().contains("sbx"), "{}", rules());
    // A rule that lets everything through before ours does not stay before it.
    write_profile(&world, "stack", &json!({}));
    write_stack(&world, ONE);
    world.ok(&create("profile.stack", "h1"));
    host.there("iptables", &["--wait", "-I", "INPUT", "-j", "ACCEPT"]);
    world.ok(&["recreate", "e2e"]);
    assert!(rules().lines().nth(1).unwrap().contains("sbx+"), "{}", rules());
    world.ok(&["destroy", "e2e", "--discard"]);
    assert_eq!(host.inventory(""), Vec::<String>::new());
}

#[test]
fn a_check_that_is_cut_leaves_nothing() {
    let Some(host) = own(RemoteHost::start()) else { return };
    let world = World::new();
    write_host(&world, "h1", host.name(), host.ssh_config(), &json!({}));
    let mut check = world.command(&["hosts", "check", "h1"]).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let wait_for = |what: &dyn Fn(&[String]) -> bool| {
        loop {
            let there = host.inventory("");
            if what(&there) {
                return there;
            }
            assert!(Instant::now() < until, "{there:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let there = wait_for(&|there| there.iter().any(|line| line.starts_with("network sandboxer-probe")));
    check.kill().unwrap();
    check.wait().unwrap();
    host.cut_connections();
    // Whatever does not clean up after itself is found by these.
    let word = world.text("home/controller").split(' ').next().unwrap().to_owned();
    let ours = |line: &String| line.contains("sbx_probe_") && line.contains(&word);
    assert!(there.iter().all(ours), "{there:#?}");
    wait_for(&|there| there.is_empty());
    let rules = host.there("iptables", &["--wait", "-S", "INPUT"]);
    assert!(!rules.contains("sbx"), "{rules}");
}

#[test]
fn somebody_who_is_not_root_needs_a_firewall_by_others() {
    let Some(host) = own(RemoteHost::start()) else { return };
    let world = World::new();
    let guest = host.guest_name();
    write_host(&world, "h1", &guest, host.ssh_config(), &json!({}));
    write_profile(&world, "stack", &json!({}));
    write_stack(&world, ONE);
    let firewall = finding(&check(&world, 1), "firewall");
    assert!(firewall["hint"].as_str().unwrap().contains("iptables -I INPUT -i sbx+"), "{firewall}");
    let refused = world.run(&create("profile.stack", "h1"));
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("would reach host h1 itself"), "{}", refused.stderr);
    assert!(refused.stderr.contains("firewall-by-others"), "{}", refused.stderr);
    world.run(&["destroy", "e2e", "--discard"]);
    nothing_there(&world, &host);
    host.there(
        "iptables",
        &["--wait", "-I", "INPUT", "-i", "sbx+", "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"],
    );
    write_host(
        &world,
        "h1",
        &guest,
        host.ssh_config(),
        &json!({"policy": {"allow": ["firewall-by-others"]}}),
    );
    assert_eq!(finding(&check(&world, 0), "firewall")["fine"], Value::Null);
    world.ok(&create("profile.stack", "h1"));
    assert!(what_is_there(&world, &host).iter().any(|line| line.contains("home/guest")));
    world.ok(&[
        "exec",
        "e2e",
        "--",
        "sh",
        "-c",
        "echo more >> hello.txt; echo new > new; mkdir d; echo x > d/x",
    ]);
    assert_eq!(world.ok(&["diff", "e2e"]), "A d/\nA d/x\nM hello.txt\nA new\n");
    // What a container has made as root is root's there: what cannot be taken back is said.
    let back = world.run(&["rollback", "e2e"]);
    assert!(back.code == 0 || back.stderr.contains("could not be told"), "{}", back.stderr);
    let ended = world.run(&["destroy", "e2e", "--discard"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    nothing_there(&world, &host);
}

#[test]
fn an_address_that_is_more_than_an_address_is_refused_where_it_is_read() {
    let world = World::new();
    let canary = world.path("canary");
    let touch = format!("touch {}", canary.display());
    for address in [
        format!("ssh://-oProxyCommand={touch}"),
        format!("ssh://box;{touch}"),
        format!("ssh://$({touch})@box"),
        "ssh://me;id@box".to_owned(),
        "ssh://-lroot@box".to_owned(),
        "ssh://box:22:23".to_owned(),
        "ssh://box/../../x".to_owned(),
        "ssh://me:password@box".to_owned(),
        "ssh://a\nProxyCommand id".to_owned(),
        "http://box".to_owned(),
        "box".to_owned(),
        String::new(),
    ] {
        let file = json!({"id": "h1", "address": address, "extensions": ["ext.compose-ssh"]});
        world.file("user/.config/sandboxer/hosts/h1.yaml", file.to_string());
        for command in [
            &["hosts"][..],
            &["hosts", "check", "h1"],
            &["hosts", "sweep"],
            &["route", "--profile", "profile.compose-e2e"],
        ] {
            let ran = world.run(command);
            assert_eq!(ran.code, 1, "{address:?} {command:?}: {}{}", ran.stdout, ran.stderr);
            assert!(ran.stderr.contains("h1.yaml"), "{}", ran.stderr);
            assert!(!ran.stderr.contains("password@"), "{}", ran.stderr);
        }
    }
    assert!(!canary.exists());
}
