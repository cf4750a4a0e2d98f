//! Git repositories for tests, the same on every machine: nobody's configuration is read, nobody's environment counts, and a
//! command that fails ends the test with what git said.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A checkout that a test works on as its user would. Its directory belongs to the caller and outlives this value.
#[derive(Clone, Debug)]
pub struct GitRepo {
    path: PathBuf,
}

impl GitRepo {
    /// A new, empty repository with the unborn branch `main`, at `path`, which is made where it is missing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::init(path.into(), &[])
    }

    /// The same with objects named by SHA-256.
    pub fn new_sha256(path: impl Into<PathBuf>) -> Self {
        Self::init(path.into(), &["--object-format=sha256"])
    }

    /// A checkout that is there already: a clone, a linked worktree, the tree of a sandbox. Nothing of it is changed.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn init(path: PathBuf, options: &[&str]) -> Self {
        fs::create_dir_all(&path).unwrap();
        let repo = Self { path };
        repo.git(&[&["init", "-q", "--initial-branch=main", "--template="], options].concat());
        // In the repository's own configuration, so that it also counts for those who start git by themselves.
        repo.git(&["config", "user.name", "Tess Tester"]);
        repo.git(&["config", "user.email", "tess@example.org"]);
        repo
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs git in it. Returns what it prints, without the newline at the end; a failure panics with what it said.
    pub fn git(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?} in {:?}: {}: {said}", self.path, output.status);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.strip_suffix('\n').map_or(text.clone(), str::to_owned)
    }

    /// Git in it as a command that was not started yet, for those who feed it, give it a variable or expect it to fail.
    pub fn command<W: AsRef<OsStr>>(&self, arguments: &[W]) -> Command {
        let mut command = Command::new("git");
        let names = std::env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| name.as_bytes().starts_with(b"GIT_")) {
            command.env_remove(name);
        }
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        // Before 2.32 git knew no other way to be told.
        command.env("HOME", "/nonexistent").env("XDG_CONFIG_HOME", "/nonexistent");
        // A test that looks must not change what it looks at.
        command.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
        command.args(arguments).current_dir(&self.path).stdin(Stdio::null());
        command
    }

    /// Writes a file of the checkout, with the directories above it.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Reads a file of the checkout.
    pub fn read(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let path = self.path.join(path);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Commits everything that is not ignored, or nothing, to the present branch. Returns the commit's name.
    pub fn commit_all(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.head()
    }

    /// The name of the commit that is checked out.
    pub fn head(&self) -> String {
        self.git(&["rev-parse", "--verify", "HEAD"])
    }

    /// What `git status --porcelain` prints, with every untracked file on a line of its own; empty where all is clean.
    pub fn status(&self) -> String {
        self.git(&["status", "--porcelain", "--untracked-files=all"])
    }

    /// A hash of everything in the git directory: names, modes and contents, no times. Two equal ones mean that nothing was
    /// written there in between, be it an object, a ref, the index, a reflog, a hook, the configuration or a lock.
    pub fn hash_of_git_dir(&self) -> String {
        let dir = PathBuf::from(self.git(&["rev-parse", "--absolute-git-dir"]));
        let mut hasher = blake3::Hasher::new();
        hash_below(&dir, Path::new(""), &mut hasher);
        hasher.finalize().to_hex().to_string()
    }
}

fn hash_below(root: &Path, at: &Path, hasher: &mut blake3::Hasher) {
    let entries = fs::read_dir(root.join(at)).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for relative in names.iter().map(|name| at.join(name)) {
        let path = root.join(&relative);
        let meta = fs::symlink_metadata(&path).unwrap();
        // Lengths come first, or the end of one name could pass for the beginning of the next content.
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        part(relative.as_os_str().as_bytes());
        part(&meta.permissions().mode().to_le_bytes());
        if meta.is_symlink() {
            part(fs::read_link(&path).unwrap().as_os_str().as_bytes());
        } else if meta.is_file() {
            part(&fs::read(&path).unwrap());
        } else if meta.is_dir() {
            hash_below(root, &relative, hasher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_made_and_named() {
        for (make, digits) in [(GitRepo::new as fn(PathBuf) -> GitRepo, 40), (GitRepo::new_sha256, 64)] {
            let temp = tempfile::tempdir().unwrap();
            let repo = make(temp.path().join("repo"));
            repo.write("src/a.txt", "a\n");
            assert_eq!(repo.status(), "?? src/a.txt");
            let commit = repo.commit_all("first");
            assert_eq!((commit.len(), repo.head()), (digits, commit));
            assert_eq!(repo.git(&["log", "--format=%an <%ae> %s"]), "Tess Tester <tess@example.org> first");
            assert_eq!(
                (repo.status(), repo.git(&["branch", "--show-current"])),
                (String::new(), "main".into())
            );
            assert_eq!(repo.read("src/a.txt"), b"a\n");
        }
    }

    #[test]
    fn looking_changes_nothing_and_any_change_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let repo = GitRepo::new(temp.path());
        repo.write("a", "a\n");
        repo.commit_all("first");
        let before = repo.hash_of_git_dir();
        repo.write("a", "a\n");
        assert_eq!((repo.status(), repo.hash_of_git_dir()), (String::new(), before.clone()));
        let mut hashes = vec![before];
        for path in [".git/hooks/post-commit", ".git/index.lock", ".git/refs/heads/x"] {
            repo.write(path, "");
            hashes.push(repo.hash_of_git_dir());
        }
        fs::set_permissions(temp.path().join(".git/index.lock"), fs::Permissions::from_mode(0o600)).unwrap();
        hashes.push(repo.hash_of_git_dir());
        let different: std::collections::BTreeSet<_> = hashes.iter().collect();
        assert_eq!(different.len(), hashes.len());
    }

    #[test]
    #[should_panic(expected = "unknown revision")]
    fn a_failure_panics_with_what_git_said() {
        let temp = tempfile::tempdir().unwrap();
        GitRepo::new(temp.path()).git(&["log", "nothing"]);
    }
}
