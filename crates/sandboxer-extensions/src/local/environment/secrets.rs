//! What looks like a secret.

/// Words that name one, wherever they stand between underscores.
const WORDS: &[&str] = &[
    "AUTH",
    "AUTHORIZATION",
    "BEARER",
    "COOKIE",
    "COOKIES",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "DSN",
    "JWT",
    "OTP",
    "PASS",
    "PASSCODE",
    "PASSPHRASE",
    "PASSWD",
    "PAT",
    "PIN",
    "PWD",
    "SALT",
    "SESSION",
    "SIGNATURE",
];

/// Words that name one even as a part of another word: `GITHUBTOKEN`, `MYSECRETS`.
const PARTS: &[&str] = &["APIKEY", "PASSWORD", "SECRET", "TOKEN"];

/// Two words that name one together.
const PAIRS: &[&str] = &[
    "ACCESS_KEY",
    "ACCOUNT_KEY",
    "API_KEY",
    "APP_KEY",
    "AUTH_KEY",
    "CLIENT_KEY",
    "DEPLOY_KEY",
    "ENCRYPTION_KEY",
    "LICENSE_KEY",
    "MASTER_KEY",
    "PRIVATE_KEY",
    "SERVICE_KEY",
    "SIGNING_KEY",
    "SSH_KEY",
    "STORAGE_KEY",
];

/// How well-known tokens begin, and how many characters follow at least.
const SHAPES: &[(&str, usize)] = &[
    ("AIza", 30),
    ("AKIA", 12),
    ("ASIA", 12),
    ("SG.", 20),
    ("dckr_pat_", 10),
    ("dop_v1_", 20),
    ("gho_", 20),
    ("ghp_", 20),
    ("ghr_", 20),
    ("ghs_", 20),
    ("ghu_", 20),
    ("github_pat_", 20),
    ("glpat-", 10),
    ("hf_", 20),
    ("hvs.", 20),
    ("npm_", 30),
    ("pypi-", 30),
    ("rk_live_", 10),
    ("shpat_", 20),
    ("sk-", 16),
    ("sk_live_", 10),
    ("xapp-", 10),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxs-", 10),
    ("ya29.", 20),
];

/// Whether a variable of that name holds a secret. `PWD`, the working directory, is the one word that is also a name by itself.
pub(super) fn in_name(name: &str) -> bool {
    let is_word = |word: &str| WORDS.iter().any(|known| word.eq_ignore_ascii_case(known));
    is_key(name) || (!matches!(name, "PWD" | "OLDPWD") && words_of(name).any(is_word))
}

/// Whether it holds a secret for certain, as its whole purpose.
pub(super) fn is_key(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let words: Vec<&str> = words_of(&upper).collect();
    PARTS.iter().any(|part| upper.contains(part))
        || words.windows(2).any(|pair| PAIRS.contains(&pair.join("_").as_str()))
}

fn words_of(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
}

/// Whether a value looks like one whatever its name is.
pub(super) fn in_value(value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value);
    text.contains("-----BEGIN")
        || words(&text).any(|word| is_token(word) || is_web_token(word))
        || has_password(&text)
}

/// A token may stand in the middle of options.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| {
        c.is_whitespace() || matches!(c, '=' | ':' | ',' | ';' | '"' | '\'' | '/' | '@' | '&' | '?')
    })
}

fn is_token(word: &str) -> bool {
    SHAPES.iter().any(|(beginning, least)| {
        let rest = word.strip_prefix(beginning);
        rest.is_some_and(|rest| rest.len() >= *least && rest.bytes().all(is_token_byte))
    })
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Three parts of base64, the first of which begins as every JSON object does.
fn is_web_token(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    matches!(parts[..], [head, body, signature] if head.starts_with("eyJ") && body.starts_with("eyJ") && !signature.is_empty())
}

/// `https://user:password@host`, and also `https://token@host`, but not the user of `ssh://git@host`.
fn has_password(text: &str) -> bool {
    text.match_indices("://").any(|(at, scheme)| {
        let rest = &text[at + scheme.len()..];
        let end = rest
            .find(|c: char| matches!(c, '/' | '?' | '#' | '"' | '\'') || c.is_whitespace())
            .unwrap_or(rest.len());
        let user = rest[..end].rsplit_once('@').map(|(user, _)| user);
        let web = text[..at].ends_with("http") || text[..at].ends_with("https");
        user.is_some_and(|user| {
            web && !user.is_empty() || user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_name() {
        for name in [
            "CARGO_REGISTRY_TOKEN",
            "NPM_TOKEN",
            "npm_config__auth",
            "npm_config__authToken",
            "UV_INDEX_PRIVATE_PASSWORD",
            "NODE_AUTH_TOKEN",
            "PIP_PASSWD",
            "GRADLE_PUBLISH_KEY_SECRET",
            "RUST_API_KEY",
            "RUST_APIKEY",
            "GO_ACCESS_KEY",
            "CARGO_PRIVATE_KEY_FILE",
            "MAVEN_CREDENTIALS",
            "DEBUG_SESSION",
            "DEBUG_COOKIE",
            "NODE_DSN",
            "JAVA_DB_PASS",
            "MAVEN_GPG_PASSPHRASE",
            "MAKE_DB_PWD",
        ] {
            assert!(in_name(name), "{name}");
        }
    }

    #[test]
    fn words_that_only_resemble_one_are_none() {
        for name in [
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
            "PWD",
            "OLDPWD",
            "PATH",
            "PYTHONPATH",
            "CARGO_HOME",
            "GO_COMPASS",
            "RUST_KEYBOARD",
            "NODE_BYPASS",
            "MAKE_PATTERN",
            "PINNED",
            "DEBUG_SESSIONS_MAX",
            "CARGO_PKG_AUTHORS",
            "MAVEN_OPTS",
            "GOPRIVATE",
            "GRADLE_KEY",
        ] {
            assert!(!in_name(name), "{name}");
        }
    }

    #[test]
    fn secrets_are_known_by_value() {
        let long = "0123456789abcdefghijklmnopqrstuvwxyzABCDEF";
        for beginning in
            ["ghp_", "github_pat_", "glpat-", "sk-", "sk-ant-", "xoxb-", "npm_", "pypi-", "AKIA", "AIza"]
        {
            assert!(in_value(format!("{beginning}{long}").as_bytes()), "{beginning}");
            assert!(
                in_value(format!("--header=Bearer:{beginning}{long} -v").as_bytes()),
                "{beginning} within"
            );
        }
        for value in [
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
            "https://me:hunter2@example.com/x",
            "https://sometoken@example.com/x",
            "--index-url https://me:hunter2@example.com --verbose",
            "postgres://me:hunter2@db/x",
            "https://me:p@ss@example.com",
        ] {
            assert!(in_value(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn ordinary_values_are_none() {
        for value in [
            "",
            "/usr/bin:/bin",
            "sk-SK",
            "sk_SK.UTF-8",
            "https://example.com/a@b",
            "https://example.com:8080/x",
            "ssh://git@example.com/x",
            "git@example.com:x/y",
            "--max-old-space-size=4096",
            "npm_modules",
            "hf_cache",
            "https://example.com/?q=me:you@x",
            "eyJ.x",
            "1:2@3",
            "ghp_short",
        ] {
            assert!(!in_value(value.as_bytes()), "{value}");
        }
        assert!(!in_value(&[0xff, 0xfe, b'x']));
    }
}
