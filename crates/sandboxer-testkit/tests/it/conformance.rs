//! The conformance suite over every strategy and over the strict fake.

use sandboxer_core::contract::Capabilities;
use sandboxer_core::registry::StrategyEntry;
use sandboxer_keeper::mount;
use sandboxer_strategies::{copy_on_write, filesystem_copy, git_worktree, none, overlay};
use sandboxer_testkit::conformance::Fixture;
use sandboxer_testkit::faults::require_sampled;
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::{conformance_tests, fake};

const XFS_BYTES: u64 = 400 << 20;

/// State directory and resource on one XFS with reflinks.
fn on_xfs() -> Result<Fixture, String> {
    require_sampled(3)?;
    let xfs = Mounted::xfs(XFS_BYTES)?;
    Ok(Fixture::split(copy_on_write::entry(), xfs.path(), xfs.path()).keeping(xfs))
}

/// State directory and resource on different filesystems, so that scratch space is made beside the resource.
fn across_filesystems() -> Result<Fixture, String> {
    require_sampled(3)?;
    let (home, resource) = (Mounted::tmpfs(64 << 20)?, Mounted::ext4(64 << 20)?);
    let fixture = Fixture::split(filesystem_copy::entry(), home.path(), resource.path());
    Ok(fixture.keeping((home, resource)))
}

/// Overlays that this process mounts.
fn on_the_host() -> Result<Fixture, String> {
    mount::try_host(&std::env::temp_dir())?;
    Ok(Fixture::new(overlay::entry()))
}

/// The same, with everything in memory.
fn on_tmpfs() -> Result<Fixture, String> {
    require_sampled(3)?;
    let memory = Mounted::tmpfs(64 << 20)?;
    mount::try_host(memory.path())?;
    Ok(Fixture::split(overlay::entry(), memory.path(), memory.path()).keeping(memory))
}

/// A checkout, as an overlay.
fn of_a_checkout() -> Result<Fixture, String> {
    mount::try_host(&std::env::temp_dir())?;
    Ok(Fixture::new(git_worktree::entry()).checked_out())
}

/// A checkout where overlays do not work, so that it is copied. A copy shows nothing of the original but what it was.
fn of_a_checkout_by_copy() -> Result<Fixture, String> {
    require_sampled(3)?;
    let mounted = Mounted::overlay()?;
    if mount::try_host(mounted.path()).is_ok() {
        return Err("overlays over overlays work here".to_owned());
    }
    let entry = git_worktree::entry();
    let capabilities = Capabilities { looks_through: false, ..entry.capabilities.clone() };
    let entry = StrategyEntry { capabilities, ..entry };
    Ok(Fixture::split(entry, mounted.path(), mounted.path()).checked_out().keeping(mounted))
}

conformance_tests!(strict_fake, || Ok(Fixture::new(fake::entry())));
conformance_tests!(filesystem_copy_strategy, || Ok(Fixture::new(filesystem_copy::entry())));
conformance_tests!(filesystem_copy_across_filesystems, across_filesystems);
conformance_tests!(copy_on_write_strategy, on_xfs);
conformance_tests!(overlay_on_the_host, on_the_host);
conformance_tests!(overlay_on_tmpfs, on_tmpfs);
conformance_tests!(git_worktree_strategy, of_a_checkout);
conformance_tests!(git_worktree_by_copy, of_a_checkout_by_copy);
conformance_tests!(none_strategy, || Ok(Fixture::new(none::entry())));
