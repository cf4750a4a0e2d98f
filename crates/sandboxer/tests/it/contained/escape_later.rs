//! What a contained command leaves in its project for the host to run later: our own commands do not run it.

use crate::common::Ran;
use crate::common::contained::{everybody, outside, sandbox};

/// Everything that git could be made to run by what is in a repository.
const TRAPS: &str = r#"
printf '#!/bin/sh\necho "$0 $@" >> %s\n' "$CANARY_FILE" > trap.sh; chmod +x trap.sh; trap=$PWD/trap.sh
mkdir -p hooks; git config core.hooksPath "$PWD/hooks"
for hook in pre-commit post-commit post-checkout post-merge reference-transaction post-index-change pre-auto-gc fsmonitor-watchman; do
    cp trap.sh hooks/$hook; cp trap.sh .git/hooks/$hook
done
for key in core.fsmonitor diff.external diff.x.textconv diff.x.command core.sshCommand core.pager core.editor gpg.program core.askPass \
    core.alternateRefsCommand uploadpack.packObjectsHook; do git config $key "$trap"; done
for key in filter.x.clean filter.x.smudge filter.x.process merge.x.driver; do git config $key "$trap run"; done
git config credential.helper "!$trap"; git config commit.gpgSign true
echo '* diff=x merge=x' > .gitattributes; echo '*.filtered filter=x' >> .gitattributes
echo content > some.filtered; echo more >> hello.txt
"#;

#[test]
fn what_git_could_be_made_to_run_is_not_run() {
    for user in everybody() {
        outside(
            &user,
            "git init -q -b main . && git config user.name me && git config user.email me@x && git add . && git commit -qm first",
        );
        let canary = user.world.path("user/was-run");
        for strategy in ["overlay", "git_worktree", "filesystem_copy"] {
            let setting = format!("CANARY_FILE={}", canary.display());
            let words = [
                "run", "--keep", "--name", strategy, "-s", strategy, "--env", &setting, "--", "sh", "-c",
                TRAPS,
            ];
            let ran = Ran::of(sandbox(&user, &words).output().unwrap());
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            for command in [
                &["diff"][..],
                &["diff", "--patch"],
                &["status"],
                &["checkpoint"],
                &["commit", "--accept-flags", "hello.txt"],
                &["undo"],
                &["destroy", "--discard"],
            ] {
                let words = [&command[..1], &[strategy], &command[1..]].concat();
                let words: Vec<&str> = match command {
                    [_, flags, path] => vec![command[0], strategy, path, flags],
                    _ => words,
                };
                let ran = user.run(&words);
                assert!(!canary.exists(), "{strategy}: {words:?} ran {}", user.world.text("user/was-run"));
                assert!(
                    ran.code == 0 || command[0] == "undo" || command[0] == "commit",
                    "{strategy}: {words:?}: {}",
                    ran.stderr
                );
            }
        }
    }
}

#[test]
fn programs_of_the_project_are_not_found_before_the_systems() {
    for user in everybody() {
        let canary = user.world.path("user/was-run");
        let script = format!(
            "for name in git sh diff less cat strace mount umount fusermount newuidmap sandbox; do \
             printf '#!/bin/sh\\necho %s >> {}\\n' $name > $name; chmod +x $name; done",
            canary.display()
        );
        assert_eq!(user.run(&["run", "--keep", "--name", "path", "--", "sh", "-c", &script]).code, 0);
        for words in [
            &["diff", "path", "--patch"][..],
            &["commit", "path", "--accept-flags"],
            &["status", "path"],
            &["doctor"],
            &["undo", "path"],
        ] {
            user.run(words);
            assert!(!canary.exists(), "{words:?} ran {}", user.world.text("user/was-run"));
        }
    }
}

#[test]
fn a_sandbox_in_a_sandbox_is_refused_and_says_why() {
    for user in everybody() {
        let inner = format!(
            "cp {} inner && SANDBOXER_HOME=/tmp/state ./inner run -s filesystem_copy -C src -- true",
            user.binary().display()
        );
        let ran = Ran::of(sandbox(&user, &["run", "--discard", "--", "sh", "-c", &inner]).output().unwrap());
        if ran.stderr.contains("cp: ") {
            sandboxer_testkit::skip("the program is not to be seen from inside");
            continue;
        }
        assert_eq!(ran.code, 6, "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains("--isolation files"), "{}", ran.stderr);
    }
}
