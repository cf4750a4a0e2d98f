# Python for the tests: an environment with the packages that examples need, and the suites. Sourced by ./test.

# What cannot be had, and why, where nothing can be downloaded.
readonly PYPI_AWAY='NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|name resolution|Network is unreachable|Connection refused'

# What is installed for whom.
readonly REQUIREMENTS=(examples/strategies/*/requirements.txt tests/clients/requirements.txt tests/api/requirements.txt)

# Where the environment is: one for each list of packages, in the cache.
environment_root() {
    local digest
    digest=$(cat "${REQUIREMENTS[@]}" | cksum | cut -d' ' -f1)
    echo "$(tool_cache)/python-$digest"
}

# Makes the environment, once.
python_packages() {
    local root
    have python3 || return 0
    root=$(environment_root)
    [ -f "$root/complete" ] || make_environment "$root"
}

# Prints the interpreter that has the packages; the plain one where there is none, and what needs them is skipped.
python_to_use() {
    local root
    root=$(environment_root)
    if [ -f "$root/complete" ]; then echo "$root/bin/python"; else echo python3; fi
}

# make_environment DIRECTORY. Packages that cannot be downloaded are told and no failure; anything else is.
make_environment() {
    local root=$1 log lists=() list
    log=$(mktemp)
    for list in "${REQUIREMENTS[@]}"; do lists+=(-r "$list"); done
    say "making $root (once)"
    rm -rf "$root"
    make_venv "$root" || { note_skip "no virtual environment can be made (Debian package python3-venv): what needs Python packages"; return 0; }
    if "$root/bin/pip" install --quiet --disable-pip-version-check --no-input --retries 1 --timeout 20 "${lists[@]}" >"$log" 2>&1; then
        touch "$root/complete"
    elif grep -qE "$PYPI_AWAY" "$log"; then
        note_skip "PyPI cannot be reached: what needs Python packages"
    else
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

make_venv() {
    python3 -m venv "$1" >&2 && return 0
    apt_install python3-venv
    rm -rf "$1"
    python3 -m venv "$1" >&2
}

# python_suite ONE_IN DIRECTORY [TOP]: one test in ONE_IN of a directory, closed by a line such as cargo's.
python_suite() {
    SANDBOXER_BINARY=$(target_dir)/debug/sandbox PYTHONDONTWRITEBYTECODE=1 "$(python_to_use)" scripts/lib/unittest_suite.py "$@"
}

# Starts every suite in Python beside the tests in Rust, on the program that was just built.
python_parts() {
    local directory
    have python3 || { note_skip "python3 is missing: everything in Python"; return 0; }
    start_part python python_suite 1 python/tests python
    for directory in examples/strategies/*/; do
        compgen -G "${directory}test_*.py" >/dev/null || continue
        start_part "example $(basename "$directory")" python_suite 2 "$directory"
    done
    start_part "database clients" python_suite 2 tests/clients
    start_part api python_suite 1 tests/api
}
