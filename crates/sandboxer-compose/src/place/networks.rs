//! Who reaches whom.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sandboxer_core::Result;
use serde_json::{Map, Value, json};

use super::Placer;
use super::keys::{plain_text, words};
use super::service::ports;
use crate::at::{At, shown};
use crate::model::Definition;
use crate::policy::Allowance;
use crate::read;

/// The driver option of a network that names its bridge.
pub const BRIDGE_NAME: &str = "com.docker.network.bridge.name";

/// The kind of network that a service is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joins {
    /// Networks of the stack.
    Networks,
    /// The network of another service.
    Another,
    /// None.
    Nothing,
    /// The host's.
    Host,
}

impl Joins {
    /// Whether ports of the service are reached at an address.
    pub fn has_ports(self) -> bool {
        matches!(self, Self::Networks | Self::Host)
    }
}

impl Placer<'_> {
    /// The networks of a service.
    pub(super) fn joins(
        &self,
        name: &str,
        definition: &Definition,
        out: &mut Map<String, Value>,
    ) -> Result<Joins> {
        let at = definition.at(name, "network_mode");
        let mode = definition.keys.get("network_mode").map(|mode| read::text(mode, &at)).transpose()?;
        let mode = mode.filter(|mode| !matches!(mode.as_str(), "" | "bridge" | "default"));
        let Some(mode) = mode else {
            out.insert("networks".to_owned(), self.joined(name, definition)?);
            return Ok(Joins::Networks);
        };
        if definition.keys.contains_key("networks") {
            return Err(
                at.refuse("a service has `network_mode` or `networks`, not both", "leave one of them out")
            );
        }
        let joins = match mode.as_str() {
            "none" => Joins::Nothing,
            "host" => self.host_network(&at)?,
            other => match other.strip_prefix("service:") {
                Some(other) => self.expect_service(other, &at).map(|_| Joins::Another)?,
                None => {
                    let what = format!("{:?} is a network of others", shown(&mode));
                    return Err(at.refuse(what, "use `networks`, `none` or `service:NAME`"));
                }
            },
        };
        out.insert("network_mode".to_owned(), mode.into());
        Ok(joins)
    }

    fn host_network(&self, at: &At) -> Result<Joins> {
        self.demand(Allowance::HostNetwork, at, "the host's network is shared")?;
        self.demand_network(at)?;
        Ok(Joins::Host)
    }

    /// What cannot be where services are to reach nothing, whatever the host allows.
    pub(super) fn demand_network(&self, at: &At) -> Result<()> {
        if !self.denied() {
            return Ok(());
        }
        Err(at.refuse(
            "this would be a way out, and the sandbox has no network",
            "use a profile with `network: host`",
        ))
    }

    fn joined(&self, name: &str, definition: &Definition) -> Result<Value> {
        let at = definition.at(name, "networks");
        let alias = definition.keys.get("container_name");
        let alias =
            alias.map(|alias| host_name(alias, &definition.at(name, "container_name"))).transpose()?;
        let usual = json!({"default": {}});
        let given = definition.keys.get("networks").filter(|given| *given != &json!({})).unwrap_or(&usual);
        let mut out = Map::new();
        for (network, how) in read::map(given, &at)? {
            if network != "default" && !self.model.networks.contains_key(network) {
                let names: Vec<&str> = self.model.networks.keys().map(String::as_str).collect();
                return Err(at.unknown("the network", network, &names));
            }
            out.insert(network.clone(), self.membership(how, alias.as_ref(), &at.key(network))?);
        }
        Ok(out.into())
    }

    fn membership(&self, how: &Value, alias: Option<&Value>, at: &At) -> Result<Value> {
        let how = read::map(how, at)?;
        let dropped = [
            "ipv4_address",
            "ipv6_address",
            "link_local_ips",
            "mac_address",
            "gw_priority",
            "interface_name",
        ];
        let known: Vec<&str> = dropped.into_iter().chain(["aliases", "priority"]).collect();
        read::known_keys(how, &known, at)?;
        for key in dropped.iter().filter(|key| how.contains_key(**key)) {
            self.note(&at.key(key), "dropped: addresses are the engine's to give");
        }
        let mut aliases: Vec<Value> = Vec::new();
        for (index, given) in
            read::texts(how.get("aliases").unwrap_or(&Value::Null), at)?.into_iter().enumerate()
        {
            aliases.push(host_name(&given.into(), &at.key("aliases").item(index))?);
        }
        aliases.extend(alias.cloned());
        aliases.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        aliases.dedup();
        let mut out = Map::new();
        if !aliases.is_empty() {
            out.insert("aliases".to_owned(), aliases.into());
        }
        if let Some(priority) = how.get("priority") {
            out.insert("priority".to_owned(), read::integer(priority, &at.key("priority"))?.into());
        }
        Ok(out.into())
    }

    /// Names and ports of a service.
    pub(super) fn reachable(
        &self,
        name: &str,
        definition: &Definition,
        joins: Joins,
        out: &mut Map<String, Value>,
    ) -> Result<()> {
        let get = |key: &str| definition.keys.get(key).map(|value| (value, definition.at(name, key)));
        let named = matches!(joins, Joins::Networks | Joins::Nothing);
        for key in ["hostname", "domainname"] {
            if let Some((value, at)) = get(key).filter(|_| named) {
                out.insert(key.to_owned(), host_name(value, &at)?);
            }
        }
        if let Some((value, at)) = get("expose") {
            let ports = words(value, &at, &|letter| letter.is_ascii_alphanumeric() || "-/".contains(letter))?;
            if named {
                out.insert("expose".to_owned(), ports);
            }
        }
        if let Some((value, at)) = get("links") {
            out.insert("links".to_owned(), self.links(value, &at)?);
        }
        self.addresses(definition, name, joins, out)?;
        self.published(definition, name, joins, out);
        Ok(())
    }

    fn links(&self, value: &Value, at: &At) -> Result<Value> {
        let mut out: Vec<Value> = Vec::new();
        for (index, link) in read::texts(value, at)?.into_iter().enumerate() {
            let at = at.item(index);
            let (service, alias) = link.split_once(':').unwrap_or((&link, &link));
            self.expect_service(service, &at)?;
            host_name(&alias.into(), &at)?;
            out.push(link.into());
        }
        Ok(out.into())
    }

    /// Name servers, and names that the file gives to addresses.
    fn addresses(
        &self,
        definition: &Definition,
        name: &str,
        joins: Joins,
        out: &mut Map<String, Value>,
    ) -> Result<()> {
        let own = matches!(joins, Joins::Networks);
        if let Some(hosts) = definition.keys.get("extra_hosts") {
            let hosts = self.extra_hosts(hosts, &definition.at(name, "extra_hosts"))?;
            if own {
                out.insert("extra_hosts".to_owned(), hosts);
            }
        }
        for key in ["dns", "dns_search", "dns_opt"] {
            let Some(value) = definition.keys.get(key) else { continue };
            let at = definition.at(name, key);
            if self.denied() || !own {
                self.note(&at, "dropped: the sandbox decides which names are known");
                continue;
            }
            let fits: &dyn Fn(char) -> bool = match key {
                "dns" => &|letter| letter.is_ascii_hexdigit() || ".:".contains(letter),
                _ => &|letter| letter.is_ascii_alphanumeric() || ".-_:".contains(letter),
            };
            out.insert(key.to_owned(), words(value, &at, fits)?);
        }
        if self.denied() && own {
            out.insert("dns".to_owned(), json!([self.placing.nobody]));
        }
        Ok(())
    }

    fn extra_hosts(&self, hosts: &Value, at: &At) -> Result<Value> {
        let mut out: Vec<Value> = Vec::new();
        for (name, addresses) in read::map(hosts, at)? {
            let at = at.key(name);
            host_name(&name.as_str().into(), &at)?;
            for address in read::texts(addresses, &at)? {
                let bare = address.trim_start_matches('[').trim_end_matches(']');
                if bare == "host-gateway" {
                    self.demand_network(&at)?;
                } else if bare.parse::<IpAddr>().is_err() {
                    let what = format!("{:?} is not an address", shown(&address));
                    return Err(at.refuse(what, "write an IP address"));
                }
                out.push(format!("{name}:{bare}").into());
            }
        }
        Ok(out.into())
    }

    /// Ports on the host's loopback, wherever one is free.
    fn published(&self, definition: &Definition, name: &str, joins: Joins, out: &mut Map<String, Value>) {
        let ports = ports(definition);
        if ports.is_empty() || self.denied() {
            return;
        }
        if joins != Joins::Networks {
            self.note(&definition.at(name, "ports"), "dropped: the service has no network of its own");
            return;
        }
        let listed: Vec<Value> = ports
            .iter()
            .map(|port| format!("127.0.0.1::{}/{}", port.container, port.protocol).into())
            .collect();
        out.insert("ports".to_owned(), listed.into());
    }

    /// The networks that services are in.
    pub(super) fn networks(&self, services: &Map<String, Value>) -> Result<Map<String, Value>> {
        let used: BTreeSet<&String> = services
            .values()
            .filter_map(|service| service.get("networks").and_then(Value::as_object))
            .flat_map(Map::keys)
            .collect();
        let mut out = Map::new();
        for name in used {
            out.insert(name.clone(), self.network(name)?);
        }
        Ok(out)
    }

    fn network(&self, name: &str) -> Result<Value> {
        let project = self.placing.project;
        let mut out = json!({"name": format!("{project}_{name}"), "driver": "bridge"});
        let (at, internal) = match self.model.networks.get(name) {
            None => (At::file(&self.model.file.to_string()).key("networks").key(name), false),
            Some(declared) => {
                let at = declared.at("networks", name);
                if let Some(external) = self.external(&declared.value, name, &at)? {
                    self.demand_network(&at)?;
                    return Ok(external);
                }
                let internal = self.declared_network(&declared.value, &mut out, &at)?;
                out["labels"] = self.labels(declared.value.get("labels"), &at.key("labels"))?;
                (at, internal)
            }
        };
        if out.get("labels").is_none() {
            out["labels"] = self.labels(None, &at)?;
        }
        if internal || self.denied() {
            out["internal"] = true.into();
        }
        if self.denied() {
            let prefix = self.placing.bridges;
            let digest = blake3::hash(format!("{project}\0{name}").as_bytes()).to_hex();
            out["driver_opts"] = json!({BRIDGE_NAME: format!("{prefix}{}", &digest[..10])});
        }
        Ok(out)
    }

    /// What the file says of a network; returns whether nothing leaves it.
    fn declared_network(&self, value: &Map<String, Value>, out: &mut Value, at: &At) -> Result<bool> {
        let known = [
            "name",
            "driver",
            "driver_opts",
            "ipam",
            "external",
            "internal",
            "attachable",
            "enable_ipv6",
            "enable_ipv4",
            "labels",
        ];
        read::known_keys(value, &known, at)?;
        for (key, why) in [
            ("name", "dropped: names are the sandbox's"),
            ("ipam", "dropped: addresses are the engine's to give"),
            ("enable_ipv6", "dropped: addresses are the engine's to give"),
            ("enable_ipv4", "dropped: addresses are the engine's to give"),
        ] {
            if value.contains_key(key) {
                self.note(&at.key(key), why);
            }
        }
        let driver = value.get("driver").map(|driver| read::text(driver, &at.key("driver"))).transpose()?;
        if let Some(driver) = driver.filter(|driver| !matches!(driver.as_str(), "" | "bridge" | "default")) {
            let at = at.key("driver");
            self.demand(Allowance::NetworkDrivers, &at, "networks of another kind reach the host's own")?;
            self.demand_network(&at)?;
            out["driver"] = plain_text(&driver.into(), &at, &|letter| read::is_name(&format!("a{letter}")))?;
        }
        let mut options = value.get("driver_opts").cloned().unwrap_or(json!({}));
        if options.as_object_mut().and_then(|options| options.remove(BRIDGE_NAME)).is_some() {
            self.note(&at.key("driver_opts"), "the bridge's name is dropped: names are the sandbox's");
        }
        if options != json!({}) {
            let at = at.key("driver_opts");
            self.demand(Allowance::NetworkDrivers, &at, "options of networks change the host's")?;
            self.demand_network(&at)?;
            out["driver_opts"] = super::volumes::options(&options, &at)?;
        }
        value.get("internal").map_or(Ok(false), |flag| read::flag(flag, &at.key("internal")))
    }

    /// A network or a volume that somebody else made, if it is one.
    pub(super) fn external(&self, value: &Map<String, Value>, name: &str, at: &At) -> Result<Option<Value>> {
        let Some(external) = value.get("external").filter(|flag| *flag != false && *flag != "false") else {
            return Ok(None);
        };
        let at = at.key("external");
        self.demand(Allowance::External, &at, "it belongs to others on the host")?;
        let named = external.get("name").or_else(|| value.get("name"));
        let named = named.map_or(Ok(name.to_owned()), |named| read::text(named, &at))?;
        if !read::is_name(&named) {
            return Err(at.refuse("its name is not one", "use letters, digits, `_`, `.` and `-`"));
        }
        Ok(Some(json!({"external": true, "name": named})))
    }
}

/// A name that can be looked up.
fn host_name(value: &Value, at: &At) -> Result<Value> {
    let name = read::text(value, at)?;
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if name.is_empty() || name.len() > 253 || name.starts_with(['-', '.']) || !name.chars().all(fits) {
        return Err(
            at.refuse(format!("{:?} is not a host's name", shown(&name)), "use letters, digits, `.` and `-`")
        );
    }
    Ok(name.into())
}
