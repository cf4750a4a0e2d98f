//! Tests that run commands in a sandbox: they need namespaces.

mod basics;
mod escape;
mod escape_kernel;
mod escape_later;
mod escape_processes;
mod escape_strict;
mod exec;
mod limits;
mod network;
mod run;
mod runtime_quiet;
mod runtime_remains;
mod shapes;
mod terminal;
mod terminal_tmux;
