//! The variables that builds and tools need.

/// Whole names.
const NAMES: &[&str] = &[
    // Who and where.
    "HOME",
    "HOSTNAME",
    "LOGNAME",
    "OLDPWD",
    "PATH",
    "PWD",
    "SHELL",
    "SHLVL",
    "TZ",
    "TZDIR",
    "USER",
    // How it looks.
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORFGBG",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "GCC_COLORS",
    "GREP_COLORS",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LS_COLORS",
    "NO_COLOR",
    "PY_COLORS",
    "TERM",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    // What people read and write with.
    "BROWSER",
    "EDITOR",
    "INFOPATH",
    "LESS",
    "LESSCHARSET",
    "MANPAGER",
    "MANPATH",
    "PAGER",
    "VISUAL",
    // Directories of the user's own, all but the one with sockets in it.
    "XDG_BIN_HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    // Building.
    "ACLOCAL_PATH",
    "AR",
    "ARFLAGS",
    "AS",
    "ASFLAGS",
    "CC",
    "CFLAGS",
    "CPATH",
    "CPP",
    "CPPFLAGS",
    "CPLUS_INCLUDE_PATH",
    "CROSS_COMPILE",
    "CXX",
    "CXXFLAGS",
    "C_INCLUDE_PATH",
    "DESTDIR",
    "FC",
    "FFLAGS",
    "LD",
    "LDFLAGS",
    "LDLIBS",
    "LD_LIBRARY_PATH",
    "LIBCLANG_PATH",
    "LIBRARY_PATH",
    "LLVM_PROFILE_FILE",
    "NM",
    "OBJCOPY",
    "PREFIX",
    "RANLIB",
    "SOURCE_DATE_EPOCH",
    "STRIP",
    "TARGET",
    // How tests and programs run.
    "CI",
    "CONTINUOUS_INTEGRATION",
    "DEBUG",
    "ENVIRONMENT",
    "LOG_LEVEL",
    "NDEBUG",
    "OMP_NUM_THREADS",
    "TEST_THREADS",
    "VERBOSE",
    // Languages whose names would be too short as beginnings.
    "BUNDLE_GEMFILE",
    "BUNDLE_PATH",
    "BUN_INSTALL",
    "CLASSPATH",
    "DENO_DIR",
    "GEM_HOME",
    "GEM_PATH",
    "JDK_HOME",
    "LUA_CPATH",
    "LUA_PATH",
    "MIX_ENV",
    "NVM_DIR",
    "PERL5LIB",
    "POETRY_HOME",
    "RACK_ENV",
    "RAILS_ENV",
    "RUBYLIB",
    "RUBYOPT",
    "SDKMAN_DIR",
    "VIRTUAL_ENV",
    "VIRTUAL_ENV_PROMPT",
    // The hints of a git that is run inside; where a repository is, is for the workspace to say.
    "GIT_EDITOR",
    "GIT_PAGER",
    "GIT_TERMINAL_PROMPT",
];

/// How names begin: whole families that a tool reads.
const FAMILIES: &[&str] = &[
    "ANT_",
    "BAZEL_",
    "CARGO",
    "CCACHE_",
    "CMAKE_",
    "CONDA_",
    "DEBUG_",
    "DOTNET_",
    "ERL_",
    "GIT_AUTHOR_",
    "GIT_COMMITTER_",
    "GO",
    "GRADLE_",
    "HYPOTHESIS_",
    "JAVA",
    "JEST_",
    "KOTLIN_",
    "LC_",
    "MAKE",
    "MAVEN_",
    "MESON",
    "NINJA_",
    "NODE_",
    "NPM_",
    "NUGET_",
    "OPAM",
    "PIP_",
    "PIPX_",
    "PKG_CONFIG",
    "PNPM_",
    "PYENV_",
    "PYTEST_",
    "PYTHON",
    "RBENV_",
    "RUST",
    "SCCACHE_",
    "STACK_",
    "SWIFT_",
    "UV_",
    "VITE_",
    "YARN_",
    "ZIG_",
    "npm_",
];

/// What a family has that is not for the inside: where a service of the host listens, or credentials of a service.
const EXCEPT: &[&str] = &["GOOGLE_", "SCCACHE_REDIS", "SCCACHE_MEMCACHED", "NPM_CONFIG_PROXY"];

/// Whether builds and tools need a variable of that name.
pub(super) fn is_needed(name: &str) -> bool {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| name.starts_with(beginning));
    NAMES.contains(&name) || (begins(FAMILIES) && !begins(EXCEPT) && !leads_out(name))
}

/// Proxies of the host are not to be reached from inside, and what names one may name its password.
fn leads_out(name: &str) -> bool {
    name.to_ascii_uppercase().ends_with("_PROXY") || name.to_ascii_uppercase().ends_with("_SOCK")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_find_what_they_need() {
        for name in [
            "PATH",
            "LC_ALL",
            "LANG",
            "CARGO_HOME",
            "RUSTUP_TOOLCHAIN",
            "RUST_LOG",
            "RUSTFLAGS",
            "GOPATH",
            "GOFLAGS",
            "GO111MODULE",
            "NODE_OPTIONS",
            "npm_config_cache",
            "NPM_CONFIG_CACHE",
            "PYTHONPATH",
            "VIRTUAL_ENV",
            "UV_CACHE_DIR",
            "JAVA_HOME",
            "JAVA_TOOL_OPTIONS",
            "MAKEFLAGS",
            "PKG_CONFIG_PATH",
            "XDG_CACHE_HOME",
            "GIT_AUTHOR_NAME",
            "GIT_COMMITTER_EMAIL",
            "CI",
            "LLVM_PROFILE_FILE",
            "DEBUG",
            "TERM",
            "NO_COLOR",
            "SOURCE_DATE_EPOCH",
        ] {
            assert!(is_needed(name), "{name}");
        }
    }

    #[test]
    fn what_leads_out_of_a_sandbox_is_needed_by_nothing() {
        for name in [
            "SSH_AUTH_SOCK",
            "SSH_AGENT_PID",
            "DBUS_SESSION_BUS_ADDRESS",
            "DISPLAY",
            "WAYLAND_DISPLAY",
            "XAUTHORITY",
            "XDG_RUNTIME_DIR",
            "XDG_SESSION_ID",
            "DOCKER_HOST",
            "KUBECONFIG",
            "HTTP_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "npm_config_https_proxy",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GPG_AGENT_INFO",
            "AWS_PROFILE",
            "GIT_DIR",
            "GIT_SSH_COMMAND",
            "LD_PRELOAD",
            "BASH_ENV",
            "TMPDIR",
            "SUDO_USER",
            "NOTHING",
            "",
        ] {
            assert!(!is_needed(name), "{name}");
        }
    }

    #[test]
    fn no_name_is_listed_twice() {
        let needless: Vec<_> =
            NAMES.iter().filter(|name| FAMILIES.iter().any(|family| name.starts_with(family))).collect();
        assert!(needless.is_empty(), "{needless:?}");
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NAMES.len());
    }
}
