# Which tests there are, for cargo nextest. Sourced by ./test and scripts/coverage.

readonly NEXTEST_VERSION=0.9.143

# Tests that trace the program and kill it or fail its system calls. They run without instrumentation: an instrumented process
# that is killed writes no profile, and writing the profile would be among the system calls that are counted and failed.
readonly TRACED='(test(/^sweeps::/) | test(/^disks::(power_cut|git)::/) | test(/_at_any_system_call_/))'

# What `./test --quick` builds and runs: unit tests and tests of commands that need no server, no tracing, no disk of their own
# and few other programs. Of the crates compose, database, plugin and remote nothing is built: their test binaries would add more
# to a rebuild after a change in core than the minute allows.
readonly QUICK_PACKAGES='--workspace --exclude sandboxer-testkit --exclude sandboxer-bench --exclude btrfs-snapshot
    --exclude sandboxer-remote --exclude sandboxer-compose --exclude sandboxer-plugin --exclude sandboxer-database
    --lib --bins --test it'
readonly QUICK='(kind(lib) | kind(bin) | test(/^commands::/))
    - test(/^commands::(docs|strategies|plugins|git|overlay|events|remote)/)
    - test(/(^|::)(git_tests|git_worktree|prepared_last)::/)'

need_nextest() {
    local status=0
    cargo_tool cargo-nextest $NEXTEST_VERSION || status=$?
    [ $status = 0 ] || die "cargo-nextest is missing and could not be built: cargo install --locked cargo-nextest"
}

# The seed of sampled sweeps follows from the tree of HEAD: a second run takes the same points, every commit others.
export_seed() {
    SANDBOXER_TEST_SEED=${SANDBOXER_TEST_SEED:-$(git rev-parse --short=12 'HEAD^{tree}' 2>/dev/null || echo 0)}
    export SANDBOXER_TEST_SEED
    say "seed of the sampled sweeps: SANDBOXER_TEST_SEED=$SANDBOXER_TEST_SEED"
}
