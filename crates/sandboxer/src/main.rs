//! The command `sandbox`: parse, call the library, say what happened.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
