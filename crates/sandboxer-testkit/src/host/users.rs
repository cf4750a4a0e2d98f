//! Who can log in: root, and somebody who is not root but may talk to the engine.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

/// The other user's name, on the machine.
pub const GUEST: &str = "guest";
/// Whose members may talk to the engine.
pub(super) const ENGINE_GROUP: &str = "engine";

/// Arguments of `setpriv`.
pub(super) const AS_GUEST: [&str; 3] = ["--reuid=64321", "--regid=64321", "--clear-groups"];

/// An argument of `chown`.
pub(super) const GUEST_OWNER: &str = "64321:64321";

const GUEST_ID: u32 = 64_321;
const ENGINE_GROUP_ID: u32 = 64_322;
/// The first of the ids that the guest's containers have.
const SUBORDINATE_IDS: u32 = 200_000;

/// Writes what is appended to the machine's lists of users and groups, and makes the guest's home.
pub(super) fn write(dir: &Path) {
    let user = format!("{GUEST}:x:{GUEST_ID}:{GUEST_ID}::/home/{GUEST}:/bin/sh\n");
    let groups = format!("{GUEST}:x:{GUEST_ID}:\n{ENGINE_GROUP}:x:{ENGINE_GROUP_ID}:{GUEST}\n");
    fs::write(dir.join("passwd"), user).unwrap();
    fs::write(dir.join("group"), groups).unwrap();
    fs::write(dir.join("subordinate-ids"), format!("{GUEST}:{SUBORDINATE_IDS}:65536\n")).unwrap();
    let home = dir.join("home").join(GUEST);
    fs::create_dir_all(&home).unwrap();
    chown(&home, Some(GUEST_ID), Some(GUEST_ID)).unwrap();
}
