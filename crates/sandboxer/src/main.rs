//! The command `sandbox`: parse, call the library, say what happened.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    sandboxer_strategies::serve_if_asked();
    #[cfg(feature = "databases")]
    sandboxer_database::serve_if_asked();
    #[cfg(feature = "server")]
    sandboxer_hub::serve_if_asked();
    sandboxer_extensions::local::supervise_if_asked();
    cli::main()
}
