//! What a container on an internal network reaches. Facts about the engine, which the isolation of stacks is built on.

use super::super::*;
use super::stacks::up;

/// Whether a container of the stack gets sshd's greeting from an address.
fn greeted(host: &RemoteHost, address: &str) -> bool {
    let script = format!("echo | nc -w 2 {address} 22 | head -c 3");
    let output = host.try_run(&["exec", "stack_app_1", "sh", "-c", &script]);
    String::from_utf8_lossy(&output.stdout).starts_with("SSH")
}

fn resolved(host: &RemoteHost, container: &str, name: &str) -> bool {
    host.try_run(&["exec", container, "nslookup", name]).status.success()
}

#[test]
fn an_internal_network_reaches_its_host_until_a_rule_forbids_it() {
    let host = host!(RemoteHost::start());
    up(&host);
    let gateway =
        host.run(&["network", "inspect", "stack_inside", "--format", "{{(index .IPAM.Config 0).Gateway}}"]);
    // By the address of its own bridge, and by that of another one.
    assert!(greeted(&host, &gateway) && greeted(&host, "172.17.0.1"));
    host.there(
        "iptables",
        &["-I", "INPUT", "-i", "sbx+", "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"],
    );
    assert!(!greeted(&host, &gateway) && !greeted(&host, "172.17.0.1"));
    // Services find each other all the same, and the host reaches them.
    assert!(resolved(&host, "stack_app_1", "web"));
    let web = host.run(&[
        "inspect",
        "stack_web_1",
        "--format",
        "{{(index .NetworkSettings.Networks \"stack_inside\").IPAddress}}",
    ]);
    host.there("busybox", &["wget", "-q", "-O", "/dev/null", &format!("http://{web}/sh")]);
}

#[test]
fn an_internal_network_asks_the_resolver_of_its_host_unless_it_is_given_another() {
    let host = host!(RemoteHost::start());
    up(&host);
    let names = host.name_server();
    assert!(!resolved(&host, "stack_app_1", "secret.example.com"));
    assert_eq!(names.asked(), Vec::<String>::new());
    assert!(!resolved(&host, "stack_web_1", "secret.example.com"));
    assert!(names.asked().contains(&"secret.example.com".to_owned()), "{:?}", names.asked());
}

#[test]
fn a_container_has_no_other_protocol_to_its_host() {
    let host = host!(RemoteHost::start());
    up(&host);
    let addresses = host.run(&["exec", "stack_app_1", "ip", "-6", "address", "show", "dev", "eth0"]);
    assert_eq!(addresses, "");
}
