use std::path::{Path, PathBuf};

use sandboxer_core::config::{Settings, parse_ttl};
use sandboxer_core::environment::SandboxStatus;
use sandboxer_core::model::PlanId;
use sandboxer_core::service::{Consumer, CreateRequest, Created, Input, Sandbox, Target, Workspace};
use sandboxer_core::types::is_url;
use sandboxer_documents::SandboxDocument;
use sandboxer_documents::git;
use serde_json::Value;

use super::get::describe;
use crate::cli::databases::{self, DatabaseArgs};
use crate::cli::environments::{self, EnvironmentArgs};
use crate::cli::error::CliError;
use crate::cli::git::CheckoutArgs;
use crate::cli::output::{self, Ui, shell_word};
use crate::cli::session::{App, current_dir, typed};
use crate::cli::{Outcome, exit};

/// Make a sandbox of one or more directories, files or databases
///
/// Without a resource it is the current directory. Several resources make one sandbox with several workspaces, which are
/// committed as one. With --plan, the plan's open sandbox over the same resources is returned if there is one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox create                                  A sandbox of this directory
  sandbox create ~/proj --name try --ttl 2h       Named, and gone in two hours if nothing is pending
  sandbox create --exclude target --exclude '*.o' Leave build output out
  sandbox create --input app=./app --input conf=/etc/app.conf
  sandbox create --clean --from v1.2              Git: from a tag, nothing uncommitted
  sandbox create . env:DATABASE_URL               Files and a database, committed as one
  sandbox create --plan fix-123 --json            The same sandbox for each call with this plan")]
pub struct Args {
    /// Directories, files, URLs of databases, or env:NAME of a variable with one [default: the current directory]
    #[arg(value_name = "RESOURCE")]
    pub resources: Vec<PathBuf>,
    /// A resource with a name for its workspace
    #[arg(long = "input", value_name = "NAME=RESOURCE")]
    pub inputs: Vec<String>,
    /// How to isolate; see `sandbox strategies`
    #[arg(short, long)]
    pub strategy: Option<String>,
    /// Fail (exit 6) rather than use another strategy where this one does not work
    #[arg(long)]
    pub no_fallback: bool,
    /// The piece of work that the sandbox belongs to
    #[arg(long)]
    pub plan: Option<String>,
    /// Its name [default: from the resource]
    #[arg(short, long)]
    pub name: Option<String>,
    /// Time to live, such as 30m, 2h or 7d; uncommitted work is parked when it is over
    #[arg(long, value_name = "DURATION")]
    pub ttl: Option<String>,
    /// Only what matches; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Not what matches; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    #[command(flatten)]
    pub checkout: CheckoutArgs,
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(flatten)]
    pub environment: EnvironmentArgs,
    #[command(flatten)]
    pub consumer: ConsumerArgs,
}

/// Who asks.
#[derive(clap::Args)]
pub struct ConsumerArgs {
    /// Who asks: adm (a person), agt (an agent) or atm (automation) [default: adm]
    #[arg(long = "actor", alias = "actor-type", value_name = "TYPE")]
    #[arg(value_parser = ["adm", "agt", "atm"], hide_possible_values = true)]
    actor_type: Option<String>,
    /// The calling project's id [default: local]
    #[arg(long, value_name = "ID")]
    project: Option<String>,
}

impl ConsumerArgs {
    /// The consumer by flag, setting, default.
    pub fn consumer(&self, settings: &Settings) -> Consumer {
        let actor_type = self.actor_type.clone().or_else(|| settings.actor_type.clone());
        let project = self.project.clone().or_else(|| settings.project.clone());
        Consumer {
            actor_type: actor_type.unwrap_or_else(|| "adm".to_owned()),
            project: project.unwrap_or_else(|| "local".to_owned()),
        }
    }
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let inputs = args.inputs()?;
    let session = app.open_at(&project_start(&inputs)?)?;
    if let Some(answered) = args.environment.answered(&session)? {
        return tell(app, &answered);
    }
    let request = CreateRequest {
        inputs,
        strategy: args.strategy.clone(),
        no_fallback: args.no_fallback,
        plan: args.plan.as_deref().map(PlanId::from_string),
        name: args.name.clone(),
        ttl: args.ttl.as_deref().map(parse_ttl).transpose()?,
        consumer: args.consumer.consumer(&session.settings),
        disposable: false,
        environment: args.environment.request(app)?,
    };
    let created = session.manager.get_or_create_sandbox(&request)?;
    tell(app, &created)
}

impl Args {
    fn inputs(&self) -> Result<Vec<Input>, CliError> {
        let mut inputs = Vec::new();
        for resource in &self.resources {
            inputs.push(self.input(None, resource)?);
        }
        for text in &self.inputs {
            let (name, resource) = split_input(text)?;
            inputs.push(self.input(Some(name.to_owned()), Path::new(resource))?);
        }
        if inputs.is_empty() {
            inputs.push(self.input(None, Path::new("."))?);
        }
        Ok(inputs)
    }

    fn input(&self, name: Option<String>, resource: &Path) -> Result<Input, CliError> {
        let patterns = [("include", &self.include), ("exclude", &self.exclude)];
        let given = patterns.into_iter().filter(|(_, list)| !list.is_empty());
        let mut properties = self.checkout.properties();
        properties.extend(given.map(|(key, list)| (key.to_owned(), Value::from(list.clone()))));
        let (location, reference) = databases::located(&location(resource)?)?;
        properties.extend(self.database.properties(&location, reference)?);
        Ok(Input { name, location, properties })
    }
}

/// A resource's location as text. State and configuration are text, so a path that is not cannot be kept.
pub fn location(resource: &Path) -> Result<String, CliError> {
    let text = resource.to_str().filter(|text| !text.is_empty()).map(str::to_owned);
    text.ok_or_else(|| {
        CliError::usage(format!(
            "{:?} cannot be the path of a resource: it is empty or not UTF-8",
            resource.display()
        ))
        .on(resource)
    })
}

pub fn split_input(text: &str) -> Result<(&str, &str), CliError> {
    text.split_once('=').filter(|(name, resource)| !name.is_empty() && !resource.is_empty()).ok_or_else(
        || {
            CliError::usage(format!("--input {text:?} is not NAME=RESOURCE"))
                .hint("such as --input app=./app")
        },
    )
}

/// Where to look for the project's file: at the first resource that is here.
fn project_start(inputs: &[Input]) -> Result<PathBuf, CliError> {
    let paths =
        inputs.iter().filter(|input| !is_url(&input.location)).map(|input| Path::new(&input.location));
    let first = paths.into_iter().find(|path| path.exists());
    match first {
        Some(path) if path.is_dir() => Ok(path.to_path_buf()),
        Some(path) => Ok(path
            .parent()
            .map(Path::to_path_buf)
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(".".into())),
        None => current_dir(),
    }
}

fn tell(app: &mut App, created: &Created) -> Outcome {
    let sandbox = &created.sandbox;
    let document = SandboxDocument::new(sandbox, created.created, &created.message);
    let document = document.with_git(git::about_all(sandbox));
    if app.ui.json {
        app.ui.document(&document)?;
        return Ok(exit::OK);
    }
    let status = document.to_status().map_err(|e| CliError::output(e.into()))?;
    tell_made(&mut app.ui, &status)?;
    if let Some(first) = sandbox.workspaces.first() {
        tell_where(app, sandbox, first);
    }
    app.ui.next("then:", &format!("sandbox diff {}", shell_word(&sandbox.name)));
    Ok(exit::OK)
}

/// What was made, for people.
pub fn tell_made(ui: &mut Ui, sandbox: &SandboxStatus) -> Result<(), CliError> {
    describe(ui, sandbox)?;
    ui.flush()?;
    ui.note(output::sentence(&sandbox.message));
    for workspace in sandbox.workspaces.iter().filter(|w| w.strategy != w.requested_strategy) {
        let (requested, used) =
            (output::name(&workspace.requested_strategy), output::name(&workspace.strategy));
        ui.note(format_args!("{requested} does not work here, so it is {used}"));
    }
    Ok(())
}

/// How to get at the first workspace: into a directory, or at a file.
fn tell_where(app: &App, sandbox: &Sandbox, first: &Workspace) {
    if databases::connects(first) {
        let target = Target { sandbox: sandbox.clone(), workspaces: vec![first.clone()] };
        return app.ui.next("connect:", &format!("psql \"$(sandbox path {})\"", typed(&target)));
    }
    if first.sandbox_ref.sandbox_path().is_none() {
        return;
    }
    let target = Target { sandbox: sandbox.clone(), workspaces: vec![first.clone()] };
    if environments::is_elsewhere(sandbox) {
        return app.ui.next("work in it:", &format!("sandbox exec {} -- CMD", typed(&target)));
    }
    let path = format!("\"$(sandbox path {})\"", typed(&target));
    match first.resource.path().is_some_and(Path::is_file) {
        true => app.ui.next("edit it:", &path),
        false => app.ui.next("work in it:", &format!("cd {path}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn inputs_are_name_and_resource() {
        assert_eq!(split_input("app=./a=b").unwrap(), ("app", "./a=b"));
        for bad in ["app", "=x", "app=", ""] {
            assert_eq!(split_input(bad).unwrap_err().exit, 2, "{bad:?}");
        }
    }

    #[test]
    fn the_project_is_where_the_resource_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "").unwrap();
        let input = |path: &Path| Input {
            name: None,
            location: location(path).unwrap(),
            properties: Default::default(),
        };
        let start = |path: &Path| project_start(&[input(path)]).unwrap();
        assert_eq!(start(dir.path()), dir.path());
        assert_eq!(start(&file), dir.path());
        let with_url = [input(Path::new("s3://bucket")), input(dir.path())];
        assert_eq!(project_start(&with_url).unwrap(), dir.path());
        assert_eq!(start(Path::new("/no/such/thing")), std::env::current_dir().unwrap());
    }

    #[test]
    fn a_location_is_text() {
        use std::os::unix::ffi::OsStrExt;
        assert!(location(Path::new("")).is_err());
        assert!(location(Path::new(std::ffi::OsStr::from_bytes(b"\xff"))).is_err());
    }
}
