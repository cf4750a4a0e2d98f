//! Overlays from the command line: by root on the host and by an ordinary user with a keeper, what takes a mount away and what
//! brings it back, what is refused, and what is told where overlays do not work.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::user::{self, User, overlay_users};
use crate::common::{Ran, World, remains};

/// A process that works in a sandbox until this is dropped.
struct Worker(Child);

impl Worker {
    fn in_sandbox(user: &User, name: &str) -> Self {
        let path = user.ok(&["path", name]);
        let mut command = user.command("sh");
        command.args(["-c", "echo here; exec sleep 600"]).current_dir(path.trim_end()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Self(child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes the mount away as a reboot would.
fn take_away(user: &User) {
    let root = user.world.path("");
    remains::keepers(&root).into_iter().for_each(remains::end);
    for mount in remains::mounts(&root) {
        rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::empty()).unwrap();
    }
}

fn options_of_mounts(user: &User) -> String {
    let root = user.world.path("");
    let keeper = remains::keepers(&root).first().map(i32::to_string);
    let table = format!("/proc/{}/mounts", keeper.as_deref().unwrap_or("self"));
    let table = fs::read_to_string(table).unwrap();
    table
        .lines()
        .filter(|line| line.contains(root.to_str().unwrap()))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn a_day_with_an_overlay_leaves_nothing_behind() {
    for user in overlay_users() {
        let created = user.json(&["create", "--name", "o"]);
        assert_eq!(
            (&created["strategy"], &created["requested_strategy"]),
            (&"overlay".into(), &"overlay".into())
        );
        user.inside("o", "echo more >> hello.txt; mkdir new; echo n > new/file; rm run.sh");
        assert_eq!(user.diff("o"), ["M hello.txt", "A new/", "A new/file", "D run.sh"]);
        assert_eq!(user.world.text("project/hello.txt"), "hello\nworld\n");
        user.ok(&["checkpoint", "o", "one"]);
        user.inside("o", "rm -r new; echo worse > hello.txt");
        user.ok(&["restore", "o", "one"]);
        assert_eq!(user.diff("o"), ["M hello.txt", "A new/", "A new/file", "D run.sh"]);
        user.ok(&["commit", "o"]);
        assert_eq!(user.world.text("project/hello.txt"), "hello\nworld\nmore\n");
        assert_eq!(user.world.text("project/new/file"), "n\n");
        assert!(!user.world.path("project/run.sh").exists() && user.diff("o").is_empty());
        user.ok(&["destroy", "o"]);
        let root = user.world.path("");
        assert_eq!((remains::keepers(&root), remains::mounts(&root)), (vec![], vec![]));
        for left in ["home/scratch", "home/keepers", "home/sandboxes"] {
            let count = fs::read_dir(user.world.path(left)).map(Iterator::count).unwrap_or(0);
            assert_eq!(count, 0, "something is left in {left}");
        }
    }
}

#[test]
fn a_directory_that_was_replaced_has_lost_its_old_children() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "o"]);
        user.inside("o", "rm -r src; mkdir src; touch src/new");
        assert_eq!(user.diff("o"), ["D src/main.rs", "A src/new"]);
        user.ok(&["commit", "o"]);
        let names: Vec<_> =
            fs::read_dir(user.world.path("project/src")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["new"]);
    }
}

#[test]
fn a_directory_of_the_original_is_moved_by_copying() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "o"]);
        user.inside("o", "mv src lib");
        assert_eq!(user.diff("o"), ["A lib/", "R src/main.rs → lib/main.rs", "D src/"]);
        user.ok(&["commit", "o"]);
        assert_eq!(user.world.text("project/lib/main.rs"), "fn main() {}\n");
        assert!(!user.world.path("project/src").exists());
    }
}

#[test]
fn a_mount_that_was_taken_away_comes_back_with_everything() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "o"]);
        user.inside("o", "echo before > first");
        user.ok(&["checkpoint", "o", "one"]);
        user.inside("o", "echo after > second");
        take_away(&user);
        let names = user.inside("o", "cat first second");
        assert_eq!(names, "before\nafter\n");
        take_away(&user);
        assert_eq!(user.diff("o"), ["A first", "A second"]);
        let told = user.ok(&["get", "o"]);
        assert!(!told.contains("notice"), "{told}");
    }
}

#[test]
fn chosen_paths_are_found_in_a_mount_that_was_taken_away() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "o"]);
        user.inside("o", "echo new > new; echo more >> hello.txt; rm run.sh");
        let commands = [
            ["diff", "o", "new"],
            ["diff", "o", "src/main.rs"],
            ["diff", "o", "run.sh"],
            ["read", "o", "src/main.rs"],
            ["rollback", "o", "run.sh"],
            ["commit", "o", "hello.txt"],
        ];
        for arguments in commands {
            take_away(&user);
            user.ok(&arguments);
        }
        assert_eq!(user.diff("o"), ["A new"]);
    }
}

#[test]
fn a_lost_database_loses_no_overlay() {
    for user in overlay_users() {
        for name in ["open", "parked"] {
            user.ok(&["create", "--name", name]);
            user.inside(name, "echo new > new");
        }
        user.ok(&["destroy", "parked"]);
        take_away(&user);
        for entry in fs::read_dir(user.world.path("home")).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_name().to_string_lossy().starts_with("state.db") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        assert_eq!(user.json(&["adopt"])["adopted"].as_array().unwrap().len(), 2);
        user.ok(&["unpark", "parked"]);
        for name in ["open", "parked"] {
            assert_eq!(user.diff(name), ["A new"]);
        }
    }
}

#[test]
fn gc_ends_the_keeper_of_what_nobody_owns() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "orphan"]);
        fs::remove_dir_all(user.world.path("home/sandboxes")).unwrap();
        for file in ["state.db", "state.db-wal", "state.db-shm"] {
            let _ = fs::remove_file(user.world.path("home").join(file));
        }
        user.ok(&["create", "--name", "own"]);
        let removed = user.json(&["gc"]);
        assert_eq!(removed["removed"].as_array().unwrap().len(), 1, "{removed}");
        user.ok(&["destroy", "own"]);
        let root = user.world.path("");
        assert_eq!((remains::keepers(&root), remains::mounts(&root)), (vec![], vec![]));
    }
}

#[test]
fn what_somebody_still_works_in_is_not_mounted_twice() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "o"]);
        let worker = Worker::in_sandbox(&user, "o");
        let root = user.world.path("");
        remains::keepers(&root).into_iter().for_each(remains::end);
        for mount in remains::mounts(&root) {
            rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
        let told = user.ok(&["get", "o"]);
        let notice = "  notice    it cannot be worked in now: ";
        assert!(told.contains(notice) && told.contains(&worker.0.id().to_string()), "{told}");
        let document = user.json(&["get", "o"]);
        assert_eq!(document["workspaces"][0]["notices"].as_array().unwrap().len(), 1, "{document}");
        let refused = user.run(&["path", "o"]);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("processes still work in it"), "{}", refused.stderr);
        drop(worker);
        assert!(!user.ok(&["get", "o"]).contains("notice"));
        user.inside("o", "true");
    }
}

#[test]
fn a_sandbox_that_is_worked_in_can_be_destroyed() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "o"]);
        user.inside("o", "echo x > x");
        let _worker = Worker::in_sandbox(&user, "o");
        user.ok(&["destroy", "o", "--discard"]);
        assert_eq!(fs::read_dir(user.world.path("home/scratch")).unwrap().count(), 0);
        let root = user.world.path("");
        assert_eq!((remains::keepers(&root), remains::mounts(&root)), (vec![], vec![]));
    }
}

#[test]
fn notices_are_shown_and_escaped() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "o"]);
        user.inside("o", "echo x > x");
        let worker = Worker::in_sandbox(&user, "o");
        user.ok(&["checkpoint", "o", "busy"]);
        drop(worker);
        let file = user.workspace().join("notices");
        let mut text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("checkpoint") && text.contains("copied"), "{text}");
        text.push_str("\u{1b}[31mred\n");
        fs::write(&file, text).unwrap();
        for command in ["get", "status"] {
            let told = user.ok(&[command, "o"]);
            let notices: Vec<&str> =
                told.lines().filter(|line| line.trim_start().starts_with("notice")).collect();
            assert_eq!(notices.len(), 2, "{told}");
            assert!(
                notices[0].contains("worked in the sandbox") && notices[1].contains("\\x1b[31mred"),
                "{told}"
            );
        }
        let documents = [user.json(&["get", "o"]), user.json(&["status", "o"])["sandboxes"][0].clone()];
        for document in documents {
            assert_eq!(document["workspaces"][0]["notices"][1], "\u{1b}[31mred");
        }
        assert!(user.json(&["list"])["sandboxes"][0]["workspaces"][0].get("notices").is_none());
    }
}

#[test]
fn a_machine_that_went_down_is_told_of() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "o"]);
        user.inside("o", "echo x > last-words");
        take_away(&user);
        let mounted = user.workspace().join("mounted.json");
        let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&mounted).unwrap()).unwrap();
        record["boot"] = "another".into();
        fs::write(&mounted, record.to_string()).unwrap();
        let told = user.ok(&["get", "o"]);
        assert!(told.contains("went down") && told.contains("last-words"), "{told}");
        assert_eq!(user.diff("o"), ["A last-words"]);
    }
}

#[test]
fn strict_overlays_are_not_volatile() {
    for user in overlay_users() {
        let strict = user
            .sandbox()
            .args(["create", "--name", "s"])
            .env("SANDBOXER_OVERLAY_DURABILITY", "strict")
            .output();
        assert!(strict.unwrap().status.success());
        let options = options_of_mounts(&user);
        assert!(options.contains("upperdir=") && !options.contains("volatile"), "{options}");
        user.ok(&["destroy", "s"]);
        user.ok(&["create", "--name", "v"]);
        let options = options_of_mounts(&user);
        assert!(options.contains("volatile"), "{options}");
    }
}

#[test]
fn two_sandboxes_over_one_directory_see_their_own() {
    for user in overlay_users() {
        user.world.file("project/hello.txt", "hello\n1\n2\n3\nworld\n");
        user.ok(&["create", "--name", "a"]);
        user.ok(&["create", "--name", "b"]);
        user.inside("a", "sed -i s/hello/bonjour/ hello.txt; echo a > a-only; rm run.sh");
        user.inside("b", "sed -i s/world/monde/ hello.txt");
        user.ok(&["commit", "a"]);
        assert_eq!(user.inside("b", "cat hello.txt; ls"), "hello\n1\n2\n3\nmonde\nhello.txt\nrun.sh\nsrc\n");
        assert_eq!(user.diff("b"), ["M hello.txt  (changed in the original too: a commit would conflict)"]);
        take_away(&user);
        assert_eq!(user.inside("b", "cat hello.txt; ls"), "hello\n1\n2\n3\nmonde\nhello.txt\nrun.sh\nsrc\n");
        assert_eq!(user.run(&["commit", "b"]).code, 3);
        user.ok(&["commit", "b", "--on-conflict", "merge"]);
        assert_eq!(user.world.text("project/hello.txt"), "bonjour\n1\n2\n3\nmonde\n");
    }
}

#[test]
fn a_hand_edit_is_seen_and_never_overwritten() {
    for user in overlay_users() {
        user.ok(&["create", "--name", "o", "--exclude", "run.sh"]);
        user.inside("o", "echo mine >> hello.txt; echo no >> run.sh");
        user.world.file("project/src/main.rs", "by hand\n");
        user.world.file("project/hello.txt", "by hand\n");
        assert_eq!(user.inside("o", "cat src/main.rs"), "by hand\n");
        assert_eq!(user.diff("o"), ["M hello.txt  (changed in the original too: a commit would conflict)"]);
        assert_eq!(user.run(&["commit", "o"]).code, 3);
        assert_eq!(user.world.text("project/hello.txt"), "by hand\n");
        assert!(user.world.text("project/run.sh").starts_with("#!"));
    }
}

/// Commits one file to a sandbox of `resource`.
fn use_once(user: &User, resource: &Path) {
    let create = user.sandbox().args(["create", "--json", "--name", "o"]).arg(resource).output().unwrap();
    let created = Ran::of(create);
    assert_eq!(created.code, 0, "{}", created.stderr);
    assert!(created.stdout.contains("\"strategy\": \"overlay\""), "{}", created.stdout);
    user.inside("o", "cat f; echo new > new");
    assert_eq!(user.diff("o"), ["A new"]);
    user.ok(&["commit", "o"]);
    assert_eq!(fs::read_to_string(resource.join("new")).unwrap(), "new\n");
    user.ok(&["destroy", "o"]);
}

#[test]
fn any_path_can_be_isolated() {
    for user in overlay_users() {
        let odd = user.world.path("project/a:b,redirect_dir=on\\ c\nd\u{1b}");
        let mut long = user.world.path("project");
        while long.as_os_str().len() < 3700 {
            long.push("n".repeat(200));
        }
        long.push("m".repeat(3989 - long.as_os_str().len()));
        for resource in [odd, long] {
            let make = user.command("mkdir").arg("-p").arg(&resource).status().unwrap();
            assert!(make.success());
            let file = user.command("sh").args(["-c", "echo f > f"]).current_dir(&resource).status().unwrap();
            assert!(file.success());
            use_once(&user, &resource);
        }
    }
}

#[test]
fn files_of_others_are_explained() {
    let Some(user) = User::ordinary().filter(|_| user::is_root()) else {
        return sandboxer_testkit::skip("giving files to somebody else needs root and user namespaces");
    };
    let theirs = user.world.path("project/theirs");
    fs::create_dir(&theirs).unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
    user.ok(&["create", "--name", "o"]);
    let plain = user.try_inside("o", "echo x > theirs/new");
    assert!(!plain.status.success());
    let mut write = user.sandbox();
    let refused = Ran::of(write.args(["write", "o", "theirs/new"]).output().unwrap());
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    for part in ["theirs/new or a directory above it belongs to another user", "user namespace", "hint: "] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    assert!(user.diff("o").is_empty());
}

#[test]
fn a_mount_inside_is_refused_by_name() {
    let Some(user) = User::root() else { return };
    let inside = user.world.path("project/src");
    let mount = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inside).status().unwrap();
    assert!(mount.success());
    let refused = user.run(&["create"]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains(inside.to_str().unwrap()), "{}", refused.stderr);
    assert!(refused.stderr.contains("--exclude"), "{}", refused.stderr);
    user.ok(&["create", "--name", "o", "--exclude", "src"]);
    user.inside("o", "cat hello.txt");
}

/// The command where nobody may mount, and nobody may have a user namespace.
fn without_overlays(user: &User, arguments: &[&str]) -> Option<Ran> {
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && \
                  exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let mut command = user.command("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]).arg(user.binary()).args(arguments);
    let ran = command.output().ok().map(Ran::of)?;
    let started = !ran.stderr.contains("unshare:") && !ran.stderr.contains("setpriv:") && ran.code < 126;
    if !started {
        sandboxer_testkit::skip(&format!("user namespaces cannot be switched off: {}", ran.stderr.trim()));
    }
    started.then_some(ran)
}

const REASONS: [&str; 2] = [
    "overlay on the host: Operation not permitted (os error 1)",
    "overlay in a user namespace: user namespaces are switched off",
];

#[test]
fn where_overlays_do_not_work_the_fallback_and_its_reasons_are_told() {
    let Some(user) = User::plain() else { return };
    let Some(created) = without_overlays(&user, &["create", "--name", "c"]) else { return };
    assert_eq!(created.code, 0, "{}", created.stderr);
    assert!(created.stderr.contains("overlay does not work here, so it is "), "{}", created.stderr);
    for reason in REASONS {
        assert_eq!(created.stdout.matches(reason).count(), 1, "{}", created.stdout);
    }
    let document = user.json(&["get", "c"]);
    assert_eq!(document["requested_strategy"], "overlay");
    assert_ne!(document["strategy"], "overlay");
    user.ok(&["destroy", "c", "--discard"]);
}

#[test]
fn where_overlays_do_not_work_nothing_else_is_used_if_so_asked() {
    let Some(user) = User::plain() else { return };
    let arguments = ["create", "--strategy", "overlay", "--no-fallback"];
    let Some(refused) = without_overlays(&user, &arguments) else { return };
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    for reason in REASONS {
        assert_eq!(refused.stderr.matches(reason).count(), 1, "{}", refused.stderr);
    }
    assert_eq!(fs::read_dir(user.world.path("home/scratch")).map(Iterator::count).unwrap_or(0), 0);
    let beside: Vec<_> = fs::read_dir(user.world.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!beside.iter().any(|name| name.to_string_lossy().starts_with(".sandboxer")), "{beside:?}");
    assert!(remains::keepers(&user.world.path("")).is_empty());
}

#[test]
fn doctor_says_why_overlays_do_not_work_and_leaves_nothing() {
    let Some(user) = User::plain() else { return };
    let Some(ran) = without_overlays(&user, &["doctor"]) else { return };
    let line =
        |start: &str| ran.stdout.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("no  overlay          on the host, in ").contains("may not mount"), "{}", ran.stdout);
    assert!(line("no  overlay          in a user namespace, in ").contains("switched off"), "{}", ran.stdout);
    assert!(ran.stdout.contains("ok  filesystem_copy "), "{}", ran.stdout);
    let mut left: Vec<_> =
        fs::read_dir(user.world.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.retain(|name| name != "sandbox-bin");
    left.sort();
    assert_eq!(left, ["project", "user"]);
}

#[test]
fn doctor_tries_every_way() {
    let world = World::new();
    let report = world.json(&["doctor"]);
    let strategies = report["strategies"].as_array().unwrap();
    let ways: Vec<_> =
        strategies.iter().map(|s| (s["strategy"].as_str().unwrap(), s["way"].as_str())).collect();
    let overlays = [("overlay", Some("on the host")), ("overlay", Some("in a user namespace"))];
    let others = [("git_worktree", None), ("copy_on_write", None), ("filesystem_copy", None), ("none", None)];
    assert_eq!(ways, [&overlays[..], &others].concat());
    assert!(strategies.iter().all(|s| !s["reason"].as_str().unwrap().is_empty()));
    assert!(!world.path("home").exists(), "doctor made a state directory");
    assert!(remains::keepers(&world.path("")).is_empty());
}

/// Mounts an overlay at `project/over`, with a directory `resource` in it.
fn mount_overlay(user: &User) {
    for part in ["lower/resource", "upper", "work", "over"] {
        fs::create_dir_all(user.world.path(part)).unwrap();
    }
    let part = |name| user.world.path(name).display().to_string();
    let options = format!("lowerdir={},upperdir={},workdir={}", part("lower"), part("upper"), part("work"));
    let mount = Command::new("mount").args(["-t", "overlay", "none", "-o", &options, &part("over")]).status();
    assert!(mount.unwrap().success());
}

#[test]
fn a_state_directory_on_an_overlay_puts_the_changes_elsewhere_or_falls_back() {
    let Some(user) = User::root() else { return };
    mount_overlay(&user);
    let home = user.world.path("over/home");
    let run = |arguments: &[&str]| {
        Ran::of(user.sandbox().args(arguments).env("SANDBOXER_HOME", &home).output().unwrap())
    };
    let elsewhere = run(&["create", "--name", "e"]);
    assert_eq!(elsewhere.code, 0, "{}", elsewhere.stderr);
    let beside = user.world.path(".sandboxer-0");
    assert!(elsewhere.stdout.contains(&format!("path      {}", beside.display())), "{}", elsewhere.stdout);
    let resource = user.world.path("over/resource");
    let fallen = run(&["create", "--name", "f", resource.to_str().unwrap()]);
    assert_eq!(fallen.code, 0, "{}", fallen.stderr);
    assert!(fallen.stdout.contains("fell back to filesystem_copy"), "{}", fallen.stdout);
    assert_eq!(fallen.stdout.matches("its upper is on an overlay itself").count(), 2, "{}", fallen.stdout);
    let refused = run(&["create", "-s", "overlay", "--no-fallback", resource.to_str().unwrap()]);
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(!user.world.path("over/.sandboxer-0").exists());
    for name in ["e", "f"] {
        assert_eq!(run(&["destroy", name]).code, 0);
    }
}

#[test]
fn a_command_that_runs_in_a_sandbox_knows_where_it_is() {
    for user in overlay_users() {
        let script = "test \"$(env -u PWD /bin/pwd)\" = \"$SANDBOX_PATH\" && cat \"$(realpath hello.txt)\" && echo new > new; id -u";
        let ran = user.run(&["run", "--commit", "--", "sh", "-c", script]);
        let uid = String::from_utf8(user.command("id").arg("-u").output().unwrap().stdout).unwrap();
        assert_eq!((ran.code, ran.stdout), (0, format!("hello\nworld\n{uid}")), "{}", ran.stderr);
        assert_eq!(user.world.text("project/new"), "new\n");
        assert_eq!(user.run(&["run", "--", "no-such-command-at-all"]).code, 127);
        assert_eq!(user.run(&["run", "--", "./hello.txt"]).code, 126);
        assert_eq!(user.run(&["run", "--", "./not-there"]).code, 127);
        assert_eq!(user.run(&["run", "--", "sh", "-c", "kill -9 $$"]).code, 137);
    }
}

#[test]
fn what_a_keeper_has_mounted_is_no_original() {
    let Some(user) = User::ordinary() else { return };
    user.ok(&["create", "--name", "o"]);
    let path = user.ok(&["path", "o"]);
    let other = user.world.path("user/state");
    let inside = |arguments: &[&str], at: &Path| {
        let mut command = user.sandbox();
        Ran::of(command.args(arguments).env("SANDBOXER_HOME", &other).current_dir(at).output().unwrap())
    };
    let project = user.world.project();
    for (at, arguments) in
        [(&*project, &["create", path.trim_end()][..]), (Path::new(path.trim_end()), &["create"])]
    {
        let refused = inside(arguments, at);
        assert_eq!(refused.code, 5, "{}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains("name its original"), "{}", refused.stderr);
    }
}

#[test]
fn a_state_directory_inside_the_original_is_no_part_of_it() {
    for user in overlay_users() {
        let home = user.world.path("project/.state");
        let run = |arguments: &[&str]| {
            Ran::of(user.sandbox().args(arguments).env("SANDBOXER_HOME", &home).output().unwrap())
        };
        let created = run(&["create", "--name", "o"]);
        assert_eq!(created.code, 0, "{}", created.stderr);
        assert!(created.stdout.contains("strategy  overlay"), "{}", created.stdout);
        let diff = run(&["diff", "o"]);
        assert_eq!((diff.code, diff.stdout.as_str()), (0, ""), "{}", diff.stderr);
        assert_eq!(run(&["destroy", "o"]).code, 0);
    }
}
