//! Stands in for the HTTP server, its client and the State Hub in a build without the feature `server`.

use sandboxer::wiring::left_out;

pub mod hub {
    use std::path::Path;

    use super::left_out;
    use crate::cli::Outcome;
    use crate::cli::places::Places;
    use crate::cli::session::App;

    pub fn deliver(_app: &mut App) -> Outcome {
        Err(left_out::error("client for a State Hub").into())
    }

    /// Events stay in the state directory; `sandbox doctor` says that this build does not deliver them.
    pub fn send_courier(_places: &Places) {}

    pub fn standing(_home: &Path) -> String {
        format!("this build of sandbox does not deliver events; they are kept; {}", left_out::HINT)
    }
}

pub mod remote {
    use std::path::Path;

    use super::left_out;
    use crate::cli::Outcome;
    use crate::cli::commands::Command;
    use crate::cli::error::CliError;
    use crate::cli::session::App;

    /// There is none.
    #[derive(Clone, Debug)]
    pub enum Server {}

    impl Server {
        pub fn new(
            _name: &str,
            _token_file: Option<&Path>,
            _variable: Option<&str>,
        ) -> Result<Self, CliError> {
            Err(left_out::error("client for a server").into())
        }
    }

    pub fn run(_app: &mut App, server: &Server, _command: &Command) -> Outcome {
        match *server {}
    }
}

pub mod serve {
    use std::ffi::OsString;

    use super::left_out;
    use crate::cli::Outcome;
    use crate::cli::session::App;

    /// Serve the HTTP API (not in this build)
    #[derive(clap::Args)]
    #[command(after_help = "\
Examples:
  sandbox serve")]
    pub struct Args {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        _arguments: Vec<OsString>,
    }

    pub fn run(_app: &mut App, _args: &Args) -> Outcome {
        Err(left_out::error("HTTP server").into())
    }
}

pub mod serving {
    /// The variable in which a server hands a command its environment.
    pub const HANDED_VARIABLES: &str = "SANDBOXER_EXEC_ENV";
}
