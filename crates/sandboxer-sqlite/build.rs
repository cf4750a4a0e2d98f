//! Compiles SQLite, from the source that `libsqlite3-sys` brings, with what that crate's own copy does not have.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=c/sqlite.c");
    println!("cargo:rerun-if-env-changed=DEP_SQLITE3_INCLUDE");
    let include = env::var("DEP_SQLITE3_INCLUDE").unwrap_or_default();
    let amalgamation = Path::new(&include).join("sqlite3.c");
    assert!(amalgamation.is_file(), "libsqlite3-sys has no source of SQLite at {}", amalgamation.display());
    println!("cargo:rerun-if-changed={}", amalgamation.display());
    cc::Build::new()
        .file("c/sqlite.c")
        .include(&include)
        .warnings(false)
        .flag_if_supported("-w")
        .compile("sandboxer_sqlite3");
}
