//! Files of the original that have other names, outside what was sandboxed.

use crate::common::user::{User, overlay_users};

fn stories(tell: impl Fn(&User, &str)) {
    for strategy in ["overlay", "filesystem_copy"] {
        for user in overlay_users() {
            user.outside("mkdir ../beside; seq 3 > a; chmod 644 a; ln a b; ln a ../beside/c");
            user.ok(&["create", "--name", "q", "--strategy", strategy, "--no-fallback"]);
            tell(&user, strategy);
        }
    }
}

#[test]
fn a_mode_that_is_changed_inside_stays_with_the_name_it_was_changed_by() {
    stories(|user, strategy| {
        user.inside("q", "rm b; seq 3 > b; chmod 600 b");
        user.ok(&["commit", "q"]);
        assert_eq!(user.outside("stat -c %a a b ../beside/c"), "644\n600\n644\n", "{strategy}");
        user.ok(&["undo", "q"]);
        assert_eq!(user.outside("stat -c %a a b ../beside/c"), "644\n644\n644\n", "{strategy}");
    });
}

#[test]
fn a_name_outside_keeps_its_mode() {
    stories(|user, strategy| {
        user.inside("q", "chmod 600 b");
        user.ok(&["commit", "q"]);
        assert_eq!(user.outside("stat -c %a b ../beside/c"), "600\n644\n", "{strategy}");
        assert_eq!(user.diff("q"), Vec::<String>::new(), "{strategy}");
        user.ok(&["undo", "q"]);
        assert_eq!(
            user.outside("stat -c %a a b ../beside/c; cat b"),
            "644\n644\n644\n1\n2\n3\n",
            "{strategy}"
        );
    });
}
