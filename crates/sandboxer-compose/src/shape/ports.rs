//! Ports, in their one form. Which port of the host a file wants is forgotten: stacks would meet there.

use sandboxer_core::Result;
use serde_json::{Value, json};

use crate::at::{At, shown};
use crate::read;

/// How many ports one service may have.
const MOST: usize = 256;

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Port {
    pub number: u16,
    pub protocol: String,
}

/// All entries of `ports`, one for each port of the container.
pub(super) fn shape(value: &Value, at: &At) -> Result<Value> {
    let mut ports = Vec::new();
    for (index, item) in read::list(value, at)?.iter().enumerate() {
        ports.extend(entry(item, &at.item(index))?);
        if ports.len() > MOST {
            return Err(at.refuse(format!("there are more than {MOST} ports"), "name fewer"));
        }
    }
    ports.dedup();
    Ok(ports.iter().map(|port| json!({"target": port.number, "protocol": port.protocol})).collect())
}

/// The other way round.
pub(crate) fn read(value: &Value) -> Option<Port> {
    let number = value.get("target")?.as_u64().and_then(|number| u16::try_from(number).ok())?;
    Some(Port { number, protocol: value.get("protocol")?.as_str()?.to_owned() })
}

fn entry(value: &Value, at: &At) -> Result<Vec<Port>> {
    let Value::Object(map) = value else { return short(&read::text(value, at)?, at) };
    let known = ["target", "published", "protocol", "mode", "host_ip", "name", "app_protocol"];
    read::known_keys(map, &known, at)?;
    let protocol = map.get("protocol").map(|value| read::text(value, &at.key("protocol"))).transpose()?;
    let target = read::text(map.get("target").unwrap_or(&Value::Null), &at.key("target"))?;
    range(&target, protocol.as_deref().unwrap_or("tcp"), &at.key("target"))
}

/// `[[ADDRESS:]PUBLISHED:]PORTS[/PROTOCOL]`
fn short(text: &str, at: &At) -> Result<Vec<Port>> {
    let (text, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    range(text.rsplit(':').next().unwrap_or(text), protocol, at)
}

fn range(text: &str, protocol: &str, at: &At) -> Result<Vec<Port>> {
    if !matches!(protocol, "tcp" | "udp") {
        return Err(at.unknown("the protocol", protocol, &["tcp", "udp"]));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().ok().filter(|number| *number > 0);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last && usize::from(last - first) < MOST => {
            Ok((first..=last).map(|number| Port { number, protocol: protocol.to_owned() }).collect())
        }
        _ => Err(at.refuse(
            format!("{:?} is not a port of a container", shown(text)),
            "write a number from 1 to 65535, or a short range such as `8000-8010`",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn numbers(value: Value) -> Vec<u16> {
        let shaped = shape(&json!([value]), &At::file("x")).unwrap();
        shaped.as_array().unwrap().iter().map(|port| read(port).unwrap().number).collect()
    }

    #[test]
    fn only_the_containers_side_counts() {
        for (value, expected) in [
            (json!("80"), vec![80]),
            (json!(80), vec![80]),
            (json!("8080:80/udp"), vec![80]),
            (json!("0.0.0.0:8080:80"), vec![80]),
            (json!("[::1]:8080:80"), vec![80]),
            (json!("3000-3002"), vec![3000, 3001, 3002]),
            (json!("9090-9091:80-81"), vec![80, 81]),
            (json!({"target": 80, "published": "8080", "mode": "host"}), vec![80]),
        ] {
            assert_eq!(numbers(value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for value in [
            json!("web"),
            json!(0),
            json!("70000"),
            json!("80/sctp"),
            json!("1-65535"),
            json!({}),
            json!("9-1"),
        ] {
            assert!(shape(&json!([value]), &At::file("x")).is_err(), "{value}");
        }
    }
}
