//! Places of a home directory that hold credentials, and are therefore not there for a command.
//!
//! The list errs on the side of hiding. A file that often holds nothing but settings and sometimes a token (`.npmrc`, `pip.conf`) is hidden: a
//! tool finds it missing and uses its defaults, which is seldom what matters, and `run.show` brings it back for those to whom it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Component, Path, PathBuf};

/// What is hidden of the system. Only root could read it, and root is who may run a command.
const SYSTEM: &[&str] = &[
    "/etc/NetworkManager/system-connections",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/etc/letsencrypt",
    "/etc/rancher",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/ssh/ssh_host_dsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/wireguard",
    "/var/lib/kubelet",
    "/var/lib/rancher",
];

/// What is hidden unless it is shown, relative to the home directory. Directories are hidden with all that is in them.
pub const DEFAULT: &[&str] = &[
    // Keys of the user's own.
    ".age",
    ".android/adbkey",
    ".config/age",
    ".config/sops",
    ".gnupg",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".password-store",
    ".local/share/gopass",
    ".pki",
    ".putty",
    ".ssh",
    ".step",
    ".subversion/auth",
    ".vault-token",
    // Wallets.
    ".bitcoin",
    ".config/solana",
    ".electrum",
    ".ethereum",
    // Password managers.
    ".config/1Password",
    ".config/Bitwarden",
    ".config/Bitwarden CLI",
    ".config/KeePass",
    ".config/keepassxc",
    ".config/op",
    ".cache/keepassxc",
    ".lastpass",
    // Clouds.
    ".aliyun",
    ".aws",
    ".azure",
    ".bluemix",
    ".boto",
    ".config/Azure",
    ".config/configstore",
    ".config/doctl",
    ".config/fly",
    ".config/gcloud",
    ".config/heroku",
    ".config/hcloud",
    ".config/linode-cli",
    ".config/netlify",
    ".config/ngrok",
    ".config/openstack",
    ".config/pulumi",
    ".config/rclone",
    ".config/scw",
    ".config/stripe",
    ".config/vercel",
    ".config/.wrangler",
    ".cloudflared",
    ".databrickscfg",
    ".fly",
    ".local/share/com.vercel.cli",
    ".ngrok2",
    ".oci",
    ".pulumi/credentials.json",
    ".s3cfg",
    ".snowflake",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    ".wrangler",
    // Containers and clusters.
    ".config/containers/auth.json",
    ".config/helm/registry",
    ".docker/config.json",
    ".docker/contexts",
    ".docker/run",
    ".kube",
    ".minikube",
    ".talos",
    // Forges, and what git uses to reach them.
    ".config/gh",
    ".config/git/credentials",
    ".config/glab-cli",
    ".config/hub",
    ".config/tea",
    ".git-credentials",
    ".gitcookies",
    ".netrc",
    // Registries.
    ".bundle/config",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".composer/auth.json",
    ".condarc",
    ".config/composer/auth.json",
    ".config/pip/pip.conf",
    ".config/pypoetry/auth.toml",
    ".config/uv/credentials",
    ".gem/credentials",
    ".gradle/gradle.properties",
    ".ivy2/.credentials",
    ".local/share/gem/credentials",
    ".local/share/uv/credentials",
    ".m2/settings-security.xml",
    ".m2/settings.xml",
    ".npmrc",
    ".nuget/NuGet/NuGet.Config",
    ".pip/pip.conf",
    ".pypirc",
    ".sbt/.credentials",
    ".yarnrc",
    ".yarnrc.yml",
    // Databases and remote desktops.
    ".config/filezilla",
    ".config/pgcli",
    ".my.cnf",
    ".local/share/DBeaverData",
    ".local/share/remmina",
    ".mylogin.cnf",
    ".pgpass",
    // Mail, chat and browsers: cookies are credentials.
    ".config/BraveSoftware",
    ".config/Element",
    ".config/Signal",
    ".config/Slack",
    ".config/chromium",
    ".config/discord",
    ".config/google-chrome",
    ".config/microsoft-edge",
    ".config/opera",
    ".config/vivaldi",
    ".local/share/evolution",
    ".local/share/TelegramDesktop",
    ".mozilla",
    ".config/mozilla",
    ".msmtprc",
    ".mbsyncrc",
    ".thunderbird",
    ".var/app",
    "snap/chromium",
    "snap/firefox",
    // Cookies of sessions on this machine.
    ".ICEauthority",
    ".Xauthority",
    ".config/pulse/cookie",
    ".erlang.cookie",
    ".local/share/jupyter/runtime",
    // Editors and agents.
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".config/Code/User/globalStorage",
    ".config/Cursor/User/globalStorage",
    ".config/VSCodium/User/globalStorage",
    ".config/anthropic",
    ".config/github-copilot",
    ".config/openai",
    ".gemini/oauth_creds.json",
    ".cache/huggingface/token",
    ".huggingface/token",
    ".kaggle",
    ".local/share/opencode/auth.json",
    // What was typed, which is where secrets end up.
    ".bash_history",
    ".config/fish/fish_variables",
    ".histfile",
    ".irb_history",
    ".lesshst",
    ".local/share/fish/fish_history",
    ".local/state/bash/history",
    ".local/state/python_history",
    ".local/share/atuin",
    ".mysql_history",
    ".node_repl_history",
    ".psql_history",
    ".python_history",
    ".rediscli_history",
    ".sqlite_history",
    ".viminfo",
    ".zhistory",
    ".zsh_history",
    ".zsh_sessions",
];

/// What is hidden: the list and `more` of it, without what is `shown` and what lies in it. Both are written `~/x` or as absolute paths; what is
/// neither, or has `..` in it, is passed over, since the configuration has refused it before. The list is that of every home in `homes`: a user may
/// have one by the environment and another by the system's table. Sorted, and nothing twice.
///
/// Something shown that lies in something hidden is not shown by this: what is hidden is so as a whole. [`shown_within`] tells of it.
pub fn places(homes: &[PathBuf], more: &[String], shown: &[String]) -> Vec<PathBuf> {
    let in_homes = |place: &String| homes.iter().filter_map(|home| resolved(home, place)).collect::<Vec<_>>();
    let everywhere = |place: &String| match homes.is_empty() {
        true => resolved(Path::new("/nonexistent"), place).into_iter().collect(),
        false => in_homes(place),
    };
    let shown: Vec<PathBuf> = shown.iter().flat_map(everywhere).collect();
    // What cannot be read needs no hiding, and each place that is hidden costs a mount.
    let system = SYSTEM.iter().map(PathBuf::from).filter(|place| File::open(place).is_ok());
    let listed = homes.iter().flat_map(|home| DEFAULT.iter().map(|place| home.join(place)));
    let all: BTreeSet<PathBuf> = listed.chain(system).chain(more.iter().flat_map(everywhere)).collect();
    let is_shown = |place: &PathBuf| shown.iter().any(|shown| place.starts_with(shown));
    let hidden: Vec<PathBuf> = all.into_iter().filter(|place| !is_shown(place)).collect();
    outermost(hidden)
}

/// The home directory of this process's user by the system's table, wherever the environment says that it is.
pub fn registered_home() -> Option<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten()?;
    Some(user.dir).filter(|home| home.is_absolute() && home.parent().is_some())
}

/// What is to be shown and lies in one of the `hidden` places: `~/.ssh/known_hosts`. Whoever hides has to bring it back by itself, or to say that
/// it cannot.
pub fn shown_within(home: &Path, hidden: &[PathBuf], shown: &[String]) -> Vec<PathBuf> {
    let lies_within = |place: &PathBuf| hidden.iter().any(|hidden| place.starts_with(hidden));
    shown.iter().filter_map(|place| resolved(home, place)).filter(lies_within).collect()
}

/// Where the places really are: a link is hidden with what it leads to, and what is reached through a link where it lies. One that is not there yet
/// is where it would come to be.
pub(crate) fn real(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut known = BTreeMap::new();
    let mut real = BTreeSet::new();
    for place in places {
        let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else { continue };
        let own = real_parent(parent, &mut known).join(name);
        // Most of them are not there.
        if let Ok(kind) = own.symlink_metadata().map(|facts| facts.file_type()) {
            real.extend(kind.is_symlink().then(|| own.canonicalize().ok()).flatten());
            real.extend(kind.is_dir().then(|| led_to_from(&own)).into_iter().flatten());
        }
        real.insert(own);
    }
    outermost(real.into_iter().collect())
}

/// What the links in a hidden directory lead to: keys may be kept elsewhere, and linked.
fn led_to_from(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.filter_map(|link| link.path().canonicalize().ok()).filter(|target| target.is_file()).collect()
}

/// A directory without links on the way, as far as it is there. Many places have the same.
fn real_parent(path: &Path, known: &mut BTreeMap<PathBuf, PathBuf>) -> PathBuf {
    if let Some(real) = known.get(path) {
        return real.clone();
    }
    let real = path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real_parent(parent, known).join(name),
        _ => path.to_path_buf(),
    });
    known.insert(path.to_path_buf(), real.clone());
    real
}

/// Without what lies in another: it is hidden with it. Sorted by component, what lies in a place follows it at once.
fn outermost(sorted: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::with_capacity(sorted.len());
    for place in sorted {
        if !kept.last().is_some_and(|last| place.starts_with(last)) {
            kept.push(place);
        }
    }
    kept
}

/// By name alone: what is there is for whoever hides it to look at.
fn resolved(home: &Path, place: &str) -> Option<PathBuf> {
    let path = match place.strip_prefix("~/") {
        Some(below) => home.join(Path::new(below).strip_prefix("/").unwrap_or(Path::new(below))),
        None => PathBuf::from(place),
    };
    let plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    // Collecting the components leaves out double slashes and single dots.
    plain.then(|| path.components().collect()).filter(|path: &PathBuf| path.parent().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "/home/me";

    fn hidden(more: &[&str], shown: &[&str]) -> Vec<PathBuf> {
        let owned = |places: &[&str]| places.iter().map(|place| (*place).to_owned()).collect::<Vec<_>>();
        places(&[PathBuf::from(HOME)], &owned(more), &owned(shown))
    }

    fn has(places: &[PathBuf], place: &str) -> bool {
        places.iter().any(|known| known == Path::new(place))
    }

    #[test]
    fn credentials_are_hidden_by_default() {
        let places = hidden(&[], &[]);
        let of_home = places.iter().filter(|place| place.starts_with(HOME)).count();
        assert_eq!(of_home, DEFAULT.len(), "nothing on the list is twice, or within another");
        for place in [
            ".ssh",
            ".aws",
            ".gnupg",
            ".npmrc",
            ".cargo/credentials.toml",
            ".docker/config.json",
            ".bash_history",
        ] {
            assert!(has(&places, &format!("{HOME}/{place}")), "{place}");
        }
    }

    #[test]
    fn what_lies_behind_a_link_is_hidden_where_it_lies() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(home.join("dotfiles/config/gh")).unwrap();
        std::fs::create_dir_all(home.join("dotfiles/aws")).unwrap();
        std::os::unix::fs::symlink("dotfiles/config", home.join(".config")).unwrap();
        std::os::unix::fs::symlink("dotfiles/aws", home.join(".aws")).unwrap();
        std::os::unix::fs::symlink("nowhere", home.join(".kube")).unwrap();
        let places = [".config/gh", ".aws", ".kube", ".ssh"].map(|place| home.join(place));
        let expected =
            [".aws", ".kube", ".ssh", "dotfiles/aws", "dotfiles/config/gh"].map(|place| home.join(place));
        assert_eq!(real(&places), expected);
    }

    #[test]
    fn the_list_is_made_of_plain_names_below_home() {
        for place in DEFAULT {
            assert!(
                Path::new(place).components().all(|part| matches!(part, Component::Normal(_))),
                "{place}"
            );
        }
    }

    #[test]
    fn what_tools_need_stays() {
        let places = hidden(&[], &[]);
        for needed in [
            ".cargo",
            ".cargo/registry",
            ".cargo/config.toml",
            ".rustup",
            ".gitconfig",
            ".config/git/config",
            ".npm",
            ".cache/pip",
            ".m2/repository",
        ] {
            let needed = Path::new(HOME).join(needed);
            assert!(!places.iter().any(|place| needed.starts_with(place)), "{}", needed.display());
        }
    }

    #[test]
    fn the_configuration_adds_and_takes_away() {
        let places = hidden(&["~/notes", "/etc//internal/./x"], &["~/.npmrc", "~/.docker"]);
        assert!(has(&places, "/home/me/notes") && has(&places, "/etc/internal/x"));
        assert!(!has(&places, "/home/me/.npmrc"));
        assert!(
            !places.iter().any(|place| place.starts_with("/home/me/.docker")),
            "all that lies in it is shown"
        );
        assert!(!has(&hidden(&["~/both"], &["~/both"]), "/home/me/both"), "shown wins");
    }

    #[test]
    fn a_name_that_begins_alike_is_another() {
        let places = hidden(&["~/.ssh-old"], &["~/.ss"]);
        assert!(has(&places, "/home/me/.ssh") && has(&places, "/home/me/.ssh-old"));
    }

    #[test]
    fn what_lies_in_a_hidden_place_is_hidden_with_it() {
        let places = hidden(&["~/.ssh/id_ed25519", "~/.docker", "~/.ssh"], &["~/.ssh/config"]);
        assert!(has(&places, "/home/me/.ssh") && has(&places, "/home/me/.docker"));
        assert!(!has(&places, "/home/me/.ssh/id_ed25519") && !has(&places, "/home/me/.docker/config.json"));
    }

    #[test]
    fn what_is_shown_within_a_hidden_place_is_told_of() {
        let shown = ["~/.ssh/known_hosts", "~/.npmrc", "/etc/hosts"].map(str::to_owned);
        let places = places(&[PathBuf::from(HOME)], &[], &shown);
        assert_eq!(shown_within(Path::new(HOME), &places, &shown), [Path::new("/home/me/.ssh/known_hosts")]);
    }

    #[test]
    fn what_is_no_place_is_passed_over() {
        let count = hidden(&[], &[]).len();
        assert_eq!(
            hidden(&["relative", "~/../x", "/a/../b", "~other/x", "/", "~", ""], &["/", "~/..", "x"]).len(),
            count
        );
        assert!(has(&hidden(&["~//twice"], &[]), "/home/me/twice"));
    }
}
