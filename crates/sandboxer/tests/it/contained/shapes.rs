//! Resources of every shape, each seen by its command at its own path: odd names, several, single files, home itself.

use std::fs;
use std::path::Path;

use crate::common::Ran;
use crate::common::contained::{self, CANARY, SECRET, everybody, outside, sandbox, shell};
use crate::common::user::User;

/// Runs a script on the resource at `path`, commits what it changed, and gives what it printed.
fn run_on(user: &User, path: &Path, flags: &[&str], script: &str) -> String {
    let resource = path.to_str().unwrap();
    let words = [&["run", "--commit", "-C", resource], flags, &["--", "sh", "-c", script]].concat();
    let ran = Ran::of(sandbox(user, &words).current_dir("/").output().unwrap());
    assert_eq!(ran.code, 0, "{path:?} {flags:?}\n{}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// A directory of the user's with one file.
fn directory(user: &User, below: &str) -> std::path::PathBuf {
    let path = user.world.path(below);
    let mut make = user.command("sh");
    make.args(["-c", "mkdir -p \"$1\" && echo old > \"$1/file\"", "sh"]).arg(&path);
    assert!(make.status().unwrap().success());
    path
}

#[test]
fn odd_names_are_only_names() {
    for user in everybody() {
        for name in [
            "with space",
            "a:b",
            "a,b",
            "a=b",
            "line\nfeed",
            "back\\slash",
            "quo'te\"s",
            "ünïcode",
            "-dash",
            "$HOME",
            "100%",
            "tab\there",
        ] {
            let path = directory(&user, name);
            let printed = run_on(&user, &path, &[], "echo new > file; pwd; cat file");
            assert_eq!(printed, format!("{}\nnew\n", path.display()), "{name:?}");
            assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "new\n", "{name:?}");
        }
    }
}

#[test]
fn every_strategy_contains_its_command() {
    for user in everybody() {
        for strategy in ["overlay", "filesystem_copy", "copy_on_write"] {
            let path = directory(&user, strategy);
            let script = format!(
                "echo new > file; cat {}/user/.ssh/id_ed25519; echo x > {}/beside/x; true",
                user.world.path("").display(),
                user.world.path("").display()
            );
            let printed = run_on(&user, &path, &["-s", strategy], &script);
            assert!(!printed.contains(SECRET), "{strategy}: {printed}");
            assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "new\n", "{strategy}");
            assert!(!user.world.path("beside/x").exists(), "{strategy}");
        }
    }
}

#[test]
fn without_isolation_of_files_the_command_is_contained_all_the_same() {
    for user in everybody() {
        let ran = shell(
            &user,
            &["-s", "none"],
            &format!(
                "echo direct > made; echo x > {}/beside/x; cat ~/.ssh/id_ed25519; true",
                user.world.path("").display()
            ),
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(user.world.text("project/made"), "direct\n", "{}", ran.stderr);
        assert!(!user.world.path("beside/x").exists() && !ran.stdout.contains(SECRET), "{}", ran.stdout);
    }
}

#[test]
fn a_worktree_of_git_is_contained() {
    for user in everybody() {
        outside(
            &user,
            "git init -q -b main . && git config user.name me && git config user.email me@x && git add . && git commit -qm first",
        );
        let script = "echo more >> hello.txt && git add . && git commit -qm second && git log --format=%s";
        let words = ["run", "--keep", "--name", "w", "-s", "git_worktree", "--", "sh", "-c", script];
        let ran = Ran::of(sandbox(&user, &words).output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "second\nfirst\n"), "{}", ran.stderr);
        assert_eq!(outside(&user, "git log --format=%s; git status --porcelain"), "first\n");
        let objects = "find .git -name 'pack*' -o -name config | head -1; echo x > .git/objects/canary && echo WRITTEN; true";
        let ran = Ran::of(
            sandbox(&user, &["run", "--discard", "-s", "git_worktree", "--", "sh", "-c", objects])
                .output()
                .unwrap(),
        );
        assert!(!user.world.path("project/.git/objects/canary").exists(), "{}{}", ran.stdout, ran.stderr);
        user.ok(&["commit", "w"]);
        assert_eq!(user.world.text("project/hello.txt"), "hello\nworld\nmore\n");
    }
}

#[test]
fn home_itself_can_be_the_resource() {
    for user in everybody() {
        let home = user.world.path("user");
        let printed = run_on(
            &user,
            &home,
            &[],
            "cat ~/.ssh/id_ed25519 ~/.aws/credentials ~/.npmrc 2>/dev/null; cat notes; echo new > made; pwd",
        );
        assert_eq!(printed, format!("{CANARY}\n{}\n", home.display()));
        assert_eq!(user.world.text("user/made"), "new\n");
        assert_eq!(
            user.world.text("user/.ssh/id_ed25519").trim(),
            SECRET,
            "what is hidden is not committed as deleted"
        );
    }
}

#[test]
fn a_resource_below_home_is_above_its_layer() {
    for user in everybody() {
        let path = directory(&user, "user/work/project");
        let printed = run_on(
            &user,
            &path,
            &[],
            "echo new > file; echo cache > ~/cache; ls ~/work; cat ~/cache; cat ../../notes",
        );
        assert_eq!(printed, format!("project\ncache\n{CANARY}\n"));
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "new\n");
        assert!(!user.world.path("user/cache").exists());
    }
}

#[test]
fn a_credential_in_a_workspace_is_covered_there() {
    for user in everybody() {
        let path = user.world.path("user/.config");
        let printed = run_on(&user, &path, &[], "cat gh/hosts.yml 2>/dev/null; echo new > made; ls");
        assert!(!printed.contains(SECRET), "{printed}");
        assert_eq!(user.world.text("user/.config/gh/hosts.yml").trim(), SECRET);
        assert_eq!(user.world.text("user/.config/made"), "new\n");
    }
}

#[test]
fn a_single_file_is_a_resource() {
    for user in everybody() {
        let path = directory(&user, "single").join("file");
        user.ok(&["create", "--name", "one", path.to_str().unwrap()]);
        let script = format!("echo new > '{0}'; cat '{0}'; echo x > '{0}.other'; true", path.display());
        let ran = Ran::of(sandbox(&user, &["exec", "one", "--", "sh", "-c", &script]).output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "new\n"), "{}", ran.stderr);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\n");
        user.ok(&["commit", "one"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n", "{}", ran.stderr);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "a file was put next to it");
    }
}

#[test]
fn several_workspaces_are_each_where_they_belong() {
    for user in everybody() {
        let paths = ["first", "second/deep", "user/third"].map(|below| directory(&user, below));
        let named = paths.each_ref().map(|path| path.to_str().unwrap());
        user.ok(&[&["create", "--name", "many"], &named[..]].concat());
        let script: String = named.iter().map(|path| format!("echo new > {path}/file; ")).collect();
        let ran = Ran::of(sandbox(&user, &["exec", "many", "--", "sh", "-c", &script]).output().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        for path in &paths {
            assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "old\n");
        }
        user.ok(&["commit", "many"]);
        for path in &paths {
            assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "new\n", "{}", path.display());
        }
    }
}

#[test]
fn a_link_to_home_is_home() {
    for user in everybody() {
        outside(&user, "ln -s ../user linked-home");
        let mut command = sandbox(
            &user,
            &[
                "run",
                "--discard",
                "--",
                "sh",
                "-c",
                "cat ~/.ssh/id_ed25519; echo x > ~/made && cat ~/made && cat ~/notes",
            ],
        );
        command.env("HOME", user.world.path("project/linked-home"));
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.stdout, format!("x\n{CANARY}\n"), "{}", ran.stderr);
        assert!(!user.world.path("user/made").exists());
    }
}

#[test]
fn a_home_that_is_not_there_does_not_matter() {
    for user in everybody() {
        for home in ["/nonexistent", "/", "", "relative"] {
            let mut command = sandbox(&user, &["run", "--discard", "--", "cat", "hello.txt"]);
            command.env("HOME", home);
            let ran = Ran::of(command.output().unwrap());
            assert_eq!((ran.code, ran.stdout.as_str()), (0, "hello\nworld\n"), "HOME={home}: {}", ran.stderr);
        }
    }
}

#[test]
fn the_state_can_be_anywhere() {
    for user in everybody() {
        for state in ["user/state", "project/state", "user/.local/share/odd, name:x"] {
            let mut command = sandbox(
                &user,
                &[
                    "run",
                    "--discard",
                    "--",
                    "sh",
                    "-c",
                    "cat hello.txt; ls -A \"$SANDBOXER_HOME\" 2>/dev/null; true",
                ],
            );
            command.env("SANDBOXER_HOME", user.world.path(state));
            let ran = Ran::of(command.output().unwrap());
            if state.starts_with("project") && ran.code != 0 {
                assert!(ran.stderr.contains("state"), "{}", ran.stderr);
                continue;
            }
            assert_eq!((ran.code, ran.stdout.as_str()), (0, "hello\nworld\n"), "{state}: {}", ran.stderr);
        }
    }
}

/// A filesystem that is mounted for as long as this lives.
struct Volume(std::path::PathBuf);

impl Volume {
    fn mount(at: std::path::PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "volume"]).arg(&at).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn what_is_mounted_in_the_home_directory_is_seen_without_its_credentials() {
    let Some(user) = User::root() else { return };
    let Some(volume) = Volume::mount(user.world.path("user/.config")) else {
        return sandboxer_testkit::skip("nothing can be mounted here");
    };
    std::fs::create_dir(volume.0.join("gh")).unwrap();
    std::fs::write(volume.0.join("gh/hosts.yml"), "oauth_token: CANARY\n").unwrap();
    std::fs::write(volume.0.join("tool.conf"), "setting\n").unwrap();
    let script =
        "cat ~/.config/tool.conf; ls -A ~/.config/gh; cat ~/.config/gh/hosts.yml; touch ~/.config/new; true";
    let ran = contained::shell(&user, &[], script);
    assert_eq!(ran.stdout, "setting\n", "{}", ran.stderr);
    assert!(!ran.stderr.contains("CANARY") && !volume.0.join("new").exists(), "{}", ran.stderr);
}
