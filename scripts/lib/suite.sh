# Which tests there are, for cargo nextest. Sourced by ./test and scripts/coverage.

# What kills and traces the program: an instrumented process that dies writes no profile, and its own profile writing would be among
# the syscalls that are counted and failed.
readonly TRACED='(binary(/_sweep$|^power_cut$/) | (binary(adversarial) & test(/killed/)))'

# Tests with a `main` of their own answer no `--list`, so nextest cannot run them.
own_main_tests() {
    grep -l '^harness *= *false' crates/*/Cargo.toml 2>/dev/null | while read -r manifest; do
        awk -v crate="$(basename "$(dirname "$manifest")")" '
            /^\[/ { name = ""; test = ($0 == "[[test]]") }
            test && /^name *=/ { name = $0; gsub(/.*= *"|"$/, "", name) }
            test && /^harness *= *false/ { if (name != "") print crate, name }' "$manifest"
    done
}

# A filter for everything else.
harness_tests() {
    local filter='all()' crate name
    while read -r crate name; do filter="$filter & not (package($crate) & binary($name))"; done < <(own_main_tests)
    echo "$filter"
}
