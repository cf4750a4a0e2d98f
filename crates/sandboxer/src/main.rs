//! The command `sandbox`: parse, call the library, say what happened.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    sandboxer_keeper::serve_if_asked();
    sandboxer_keeper::enter::enter_if_asked();
    sandboxer_strategies::overlay::sweep_if_asked();
    cli::main()
}
