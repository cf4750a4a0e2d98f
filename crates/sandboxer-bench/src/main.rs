//! Benchmarks of sandboxer, side by side with the tools that a person would use instead.
//!
//! One subcommand is one table. A table is a list of rows ([`rows`]); a row measures two sides in turn ([`measure`]) on
//! a place ([`place`]: tmpfs, XFS, disk) that holds a generated tree ([`tree`]), and ends as one line of a report
//! ([`report`]). Ratios decide, absolute figures are reported; a missed goal is marked and is not an error.

mod binary;
mod compose;
mod db;
mod environments;
mod failure;
mod files;
mod git;
mod interrupt;
mod measure;
mod options;
mod place;
mod plugins;
mod report;
mod rows;
mod run;
mod sandbox;
mod service;
mod traffic;
mod tree;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{Failure, Result};
use interrupt::Interrupt;

/// Benchmarks of sandboxer: each row side by side with what it is compared with.
#[derive(Parser)]
#[command(name = "sandboxer-bench", version)]
struct Arguments {
    #[command(subcommand)]
    table: Table,
}

/// One table each; further ones go here.
#[derive(Subcommand)]
enum Table {
    Compose(compose::ComposeArguments),
    Db(db::DbArguments),
    Environments(environments::EnvironmentsArguments),
    Files(files::FilesArguments),
    Git(git::GitArguments),
    Plugins(plugins::PluginsArguments),
    Run(run::RunArguments),
    Service(service::ServiceArguments),
    #[command(hide = true)]
    Traffic(traffic::TrafficArguments),
}

fn main() -> ExitCode {
    if let Some(code) = rows::plugins::be_if_asked() {
        return code;
    }
    let arguments = Arguments::parse();
    match measure_table(&arguments.table) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            say(&why.to_string());
            if why == Failure::Interrupted { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

/// Whether every row that can be measured here was measured.
fn measure_table(table: &Table) -> Result<bool> {
    let interrupt = Interrupt::listen()?;
    match table {
        Table::Compose(arguments) => compose::measure(arguments, &interrupt),
        Table::Db(arguments) => db::measure(arguments, &interrupt),
        Table::Environments(arguments) => environments::measure(arguments, &interrupt),
        Table::Files(arguments) => files::measure(arguments, &interrupt),
        Table::Git(arguments) => git::measure(arguments, &interrupt),
        Table::Plugins(arguments) => plugins::measure(arguments, &interrupt),
        Table::Run(arguments) => run::measure(arguments, &interrupt),
        Table::Service(arguments) => service::measure(arguments, &interrupt),
        Table::Traffic(arguments) => traffic::be(arguments),
    }
}

/// Tells the user on stderr; a closed stderr must not stop the clean-up.
fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "sandboxer-bench: {message}");
}
