//! Another machine with an engine, a project with a compose file, and both ways to make its stack there: by `sandbox`, and by hand.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sandboxer_remote::{Address, Settings, Ssh};
use sandboxer_testkit::host::RemoteHost;
use serde::Deserialize;

use super::Program;
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, run};
use crate::place::{Place, tool};
use crate::rows::Bench;
use crate::sandbox::SandboxCommand;

/// Three services and their one network. All that they do is to be there.
const STACK: &str = r#"services:
  web: {image: "busybox:test", command: sleep infinity, volumes: ["..:/shop"]}
  app: {image: "busybox:test", command: sleep infinity}
  store: {image: "busybox:test", command: sleep infinity}
"#;
/// The services, as containers are called after them.
const SERVICES: [&str; 3] = ["app", "store", "web"];
/// The state, and a project of two files.
const ROOM: u64 = 64 << 20;
/// How long a connection may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The machine, and whoever works on it. What is left on either side goes with it.
pub struct Scene {
    sandbox: SandboxCommand,
    ssh: Ssh,
    /// What the host was given for a stack of ours.
    resolved: Resolved,
    program: Program,
    count: Cell<usize>,
    host: RemoteHost,
    place: Place,
}

/// A stack as the host gets it.
struct Resolved {
    text: String,
    id: String,
    directory: String,
}

/// A stack that was made by hand, or is about to be.
pub struct ByHand {
    program: Program,
    project: String,
    file: String,
}

/// What `create --json` answers, as far as it is needed here.
#[derive(Deserialize)]
struct Made {
    sandbox_id: String,
}

impl Scene {
    /// Starts the machine, and makes one stack on it, to see that it works and how it is resolved.
    pub fn new(bench: &Bench, disk: &Path, program: Program) -> Result<Self> {
        let host = program.host().map_err(Failure::Skipped)?;
        let place = Place::disk(disk, ROOM)?;
        let root = place.root().to_owned();
        write(&root.join("project/e2e/docker-compose.yml"), STACK)?;
        write(&root.join("project/index.html"), "one line\n")?;
        write(&root.join("config/config.yaml"), "")?;
        write(&root.join("config/hosts/bench.yaml"), &described(&host, program))?;
        let sandbox = SandboxCommand::new(&bench.binary, &root);
        let ssh = connection(&host, &root.join("home/ssh"))?;
        let (resolved, count) = (Resolved::default(), Cell::new(0));
        let scene = Self { sandbox, ssh, resolved, program, count, host, place };
        let (_, id) = scene.create()?;
        let resolved = Resolved::of(&scene.host, &id);
        scene.destroy(&id)?;
        Ok(Self { resolved: resolved?, ..scene })
    }

    /// A `sandbox` that knows the host.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.command(arguments);
        command.env("SANDBOXER_CONFIG", self.place.root().join("config/config.yaml"));
        command
    }

    /// What makes a stack.
    pub fn creating(&self) -> Command {
        let repository = format!("repo={}", self.place.root().join("project").display());
        self.command(&[
            "create",
            "--profile",
            "profile.compose-e2e",
            "--host",
            "bench",
            "--json",
            "--input",
            &repository,
        ])
    }

    /// Times the making of a stack until it is ready; whoever calls destroys it.
    pub fn create(&self) -> Result<(Sample, String)> {
        let output = self.output();
        let sample = run(&mut self.creating(), &output, &[0])?;
        Ok((sample, made(&output)?))
    }

    /// Times the removal of a stack.
    pub fn destroy(&self, id: &str) -> Result<Sample> {
        run(&mut self.command(&["destroy", "--discard", id]), &self.output(), &[0])
    }

    /// A file for what a command says.
    pub fn output(&self) -> PathBuf {
        self.place.root().join(format!("output-{}", self.next()))
    }

    fn next(&self) -> usize {
        self.count.replace(self.count.get() + 1)
    }

    /// Ends the connection that calls of ours share: whoever is measured next connects, as by hand.
    pub fn disconnect(&self) -> Result<()> {
        self.ssh.disconnect();
        let sockets = self.place.root().join("home/ssh");
        let until = Instant::now() + PATIENCE;
        while has_sockets(&sockets)? {
            if Instant::now() > until {
                return Err(Failure::new("the connection to the host does not end"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The same stack under another name, with all of its files on the host. Nothing runs yet.
    pub fn by_hand(&self) -> Result<ByHand> {
        let word = format!("hand{}", self.next());
        let directory = format!("/root/by-hand/{word}");
        let there = self.host.home().join("by-hand").join(&word);
        fs::create_dir_all(there.join("workspaces/repo")).during("create directory", &there)?;
        write(&there.join("stack.yaml"), &self.resolved.like(&word, &directory))?;
        let (project, file) = (format!("sandboxer-{word}"), format!("{directory}/stack.yaml"));
        Ok(ByHand { program: self.program, project, file })
    }

    /// A command over a connection of its own, as one types it.
    pub fn typed(&self, line: &str) -> Command {
        let mut ssh = self.host.ssh();
        ssh.arg(line);
        ssh
    }

    /// Times such a command.
    pub fn run_typed(&self, line: &str) -> Result<Sample> {
        run(&mut self.typed(line), &self.output(), &[0])
    }

    /// Removes a stack that was made by hand; not timed.
    pub fn clean_up(&self, stack: &ByHand) -> Result<()> {
        tool(self.host.in_namespace("sh").args(["-c", &stack.remove()]))
    }
}

impl ByHand {
    /// What to type to make it.
    pub fn up(&self) -> String {
        format!("{} -p {} -f {} up -d", self.program.line(), self.project, self.file)
    }

    /// What to type to remove it.
    pub fn down(&self) -> String {
        format!("{} -p {} -f {} down -v -t 0", self.program.line(), self.project, self.file)
    }

    /// What the engine itself has to be told for that, by who knows what there is.
    pub fn remove(&self) -> String {
        let between = self.program.separator();
        let containers = SERVICES.map(|service| format!("{}{between}{service}{between}1", self.project));
        let containers = containers.join(" ");
        format!("docker rm -f -v {containers} && docker network rm {}_default", self.project)
    }
}

impl Resolved {
    /// The stack of a sandbox.
    fn of(host: &RemoteHost, id: &str) -> Result<Self> {
        let ours = host.home().join(".sandboxer");
        let mut controllers = fs::read_dir(&ours).during("list", &ours)?.flatten();
        let Some(controller) = controllers.find(|entry| entry.path().join(id).is_dir()) else {
            return Err(Failure::new(format!("no directory of {id} in {}", ours.display())));
        };
        let name = controller.file_name().to_string_lossy().into_owned();
        let file = controller.path().join(id).join("stack.yaml");
        let text = fs::read_to_string(&file).during("read", &file)?;
        Ok(Self { text, id: id.to_owned(), directory: format!("/root/.sandboxer/{name}/{id}") })
    }

    /// The same for another directory, with other names for everything that a host has only once.
    fn like(&self, word: &str, directory: &str) -> String {
        let text = self.text.replace(&self.directory, directory).replace(&self.id, word);
        let text = text.replace(&self.id.to_ascii_lowercase(), word);
        let bridge = text.split('"').find(|piece| piece.starts_with("sbx")).map(str::to_owned);
        bridge.map_or(text.clone(), |bridge| text.replace(&bridge, &format!("sbx{word}")))
    }
}

impl Default for Resolved {
    fn default() -> Self {
        Self { text: String::new(), id: "none".to_owned(), directory: "none".to_owned() }
    }
}

/// The sandbox that a `create --json` has made.
pub fn made(output: &Path) -> Result<String> {
    let text = fs::read(output).during("read", output)?;
    let made: Made = serde_json::from_slice(&text).during("understand the JSON in", output)?;
    Ok(made.sandbox_id)
}

fn described(host: &RemoteHost, program: Program) -> String {
    let (name, config, compose) = (host.name(), host.ssh_config().display(), program.line());
    format!(
        "id: bench\nsummary: Another machine\naddress: ssh://{name}\nssh: {{config: {config}, compose: {compose}}}\nextensions: [ext.compose-ssh]\n"
    )
}

/// The way that `sandbox` goes.
pub fn connection(host: &RemoteHost, control: &Path) -> Result<Ssh> {
    let failed = |error: sandboxer_core::Error| Failure::new(error.to_string());
    let address = Address::parse(&format!("ssh://{}", host.name())).map_err(failed)?;
    let config = Some(host.ssh_config().to_owned());
    let settings = Settings { config, control: control.to_owned(), connect_timeout: PATIENCE };
    Ssh::new(address, settings).map_err(failed)
}

fn has_sockets(directory: &Path) -> Result<bool> {
    let entries = fs::read_dir(directory).during("list", directory)?;
    Ok(entries.flatten().any(|entry| entry.path().extension().is_none()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory).during("create directory", directory)?;
    fs::write(path, text).during("write", path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stack_by_hand_shares_no_name_with_ours() {
        let text = r#"{"bridge.name": "sbxb60", "name": "sandboxer-sbx_1_default", "source": "/root/.sandboxer/c/sbx_1/workspaces/repo"}"#;
        let resolved = Resolved {
            text: text.to_owned(),
            id: "sbx_1".to_owned(),
            directory: "/root/.sandboxer/c/sbx_1".to_owned(),
        };
        let expected = r#"{"bridge.name": "sbxhand7", "name": "sandboxer-hand7_default", "source": "/root/by-hand/hand7/workspaces/repo"}"#;
        assert_eq!(resolved.like("hand7", "/root/by-hand/hand7"), expected);
    }

    #[test]
    fn what_is_typed_names_what_there_is() {
        let (project, file) = ("sandboxer-hand7".to_owned(), "/f".to_owned());
        let stack = ByHand { program: Program::Alone, project, file };
        assert_eq!(stack.up(), "docker-compose -p sandboxer-hand7 -f /f up -d");
        assert!(
            stack.remove().contains("sandboxer-hand7_web_1 && docker network rm sandboxer-hand7_default")
        );
    }
}
