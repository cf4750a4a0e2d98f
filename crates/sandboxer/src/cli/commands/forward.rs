use std::net::TcpListener;
use std::process::Stdio;

use sandboxer_core::environment::{Endpoint, Way};
use sandboxer_core::service::Sandbox;
use serde::Serialize;

use super::TargetArg;
use crate::cli::Outcome;
use crate::cli::error::{CliError, Kind};
use crate::cli::output;
use crate::cli::session::App;
use crate::cli::tunnels;

/// Reach a port of a sandbox from this machine
///
/// A port of this machine's loopback leads to the service for as long as this runs. With one published port nothing else has to be said. Without --port it is the
/// service's own number where that is free here.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox forward try                       The only published port, until Ctrl-C
  sandbox forward try web:8080 --port 9000
  sandbox forward try 5432")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Which one: SERVICE:PORT, SERVICE or PORT; `sandbox get ID` lists them
    #[arg(value_name = "ENDPOINT")]
    endpoint: Option<String>,
    /// The port of this machine
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

#[derive(Serialize)]
struct Document<'a> {
    sandbox_id: &'a str,
    endpoint: &'a str,
    host: &'static str,
    port: u16,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    let sandbox = &target.sandbox;
    let endpoint = meant(sandbox, args.endpoint.as_deref())?;
    let port = local_port(endpoint, args.port)?;
    let way = Way::Forward { endpoint, port };
    let Some(line) = session.manager.line(sandbox, &way)? else {
        return Err(CliError::new(
            Kind::Usage,
            format!("{} is reached without a tunnel", output::sentence(&endpoint.name)),
        )
        .hint(format!("connect to {}:{}", output::sentence(&endpoint.host), endpoint.port)));
    };
    if app.ui.json {
        let (sandbox_id, endpoint) = (sandbox.id.as_str(), endpoint.name.as_str());
        app.ui.document(&Document { sandbox_id, endpoint, host: "127.0.0.1", port })?;
        app.ui.flush()?;
    } else {
        app.ui.note(format_args!(
            "127.0.0.1:{port} leads to {}; end it with Ctrl-C",
            output::sentence(&endpoint.name)
        ));
    }
    tunnels::become_it(session, &line, Stdio::null())
}

/// The endpoint that was named, or the only one.
fn meant<'a>(sandbox: &'a Sandbox, named: Option<&str>) -> Result<&'a Endpoint, CliError> {
    let all = sandbox.environment.as_deref().map(|e| e.endpoints.as_slice()).unwrap_or_default();
    let fits = |endpoint: &&Endpoint| named.is_none_or(|named| is_called(&endpoint.name, named));
    let found: Vec<&Endpoint> = all.iter().filter(fits).collect();
    let names = || all.iter().map(|e| output::sentence(&e.name)).collect::<Vec<_>>().join(", ");
    match (&found[..], named) {
        ([only], _) => Ok(only),
        _ if all.is_empty() => Err(CliError::new(
            Kind::NotFound,
            format!("sandbox {} publishes no port", output::name(&sandbox.name)),
        )
        .hint("a service publishes what its `ports` in the compose file say")),
        ([], Some(named)) => {
            Err(CliError::new(Kind::NotFound, format!("there is no endpoint {}", output::name(named)))
                .hint(format!("there are {}", names())))
        }
        _ => Err(CliError::usage("which endpoint is meant?").hint(format!("one of {}", names()))),
    }
}

/// `web:8080/tcp` is called that, `web:8080`, `web` and `8080`.
fn is_called(name: &str, typed: &str) -> bool {
    let short = name.split('/').next().unwrap_or(name);
    let (service, port) = short.rsplit_once(':').unwrap_or(("", short));
    [name, short, service, port].contains(&typed)
}

/// The port that was asked for, else the service's own, else any that is free.
fn local_port(endpoint: &Endpoint, asked: Option<u16>) -> Result<u16, CliError> {
    let own = endpoint.name.split('/').next().and_then(|name| name.rsplit(':').next()?.parse().ok());
    let free =
        |port: u16| TcpListener::bind(("127.0.0.1", port)).and_then(|it| it.local_addr()).map(|at| at.port());
    match asked {
        Some(port) => free(port).map_err(|error| {
            CliError::new(Kind::Error, format!("port {port} of this machine cannot be had: {error}"))
                .hint("leave --port out to have one that is free")
        }),
        None => own
            .map_or(Err(std::io::ErrorKind::NotFound.into()), free)
            .or_else(|_| free(0))
            .map_err(|error| CliError::new(Kind::Error, format!("no port of this machine is free: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_goes_by_what_tells_it_apart() {
        for typed in ["web:8080/tcp", "web:8080", "web", "8080"] {
            assert!(is_called("web:8080/tcp", typed), "{typed}");
        }
        assert!(!is_called("web:8080/tcp", "80") && !is_called("web:8080/tcp", "we"));
    }
}
