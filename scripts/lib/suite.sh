# Which tests there are, for cargo nextest. Sourced by ./test and scripts/coverage.

readonly NEXTEST_VERSION=0.9.143

# Tests that trace the program and kill it or fail its system calls. They run without instrumentation: an instrumented process
# that is killed writes no profile, and writing the profile would be among the system calls that are counted and failed.
readonly TRACED='(test(/^sweeps::/) | test(/^disks::(power_cut|git)::/))'

# What `./test --quick` runs: everything that needs no server, no daemon, no loop mount and no tracing.
readonly QUICK='not (test(/^(sweeps|disks|docker|stacks|databases|histories|properties)::/)
    | test(/(^|::)(servers|docker|host)::/)
    | (package(sandboxer-database) & test(/^(mysql|postgres)::/)) | (package(sandboxer-remote) & test(/tests::/))
    | binary(databases) | binary(user_mode))'

need_nextest() {
    local status=0
    cargo_tool cargo-nextest $NEXTEST_VERSION || status=$?
    [ $status = 0 ] || die "cargo-nextest is missing and could not be built: cargo install --locked cargo-nextest"
}

# The seed of sampled sweeps follows from the committed sources: a second run takes the same points, every change others.
export_seed() {
    SANDBOXER_TEST_SEED=${SANDBOXER_TEST_SEED:-$(git rev-parse --short=12 HEAD:crates 2>/dev/null || echo 0)}
    export SANDBOXER_TEST_SEED
    say "seed of the sampled sweeps: SANDBOXER_TEST_SEED=$SANDBOXER_TEST_SEED"
}
