//! Another machine to try things on: says how it is reached, and is gone when its input ends.

use std::process::ExitCode;

use sandboxer_testkit::host::RemoteHost;

fn main() -> ExitCode {
    let host = match RemoteHost::start() {
        Ok(host) => host,
        Err(reason) => {
            eprintln!("there can be none here: {reason}");
            return ExitCode::FAILURE;
        }
    };
    println!("ssh -F {} {}", host.ssh_config().display(), host.name());
    let _ = std::io::stdin().read_line(&mut String::new());
    ExitCode::SUCCESS
}
