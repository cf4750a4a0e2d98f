#![allow(clippy::unwrap_used)]
use serde::de::DeserializeOwned;

use super::*;
use crate::config::yaml::parse;

fn of<T: DeserializeOwned>(text: &str) -> T {
    parse(text, Path::new("x.yaml")).unwrap().unwrap()
}

/// What is told of a value, with its place.
fn told(checked: Checked, text: &str) -> String {
    let error = checked.unwrap_err().located(Path::new("x.yaml"), text);
    assert!(matches!(&error, Error::Config { line: Some(_), column: Some(_), .. }), "{error:?}");
    error.to_string()
}

fn of_profile(rest: &str) -> String {
    let text = format!("id: profile.x\nsummary: X\n{rest}");
    told(profile(&of(&text)), &text)
}

fn of_host(rest: &str) -> String {
    let text = format!("id: x\n{rest}");
    told(host(&of(&text)), &text)
}

fn of_extension(changed: &str, into: &str) -> String {
    let text = EXTENSION.replace(changed, into);
    assert_ne!(text, EXTENSION);
    told(extension(&of(&text)), &text)
}

const EXTENSION: &str = "\
id: ext.x
summary: X
provider: local
capabilities:
  isolation: [strict]
  network: [none, host]
  workspaces: any
pricing: {model: per-hour, amount: 0.5, currency: EUR}
";

#[test]
fn everything_can_be_said() {
    let text = "\
id: profile.every-1
summary: Everything
extension: {policy: lowest-cost, among: [ext.a, ext.b]}
isolation: strict
network: {allow: [api.example.com, \"[..]\", \"*.example.com:443\"]}
inputs: {code: {type: fs-directory, required: true, mount: /work}, data_2: {mount: /data/in}}
scope: project
ttl: 1h30m
resources: {cpus: 0.5, memory: 4G, pids: 100, disk: 10GB}
setup: {commands: [make], secret_refs: [\"env:A_1\", \"file:/run/s\", pgpass, \"my.cnf:/etc/my.cnf\"]}
placement: {prefer: [a], fallback: [b, c], labels: {gpu: \"yes\", a/b.c: \"\"}, regions: [eu]}
reachability: {ports: [80, 443]}
cost_class: standard
options: {image: x}
"
    .replace("\"[..]\", ", "");
    profile(&of(&text)).unwrap();
    extension(&of(EXTENSION)).unwrap();
    for address in ["local", "ssh://h", "ssh://me@h.example.com:22", "ssh://10.0.0.1", "ssh://_x@[::1]:2222"]
    {
        let text = format!(
            "id: build-1.eu\naddress: \"{address}\"\nextensions: [ext.x]\ncapacity: {{sandboxes: 0, cpus: 2, memory: 64G}}\n"
        );
        host(&of(&text)).unwrap();
    }
}

#[test]
fn ids_have_their_form() {
    for id in
        ["x", "profile.", "profile.-x", "profile.A", "ext.x", "profile.a b", "profile.a/../b", "profile.é"]
    {
        let text = format!("id: \"{id}\"\nsummary: X\n");
        let says = told(profile(&of(&text)), &text);
        assert!(says.starts_with("x.yaml:1:") && says.ends_with("is not an id for a profile"), "{says}");
    }
    let long = "x".repeat(65);
    for id in ["", "-x", "A", "a..b", "a b", "a;b", &long] {
        let text = format!("id: \"{id}\"\naddress: local\nextensions: [ext.x]\n");
        assert!(told(host(&of(&text)), &text).ends_with("is not an id for a host"), "{id}");
    }
    assert!(of_extension("ext.x", "ex.x").ends_with("\"ex.x\" is not an id for an extension"));
}

#[test]
fn policies_have_what_they_need() {
    let table = [
        ("extension: {policy: explicit}\n", "x.yaml:3:21: policy explicit needs the id of the extension"),
        (
            "extension: {id: ext.a}\n",
            "x.yaml:3:17: an id is for policy explicit, and this policy chooses by itself",
        ),
        (
            "extension: {policy: explicit, id: ext.a, among: [ext.b]}\n",
            "x.yaml:3:42: policy explicit names one extension, `among` names others",
        ),
        ("extension: {among: [ext.a, ext.a]}\n", "x.yaml:3:21: among: \"ext.a\" is listed twice"),
    ];
    for (text, says) in table {
        // An id is looked for where the first key of that name stands, so the place of the second is that of its value.
        assert_eq!(of_profile(text), says);
    }
}

#[test]
fn values_of_a_profile_can_be_read() {
    let table = [
        ("ttl: 2x\n", "x.yaml:3:6: ttl: \"2x\" is not a duration"),
        ("ttl: 0s\n", "x.yaml:3:6: ttl: \"0s\" is no time at all"),
        ("resources:\n  memory: lots\n", "x.yaml:4:11: memory: \"lots\" is not a size"),
        ("resources: {disk: 4X}\n", "x.yaml:3:19: disk: \"4X\" is not a size"),
        ("resources: {cpus: 0}\n", "x.yaml:3:19: cpus: 0 is no number of processors"),
        ("resources: {cpus: .nan}\n", "x.yaml:3:13: cpus: NaN is no number of processors"),
        ("resources: {pids: 0}\n", "x.yaml:3:19: pids: nothing runs without a process"),
        ("network: {allow: []}\n", "x.yaml:3:11: network: allow names no host"),
        ("network: {allow: [\"a b\"]}\n", "x.yaml:3:20: allow: \"a b\" is not a host"),
        ("network: {allow: [\"a:0\"]}\n", "x.yaml:3:20: allow: \"a:0\" is not a host"),
        ("network: {allow: [\"-a\"]}\n", "x.yaml:3:20: allow: \"-a\" is not a host"),
        ("reachability: {ports: [80, 80]}\n", "x.yaml:3:24: ports: 80 is listed twice"),
        ("reachability: {ports: [0]}\n", "x.yaml:3:24: ports: 0 is no port"),
        ("placement: {prefer: [a, a]}\n", "x.yaml:3:22: prefer: \"a\" is listed twice"),
        ("placement: {labels: {\"-a\": b}}\n", "x.yaml:3:23: \"-a\" is not a name for a label"),
        ("placement: {labels: {a: \"b\\n\"}}\n", "x.yaml:3:22: label \"a\": its value cannot be used"),
    ];
    for (text, says) in table {
        assert_eq!(of_profile(text), says);
    }
}

#[test]
fn inputs_appear_at_places_of_their_own() {
    for mount in ["work", "", "/", "/a/../b", "../x", "/a\\u0007"] {
        let says = of_profile(&format!("inputs: {{code: {{mount: \"{mount}\"}}}}\n"));
        assert!(says.contains("mount: ") && says.ends_with("is no place inside"), "{says}");
    }
    let twice = of_profile("inputs: {a: {mount: /w}, b: {mount: /w/}}\n");
    assert!(twice.contains("inputs \"a\" and \"b\" are mounted at one place"), "{twice}");
    assert!(of_profile("inputs: {\"-v\": {}}\n").ends_with("\"-v\" is not a name for an input"));
}

#[test]
fn a_secret_is_never_repeated() {
    for secret in
        ["hunter2", "env:", "env:A-B", "env:1", "file:", "file:relative", "pgpass:rel", "vault:x", ""]
    {
        let says = of_profile(&format!("setup: {{secret_refs: [\"{secret}\"]}}\n"));
        assert_eq!(says, "x.yaml:3:9: secret_refs: an entry is not a reference to a secret");
    }
}

#[test]
fn an_address_is_nothing_that_a_program_would_take_for_something_else() {
    let hostile = [
        "-oProxyCommand=touch /tmp/x",
        "ssh://-oProxyCommand=x",
        "ssh://a;b@h",
        "ssh://-l@h",
        "ssh://me@-h",
        "ssh://me@h -p 1",
        "ssh://me@h:22;id",
        "ssh://$(id)@h",
        "ssh://me@h/path",
        "ssh://me@h:0",
        "ssh://me@h:+22",
        "ssh://me@h:",
        "ssh://@h",
        "ssh://",
        "ssh://a@b@c",
        "ssh://[::1",
        "ssh://[x]",
        "ssh://h\\n",
        "http://h",
        "localhost",
        "",
    ];
    for address in hostile {
        let says = of_host(&format!("address: \"{address}\"\nextensions: [ext.x]\n"));
        assert!(says.ends_with("is no address of a host"), "{address}: {says}");
    }
    let says = of_host("address: \"ssh://me:hunter2@box\"\nextensions: [ext.x]\n");
    assert!(says.ends_with("is no address of a host") && !says.contains("hunter2"), "{says}");
}

#[test]
fn a_host_says_what_works_there() {
    assert!(of_host("address: local\nextensions: []\n").ends_with("extensions: none works there"));
    assert!(of_host("address: local\nextensions: [ext.a, ext.a]\n").ends_with("is listed twice"));
    assert!(
        of_host("address: local\nextensions: [ext.a]\ncapacity: {memory: x}\n").ends_with("is not a size")
    );
    assert!(of_host("address: local\nextensions: [ext.a]\ncapacity: {cpus: -1}\n").contains("cpus: -1"));
}

#[test]
fn an_extension_says_what_it_can_and_costs() {
    let table = [
        ("[strict]", "[]", "x.yaml:5:3: capabilities: isolation is empty"),
        ("[none, host]", "[]", "x.yaml:6:3: capabilities: network is empty"),
        ("[none, host]", "[nine]", "x.yaml:6:13: network: unknown value \"nine\""),
        ("[none, host]", "[none, none]", "x.yaml:6:13: network: \"none\" is listed twice"),
        ("currency: EUR", "currency: euro", "x.yaml:8:51: currency: \"euro\" is no code of a currency"),
        (", currency: EUR", "", "x.yaml:8:1: pricing: an amount of what?"),
        ("amount: 0.5", "amount: -1", "x.yaml:8:36: amount: -1 is no price"),
        ("amount: 0.5", "amount: .inf", "x.yaml:8:37: amount: inf is no price"),
        ("per-hour", "free", "x.yaml:8:32: pricing: what is free costs nothing"),
    ];
    for (changed, into, says) in table {
        assert_eq!(of_extension(changed, into), says);
    }
    let plugin = |rest: &str| of_extension("provider: local", &format!("provider: {{plugin: {{{rest}}}}}"));
    assert!(plugin("module: x, timeout: soon").ends_with("timeout: \"soon\" is not a duration"));
    assert!(plugin("module: \"-c\"").ends_with("module: \"-c\" names nothing"));
}
