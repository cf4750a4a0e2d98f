//! The compose program: both sides use the same.

use clap::ValueEnum;
use sandboxer_testkit::host::{RemoteHost, Setup};

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// The one by itself, of Debian 12
    #[value(name = "docker-compose")]
    Alone,
    /// The second version, a plugin of docker
    #[value(name = "docker compose")]
    Plugin,
}

impl Program {
    /// What is typed.
    pub fn line(self) -> &'static str {
        match self {
            Self::Alone => "docker-compose",
            Self::Plugin => "docker compose",
        }
    }

    /// Tells rows apart that name no program; those of the first one are called as they always were.
    pub fn by(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Plugin => " by docker compose",
        }
    }

    /// A machine that has it, or why there is none here.
    pub fn host(self) -> Result<RemoteHost, String> {
        match self {
            Self::Alone => RemoteHost::with(&Setup::default()),
            Self::Plugin => RemoteHost::with(&Setup { compose_plugin: true, ..Setup::default() }),
        }
    }

    /// What stands between the words of a container's name.
    pub fn separator(self) -> char {
        match self {
            Self::Alone => '_',
            Self::Plugin => '-',
        }
    }
}
