//! Programs to compile, made by a generator: the same text everywhere, and nothing to fetch.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::failure::{During, Result};

/// How many functions a file has; enough that a compiler has something to do.
const FUNCTIONS: usize = 60;

/// A C program of so many files with its `Makefile`.
pub fn write_c(directory: &Path, files: usize) -> Result<()> {
    let calls: String = (0..files).map(|file| format!(" + entry_{file}(n)")).collect();
    let declared: String = (0..files).map(|file| format!("int entry_{file}(int n);\n")).collect();
    save(
        directory,
        "all.h",
        &format!("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n{declared}"),
    )?;
    let main = format!(
        "#include \"all.h\"\nint main(void) {{\n    int n = 7;\n    printf(\"%d\\n\", 0{calls});\n    return 0;\n}}\n"
    );
    save(directory, "main.c", &main)?;
    for file in 0..files {
        save(directory, &format!("part_{file}.c"), &c_file(file))?;
    }
    let objects: String = (0..files).map(|file| format!(" part_{file}.o")).collect();
    let makefile =
        format!("CFLAGS = -O1\nprogram: main.o{objects}\n\t$(CC) -o $@ $^\nmain.o{objects}: all.h\n");
    save(directory, "Makefile", &makefile)
}

fn c_file(file: usize) -> String {
    let mut text = "#include \"all.h\"\n".to_owned();
    for function in 0..FUNCTIONS {
        let (step, name) = (function + file + 1, format!("f_{file}_{function}"));
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "static int {name}(int n) {{\n    char room[64];\n    memset(room, n & 15, sizeof room);\n    for (int i = 0; i < n; i += {step})\n        n -= room[i & 63] ^ {step};\n    return n < 0 ? abs(n) : n + {step};\n}}\n"
        );
    }
    let calls: String = (0..FUNCTIONS).map(|function| format!(" + f_{file}_{function}(n)")).collect();
    text + &format!("int entry_{file}(int n) {{\n    return 0{calls};\n}}\n")
}

/// A Rust crate of so many modules that needs no other.
pub fn write_rust(directory: &Path, modules: usize) -> Result<()> {
    save(
        directory,
        "Cargo.toml",
        "[package]\nname = \"generated\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n",
    )?;
    save(directory, "Cargo.lock", "version = 3\n\n[[package]]\nname = \"generated\"\nversion = \"0.1.0\"\n")?;
    let source = directory.join("src");
    fs::create_dir(&source).during("create directory", &source)?;
    let declared: String = (0..modules).map(|module| format!("mod part_{module};\n")).collect();
    let calls: String = (0..modules).map(|module| format!(" + part_{module}::entry(n)")).collect();
    let main = format!(
        "{declared}\nfn main() {{\n    let n = std::env::args().count() as i64;\n    println!(\"{{}}\", 0{calls});\n}}\n"
    );
    save(&source, "main.rs", &main)?;
    (0..modules).try_for_each(|module| save(&source, &format!("part_{module}.rs"), &rust_module(module)))
}

fn rust_module(module: usize) -> String {
    let mut text = "use std::collections::BTreeMap;\n".to_owned();
    for function in 0..FUNCTIONS / 4 {
        let step = function + module + 1;
        let _ = write!(
            text,
            "\nfn f_{function}(n: i64) -> i64 {{\n    let mut seen: BTreeMap<i64, String> = BTreeMap::new();\n    for i in (0..n).step_by({step}) {{\n        seen.entry(i % {step}).or_default().push_str(&i.to_string());\n    }}\n    seen.values().map(|text| text.len() as i64).sum::<i64>() + {step}\n}}\n"
        );
    }
    let calls: String = (0..FUNCTIONS / 4).map(|function| format!(" + f_{function}(n)")).collect();
    text + &format!("\npub fn entry(n: i64) -> i64 {{\n    0{calls}\n}}\n")
}

fn save(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, text).during("write", &path)
}
