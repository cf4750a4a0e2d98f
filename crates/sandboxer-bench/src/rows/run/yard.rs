//! Where the rows of `run` work: projects, each with a state directory and a home of its own, in one place.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::STRATEGY;
use crate::failure::{During, Failure, Result};
use crate::place::{Place, is_root, tool};
use crate::rows::Bench;
use crate::sandbox::{Created, SandboxCommand, Tidy};

/// Nobody on the machine, and not the user that stands for nobody either: that is what strangers look like in a user namespace.
const ORDINARY_USER: u32 = 54_321;

/// Who runs the commands of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Root, on the host.
    Root,
    /// A user without any right: ours where we have none, else one that nobody is.
    OrdinaryUser,
}

impl Who {
    /// Both, in the order of the table.
    pub const ALL: [Self; 2] = [Self::Root, Self::OrdinaryUser];

    /// Whoever runs the benchmark.
    pub fn ourselves() -> Self {
        if is_root() { Self::Root } else { Self::OrdinaryUser }
    }

    /// What a row calls them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::OrdinaryUser => "an ordinary user",
        }
    }

    /// The user that commands have to be told to run as.
    fn user(self) -> Option<u32> {
        (self == Self::OrdinaryUser && is_root()).then_some(ORDINARY_USER)
    }
}

/// A place with room for projects.
pub struct Yard<'a> {
    /// The settings.
    pub bench: &'a Bench,
    place: Place,
    binary: PathBuf,
}

impl<'a> Yard<'a> {
    /// Works in `place`, with a copy of the binary there: every user can reach it, and whatever runs it is ours.
    pub fn new(bench: &'a Bench, place: Place) -> Result<Self> {
        place.open_to_all()?;
        let binary = place.root().join("sandbox");
        copy_program(&bench.binary, &binary)?;
        Ok(Self { bench, place, binary })
    }

    /// A project of a few files that belongs to them.
    pub fn project(&self, name: &str, who: Who) -> Result<Project<'_>> {
        if who == Who::Root && !is_root() {
            return Err(Failure::Skipped("needs root".to_owned()));
        }
        let root = self.place.root().join(name);
        let (directory, house) = (root.join("project"), root.join("house"));
        fs::create_dir(&root).during("create directory", &root)?;
        self.bench.spec.write(&directory, &self.bench.interrupt)?;
        fs::create_dir(&house).during("create directory", &house)?;
        let sandbox = SandboxCommand::new(&self.binary, &root);
        let sandbox = match who.user() {
            Some(user) => sandbox.run_by(user),
            None => sandbox,
        };
        let project = Project { yard: self, root, directory, house, who, sandbox: Tidy(sandbox) };
        project.give_away(&project.root)?;
        Ok(project)
    }
}

/// A directory to work in, and the `sandbox` command for it.
pub struct Project<'a> {
    /// Where it is.
    pub yard: &'a Yard<'a>,
    root: PathBuf,
    /// The project's own directory.
    pub directory: PathBuf,
    house: PathBuf,
    who: Who,
    sandbox: Tidy,
}

impl Project<'_> {
    /// A path beside the project's directory.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The binary that is measured.
    pub fn binary(&self) -> &Path {
        &self.yard.binary
    }

    /// Writes out what is dirty, so that neither side pays for the other's writes.
    pub fn settle(&self) -> Result<()> {
        self.yard.place.settle()
    }

    /// `sandbox` in the project's directory, with a home that holds nothing.
    pub fn sandbox(&self, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.command(arguments);
        command.env("HOME", &self.house).current_dir(&self.directory);
        command
    }

    /// `sandbox run` of a command in a sandbox that is thrown away.
    pub fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let run = ["run", "--quiet", "--discard", "--strategy", STRATEGY];
        self.sandbox(&[&run, options, &["--"], command].concat())
    }

    /// Any other program in the project's directory: by the same user, with the same environment.
    pub fn plainly(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = self.who.user() {
            command.uid(user).gid(user);
        }
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &self.house);
        command.current_dir(&self.directory);
        command
    }

    /// A sandbox of the project that stays.
    pub fn create(&self) -> Result<Created> {
        self.sandbox.create_by(&self.directory, STRATEGY).map(|(_, created)| created)
    }

    /// Skips a row where the strategy does not work here.
    pub fn need_strategy(&self) -> Result<()> {
        self.sandbox.need_strategy(&self.directory, STRATEGY)
    }

    /// Makes what is at or below `path` the user's own.
    pub fn give_away(&self, path: &Path) -> Result<()> {
        self.who.user().map_or(Ok(()), |user| chown_below(path, user))
    }
}

/// Copies a program, in a process of its own: a file that a child of ours inherited open for writing could not be executed.
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    tool(Command::new("install").args(["-m", "755"]).arg(from).arg(to))
}

fn chown_below(path: &Path, user: u32) -> Result<()> {
    chown(path, Some(user), Some(user)).during("give away", path)?;
    if !path.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(path).during("list", path)? {
        chown_below(&entry.during("list", path)?.path(), user)?;
    }
    Ok(())
}
