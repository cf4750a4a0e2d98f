use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::Timestamp;
use sandboxer_core::access::{NewToken, Token, TokenScope};
use sandboxer_core::config::parse_ttl;
use sandboxer_core::service::Consumer;
use serde::Serialize;

use crate::cli::error::CliError;
use crate::cli::output::{self, moment, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Make, list and take back tokens for `sandbox serve`
///
/// A token names somebody, and says on whose behalf they act, what they may do and what they may isolate. Its text is shown once; what is kept of it is no
/// secret. Which sandboxes they see is what the profiles say: their own, their project's, or everybody's.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox token create --principal ci --actor atm --project web --scope commit --resource /srv/web
  sandbox token list
  sandbox token revoke bnmtcq5u")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Make a token, and show it once
    Create(CreateArgs),
    /// Show all tokens, without their secrets
    List,
    /// Take a token back: from now on it is refused
    Revoke {
        /// Its id, or the beginning of it
        id: String,
    },
}

#[derive(clap::Args)]
struct CreateArgs {
    /// Who: a person, an agent, a pipeline
    #[arg(long, value_name = "NAME")]
    principal: String,
    /// What kind: adm (a person), agt (an agent) or atm (automation)
    #[arg(long = "actor", value_name = "TYPE", default_value = "agt")]
    #[arg(value_parser = ["adm", "agt", "atm"], hide_possible_values = true)]
    actor_type: String,
    /// The project that they act for
    #[arg(long, value_name = "ID")]
    project: String,
    /// What they may do: read, work, commit (each with those before it), or admin; can be repeated
    #[arg(long = "scope", value_name = "SCOPE", default_value = "work")]
    scopes: Vec<String>,
    /// What they may isolate: a directory with everything below it, or the beginning of a URL; can be repeated
    #[arg(long = "resource", value_name = "PLACE")]
    resources: Vec<String>,
    /// How long it is good for, such as 30d [default: until it is revoked]
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,
}

#[derive(Serialize)]
struct Created<'a> {
    #[serde(flatten)]
    token: &'a Token,
    /// Shown this once.
    text: &'a str,
}

#[derive(Serialize)]
struct Tokens<'a> {
    tokens: &'a [Token],
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    match &args.what {
        What::Create(args) => create(app, args),
        What::List => list(app),
        What::Revoke { id } => revoke(app, id),
    }
}

fn create(app: &mut App, args: &CreateArgs) -> Outcome {
    let new = args.token()?;
    let (token, text) = app.open()?.manager.create_token(new)?;
    if app.ui.json {
        app.ui.document(&Created { token: &token, text: &text })?;
        return Ok(exit::OK);
    }
    app.ui.line(&text)?;
    app.ui.flush()?;
    app.ui.note(format_args!("this is the only time that it is shown; {} is its id", token.id));
    app.ui.next("take it back:", &format!("sandbox token revoke {}", token.id));
    Ok(exit::OK)
}

impl CreateArgs {
    fn token(&self) -> Result<NewToken, CliError> {
        let mut scopes = BTreeSet::new();
        for text in &self.scopes {
            scopes.extend(text.parse::<TokenScope>()?.closure());
        }
        let ttl = self.ttl.as_deref().map(parse_ttl).transpose()?;
        Ok(NewToken {
            principal: self.principal.clone(),
            consumer: Consumer { actor_type: self.actor_type.clone(), project: self.project.clone() },
            scopes,
            resources: self.resources.iter().map(|place| canonical(place)).collect(),
            expires_at: ttl.map(|ttl| Timestamp::now() + ttl),
        })
    }
}

/// A directory as resources are known: where its links lead, and absolute. One that is not there yet stays as it was typed.
fn canonical(place: &str) -> String {
    if place.contains("://") {
        return place.to_owned();
    }
    let path = PathBuf::from(place);
    let path = path.canonicalize().or_else(|_| std::path::absolute(&path)).unwrap_or(path);
    path.to_str().map_or_else(|| place.to_owned(), str::to_owned)
}

fn list(app: &mut App) -> Outcome {
    let tokens = app.open()?.manager.tokens()?;
    if app.ui.json {
        app.ui.document(&Tokens { tokens: &tokens })?;
    } else if tokens.is_empty() {
        app.ui.next(
            "no tokens; make one with",
            "sandbox token create --principal NAME --project ID --resource DIR",
        );
    } else {
        let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
        let head = ["ID", "PRINCIPAL", "ACTOR", "PROJECT", "SCOPES", "MADE", "VALID", "RESOURCES"];
        app.ui.bytes(table(&head, &rows).as_bytes())?;
    }
    Ok(exit::OK)
}

fn row(token: &Token) -> Vec<String> {
    let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
    vec![
        token.id.clone(),
        output::name(&token.principal),
        token.consumer.actor_type.clone(),
        output::name(&token.consumer.project),
        scopes.join(","),
        moment(token.created_at),
        good(token),
        output::sentence(&token.resources.join(", ")),
    ]
}

fn good(token: &Token) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {}", moment(at)),
        (None, Some(at)) if at <= Timestamp::now() => format!("expired {}", moment(at)),
        (None, Some(at)) => format!("until {}", moment(at)),
        (None, None) => "until revoked".to_owned(),
    }
}

fn revoke(app: &mut App, id: &str) -> Outcome {
    let token = app.open()?.manager.revoke_token(id)?;
    if app.ui.json {
        app.ui.document(&token)?;
    } else {
        app.ui.line(format_args!("revoked {} of {}", token.id, output::name(&token.principal)))?;
    }
    Ok(exit::OK)
}
