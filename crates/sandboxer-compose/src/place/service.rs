//! One service: every key that it has, and what every service gets.

use serde_json::{Map, Value, json};

use sandboxer_core::Result;

use super::stack::{Port, Service};
use super::{Placer, keys};
use crate::at::At;
use crate::model::Definition;
use crate::policy::Allowance;
use crate::read;
use crate::shape::read_port;

/// Variables that clients of engines hand to containers, with whatever login they hold.
pub const PROXIES: [&str; 10] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "all_proxy",
];

/// How large a log may grow.
const LOG: &str = "10m";

impl Placer<'_> {
    /// A service as it is handed over, and what is known of it.
    pub(super) fn service(&self, name: &str, definition: &Definition) -> Result<(Value, Service)> {
        let known = keys::known();
        if let Some(odd) = definition.keys.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(definition.at_itself_in(name, odd).unknown("the key", odd, &known));
        }
        let mut out = Map::new();
        for (key, value) in &definition.keys {
            if let Some(written) = self.key(key, value, &definition.at(name, key))? {
                out.insert(key.clone(), written);
            }
        }
        let (image, built_from) = self.image(name, definition, &mut out)?;
        self.namespaces(name, definition, &mut out)?;
        let joins = self.joins(name, definition, &mut out)?;
        self.reachable(name, definition, joins, &mut out)?;
        let mounts_workspace_at = self.mounts(name, definition, &mut out)?;
        out.insert("environment".to_owned(), self.environment(name, definition)?);
        out.insert(
            "labels".to_owned(),
            self.labels(definition.keys.get("labels"), &definition.at(name, "labels"))?,
        );
        out.insert("security_opt".to_owned(), self.security(name, definition)?);
        out.insert("restart".to_owned(), "no".into());
        self.deploy(name, definition)?;
        out.insert("logging".to_owned(), self.logging(name, definition)?);
        let depends_on = self.depends_on(name, definition, &mut out)?;
        let share = self.shares.get(name).copied().unwrap_or_default();
        share.write(&mut out);
        let service = Service {
            name: name.to_owned(),
            image,
            built_from,
            has_healthcheck: definition.keys.get("healthcheck").is_some_and(is_asked),
            ports: if joins.has_ports() { ports(definition) } else { Vec::new() },
            mounts_workspace_at,
            depends_on,
            replicas: share.replicas,
        };
        Ok((Value::Object(out), service))
    }

    fn environment(&self, name: &str, definition: &Definition) -> Result<Value> {
        let at = definition.at(name, "environment");
        let mut out = Map::new();
        let given = definition.keys.get("environment").map(|given| read::map(given, &at)).transpose()?;
        for (variable, value) in given.into_iter().flatten() {
            if !read::is_variable(variable) {
                return Err(at
                    .key(variable)
                    .refuse("this is not a variable's name", "use letters, digits and `_`"));
            }
            out.insert(variable.clone(), value.as_str().unwrap_or_default().into());
        }
        for proxy in PROXIES.iter().filter(|_| self.denied()) {
            out.entry(*proxy).or_insert_with(|| "".into());
        }
        Ok(Value::Object(out))
    }

    /// What keeps a service confined; the host may allow to loosen it.
    fn security(&self, name: &str, definition: &Definition) -> Result<Value> {
        let at = definition.at(name, "security_opt");
        let (mut out, mut may_gain) = (Vec::new(), false);
        for (index, option) in texts(definition, "security_opt").into_iter().enumerate() {
            let at = at.item(index);
            match option.replace('=', ":").as_str() {
                "no-new-privileges" | "no-new-privileges:true" => continue,
                "no-new-privileges:false" => may_gain = true,
                // Profiles are files, which the compose program would read.
                plain if plain.contains(['/', '\\', '{']) || !plain.contains(':') => {
                    return Err(at.refuse(
                        format!("{:?} is not known, or names a file", crate::at::shown(plain)),
                        "leave it out: services run with the engine's own profiles",
                    ));
                }
                _ => {}
            }
            self.demand(
                Allowance::Unconfined,
                &at,
                &format!("{option:?} loosens what confines the service"),
            )?;
            out.push(Value::from(option));
        }
        if !may_gain {
            out.push("no-new-privileges:true".into());
        }
        out.dedup();
        Ok(Value::Array(out))
    }

    /// Logs that do not fill the host's disk.
    fn logging(&self, name: &str, definition: &Definition) -> Result<Value> {
        let usual = json!({"driver": "json-file", "options": {"max-size": LOG}});
        let at = definition.at(name, "logging");
        let Some(given) = definition.keys.get("logging") else { return Ok(usual) };
        let given = read::map(given, &at)?;
        read::known_keys(given, &["driver", "options"], &at)?;
        match given.get("driver").map(|driver| read::text(driver, &at.key("driver"))).transpose()?.as_deref()
        {
            Some("none") => return Ok(json!({"driver": "none"})),
            None | Some("json-file") => {}
            Some(_) => self.note(&at, "replaced: logs are kept by the engine, 10 MiB of each service"),
        }
        Ok(usual)
    }

    /// Limits of `deploy` have been counted already; what is for swarms does not count here.
    fn deploy(&self, name: &str, definition: &Definition) -> Result<()> {
        let at = definition.at(name, "deploy");
        let Some(deploy) = definition.keys.get("deploy") else { return Ok(()) };
        let deploy = read::map(deploy, &at)?;
        let ignored = [
            "mode",
            "endpoint_mode",
            "placement",
            "update_config",
            "rollback_config",
            "restart_policy",
            "labels",
        ];
        let known: Vec<&str> = ignored.into_iter().chain(["replicas", "resources"]).collect();
        read::known_keys(deploy, &known, &at)?;
        for key in ignored.iter().filter(|key| deploy.contains_key(**key)) {
            self.note(&at.key(key), "ignored: it is for swarms");
        }
        let Some(resources) = deploy.get("resources") else { return Ok(()) };
        let at = at.key("resources");
        let resources = read::map(resources, &at)?;
        read::known_keys(resources, &["limits", "reservations"], &at)?;
        if let Some(limits) = resources.get("limits") {
            let at = at.key("limits");
            read::known_keys(read::map(limits, &at)?, &["cpus", "memory", "pids"], &at)?;
        }
        self.reservations(resources.get("reservations"), &at.key("reservations"))
    }

    fn reservations(&self, given: Option<&Value>, at: &At) -> Result<()> {
        let Some(given) = given else { return Ok(()) };
        let given = read::map(given, at)?;
        read::known_keys(given, &["cpus", "memory", "pids", "devices", "generic_resources"], at)?;
        for key in ["devices", "generic_resources"] {
            if given.contains_key(key) {
                let hint = "leave it out; single devices can be named under `devices` of the service";
                return Err(at.key(key).refuse("devices cannot be reserved here", hint));
            }
        }
        self.note(at, "ignored: nothing is reserved");
        Ok(())
    }
}

fn texts(definition: &Definition, key: &str) -> Vec<String> {
    let items = definition.keys.get(key).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn is_asked(healthcheck: &Value) -> bool {
    let disabled = healthcheck.get("disable").is_some_and(|flag| flag == true || flag == "true");
    let none = healthcheck.get("test").is_some_and(|test| test == "NONE" || test[0] == "NONE");
    !disabled && !none && healthcheck.get("test").is_some()
}

/// The ports that a service publishes.
pub(super) fn ports(definition: &Definition) -> Vec<Port> {
    let listed = definition.keys.get("ports").and_then(Value::as_array).into_iter().flatten();
    let mut ports: Vec<Port> = Vec::new();
    for port in listed.filter_map(read_port) {
        let port = Port { container: port.number, protocol: port.protocol };
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports
}
