use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::config::parse_duration;
use sandboxer_core::contract::CancelFlag;
use sandboxer_server::{Line, Listen, Options, ServeLock, handed_over, openapi, serve};

use crate::cli::error::CliError;
use crate::cli::places::variable;
use crate::cli::serving::{Serving, tell};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Where the socket is in the state directory.
pub const SOCKET: &str = "serve.sock";

/// Answer HTTP: the same use cases for every harness, validator and person
///
/// Without --listen it is a Unix socket in the state directory, which only its owner and root can use. Over TCP every request needs a token;
/// see `sandbox token`. One server is at work on a state directory: another one refuses, or waits with --standby. Log lines, each a JSON
/// document, go to stderr. SIGTERM and Ctrl-C end it: no new work, and what runs may finish.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox serve
  sandbox serve --listen tcp:127.0.0.1:7070
  sandbox serve --standby                    Take over when the other one ends
  sandbox serve --openapi > openapi.json     Only describe the API")]
pub struct Args {
    /// Where: unix:PATH or tcp:HOST:PORT; can be repeated [default: a socket in the state directory]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// A name that clients may call it besides its addresses; can be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Let tokens travel unencrypted to addresses that other machines reach
    #[arg(long)]
    plain_http: bool,
    /// Wait while another server is at work on the state directory
    #[arg(long)]
    standby: bool,
    /// How long running work has to finish at the end
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    grace: String,
    /// Print the OpenAPI document and end
    #[arg(long)]
    openapi: bool,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    if args.openapi {
        app.ui.bytes(openapi::text().as_bytes())?;
        return Ok(exit::OK);
    }
    let options = args.options(app)?;
    let cancel = options.cancel.clone();
    let lock = match args.standby {
        true => {
            tell(&Line::new("waiting", "waiting while another server is at work here"));
            ServeLock::wait(&app.places.home, &cancel)?
        }
        false => ServeLock::take(&app.places.home)?,
    };
    let serving = Serving::new(app.places.clone(), app.own_settings()?, cancel)?;
    serve(Arc::new(serving), options, lock)?;
    Ok(exit::OK)
}

impl Args {
    fn options(&self, app: &App) -> Result<Options, CliError> {
        let mut listen = self.listen.iter().map(|text| text.parse()).collect::<Result<Vec<Listen>, _>>()?;
        let handed_over = handed_over(variable("LISTEN_PID").as_deref(), variable("LISTEN_FDS").as_deref());
        if listen.is_empty() && handed_over == 0 {
            listen.push(Listen::Unix(app.places.home.join(SOCKET)));
        }
        Ok(Options {
            listen,
            handed_over,
            hosts: self.allow_host.clone(),
            plain_http: self.plain_http,
            grace: Duration::from_secs(parse_duration(&self.grace)?.as_secs().unsigned_abs()),
            cancel: CancelFlag::default(),
        })
    }
}
