//! Translates one service of a resolved compose file into the options of `podman create`.

use sandboxer_core::{Error, Result};
use serde_json::{Map, Value};

/// Keys with one value for one option.
const SCALARS: [(&str, &str); 10] = [
    ("working_dir", "--workdir"),
    ("user", "--user"),
    ("stop_signal", "--stop-signal"),
    ("platform", "--platform"),
    ("hostname", "--hostname"),
    ("oom_score_adj", "--oom-score-adj"),
    ("shm_size", "--shm-size"),
    ("uts", "--uts"),
    ("userns_mode", "--userns"),
    ("cgroup", "--cgroupns"),
];
/// Keys with one value that need control groups.
const LIMITS: [(&str, &str); 8] = [
    ("mem_limit", "--memory"),
    ("memswap_limit", "--memory-swap"),
    ("cpus", "--cpus"),
    ("pids_limit", "--pids-limit"),
    ("cpuset", "--cpuset-cpus"),
    ("cpu_shares", "--cpu-shares"),
    ("mem_swappiness", "--memory-swappiness"),
    ("cgroup_parent", "--cgroup-parent"),
];
/// Keys with a list of values, each for one option.
const LISTS: [(&str, &str); 11] = [
    ("cap_add", "--cap-add"),
    ("cap_drop", "--cap-drop"),
    ("group_add", "--group-add"),
    ("devices", "--device"),
    ("device_cgroup_rules", "--device-cgroup-rule"),
    ("dns", "--dns"),
    ("dns_search", "--dns-search"),
    ("dns_opt", "--dns-option"),
    ("expose", "--expose"),
    ("extra_hosts", "--add-host"),
    ("tmpfs", "--tmpfs"),
];
const MAPS: [(&str, &str); 3] = [("environment", "--env"), ("labels", "--label"), ("sysctls", "--sysctl")];
const FLAGS: [(&str, &str); 5] = [
    ("init", "--init"),
    ("tty", "--tty"),
    ("stdin_open", "--interactive"),
    ("read_only", "--read-only"),
    ("privileged", "--privileged"),
];
/// Keys that the script follows elsewhere: image, networks, order, number of containers, command.
const ELSEWHERE: [&str; 12] = [
    "image",
    "build",
    "pull_policy",
    "networks",
    "network_mode",
    "ports",
    "links",
    "depends_on",
    "scale",
    "restart",
    "command",
    "volumes_from",
];
/// Keys that podman has no option for and that confine nothing. They are noted at create.
pub(super) const UNTRANSLATED: [&str; 1] = ["domainname"];

/// How names of the compose file become names of the engine.
pub(super) struct Names<'a> {
    pub project: &'a str,
    /// The `volumes` section of the compose file.
    pub volumes: &'a Map<String, Value>,
}

impl Names<'_> {
    /// The first container of a service.
    pub fn container(&self, service: &str, number: u64) -> String {
        format!("{}_{service}_{number}", self.project)
    }

    /// `service:NAME` as podman writes it; any other word is returned as it is.
    pub fn shared(&self, mode: &str) -> String {
        let service = mode.strip_prefix("service:");
        service.map_or_else(|| mode.to_owned(), |name| format!("container:{}", self.container(name, 1)))
    }
}

/// The options for everything that stays the same on every host. A key without a translation is refused, because a
/// dropped one could loosen the confinement silently.
pub(super) fn service_options(
    service: &Map<String, Value>,
    names: &Names<'_>,
    with_limits: bool,
) -> Result<Vec<String>> {
    let mut options = vec!["--http-proxy=false".to_owned()];
    for (key, value) in service {
        options.extend(key_options(key, value, names, with_limits)?);
    }
    Ok(options)
}

fn key_options(key: &str, value: &Value, names: &Names<'_>, with_limits: bool) -> Result<Vec<String>> {
    let find = |table: &[(&str, &'static str)]| {
        table.iter().find(|(known, _)| *known == key).map(|(_, option)| *option)
    };
    if ELSEWHERE.contains(&key) || UNTRANSLATED.contains(&key) {
        return Ok(Vec::new());
    }
    if let Some(option) = find(&SCALARS) {
        return Ok(vec![format!("{option}={}", text(value))]);
    }
    if let Some(option) = find(&LIMITS) {
        return Ok(with_limits.then(|| format!("{option}={}", text(value))).into_iter().collect());
    }
    if let Some(option) = find(&LISTS) {
        return Ok(items(value).map(|item| format!("{option}={}", text(item))).collect());
    }
    if let Some(option) = find(&MAPS) {
        return Ok(entries(value).map(|(name, value)| format!("{option}={name}={}", text(value))).collect());
    }
    if let Some(option) = find(&FLAGS) {
        return Ok(vec![format!("{option}={}", *value == true)]);
    }
    structured_options(key, value, names)
}

fn structured_options(key: &str, value: &Value, names: &Names<'_>) -> Result<Vec<String>> {
    Ok(match key {
        "pid" | "ipc" => vec![format!("--{key}={}", names.shared(&text(value)))],
        "entrypoint" => vec![format!("--entrypoint={}", Value::from(command_words(value)?))],
        "healthcheck" => health_options(value)?,
        "logging" => logging_options(value),
        "security_opt" => {
            items(value).map(|item| format!("--security-opt={}", text(item).replacen(':', "=", 1))).collect()
        }
        "ulimits" => entries(value)
            .map(|(name, limit)| format!("--ulimit={name}={}:{}", limit["soft"], limit["hard"]))
            .collect(),
        "volumes" => items(value).map(|mount| mount_option(mount, names)).collect(),
        _ => {
            return Err(Error::Refused {
                reason: format!("podman has no option for `{key}` of a service"),
                hint: Some("leave it out of the compose file, or use a host with docker".to_owned()),
            });
        }
    })
}

/// The words of `command` or `entrypoint`, which may be one text.
pub(super) fn command_words(value: &Value) -> Result<Vec<String>> {
    let Value::String(line) = value else { return Ok(items(value).map(text).collect()) };
    shell_words::split(line).map_err(|_| Error::Refused {
        reason: format!("a quote in the command {line:?} is not closed"),
        hint: Some("write the command as a list of words".to_owned()),
    })
}

/// The timer of podman needs systemd, so sandboxer runs the checks itself and podman has no timer.
fn health_options(check: &Value) -> Result<Vec<String>> {
    let test = match &check["test"] {
        Value::String(line) => Some(line.clone()),
        Value::Array(words) if words.first().is_some_and(|word| word == "CMD-SHELL") => {
            words.get(1).map(text)
        }
        Value::Array(words) if words.first().is_some_and(|word| word == "CMD") => {
            Some(Value::from(words[1..].to_vec()).to_string())
        }
        _ => None,
    };
    if check["disable"] == true || check["test"][0] == "NONE" || check["test"] == "NONE" {
        return Ok(vec!["--no-healthcheck".to_owned()]);
    }
    let mut options = vec!["--health-interval=disable".to_owned()];
    options.extend(test.map(|test| format!("--health-cmd={test}")));
    for (key, option) in [("timeout", "--health-timeout"), ("retries", "--health-retries")] {
        options.extend(check.get(key).map(|value| format!("{option}={}", text(value))));
    }
    Ok(options)
}

/// Podman's driver for logs in files has another name.
fn logging_options(logging: &Value) -> Vec<String> {
    let driver = if logging["driver"] == "none" { "none" } else { "k8s-file" };
    let settings =
        entries(&logging["options"]).map(|(key, value)| format!("--log-opt={key}={}", text(value)));
    std::iter::once(format!("--log-driver={driver}")).chain(settings).collect()
}

/// Sources and targets contain no comma and no colon: `sandboxer-compose` refuses them.
fn mount_option(mount: &Value, names: &Names<'_>) -> String {
    let (kind, target) = (text(&mount["type"]), text(&mount["target"]));
    let mut modes = if mount["read_only"] == true { vec!["ro"] } else { Vec::new() };
    if kind == "tmpfs" {
        let size = mount["tmpfs"].get("size").map(|size| format!("size={}", text(size)));
        let modes: Vec<String> = modes.into_iter().map(str::to_owned).chain(size).collect();
        return format!("--tmpfs={target}{}", with_colon(&modes.join(",")));
    }
    if mount["volume"]["nocopy"] == true {
        modes.push("nocopy");
    }
    let source = mount.get("source").map(|source| match kind.as_str() {
        "volume" => text(names.volumes.get(&text(source)).map_or(source, |volume| &volume["name"])),
        _ => text(source),
    });
    let source = source.map(|source| format!("{source}:")).unwrap_or_default();
    format!("--volume={source}{target}{}", with_colon(&modes.join(",")))
}

fn with_colon(modes: &str) -> String {
    if modes.is_empty() { String::new() } else { format!(":{modes}") }
}

/// A scalar as one word.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn options(service: Value) -> Vec<String> {
        let volumes = json!({"data": {"name": "p_data"}});
        let names = Names { project: "p", volumes: volumes.as_object().unwrap() };
        service_options(service.as_object().unwrap(), &names, true).unwrap()[1..].to_vec()
    }

    #[test]
    fn every_kind_of_key_becomes_an_option() {
        assert_eq!(options(json!({"user": "7:8"})), ["--user=7:8"]);
        assert_eq!(options(json!({"mem_limit": 64})), ["--memory=64"]);
        assert_eq!(options(json!({"cap_drop": ["ALL", "X"]})), ["--cap-drop=ALL", "--cap-drop=X"]);
        assert_eq!(options(json!({"environment": {"A": "b=c"}})), ["--env=A=b=c"]);
        assert_eq!(options(json!({"read_only": true, "tty": false})), ["--read-only=true", "--tty=false"]);
        assert_eq!(options(json!({"pid": "service:db"})), ["--pid=container:p_db_1"]);
        assert_eq!(options(json!({"ulimits": {"nofile": {"soft": 1, "hard": 2}}})), ["--ulimit=nofile=1:2"]);
        assert_eq!(
            options(json!({"security_opt": ["no-new-privileges:true"]})),
            ["--security-opt=no-new-privileges=true"]
        );
    }

    #[test]
    fn mounts_name_the_volumes_of_the_engine() {
        let mounts = json!({"volumes": [
            {"type": "volume", "source": "data", "target": "/d", "volume": {"nocopy": true}},
            {"type": "volume", "target": "/anonymous"},
            {"type": "bind", "source": "/w/a", "target": "/a", "read_only": true},
            {"type": "tmpfs", "target": "/t", "tmpfs": {"size": 5}},
        ]});
        let expected =
            ["--volume=p_data:/d:nocopy", "--volume=/anonymous", "--volume=/w/a:/a:ro", "--tmpfs=/t:size=5"];
        assert_eq!(options(mounts), expected);
    }

    #[test]
    fn health_checks_have_no_timer() {
        let check = json!({"healthcheck": {"test": ["CMD", "a", "b c"], "interval": "1ms", "retries": 3}});
        assert_eq!(
            options(check),
            ["--health-interval=disable", r#"--health-cmd=["a","b c"]"#, "--health-retries=3"]
        );
        let shell = options(json!({"healthcheck": {"test": ["CMD-SHELL", "a && b"]}}));
        assert_eq!(shell, ["--health-interval=disable", "--health-cmd=a && b"]);
        assert_eq!(options(json!({"healthcheck": {"test": ["NONE"]}})), ["--no-healthcheck"]);
    }

    #[test]
    fn commands_are_split_like_a_shell_does() {
        assert_eq!(command_words(&json!("sh -c 'a b' \"$c\"")).unwrap(), ["sh", "-c", "a b", "$c"]);
        assert_eq!(command_words(&json!(["a b", "c"])).unwrap(), ["a b", "c"]);
        command_words(&json!("echo 'open")).unwrap_err();
    }

    #[test]
    fn every_accepted_key_is_translated_or_refused() {
        // sandboxer-compose replaces these by others that are translated.
        let replaced = ["secrets", "configs", "deploy", "cpu_quota", "cpu_period"];
        let refused = ["runtime"];
        let names = Names { project: "p", volumes: &Map::new() };
        let missing: Vec<&str> = sandboxer_compose::service_keys()
            .filter(|key| key_options(key, &Value::Null, &names, true).is_err())
            .filter(|key| !replaced.contains(key))
            .collect();
        assert_eq!(missing, refused);
    }

    #[test]
    fn limits_are_left_out_on_request_and_unknown_keys_are_refused() {
        let volumes = Map::new();
        let names = Names { project: "p", volumes: &volumes };
        let limited = json!({"mem_limit": 64, "pids_limit": 5});
        let options = service_options(limited.as_object().unwrap(), &names, false).unwrap();
        assert_eq!(options, ["--http-proxy=false"]);
        let unknown = json!({"blkio_config": {}});
        let error = service_options(unknown.as_object().unwrap(), &names, true).unwrap_err();
        assert!(error.to_string().contains("blkio_config"), "{error}");
    }
}
