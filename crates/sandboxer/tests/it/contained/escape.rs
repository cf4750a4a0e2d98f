//! Files that a contained command has no business with: it can neither write outside of its project nor read what is secret.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use crate::common;
use crate::common::contained::{
    CANARY, CREDENTIALS, SECRET, attempting, attempts, attempts_of, everybody, outside, sandbox, shell,
};
use crate::common::user::User;

/// Nothing next to the project was touched.
fn untouched(user: &User) {
    assert_eq!(user.world.text("beside/file").trim(), CANARY);
    assert_eq!(user.world.text("user/notes").trim(), CANARY);
    assert_eq!(user.world.text("project/hello.txt"), "hello\nworld\n");
    let beside: Vec<_> = fs::read_dir(user.world.path("beside")).unwrap().collect();
    assert_eq!(beside.len(), 1, "something was put next to the project: {beside:?}");
}

#[test]
fn the_system_is_read_only() {
    for user in everybody() {
        let places = "['/etc/passwd', '/etc/canary', '/usr/bin/canary', '/usr/lib/canary', '/canary', '/boot/canary', '/var/lib/canary', \
             '/opt/canary', '/srv/canary', '/root/canary']";
        let code = format!("for path in {places}: attempt(path, lambda: write(path))");
        attempts(&user, &[], &code).refused(10, &["EROFS", "EACCES"]);
        for left in ["/etc/canary", "/usr/bin/canary", "/canary", "/var/lib/canary", "/opt/canary"] {
            assert!(!std::path::Path::new(left).exists(), "{left} was made");
        }
    }
}

#[test]
fn what_is_read_only_cannot_be_removed_renamed_or_changed_either() {
    for user in everybody() {
        let code = "
attempt('unlink', lambda: os.unlink('/etc/hostname'))
attempt('rename', lambda: os.rename('/etc/hostname', '/etc/hostname.old'))
attempt('chmod', lambda: os.chmod('/etc/passwd', 0o777))
attempt('chown', lambda: os.chown('/etc/passwd', 1, 1))
attempt('utime', lambda: os.utime('/etc/passwd', (0, 0)))
attempt('link', lambda: os.link('/etc/passwd', '/etc/linked'))
attempt('symlink', lambda: os.symlink('/etc/passwd', '/etc/linked'))
attempt('mkdir', lambda: os.mkdir('/etc/made'))
attempt('truncate', lambda: os.truncate('/etc/passwd', 0))
attempt('setxattr', lambda: os.setxattr('/etc/passwd', 'user.x', b'x'))";
        attempts(&user, &[], code).refused(10, &["EROFS", "EACCES", "EPERM"]);
        assert!(fs::metadata("/etc/passwd").unwrap().len() > 0);
    }
}

#[test]
fn devices_stay_as_they_are() {
    for user in everybody() {
        let before = fs::metadata("/dev/full").unwrap();
        let code = "
attempt('chmod', lambda: os.chmod('/dev/full', 0o666 ^ 0o111))
attempt('utime', lambda: os.utime('/dev/full', (1, 1)))
attempt('unlink', lambda: os.unlink('/dev/full'))
attempt('make', lambda: write('/dev/mine'))";
        let outcome = attempts(&user, &[], code);
        let after = fs::metadata("/dev/full").unwrap();
        fs::set_permissions("/dev/full", before.permissions()).ok();
        assert_eq!(
            (before.mode(), before.mtime()),
            (after.mode(), after.mtime()),
            "the host's device was changed"
        );
        outcome.refused(4, &["EROFS", "EACCES", "EPERM", "EBUSY"]);
    }
}

#[test]
fn devices_can_be_used() {
    for user in everybody() {
        let script = "echo x > /dev/null && head -c 3 /dev/zero | od -An -tx1 && head -c 8 /dev/urandom | wc -c && \
                      ! echo x > /dev/full";
        let ran = shell(&user, &[], script);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, " 00 00 00\n8\n"), "{}", ran.stderr);
    }
}

#[test]
fn the_original_is_out_of_reach_by_every_path() {
    for user in everybody() {
        let project = user.world.project();
        let code = format!(
            "
project, beside = {:?}, {:?}
for root in ['/proc/1/root', '/proc/self/root/proc/1/root', '/proc/1/cwd/..']:
    attempt(root + ' original', lambda: write(root + project + '/hello.txt'))
    attempt(root + ' beside', lambda: write(root + beside + '/file'))
for way in ['/proc/self/root', '/proc/self/cwd/../..', '/proc/thread-self/root']:
    attempt(way, lambda: text(way + beside + '/file'))
attempt('dots', lambda: text(project + '/../beside/file'))
attempt('many dots', lambda: text('../' * 50 + beside.lstrip('/') + '/file'))",
            project,
            user.world.path("beside")
        );
        attempts(&user, &[], &code).refused(11, &["EACCES", "ENOENT", "EROFS"]);
        untouched(&user);
    }
}

#[test]
fn what_is_written_at_the_usual_path_is_the_workspaces() {
    for user in everybody() {
        let script = format!(
            "echo changed > {}/hello.txt; echo new > {}/beside-me",
            user.world.project().display(),
            user.world.project().display()
        );
        let ran = user.run(&["run", "--keep", "--name", "kept", "--", "sh", "-c", &script]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        untouched(&user);
        assert!(!user.world.path("project/beside-me").exists());
        assert_eq!(user.diff("kept"), ["A beside-me", "M hello.txt"], "{}", ran.stderr);
    }
}

#[test]
fn links_that_lead_out_lead_nowhere() {
    for user in everybody() {
        let script = format!(
            "ln -s {0}/beside/file link && ln -s {0}/user/.ssh ssh && ln -s / root && \
             ! echo owned > link && ! cat link && ! cat ssh/id_ed25519 && ! echo owned > root/etc/canary && \
             ! cat root{0}/beside/file && ! ln {0}/beside/file hard && ! ln /etc/passwd hard",
            user.world.path("").display().to_string().trim_end_matches('/')
        );
        let ran = shell(&user, &[], &script);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert!(!ran.stdout.contains("canary"), "{}", ran.stdout);
        untouched(&user);
    }
}

#[test]
fn a_link_in_the_project_is_not_followed_when_it_is_committed() {
    for user in everybody() {
        let target = user.world.path("beside/file");
        let script =
            format!("rm hello.txt; ln -s {} hello.txt; ln -s ../../beside src/out", target.display());
        let ran = user.run(&["run", "--commit", "--name", "links", "--", "sh", "-c", &script]);
        assert_eq!(ran.code, 5, "a link that leaves the tree is looked at first: {}", ran.stderr);
        user.ok(&["commit", "links", "--accept-flags"]);
        assert_eq!(fs::read_link(user.world.path("project/hello.txt")).unwrap(), target);
        assert_eq!(user.world.text("beside/file").trim(), CANARY);
        assert_eq!(fs::read_dir(user.world.path("beside")).unwrap().count(), 1);
    }
}

#[test]
fn credentials_are_not_there() {
    for user in everybody() {
        let places: Vec<String> = CREDENTIALS.iter().map(|place| format!("'{place}'")).collect();
        let code = format!(
            "
home = os.environ['HOME']
for place in [{}]:
    attempt(place, lambda: text(home + '/' + place))
    attempt('list ' + place, lambda: os.stat(os.path.dirname(home + '/' + place) + '/' + os.path.basename(place)))",
            places.join(", ")
        );
        attempts(&user, &[], &code).refused(2 * CREDENTIALS.len(), &["ENOENT", "ENOTDIR"]);
    }
}

#[test]
fn no_secret_is_found_by_looking_everywhere() {
    for user in everybody() {
        let world = user.world.path("");
        let script =
            format!("grep -rs {SECRET} {0} /proc/self/root{0} /proc/1/root{0} ~ /tmp; true", world.display());
        let ran = shell(&user, &[], &script);
        assert!(!ran.stdout.contains(SECRET), "{}", ran.stdout);
        // The search does find what is not hidden.
        let seen = shell(&user, &[], &format!("grep -rs {CANARY} ~"));
        assert!(seen.stdout.contains(CANARY), "{}{}", seen.stdout, seen.stderr);
    }
}

#[test]
fn credentials_behind_links_are_hidden_where_they_are() {
    for user in everybody() {
        outside(
            &user,
            &format!(
                "cd ~; rm -r .aws .config; mkdir -p dotfiles/aws dotfiles/config/gh dotfiles/config/git; echo {SECRET} > dotfiles/aws/credentials; \
                 echo {SECRET} > dotfiles/config/gh/hosts.yml; echo '[user]' > dotfiles/config/git/config; \
                 ln -s dotfiles/aws .aws; ln -s dotfiles/config .config"
            ),
        );
        let ran = shell(
            &user,
            &[],
            "grep -rs canary-5 ~; cat ~/.aws/credentials ~/.config/gh/hosts.yml; cat ~/.config/git/config",
        );
        assert!(!ran.stdout.contains(SECRET), "{}", ran.stdout);
        assert!(
            ran.stdout.contains("[user]"),
            "what is no credential is still there: {}{}",
            ran.stdout,
            ran.stderr
        );
    }
}

#[test]
fn what_is_written_at_home_is_thrown_away() {
    for user in everybody() {
        let script = "echo x >> ~/notes && mkdir -p ~/.cache/tool ~/.ssh && echo mine > ~/.ssh/config && rm -r ~/.cache/tool && \
                      cat ~/.ssh/config && tail -1 ~/notes";
        let ran = shell(&user, &[], script);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "mine\nx\n"), "{}", ran.stderr);
        untouched(&user);
        assert_eq!(user.world.text("user/.ssh/id_ed25519").trim(), SECRET);
        assert!(!user.world.path("user/.ssh/config").exists() && !user.world.path("user/.cache").exists());
        let again = shell(&user, &[], "cat ~/.ssh/config");
        assert_ne!(again.code, 0, "the next command finds what the last one wrote: {}", again.stdout);
    }
}

#[test]
fn the_state_and_other_sandboxes_are_hidden() {
    for user in everybody() {
        let other = user.run(&[
            "run",
            "--keep",
            "--name",
            "other",
            "--",
            "sh",
            "-c",
            &format!("echo {SECRET} > mine"),
        ]);
        assert_eq!(other.code, 0, "{}", other.stderr);
        let state = user.world.path("home");
        let script = format!(
            "find {0} 2>/dev/null; grep -rs {SECRET} {0}; echo owned > {0}/state.db; mkdir {0}/sandboxes; true",
            state.display()
        );
        let ran = shell(&user, &[], &script);
        assert!(!ran.stdout.contains("state.db") && !ran.stdout.contains("scratch"), "{}", ran.stdout);
        assert!(!ran.stdout.contains(SECRET), "{}", ran.stdout);
        assert_eq!(user.diff("other"), ["A mine"], "the other sandbox is as it was");
        assert_eq!(user.json(&["list"])["sandboxes"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_file_as_standard_input_is_not_writable_through_it() {
    for user in everybody() {
        let mut command = sandbox(
            &user,
            &attempting(
                &[],
                "
attempt('write', lambda: write('/proc/self/fd/0'))
attempt('append', lambda: os.open('/proc/self/fd/0', os.O_WRONLY | os.O_APPEND))
attempt('truncate', lambda: os.truncate('/proc/self/fd/0', 0))
attempt('beside', lambda: os.listdir('/proc/self/fd/0/..'))",
            ),
        );
        command.stdin(Stdio::from(fs::File::open(user.world.path("beside/file")).unwrap()));
        attempts_of(command).refused(4, &["EACCES", "EROFS", "ENOTDIR", "EPERM"]);
        untouched(&user);
    }
}

#[test]
fn a_directory_as_a_stream_does_not_lead_out() {
    for user in everybody() {
        let mut command = sandbox(
            &user,
            &[
                "run",
                "--discard",
                "--",
                "sh",
                "-c",
                "cat /proc/self/fd/0/.ssh/id_ed25519; ls /proc/self/fd/0/..",
            ],
        );
        command.stdin(Stdio::from(fs::File::open(user.world.path("user")).unwrap()));
        let ran = common::Ran::of(command.output().unwrap());
        assert!(!ran.stdout.contains(SECRET) && !ran.stdout.contains("beside"), "{}", ran.stdout);
    }
}

#[test]
fn only_open_places_are_writable() {
    for user in everybody() {
        let script = "for d in /tmp /var/tmp /dev/shm . ~; do echo x > $d/made && cat $d/made; done; test -r /etc/passwd && ls /usr/bin >/dev/null";
        let ran = shell(&user, &[], script);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "x\nx\nx\nx\nx\n"), "{}", ran.stderr);
        for left in ["/tmp/made", "/var/tmp/made", "/dev/shm/made"] {
            assert!(!std::path::Path::new(left).exists(), "{left} is on the host");
        }
        let mode = fs::metadata(user.world.path("user")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }
}
