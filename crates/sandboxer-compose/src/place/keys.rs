//! Keys of a service that stand for themselves, and those that are dropped.

use sandboxer_core::Result;
use serde_json::{Map, Value};

use super::Placer;
use crate::at::{At, shown};
use crate::policy::Allowance;
use crate::read;

/// Keys that other modules write.
const STRUCTURED: [&str; 29] = [
    "image",
    "build",
    "pull_policy",
    "network_mode",
    "pid",
    "ipc",
    "uts",
    "userns_mode",
    "cgroup",
    "networks",
    "ports",
    "dns",
    "dns_search",
    "dns_opt",
    "extra_hosts",
    "links",
    "hostname",
    "domainname",
    "expose",
    "volumes",
    "volumes_from",
    "secrets",
    "configs",
    "environment",
    "labels",
    "security_opt",
    "logging",
    "deploy",
    "depends_on",
];

/// Keys that are read when limits are counted.
const COUNTED: [&str; 6] = ["mem_limit", "cpus", "cpu_quota", "cpu_period", "pids_limit", "scale"];

/// Keys whose values are checked here.
const PLAIN: [&str; 27] = [
    "command",
    "entrypoint",
    "working_dir",
    "user",
    "stop_signal",
    "platform",
    "init",
    "tty",
    "stdin_open",
    "read_only",
    "cap_drop",
    "group_add",
    "shm_size",
    "ulimits",
    "tmpfs",
    "oom_score_adj",
    "mem_swappiness",
    "cpuset",
    "cpu_shares",
    "healthcheck",
    "privileged",
    "cap_add",
    "devices",
    "device_cgroup_rules",
    "sysctls",
    "runtime",
    "cgroup_parent",
];

/// Keys that change nothing when they are left out, and why they are.
const DROPPED: [(&str, &str); 17] = [
    ("container_name", "dropped: names are the sandbox's; the service is reached by this one too"),
    ("restart", "dropped: what ends is not started again"),
    ("stop_grace_period", "dropped: what ends with a sandbox ends at once, and not every engine takes it"),
    ("annotations", "dropped: not every compose program knows it"),
    ("attach", "dropped: nobody watches"),
    ("develop", "dropped: nobody watches"),
    ("blkio_config", "dropped: it names devices of the host"),
    ("cpu_rt_period", "dropped: the stack's limits count"),
    ("cpu_rt_runtime", "dropped: the stack's limits count"),
    ("cpu_count", "dropped: the stack's limits count"),
    ("cpu_percent", "dropped: the stack's limits count"),
    ("memswap_limit", "dropped: the stack's limits count"),
    ("mem_reservation", "dropped: the stack's limits count"),
    ("oom_kill_disable", "dropped: who uses too much memory is ended"),
    ("mac_address", "dropped: two stacks on one host would meet"),
    ("isolation", "dropped: it is for Windows"),
    ("storage_opt", "dropped: not every engine knows it"),
];

/// Keys that are never followed, and what to do instead.
const REFUSED: [(&str, &str, &str); 9] = [
    ("external_links", "containers of others are not to be reached", "name the service in this file"),
    ("gpus", "processors of graphics cards are not handed on", "leave it out"),
    ("credential_spec", "it is for Windows", "leave it out"),
    ("label_file", "labels are not read from files", "write them under `labels`"),
    ("post_start", "not every compose program knows it", "put it into `command` or `entrypoint`"),
    ("pre_stop", "not every compose program knows it", "put it into `command` or `entrypoint`"),
    ("provider", "it starts a program on the host", "leave it out"),
    ("models", "models are not started here", "leave it out"),
    ("use_api_socket", "the engine is not to be reached", "leave it out"),
];

/// The keys of a service that are accepted and not dropped.
pub fn service_keys() -> impl Iterator<Item = &'static str> {
    STRUCTURED.into_iter().chain(COUNTED).chain(PLAIN)
}

/// All keys that a service may be written with.
pub(super) fn known() -> Vec<&'static str> {
    let dropped = DROPPED.iter().map(|(key, _)| *key);
    let refused = REFUSED.iter().map(|(key, ..)| *key);
    service_keys().chain(dropped).chain(refused).collect()
}

impl Placer<'_> {
    /// What a key is handed over as; `None` where it is not, or where another module writes it.
    pub(super) fn key(&self, key: &str, value: &Value, at: &At) -> Result<Option<Value>> {
        if let Some((_, why)) = DROPPED.iter().find(|(dropped, _)| *dropped == key) {
            if key != "restart" || value != "no" {
                self.note(at, why);
            }
            return Ok(None);
        }
        if let Some((_, why, hint)) = REFUSED.iter().find(|(refused, ..)| *refused == key) {
            return Err(at.refuse(*why, *hint));
        }
        if !PLAIN.contains(&key) {
            return Ok(None);
        }
        self.guarded(key, value, at).unwrap_or_else(|| self.plain(key, value, at))
    }

    /// Keys that give a service a part of the host.
    fn guarded(&self, key: &str, value: &Value, at: &At) -> Option<Result<Option<Value>>> {
        let (word, what) = match key {
            "privileged" => (Allowance::Privileged, "a privileged service owns the host"),
            "cap_add" => (Allowance::CapAdd, "capabilities are added"),
            "devices" | "device_cgroup_rules" => (Allowance::Devices, "devices of the host are used"),
            "sysctls" => (Allowance::Sysctls, "parameters of the kernel are set"),
            "runtime" => (Allowance::Runtime, "another runtime is chosen"),
            "cgroup_parent" => (Allowance::CgroupParent, "a cgroup of the host is chosen"),
            _ => return None,
        };
        if is_nothing(key, value) {
            return Some(Ok(None));
        }
        Some(self.demand(word, at, what).and_then(|()| allowed(key, value, at)).map(Some))
    }

    fn plain(&self, key: &str, value: &Value, at: &At) -> Result<Option<Value>> {
        Ok(Some(match key {
            "command" | "entrypoint" => return line(value, at),
            "working_dir" => plain_text(value, at, &|letter| !letter.is_control())?,
            "user" => {
                plain_text(value, at, &|letter| letter.is_ascii_alphanumeric() || "_.:-".contains(letter))?
            }
            "stop_signal" => {
                plain_text(value, at, &|letter| letter.is_ascii_alphanumeric() || letter == '+')?
            }
            "platform" => {
                plain_text(value, at, &|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter))?
            }
            "cpuset" => plain_text(value, at, &|letter| letter.is_ascii_digit() || ",-".contains(letter))?,
            "init" | "tty" | "stdin_open" | "read_only" => read::flag(value, at)?.into(),
            "cap_drop" => words(value, at, &|letter| letter.is_ascii_alphabetic() || letter == '_')?,
            "group_add" => {
                words(value, at, &|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))?
            }
            "shm_size" => read::bytes(value, at)?.into(),
            "ulimits" => ulimits(value, at)?,
            "tmpfs" => tmpfs(value, at)?,
            "oom_score_adj" => return self.out_of_memory(value, at),
            "mem_swappiness" => between(value, 0, 100, at)?,
            "cpu_shares" => between(value, 0, 262_144, at)?,
            "healthcheck" => self.healthcheck(value, at)?,
            _ => return Ok(None),
        })
        .filter(|written| *written != ""))
    }

    fn out_of_memory(&self, value: &Value, at: &At) -> Result<Option<Value>> {
        let asked = read::integer(value, at)?;
        if (0..=1000).contains(&asked) {
            return Ok(Some(asked.into()));
        }
        self.note(at, "dropped: nothing here outlives the host's own processes");
        Ok(None)
    }
}

/// Whether a guarded key asks for nothing.
fn is_nothing(key: &str, value: &Value) -> bool {
    match value {
        Value::Bool(flag) => key == "privileged" && !flag,
        Value::String(text) => text.is_empty() || (key == "privileged" && text == "false"),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// What the host allows, in the forms that engines know.
fn allowed(key: &str, value: &Value, at: &At) -> Result<Value> {
    let name = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    match key {
        "privileged" => read::flag(value, at).map(Value::from),
        "cap_add" => words(value, at, &|letter| letter.is_ascii_alphabetic() || letter == '_'),
        "devices" => words(value, at, &|letter| letter.is_ascii_alphanumeric() || "/:._-".contains(letter)),
        "device_cgroup_rules" => {
            words(value, at, &|letter| letter.is_ascii_alphanumeric() || " :*".contains(letter))
        }
        "runtime" => plain_text(value, at, &name),
        "cgroup_parent" => plain_text(value, at, &|letter| name(letter) || letter == '/'),
        _ => {
            let map = read::map(value, at)?;
            if let Some(odd) = map.keys().find(|key| !key.chars().all(|letter| name(letter) || letter == '/'))
            {
                return Err(at
                    .key(odd)
                    .refuse("this is not a parameter", "write it as `net.core.somaxconn`"));
            }
            Ok(value.clone())
        }
    }
}

/// A text of certain letters, which no program can take for an option.
pub(super) fn plain_text(value: &Value, at: &At, fits: &dyn Fn(char) -> bool) -> Result<Value> {
    let text = read::text(value, at)?;
    if text.starts_with('-') || !text.chars().all(fits) {
        let what = format!("{:?} is not what is expected here", shown(&text));
        return Err(at.refuse(what, "write a plain name or number"));
    }
    Ok(text.into())
}

/// A list of such texts.
pub(super) fn words(value: &Value, at: &At, fits: &dyn Fn(char) -> bool) -> Result<Value> {
    let mut out: Vec<Value> = Vec::new();
    for (index, word) in read::texts(value, at)?.into_iter().enumerate() {
        let word = plain_text(&word.into(), &at.item(index), fits)?;
        if !out.contains(&word) {
            out.push(word);
        }
    }
    Ok(out.into())
}

fn between(value: &Value, least: i64, most: i64, at: &At) -> Result<Value> {
    let number = read::integer(value, at)?;
    if (least..=most).contains(&number) {
        return Ok(number.into());
    }
    Err(at.refuse(format!("{number} is out of range"), format!("write a number from {least} to {most}")))
}

/// A command: one text, which the compose program splits, or a list.
fn line(value: &Value, at: &At) -> Result<Option<Value>> {
    match value {
        Value::Array(items) => {
            let words: Result<Vec<String>> =
                items.iter().enumerate().map(|(index, item)| read::scalar(item, &at.item(index))).collect();
            words.map(|words| Some(words.into()))
        }
        other => read::text(other, at).map(|text| Some(text.into())),
    }
}

/// Limits that only take away from the service itself. `nice`, `rtprio` and `rttime` are none of them: by these a process gets before all others
/// of the host without a capability.
const LIMITS: [&str; 12] = [
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nofile",
    "nproc",
    "rss",
    "sigpending",
    "stack",
];

fn ulimits(value: &Value, at: &At) -> Result<Value> {
    let mut out = Map::new();
    for (name, limit) in read::map(value, at)? {
        let at = at.key(name);
        if ["nice", "rtprio", "rttime"].contains(&name.as_str()) {
            let what = "it lets a service take the processors from everything else on the host";
            return Err(at.refuse(what, "leave it out: services have no priority of their own"));
        }
        if !LIMITS.contains(&name.as_str()) {
            return Err(at.unknown("the limit", name, &LIMITS));
        }
        let number = |value: &Value, at: &At| read::integer(value, at).map(|number| number.max(-1));
        let (soft, hard) = match limit {
            Value::Object(map) => {
                read::known_keys(map, &["soft", "hard"], &at)?;
                let of = |key: &str| number(map.get(key).unwrap_or(&Value::Null), &at.key(key));
                (of("soft")?, of("hard")?)
            }
            one => (number(one, &at)?, number(one, &at)?),
        };
        out.insert(name.clone(), serde_json::json!({"soft": soft, "hard": hard}));
    }
    Ok(out.into())
}

/// `PATH[:OPTION,…]`
fn tmpfs(value: &Value, at: &At) -> Result<Value> {
    let mut out = Vec::new();
    for (index, entry) in read::texts(value, at)?.into_iter().enumerate() {
        let at = at.item(index);
        let (path, options) = entry.split_once(':').unwrap_or((&entry, ""));
        super::mounts::expect_target(path, &at)?;
        if let Some(odd) = options.split(',').find(|option| !is_tmpfs_option(option)) {
            return Err(at.unknown(
                "the option",
                odd,
                &["size=64m", "mode=1777", "uid=0", "gid=0", "ro", "noexec"],
            ));
        }
        out.push(Value::from(entry));
    }
    Ok(out.into())
}

/// Whether it is an option of a filesystem in memory that gives nothing away.
pub(super) fn is_tmpfs_option(option: &str) -> bool {
    let plain = ["", "rw", "ro", "exec", "noexec", "nosuid", "nodev", "noatime"];
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let number = value.starts_with(|first: char| first.is_ascii_digit())
        && value.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '%');
    plain.contains(&option) || (["size", "mode", "uid", "gid", "nr_inodes"].contains(&name) && number)
}
