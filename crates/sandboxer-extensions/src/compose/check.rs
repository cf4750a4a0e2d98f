//! Whether a host has what a stack needs, tried one by one.

use std::time::Duration;

use sandboxer_core::Result;
use sandboxer_core::environment::{ExtensionContext, Host};
use sandboxer_remote::Answer;
use serde::Serialize;

use super::controller::controller;
use super::making::{guarded_by_others, policy_of, rules_by_hand, shortcomings};
use super::station::{Greeting, Station};
use super::{Engine, podman, scripts};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// Whether it is as it has to be; `None` where that could not be tried.
    pub fine: Option<bool>,
    /// What was seen.
    pub told: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

const PROBING: Duration = Duration::from_secs(120);

/// Where it is tried from inside whether a stack reaches its host. An empty image and the host's own programs: nothing has to be fetched. `$1` engine,
/// `$2` controller, `$3` whether it is rootless. Says `reached ADDRESS`, `held`, or `untried WHY`. What it makes has the labels of a sandbox that nobody knows, so that a sweep finds
/// what stays where even the shell is killed; the rule of a bridge that is gone goes with the next probe.
const PROBE: &str = r#"
set -u
e=$1 controller=$2 rootless=$3 n=sandboxer-probe-$$ image=sandboxer-probe:$$ sandbox=sbx_probe_$$
labels=$(label_options "$controller" "$sandbox")
as=
[ "$(id -u)" = 0 ] || as='sudo -n'
# A rule for this one bridge, as long as it takes.
rule() { $as iptables -w 10 "$1" INPUT -i "$2" -m conntrack --ctstate NEW -j DROP; }
clean() { rule -D "sbxp$$"; "$e" network rm "$n"; "$e" rmi --force "$image"; }
trap 'clean >/dev/null 2>&1' EXIT
# Who says something to nobody, because the connection is lost, or is told to end, cleans up all the same.
trap '' PIPE
trap 'exit 1' HUP INT TERM
for old in $($as iptables -w 10 -S INPUT 2>/dev/null | sed -n 's/^-A INPUT -i \(sbxp[0-9]*\) .*/\1/p'); do
  [ -e "/sys/class/net/$old" ] || rule -D "$old" >/dev/null 2>&1
done
command -v bash >/dev/null || { echo 'untried bash is not there'; exit 0; }
set -- ${SSH_CONNECTION:-}
port=${4:-22}
import_empty "$e" "$image" "$controller" "$sandbox" || exit 1
gateway=
case $e-$rootless in
  podman-yes) podman network create --internal --disable-dns $labels "$n" >/dev/null || exit 1 ;;
  podman-*)
    network "$n" "sbxp$$" --internal $labels || exit 1
    gateway=$("$e" network inspect --format '{{range .Subnets}}{{.Gateway}} {{end}}' "$n")
    ;;
  *)
    "$e" network create --internal --opt com.docker.network.bridge.name="sbxp$$" $labels "$n" >/dev/null || exit 1
    gateway=$("$e" network inspect --format '{{range .IPAM.Config}}{{.Gateway}} {{end}}' "$n")
    ;;
esac
[ "$rootless" = yes ] || rule -I "sbxp$$" >/dev/null 2>&1
tried=
for address in $gateway $(hostname -I 2>/dev/null); do
  case $address in *:*) continue ;; esac
  timeout 3 bash -c 'echo >"/dev/tcp/$0/$1"' "$address" "$port" 2>/dev/null || continue
  tried=yes
  if "$e" run --rm $labels --network "$n" --dns 192.0.2.1 $(host_programs) "$image" /bin/bash -c 'timeout 3 bash -c "echo >/dev/tcp/$0/$1"' "$address" "$port" >/dev/null 2>&1; then
    echo "reached $address port $port"
    exit 0
  fi
done
[ -n "$tried" ] && echo held || echo "untried nothing of the host answers at port $port where a stack could ask"
"#;

fn probe(station: &Station, greeting: &Greeting, controller: &str) -> Result<Answer> {
    let engine = greeting.engine.map_or("docker", Engine::program);
    let rootless = if greeting.podman().rootless { "yes" } else { "no" };
    let script = [scripts::MINE, podman::NETWORK, PROBE].concat();
    station.ask(&script, &[engine, controller, rootless], &[], PROBING)
}

/// Makes the directory and says how many kilobytes are free. `$1` base.
const DIRECTORY: &str = r#"
set -eu
umask 077
mkdir -p "$1"
[ ! -L "$1" ] && [ -O "$1" ] || { echo "$1 is not a directory of ours" >&2; exit 1; }
df -Pk "$1" | tail -n 1 | { read -r _ _ _ free _; echo "$free"; }
rmdir "$1" 2>/dev/null || :
"#;

/// Looks at everything that a stack needs on a host. What has to be there first is looked at first, and the rest is left out where that is not there.
pub fn check(host: &Host, context: &ExtensionContext) -> Result<Vec<Finding>> {
    let station = Station::new(host, context)?;
    let mut findings = vec![policy(host)];
    let greeting = match station.greet_now() {
        Ok(greeting) => greeting,
        Err(error) => {
            findings.push(bad("connection", error.in_full(), None));
            return Ok(findings);
        }
    };
    findings.push(good("connection", if station.is_elsewhere() { "by ssh" } else { "it is this machine" }));
    findings.push(tools(&greeting));
    findings.push(directory(&station, &greeting));
    findings.push(engine(&greeting));
    if greeting.obstacle().is_none() {
        findings.push(firewall(&station, &greeting));
        findings.push(network(&station, &greeting, &controller(&context.home)?));
    }
    Ok(findings)
}

fn good(what: &'static str, told: impl Into<String>) -> Finding {
    Finding { what, fine: Some(true), told: told.into(), hint: None }
}

fn bad(what: &'static str, told: String, hint: Option<String>) -> Finding {
    Finding { what, fine: Some(false), told, hint }
}

fn policy(host: &Host) -> Finding {
    match policy_of(host) {
        Ok(_) if host.policy.is_empty() => good("policy", "nothing beyond what is harmless"),
        Ok(_) => good("policy", format!("allows {}", host.policy.allow.join(", "))),
        Err(error) => {
            bad("policy", error.in_full(), Some("correct `policy.allow` in the host's file".to_owned()))
        }
    }
}

fn tools(greeting: &Greeting) -> Finding {
    match greeting.missing.is_empty() {
        true => good("programs", "tar, find, sort, comm, xargs, gzip"),
        false => bad(
            "programs",
            format!("missing: {}", greeting.missing.join(", ")),
            Some("install them there".to_owned()),
        ),
    }
}

fn directory(station: &Station, greeting: &Greeting) -> Finding {
    let looked = station.base(greeting).and_then(|base| {
        let free = station.text("make a directory on", DIRECTORY, &[&base])?;
        Ok((base, free))
    });
    match looked {
        Ok((base, free)) => {
            let free: u64 = free.trim().parse().unwrap_or(0);
            good("directory", format!("{base}, {:.1} GiB free", free as f64 / f64::from(1 << 20)))
        }
        Err(error) => {
            bad("directory", error.in_full(), Some("set ssh.directory in the host's file".to_owned()))
        }
    }
}

fn engine(greeting: &Greeting) -> Finding {
    match greeting.obstacle().filter(|_| greeting.missing.is_empty()) {
        None => match greeting.engine {
            None => Finding { what: "engine", fine: None, told: "not looked at".to_owned(), hint: None },
            Some(engine) => good("engine", engine_in_words(engine, greeting)),
        },
        Some(reason) => bad(
            "engine",
            reason,
            Some(format!(
                "install docker with compose, or podman, there, and let this user use it; or name the command: {}",
                super::station::COMPOSE_COMMAND
            )),
        ),
    }
}

fn engine_in_words(engine: Engine, greeting: &Greeting) -> String {
    let version = greeting.version.split_whitespace().next().unwrap_or("?");
    let program = engine.program();
    if engine == Engine::Docker {
        return format!("{program} {version}, by `{}`", greeting.compose.join(" "));
    }
    let user = if greeting.podman().rootless { "rootless" } else { "as root" };
    let notes: String = shortcomings(greeting).iter().map(|note| format!("; {note}")).collect();
    format!("{program} {version}, {user}{notes}")
}

fn firewall(station: &Station, greeting: &Greeting) -> Finding {
    if guarded_by_others(&station.host) {
        let told = "looked after by somebody else, as the host's file says".to_owned();
        return Finding { what: "firewall", fine: None, told, hint: None };
    }
    if greeting.engine == Some(Engine::Podman) && greeting.podman().rootless {
        return good("firewall", "not needed: the networks of rootless podman do not lead to the host");
    }
    let engine = greeting.engine.unwrap_or(Engine::Docker);
    let answer = station.ask(scripts::COULD_GUARD, &[engine.program()], &[], super::station::LOOKING);
    match answer {
        Ok(answer) if answer.code == 0 && answer.stdout.is_empty() => {
            good("firewall", "can be told to drop what stacks send to the host: the first stack does so")
        }
        Ok(answer) if answer.code == 0 => good("firewall", "drops what stacks send to the host"),
        Ok(answer) => bad("firewall", answer.complaint(), Some(rules_by_hand(engine, greeting.is_root))),
        Err(error) => bad("firewall", error.in_full(), None),
    }
}

fn network(station: &Station, greeting: &Greeting, controller: &str) -> Finding {
    let answer = probe(station, greeting, controller);
    let said = answer.as_ref().map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned());
    let untried =
        |why: String| Finding { what: "network", fine: None, told: format!("not tried: {why}"), hint: None };
    match (&answer, said.as_deref()) {
        (_, Ok("held")) => good("network", "tried from inside: a stack does not reach the host"),
        (_, Ok(said)) if said.starts_with("reached ") => bad(
            "network",
            format!("tried from inside: a stack has {said}"),
            Some(rules_by_hand(greeting.engine.unwrap_or(Engine::Docker), greeting.is_root)),
        ),
        (_, Ok(said)) if said.starts_with("untried ") => untried(said.replacen("untried ", "", 1)),
        (Ok(answer), _) => untried(answer.complaint()),
        (Err(error), _) => untried(error.in_full()),
    }
}
