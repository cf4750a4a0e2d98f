//! What an agent makes of its repository.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use sandboxer_testkit::git::GitRepo;

use super::world::World;

/// One thing to plant.
pub struct Plant {
    pub name: &'static str,
    pub plant: fn(&World),
    /// Whether it keeps some files from being committed, so that what comes after is not tried with it.
    pub stops_commits: bool,
}

const fn plant(name: &'static str, plant: fn(&World)) -> Plant {
    Plant { name, plant, stops_commits: false }
}

const fn obstacle(name: &'static str, plant: fn(&World)) -> Plant {
    Plant { name, plant, stops_commits: true }
}

/// What leaves a repository that git can work with, in an order in which all of it can be planted.
pub const PLANTS: &[Plant] = &[
    plant("refs and grafts", refs_and_grafts),
    plant("alternates", alternates),
    plant("garbage beside objects", garbage),
    obstacle("attributes of the repository", |world| {
        write(&world.private().join("info/attributes"), ATTRIBUTES);
    }),
    obstacle("attributes", |world| write(&world.tree().join(".gitattributes"), ATTRIBUTES)),
    obstacle("nested repository", nested),
    obstacle("nested repository as a link", nested_as_link),
    plant("hooks", |world| plant_hooks(world, &world.private().join("hooks"))),
    plant("hooks elsewhere", |world| {
        plant_hooks(world, &world.outside("hooks"));
        let path = format!("[core]\n\thooksPath = {}\n", world.outside("hooks").display());
        append(&world.private().join("config"), &path);
    }),
    plant("settings", |world| append(&world.private().join("config"), &settings(world))),
    // By itself: it would come before the converters that are to be seen too.
    plant("an external difference", |world| {
        let text = format!("[diff]\n\texternal = \"{}\"\n", world.mark("external"));
        append(&world.private().join("config"), &text);
    }),
    plant("included settings", included),
    plant("settings of the worktree", |world| {
        append(&world.private().join("config"), "[extensions]\n\tworktreeConfig = true\n");
        append(&world.private().join("config.worktree"), &settings(world));
    }),
    plant("a promisor", |world| {
        let trap = format!(
            "[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tpartialClone = evil\n[remote \"evil\"]\n\turl = \"ext::{}\"\n\tpromisor = true\n\tpartialCloneFilter = blob:none\n\tuploadpack = \"{}\"\n[protocol]\n\tallow = always\n",
            world.mark("ext"),
            world.mark("uploadpack")
        );
        append(&world.private().join("config"), &trap);
    }),
];

/// Other things in the place of `.git`.
pub const IN_ITS_PLACE: &[Plant] = &[
    plant("a link to another repository", |world| {
        world.plant_other();
        in_its_place(world, |at| symlink(world.other().join(".git"), at).unwrap());
    }),
    plant("a file that names another repository", |world| {
        world.plant_other();
        let text = format!("gitdir: {}\n", world.other().join(".git").display());
        in_its_place(world, |at| fs::write(at, &text).unwrap());
    }),
    plant("a link to the original's", |world| {
        in_its_place(world, |at| symlink(world.git_dir(), at).unwrap());
    }),
    plant("a file that names the original's", |world| {
        let text = format!("gitdir: {}\n", world.git_dir().display());
        in_its_place(world, |at| fs::write(at, &text).unwrap());
    }),
    plant("a repository of the agent's own", |world| {
        in_its_place(world, |_| ());
        GitRepo::new(world.tree());
        append(&world.private().join("config"), &settings(world));
        plant_hooks(world, &world.private().join("hooks"));
    }),
    plant("a bare repository", |world| {
        in_its_place(world, |at| drop(world.original().git(&["init", "-q", "--bare", at.to_str().unwrap()])));
        append(&world.private().join("config"), &settings(world));
    }),
    plant("directories that are links elsewhere", |world| {
        world.plant_other();
        for name in ["refs", "objects", "info", "logs"] {
            let at = world.private().join(name);
            let _ = fs::remove_dir_all(&at);
            symlink(world.other().join(".git").join(name), at).unwrap();
        }
    }),
    plant("a link to itself", |world| in_its_place(world, |at| symlink(".git", at).unwrap())),
    plant("nothing", |world| in_its_place(world, |_| ())),
    plant("an empty directory", |world| in_its_place(world, |at| fs::create_dir(at).unwrap())),
    plant("rubbish", |world| in_its_place(world, |at| fs::write(at, [0xff; 4096]).unwrap())),
];

/// Filters, drivers and converters for everything.
const ATTRIBUTES: &str = "* filter=x diff=x merge=x\n*.bin filter=y diff=y text=auto eol=crlf\n";

fn in_its_place(world: &World, put: impl FnOnce(&Path)) {
    fs::remove_dir_all(world.private()).unwrap();
    put(&world.private());
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn append(path: &Path, text: &str) {
    let before = fs::read_to_string(path).unwrap_or_default();
    write(path, &(before + text));
}

/// Every setting that names a program.
fn settings(world: &World) -> String {
    let named = [
        ("core", "fsmonitor"),
        ("core", "pager"),
        ("core", "editor"),
        ("core", "sshCommand"),
        ("core", "gitProxy"),
        ("core", "alternateRefsCommand"),
        ("core", "askPass"),
        ("sequence", "editor"),
        ("interactive", "diffFilter"),
        ("gpg", "program"),
        ("gpg \"ssh\"", "program"),
        ("gpg \"ssh\"", "defaultKeyCommand"),
        ("gpg \"x509\"", "program"),
        ("uploadpack", "packObjectsHook"),
        ("credential", "helper"),
        ("trailer \"x\"", "command"),
        ("trailer \"y\"", "cmd"),
        ("diff \"x\"", "command"),
        ("diff \"y\"", "textconv"),
        ("diff \"x\"", "textconv"),
        ("merge \"x\"", "driver"),
        ("filter \"x\"", "clean"),
        ("filter \"x\"", "smudge"),
        ("filter \"y\"", "process"),
        ("remote \"origin\"", "uploadpack"),
        ("remote \"origin\"", "vcs"),
        ("man \"x\"", "cmd"),
        ("browser \"x\"", "cmd"),
        ("pager", "status"),
        ("pager", "log"),
    ];
    let line = |(section, key): (&str, &str)| {
        // Some are the path of a program, and cannot have arguments.
        let is_path = key == "program";
        let value = if is_path { world.outside("program").display().to_string() } else { world.mark(key) };
        format!("[{section}]\n\t{key} = \"{value}\"\n")
    };
    let mut text: String = named.into_iter().map(line).collect();
    for name in ["status", "diff", "hash-object", "cat-file", "fast-import", "update-ref", "check-attr"] {
        text += &format!("[alias]\n\t{name} = \"!{}\"\n", world.mark("alias"));
    }
    text += "[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n[filter \"x\"]\n\trequired = true\n";
    text += "[core]\n\tuntrackedCache = true\n\tattributesFile = ../.gitattributes\n\texcludesFile = ../.gitignore\n";
    text + &format!("[remote \"origin\"]\n\turl = \"ext::{}\"\n", world.mark("ext"))
}

fn included(world: &World) {
    write(&world.outside("included"), &settings(world));
    write(&world.private().join("included"), &settings(world));
    let text = format!(
        "[include]\n\tpath = {}\n\tpath = included\n[includeIf \"gitdir:/\"]\n\tpath = included\n",
        world.outside("included").display()
    );
    append(&world.private().join("config"), &text);
}

/// Every hook there is.
pub fn plant_hooks(world: &World, hooks: &Path) {
    fs::create_dir_all(hooks).unwrap();
    let names = "applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit pre-rebase \
        post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update reference-transaction push-to-checkout \
        pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit \
        post-index-change";
    for name in names.split_whitespace() {
        let path = hooks.join(name);
        fs::write(&path, format!("#!/bin/sh\n{}\n", world.mark(name))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A history that is another one than it says.
fn refs_and_grafts(world: &World) {
    let inside = world.inside();
    let (base, tip) = (inside.git(&["rev-parse", "main"]), inside.head());
    let lie = inside.git(&["commit-tree", "-m", "a lie", &format!("{tip}^{{tree}}")]);
    inside.git(&["update-ref", &format!("refs/replace/{base}"), &lie]);
    write(&world.private().join("info/grafts"), &format!("{base} {lie}\n{tip}\n"));
    write(&world.private().join("refs/heads/../../evil"), "not a ref\n");
    inside.git(&["symbolic-ref", "refs/heads/loop", "refs/heads/loop2"]);
}

fn alternates(world: &World) {
    world.plant_other();
    let theirs = world.other().join(".git/objects");
    append(
        &world.private().join("objects/info/alternates"),
        &format!("{}\n/dev\n/proc/self\n", theirs.display()),
    );
    write(&world.private().join("objects/info/http-alternates"), "http://127.0.0.1:9/objects\n");
}

fn garbage(world: &World) {
    let objects = world.private().join("objects");
    write(&objects.join("info/commit-graph"), "CGPH\u{1}\u{1}\u{1}\u{1}rubbish");
    write(&objects.join("pack/multi-pack-index"), "MIDX rubbish");
    let name = "pack-0123456789012345678901234567890123456789";
    write(&objects.join(format!("pack/{name}.pack")), "PACK rubbish");
    write(&objects.join(format!("pack/{name}.idx")), "rubbish");
    write(&objects.join("ff/ffffffffffffffffffffffffffffffffffffff"), "rubbish");
}

/// A repository with traps of its own, below.
fn nested(world: &World) {
    let nested = GitRepo::new(world.tree().join("nested"));
    nested.write("theirs.txt", "theirs\n");
    nested.commit_all("theirs");
    nested.write("theirs.txt", "changed\n");
    nested.write(".gitattributes", ATTRIBUTES);
    append(&world.tree().join("nested/.git/config"), &settings(world));
    plant_hooks(world, &world.tree().join("nested/.git/hooks"));
}

/// The same, where the repository around it has an entry for it.
fn nested_as_link(world: &World) {
    let nested = GitRepo::new(world.tree().join("linked"));
    nested.write("theirs.txt", "theirs\n");
    let commit = nested.commit_all("theirs");
    nested.write("theirs.txt", "changed\n");
    world.inside().git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},linked")]);
    write(
        &world.tree().join(".gitmodules"),
        "[submodule \"linked\"]\n\tpath = linked\n\turl = ext::true\n\tupdate = !true\n",
    );
    append(&world.tree().join("linked/.git/config"), &settings(world));
    plant_hooks(world, &world.tree().join("linked/.git/hooks"));
}
