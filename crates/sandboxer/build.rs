//! Links debug builds without position independence: a start of the program is a third faster, and the tests start it some
//! ten thousand times. Release builds keep it, because address space layout randomisation needs it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg=-no-pie");
    }
}
