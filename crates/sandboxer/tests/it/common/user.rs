//! The command as whoever it is to work for: root, who mounts on the host, or an ordinary user, who needs a keeper.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Ran, SANDBOX, World};

const NOBODY: u32 = 65534;

/// Somebody with a world of their own.
pub struct User {
    pub world: World,
    binary: PathBuf,
    /// Whether the rights of root are to be dropped.
    drops: bool,
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Everybody for whom overlays can be mounted here, each with a reason on stderr for whom they cannot.
pub fn overlay_users() -> Vec<User> {
    [User::root(), User::ordinary()].into_iter().flatten().collect()
}

impl User {
    /// Root, where the tests are root's and the host may be mounted on.
    pub fn root() -> Option<Self> {
        if !is_root() {
            sandboxer_testkit::skip("mounting on the host needs root");
            return None;
        }
        let user = Self { world: World::new(), binary: SANDBOX.into(), drops: false };
        user.if_healthy("on the host")
    }

    /// An ordinary user who may have user namespaces.
    pub fn ordinary() -> Option<Self> {
        let user = Self::plain()?;
        user.if_healthy("in a user namespace")
    }

    /// An ordinary user, whatever is possible.
    pub fn plain() -> Option<Self> {
        let world = World::new();
        let mut user = Self { world, binary: SANDBOX.into(), drops: is_root() };
        if user.drops {
            let can_be =
                user.hand_over() && user.command("true").output().is_ok_and(|ran| ran.status.success());
            if !can_be {
                sandboxer_testkit::skip(
                    "root's rights cannot be dropped: setpriv is not there, or it is not the root of the host",
                );
                return None;
            }
            user.reach_the_binary();
        }
        Some(user)
    }

    /// Asked once per run: a doctor looks at everything on the machine, container engines included.
    fn if_healthy(self, way: &str) -> Option<Self> {
        let health = sandboxer_testkit::once_per_run(&format!("overlay {way}"), || {
            let ran = self.run(&["doctor", "--json"]);
            let report: Value = serde_json::from_str(&ran.stdout).unwrap();
            let health = report["strategies"].as_array().unwrap().iter().find(|s| s["way"] == way).unwrap();
            if health["healthy"] == true { Ok(String::new()) } else { Err(health["reason"].to_string()) }
        });
        if let Err(reason) = health {
            sandboxer_testkit::skip(&format!("no overlay {way}: {reason}"));
            return None;
        }
        Some(self)
    }

    /// Gives the world to the user; whether that worked.
    fn hand_over(&self) -> bool {
        fs::set_permissions(self.world.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let mut chown = Command::new("chown");
        chown.args(["-R", &format!("{NOBODY}:{NOBODY}")]).arg(self.world.path(""));
        chown.output().is_ok_and(|ran| ran.status.success())
    }

    /// Where programs are built need not be open to everybody.
    fn reach_the_binary(&mut self) {
        if !self.command("test").args(["-x", SANDBOX]).status().unwrap().success() {
            self.binary = binary_for_all_users();
        }
    }

    /// Any program as this user.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        if !self.drops {
            command = Command::new(&program);
        }
        self.world.furnish(&mut command);
        if self.drops {
            let id = NOBODY.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(program);
        }
        command
    }

    /// The command `sandbox`.
    pub fn sandbox(&self) -> Command {
        self.command(&self.binary)
    }

    /// The command `sandbox` by its path.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.sandbox().args(arguments).output().unwrap())
    }

    /// Runs, expects success, gives stdout.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "sandbox {arguments:?}\n{}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// A shell script in the sandbox of that name, from outside like any other program; gives what it printed.
    pub fn inside(&self, sandbox: &str, script: &str) -> String {
        let output = self.try_inside(sandbox, script);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// A shell script in the project; gives what it printed.
    pub fn outside(&self, script: &str) -> String {
        let output = self.command("sh").args(["-ec", script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    pub fn try_inside(&self, sandbox: &str, script: &str) -> Output {
        let path = self.ok(&["path", sandbox]);
        self.command("sh").args(["-c", script]).current_dir(path.trim_end()).output().unwrap()
    }

    /// What `diff` lists.
    pub fn diff(&self, sandbox: &str) -> Vec<String> {
        self.ok(&["diff", sandbox]).lines().map(str::to_owned).collect()
    }

    /// The one workspace there is.
    pub fn workspace(&self) -> PathBuf {
        let mut found = fs::read_dir(self.world.path("home/scratch")).unwrap();
        let only = found.next().unwrap().unwrap().path();
        assert!(found.next().is_none());
        only
    }
}

/// A copy of `sandbox` that everybody may run.
pub fn binary_for_all_users() -> PathBuf {
    let copy = sandboxer_testkit::once_per_run("sandbox binary for all users", || {
        let copy = sandboxer_testkit::run_directory().join("sandbox-bin");
        fs::copy(SANDBOX, &copy).unwrap();
        Ok(copy.to_str().unwrap().to_owned())
    });
    copy.unwrap().into()
}
