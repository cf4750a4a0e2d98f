//! An overlay that stays mounted while its original changes: by its own commits, by those of others, by hand.
//!
//! The kernel promises nothing for such a mount; docs/design/0012-live-overlays.md says what holds anyway.

use std::process::{Child, Stdio};

use crate::common::user::{User, overlay_users};

/// The project `p` has `f`, `g` and `d/x`, each with three lines, and a sandbox `q`.
fn users() -> Vec<User> {
    let users = overlay_users();
    for user in &users {
        user.outside("rm -r *; mkdir d; seq 3 > f; seq 3 > g; seq 3 > d/x");
        user.ok(&["create", "--name", "q", "--strategy", "overlay", "--no-fallback"]);
    }
    users
}

/// What a commit says that is in conflict.
fn conflict(user: &User) -> String {
    let ran = user.run(&["commit", "q"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    ran.stderr
}

/// A program whose working directory is `below` the sandbox, until this is dropped.
struct Resident(Child);

impl Resident {
    fn of(user: &User, below: &str) -> Self {
        let path = user.ok(&["path", "q"]);
        let mut command = user.command("sh");
        command.args(["-c", "echo here; exec sleep 600"]).stdout(Stdio::piped());
        let mut child = command.current_dir(format!("{}/{below}", path.trim_end())).spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
        Self(child)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_deleted_from_a_committed_directory_is_gone() {
    for user in users() {
        user.inside("q", "mkdir n; echo 1 > n/one; echo 2 > n/two; mkdir n/sub; echo 3 > n/sub/three");
        user.ok(&["commit", "q"]);
        user.inside("q", "rm n/one; mv n/two n/zwei; rm -r n/sub");
        assert_eq!(user.diff("q"), ["D n/one", "D n/sub/", "D n/sub/three", "R n/two → n/zwei"]);
        user.ok(&["commit", "q"]);
        assert_eq!(user.outside("find n | sort"), "n\nn/zwei\n");
    }
}

/// The kernel cannot look again at a directory that somebody is in.
#[test]
fn the_same_where_a_program_is_in_that_directory() {
    for user in users() {
        user.inside("q", "mkdir n; echo 1 > n/one; echo 2 > n/two; mkdir n/sub; echo 3 > n/sub/three");
        let resident = Resident::of(&user, "n");
        user.ok(&["commit", "q"]);
        user.inside("q", "rm n/one; mv n/two n/zwei; rm -r n/sub; mkdir n/sub; echo 4 > n/sub/four");
        let changes = ["D n/one", "A n/sub/four", "D n/sub/three", "R n/two → n/zwei"];
        assert_eq!(user.diff("q"), changes);
        drop(resident);
        // Makes the mount anew.
        user.ok(&["checkpoint", "q"]);
        assert_eq!(user.diff("q"), changes);
        assert_eq!(user.inside("q", "find n | sort"), "n\nn/sub\nn/sub/four\nn/zwei\n");
        user.ok(&["commit", "q"]);
        assert_eq!(user.outside("find n | sort"), "n\nn/sub\nn/sub/four\nn/zwei\n");
    }
}

#[test]
fn a_refresh_shows_what_was_edited_by_hand() {
    for user in users() {
        user.inside("q", "cat g; ls d");
        user.outside("sed -i s/2/HAND/ g; echo new > d/new");
        user.ok(&["refresh", "q"]);
        assert_eq!(user.inside("q", "cat g; ls d"), "1\nHAND\n3\nnew\nx\n");
        user.inside("q", "echo more >> g; rm -r d");
        user.ok(&["commit", "q"]);
        assert_eq!(user.outside("cat g; ls"), "1\nHAND\n3\nmore\nf\ng\n");
    }
}

#[test]
fn a_refresh_in_conflict_does_not_delete_what_others_added() {
    for user in users() {
        user.ok(&["create", "--name", "two", "--strategy", "overlay", "--no-fallback"]);
        user.inside("q", "echo new > d/new");
        user.inside("two", "rm -r d");
        user.ok(&["commit", "q"]);
        assert_eq!(user.run(&["refresh", "two"]).code, 3);
        assert_eq!(user.run(&["commit", "two"]).code, 3);
        assert_eq!(user.outside("cat d/new"), "new\n");
    }
}

/// Together with the file that another sandbox has committed it would make a rename.
#[test]
fn a_refresh_keeps_a_new_file_with_the_content_of_a_committed_one() {
    for user in users() {
        user.ok(&["create", "--name", "two", "--strategy", "overlay", "--no-fallback"]);
        user.inside("q", "echo same > a");
        user.ok(&["commit", "q"]);
        user.inside("two", "echo same > b");
        user.ok(&["refresh", "two"]);
        assert_eq!(user.inside("two", "cat a b"), "same\nsame\n");
        assert_eq!(user.diff("two"), ["A b"]);
    }
}

#[test]
fn what_an_undo_gives_back_is_seen_in_listings() {
    for user in users() {
        user.inside("q", "mkdir n; echo 1 > n/a");
        user.ok(&["commit", "q"]);
        user.inside("q", "ls n");
        user.ok(&["rollback", "q"]);
        user.ok(&["undo", "q"]);
        assert_eq!(user.diff("q"), ["A n/", "A n/a"]);
        assert_eq!(user.inside("q", "ls n; cat n/a"), "a\n1\n");
    }
}

#[test]
fn a_refresh_after_a_checkpoint_works() {
    for user in users() {
        user.inside("q", "echo more >> f");
        user.ok(&["checkpoint", "q"]);
        user.outside("echo hand > h");
        user.ok(&["refresh", "q"]);
        assert_eq!(user.inside("q", "cat h"), "hand\n");
        assert_eq!(user.diff("q"), ["M f"]);
    }
}

#[test]
fn an_undone_directory_can_be_committed_again_after_a_refresh() {
    for user in users() {
        user.inside("q", "mkdir n; echo 1 > n/a");
        user.ok(&["commit", "q"]);
        user.ok(&["checkpoint", "q"]);
        user.ok(&["undo", "q"]);
        user.ok(&["refresh", "q"]);
        assert_eq!(user.diff("q"), ["A n/", "A n/a"]);
        user.ok(&["commit", "q"]);
        assert_eq!(user.outside("cat n/a"), "1\n");
    }
}

#[test]
fn a_name_that_was_moved_away_and_made_anew_is_no_conflict() {
    for user in users() {
        user.inside("q", "mv f F; echo new > f");
        user.ok(&["commit", "q", "f"]);
        user.ok(&["commit", "q"]);
        assert_eq!(user.outside("cat F f"), "1\n2\n3\nnew\n");
    }
}

#[test]
fn a_directory_in_place_of_the_original_is_not_committed_to() {
    for user in users() {
        user.ok(&[
            "create",
            "--name",
            "copy",
            "--strategy",
            "filesystem_copy",
            user.world.project().to_str().unwrap(),
        ]);
        for sandbox in ["q", "copy"] {
            user.inside(sandbox, "echo inside >> f; echo new > new");
        }
        user.outside("cd ..; mkdir other; echo another > other/f; mv project project.was; mv other project");
        for sandbox in ["q", "copy"] {
            let refused = user.run(&["commit", sandbox, "new"]);
            assert!(refused.stderr.contains("it was replaced"), "{sandbox}: {}", refused.stderr);
            assert_eq!(user.outside("cat ../project/f; ls ../project"), "another\nf\n");
        }
        user.outside("cd ..; mv project other; mv project.was project");
        user.ok(&["commit", "q", "f"]);
        assert_eq!(user.outside("cat ../project/f"), "1\n2\n3\ninside\n");
    }
}

#[test]
fn the_sandboxs_version_brings_the_directory_back_that_it_is_in() {
    for user in users() {
        let project = user.world.project().to_str().unwrap().to_owned();
        user.ok(&["create", "--name", "copy", "--strategy", "filesystem_copy", &project]);
        for (sandbox, instead) in [("q", "rm -r d"), ("copy", "rm -r d; echo file > d")] {
            user.inside(sandbox, &format!("echo {sandbox} >> d/x; mkdir d/e; echo new > d/e/y"));
            user.outside(instead);
            let before = user.outside("find . | sort");
            let refused = user.run(&["commit", sandbox]);
            assert_eq!(refused.code, 3);
            let reason =
                if instead.contains("file") { "directory was replaced" } else { "directory is gone" };
            assert!(refused.stderr.contains(reason), "{}", refused.stderr);
            user.ok(&["commit", sandbox, "--on-conflict", "theirs"]);
            assert_eq!(user.outside("cat d/x d/e/y"), format!("1\n2\n3\n{sandbox}\nnew\n"));
            assert_eq!(user.diff(sandbox), Vec::<String>::new());
            user.ok(&["undo", sandbox]);
            assert_eq!(user.outside("find . | sort"), before);
            assert_eq!(user.inside(sandbox, "cat d/x d/e/y"), format!("1\n2\n3\n{sandbox}\nnew\n"));
            user.ok(&["destroy", sandbox, "--discard"]);
            user.outside("rm -rf d; mkdir d; seq 3 > d/x");
        }
    }
}

#[test]
fn the_root_of_another_sandbox_is_not_removed() {
    for user in users() {
        user.ok(&["create", "--name", "inner", "--strategy", "overlay", "--no-fallback", "d"]);
        user.inside("inner", "echo inner >> x");
        user.inside("q", "echo outer >> f; rm -r d; echo file > d");
        let refused = user.run(&["commit", "q"]);
        assert!(
            refused.code != 0 && refused.stderr.contains("another sandbox was made from"),
            "{}",
            refused.stderr
        );
        assert_eq!(user.outside("cat f d/x"), "1\n2\n3\n1\n2\n3\n");
        user.ok(&["commit", "inner"]);
        user.ok(&["destroy", "inner"]);
        assert_eq!(user.run(&["commit", "q"]).code, 3, "the inner one has changed what is removed");
        user.ok(&["commit", "q", "--on-conflict", "theirs"]);
        assert_eq!(user.outside("cat f d"), "1\n2\n3\nouter\nfile\n");
    }
}

/// A checkpoint mounts the overlay anew. A program that works in it by path finds a mount at any time.
#[test]
fn a_program_goes_on_writing_while_checkpoints_are_made() {
    for user in users() {
        let path = user.ok(&["path", "q"]);
        let script = "echo begun; for i in $(seq 60); do echo $i > $1/w$i; sleep 0.01; done";
        let mut writer = user.command("sh");
        writer.args(["-c", script, "writer", path.trim_end()]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut writer = writer.spawn().unwrap();
        std::io::Read::read_exact(writer.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        while writer.try_wait().unwrap().is_none() {
            user.ok(&["checkpoint", "q"]);
        }
        let output = writer.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(user.inside("q", "ls | grep -c '^w'"), "60\n");
        assert_eq!(user.diff("q").len(), 60);
    }
}

#[test]
fn a_rollback_does_not_discard_what_it_was_not_asked_to() {
    for user in users() {
        user.inside("q", "rm -r d; echo file > d");
        let refused = user.run(&["rollback", "q", "d/x"]);
        assert!(refused.code == 5 && refused.stderr.contains("d is not a directory"), "{}", refused.stderr);
        assert_eq!(user.inside("q", "cat d"), "file\n");
        user.ok(&["rollback", "q", "d"]);
        assert_eq!(user.inside("q", "cat d/x"), "1\n2\n3\n");
    }
}

#[test]
fn commit_conflicts_when_a_replaced_file_was_deleted_from_the_original() {
    for user in users() {
        user.inside("q", "sed -i s/2/two/ d/x; sed -i s/2/two/ f");
        user.outside("rm d/x f");
        let said = conflict(&user);
        assert!(said.contains("d/x") && said.contains("deleted from the original"), "{said}");
        assert_eq!(user.outside("find . -type f"), "./g\n");
        user.ok(&["commit", "q", "f", "--on-conflict", "theirs"]);
        assert_eq!(user.outside("cat f"), "1\ntwo\n3\n");
        conflict(&user);
    }
}

#[test]
fn new_files_are_committed_beside_commits_of_others() {
    for user in users() {
        user.ok(&["create", "--name", "two", "--strategy", "overlay", "--no-fallback"]);
        user.inside("q", "echo 1 > d/new; mkdir n; echo 1 > n/new; echo 1 > top");
        user.inside("two", "echo 2 > d/other; rm f; echo 2 > other");
        user.ok(&["commit", "two"]);
        user.outside("echo 4 >> d/x");
        user.ok(&["commit", "q", "d/new"]);
        user.inside("q", "mv d/new d/renamed; echo 1 > late");
        user.outside("echo 5 > by_hand");
        let said = conflict(&user);
        assert!(said.contains("late") && !said.contains("top") && !said.contains("renamed"), "{said}");
        user.ok(&["commit", "q", "--on-conflict", "theirs"]);
        let files = "by_hand d/other d/renamed d/x g late n/new other top ";
        assert_eq!(user.outside("find * -type f | sort | tr '\\n' ' '"), files);
    }
}

#[test]
fn diff_records_new_names() {
    for user in users() {
        user.inside("q", "echo 1 > d/new; echo 1 > top; cp f copy; mv copy f2");
        user.diff("q");
        user.outside("echo 5 > d/more; rm g");
        user.ok(&["commit", "q"]);
        assert_eq!(user.outside("ls d f2 top"), "f2\ntop\n\nd:\nmore\nnew\nx\n");
    }
}

#[test]
fn commit_fails_and_leaves_no_operation_when_the_original_is_gone() {
    for user in users() {
        let project = user.world.project().to_str().unwrap().to_owned();
        user.ok(&["create", "--name", "copy", "--strategy", "filesystem_copy", &project]);
        for sandbox in ["q", "copy"] {
            user.inside(sandbox, "echo inside >> f");
        }
        let away = user.world.path("away");
        std::fs::rename(user.world.project(), &away).unwrap();
        let run = |words: &[&str]| {
            let output = user.sandbox().args(words).current_dir("/").output().unwrap();
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        for sandbox in ["q", "copy"] {
            let [_, said] = run(&["commit", sandbox]);
            assert!(said.contains("cannot open the original directory"), "{said}");
            let [log, warnings] = run(&["log", sandbox]);
            assert!(!log.contains("running") && !warnings.contains("warning:"), "{log}{warnings}");
        }
        std::fs::rename(&away, user.world.project()).unwrap();
        user.ok(&["commit", "q"]);
        assert_eq!(user.outside("cat f"), "1\n2\n3\ninside\n");
    }
}
