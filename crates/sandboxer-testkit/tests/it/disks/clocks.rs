//! D36: clocks that were set back.

use std::fs;
use std::process::Command;

use sandboxer_testkit::faults::Cli;
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::skip;

use crate::adversarial::{STRATEGY, told};

/// D36 end to end. The machine's clock is not ours to change, so the edit's time is set back on the unmounted image.
#[test]
fn d36_an_edit_from_before_the_base_is_a_conflict() {
    let mounted = match Mounted::ext4(64 << 20) {
        Ok(mounted) => mounted,
        Err(reason) => return skip(&reason),
    };
    let (resource, home) = (mounted.path().join("resource"), tempfile::tempdir().unwrap());
    fs::create_dir(&resource).unwrap();
    fs::write(resource.join("a.txt"), "alpha\n").unwrap();
    let cli = Cli::new(home.path());
    let sandbox = cli.create(&resource, &STRATEGY);
    fs::write(sandbox.path.join("a.txt"), "mine\n").unwrap();
    fs::write(resource.join("a.txt"), "THEIR\n").unwrap();
    let step_back = |image: &std::path::Path| {
        for field in ["ctime", "mtime"] {
            let request = format!("set_inode_field /resource/a.txt {field} 20010101000000");
            let output = Command::new("debugfs").args(["-w", "-R", &request]).arg(image).output().unwrap();
            assert!(output.status.success(), "{}", told(&output));
        }
    };
    mounted.while_unmounted(step_back).unwrap();
    use std::os::unix::fs::MetadataExt;
    let year_2002 = 1_009_843_200;
    assert!(
        fs::metadata(resource.join("a.txt")).unwrap().ctime() < year_2002,
        "the clock was not stepped back"
    );
    let output = cli.run(&["commit", &sandbox.id]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert_eq!(fs::read_to_string(resource.join("a.txt")).unwrap(), "THEIR\n");
    cli.ok(&["destroy", &sandbox.id]);
}
