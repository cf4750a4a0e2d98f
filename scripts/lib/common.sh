# Shared by ./test, .ci/run and scripts/*: words on the screen, tools, and what was skipped. Sourced, never run.

say() { printf '%s\n' "$*" >&2; }
step() { printf '\n== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Notes what cannot be done here and why. The log has the form that skipped tests use; ./test prints it at the end.
note_skip() {
    say "skipped: $*"
    [ -z "${SANDBOXER_SKIP_LOG:-}" ] || printf 'skipped: setup: %s\n' "$*" >>"$SANDBOXER_SKIP_LOG"
}

need_cargo() {
    have cargo || die "cargo is not on the PATH; install Rust first: https://rustup.rs"
}

# Cargo's target directory, wherever the configuration has put it.
target_dir() {
    cargo metadata --format-version 1 --no-deps --offline 2>/dev/null |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

# Where tools are kept that are built from source: outside of the clone, so that the next clone finds them.
tool_cache() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/sandboxer/tools"; }

# cargo_tool NAME VERSION: makes the cargo subcommand NAME available, from the PATH or from the cache, where it is built
# once per version. A debug build: it takes a third of the time, and the tool's own speed does not matter here.
# Returns 2 if it cannot be downloaded.
cargo_tool() {
    local name=$1 version=$2 root log
    root="$(tool_cache)/$name-$version"
    export PATH="$PATH:$root/bin"
    have "$name" && return 0
    say "building $name $version into $root (once)"
    log=$(mktemp)
    if cargo install --quiet --locked --debug --root "$root" "$name@$version" >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    cat "$log" >&2
    if grep -qiE 'resolve host|failed to download|network|timed out|could not connect' "$log"; then
        rm -f "$log"
        return 2
    fi
    rm -f "$log"
    return 1
}
