//! What is at a URL: which type is for its scheme, and how it is written down.

use super::detect::DetectKind;
use super::{DATABASE, ResourceType, ResourceTypes};
use crate::model::Resource;
use crate::{Error, Result};

/// The scheme that names a path of this machine, which no type can have.
const FILE: &str = "file";

/// A URL as somebody typed it.
pub(super) struct Url<'a> {
    /// In lower case.
    pub(super) scheme: String,
    /// What follows `://`. It may hold a password, so no error repeats it before that is known.
    rest: &'a str,
}

impl<'a> Url<'a> {
    /// `text` as a URL, if it is one. A path of that kind is written `./s3://…`.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        is_scheme(scheme).then(|| Self { scheme: scheme.to_ascii_lowercase(), rest })
    }

    /// What follows `file://`, if that is what it is.
    pub(super) fn file(&self) -> Option<&'a str> {
        (self.scheme == FILE).then_some(self.rest)
    }

    /// As it is written down: a resource has one id, however it was typed.
    fn canonical(&self, handler: &str) -> Result<String> {
        if self.has_password() {
            let hint = match handler {
                DATABASE => {
                    "put it into a variable and name that: `sandbox create env:DATABASE_URL`; or leave the password out, and say where it is by --credentials"
                }
                _ => {
                    "leave it out, and give credentials to the plugin by its `env` in sandbox.custom_strategies"
                }
            };
            return Err(Error::Usage {
                message: format!("the {} URL has a password in it, which would be written down", self.scheme),
                hint: Some(hint.to_owned()),
            });
        }
        if self.rest.contains(char::is_control) {
            return Err(Error::usage(format!("the {} URL has a control character in it", self.scheme)));
        }
        match self.rest.trim_end_matches('/') {
            "" => Err(Error::usage(format!("{}:// names nothing", self.scheme))),
            rest => Ok(format!("{}://{rest}", self.scheme)),
        }
    }

    /// `user:password@`; also where the password has a slash in it that it should not have, and seems to end the host.
    fn has_password(&self) -> bool {
        let authority = self.rest.split(['/', '?', '#']).next().unwrap_or_default();
        if let Some((user, _)) = authority.rsplit_once('@') {
            return user.contains(':');
        }
        let is_port = |after: &str| after.chars().all(|c| c.is_ascii_digit());
        let odd_port = authority.split_once(':').is_some_and(|(_, after)| !is_port(after));
        odd_port && self.rest.contains('@')
    }
}

/// As the standard for URLs has it.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
}

/// Schemes as a type lists them, in lower case; what is wrong with them otherwise.
pub(super) fn checked_schemes(
    kind: DetectKind,
    schemes: &[String],
) -> std::result::Result<Vec<String>, String> {
    match (kind, schemes) {
        (DetectKind::Url, []) => {
            Err("kind url needs the schemes it is for, such as schemes: [s3]".to_owned())
        }
        (DetectKind::Url, all) => all.iter().map(|scheme| checked_scheme(scheme)).collect(),
        (_, []) => Ok(Vec::new()),
        _ => Err("schemes are for kind url".to_owned()),
    }
}

fn checked_scheme(text: &str) -> std::result::Result<String, String> {
    let scheme = text.to_ascii_lowercase();
    match is_scheme(text) {
        true if scheme == FILE => Err("the scheme file names paths of this machine".to_owned()),
        true => Ok(scheme),
        false => Err(format!("{text:?} is not a scheme")),
    }
}

impl ResourceTypes {
    /// The resource at `url`. Whether something is there, its strategy finds out.
    pub(super) fn detect_url(&self, url: &Url) -> Result<Resource> {
        let accepts = |ty: &&ResourceType| ty.detect.schemes.contains(&url.scheme);
        let found = self.by_priority().into_iter().find(accepts);
        let resource_type = found.ok_or_else(|| self.unknown_scheme(&url.scheme))?;
        Ok(Resource::at_url(&resource_type.name, &url.canonical(&resource_type.handler)?))
    }

    /// The resource at `url` as that type.
    pub(super) fn detect_url_as(&self, resource_type: &ResourceType, url: &Url) -> Result<Resource> {
        let name = &resource_type.name;
        if resource_type.detect.schemes.contains(&url.scheme) {
            return Ok(Resource::at_url(name, &url.canonical(&resource_type.handler)?));
        }
        let needed = needs(resource_type);
        Err(Error::usage(format!("{name} needs {needed}, not a URL of scheme {}", url.scheme)))
    }

    fn unknown_scheme(&self, scheme: &str) -> Error {
        let mut known: Vec<&str> =
            self.iter().flat_map(|ty| &ty.detect.schemes).map(String::as_str).collect();
        known.push(FILE);
        known.sort_unstable();
        known.dedup();
        Error::Usage {
            message: format!("no resource type handles URLs of scheme {scheme}"),
            hint: Some(format!(
                "known: {}; a type for it is a file resource-types/*.yaml beside the configuration file; for a path of that name, write ./{scheme}://…",
                known.join(", ")
            )),
        }
    }
}

/// What has to be at a location for it to be of that type.
pub(super) fn needs(resource_type: &ResourceType) -> String {
    match resource_type.detect.kind {
        DetectKind::Url => format!("a URL of scheme {}", resource_type.detect.schemes.join(" or ")),
        kind => kind.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn canonical(text: &str) -> Result<String> {
        Url::parse(text).unwrap().canonical("generic")
    }

    #[test]
    fn a_url_has_one_way_to_be_written() {
        let table = [
            ("s3://bucket/prefix", "s3://bucket/prefix"),
            ("S3://Bucket/Prefix///", "s3://Bucket/Prefix"),
            ("s3://bucket/", "s3://bucket"),
            ("git+ssh://git@host/x y", "git+ssh://git@host/x y"),
            ("db:///data", "db:///data"),
            ("db://host:5432/x@y", "db://host:5432/x@y"),
            ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ];
        for (typed, written) in table {
            assert_eq!(canonical(typed).unwrap(), written);
        }
        assert!(Url::parse("./s3://x").is_none() && Url::parse("3s://x").is_none());
        assert!(Url::parse("s3:/x").is_none() && Url::parse("://x").is_none());
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        for url in
            ["db://me:hunter2@host/x", "db://:hunter2@host", "db://a@b:hunter2@host", "db://me:hun/ter2@host"]
        {
            let error = canonical(url).unwrap_err();
            let Error::Usage { hint: Some(hint), .. } = &error else { panic!("{error:?}") };
            assert!(hint.contains("env"), "{hint}");
            let told = format!("{error:?}");
            assert!(!told.contains("hun") && !told.contains("host"), "{told}");
        }
    }

    #[test]
    fn what_names_nothing_or_disturbs_a_terminal_is_refused() {
        for url in ["s3://", "s3:////", "s3://a\x1b[2Jb", "s3://a\0", "s3://a\nb"] {
            assert!(matches!(canonical(url), Err(Error::Usage { .. })), "{url:?}");
        }
    }

    #[test]
    fn schemes_are_for_urls_and_urls_need_them() {
        let checked = |kind, schemes: &[&str]| {
            checked_schemes(kind, &schemes.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(checked(DetectKind::Url, &["S3", "gs"]).unwrap(), ["s3", "gs"]);
        assert!(checked(DetectKind::File, &[]).unwrap().is_empty());
        for (kind, schemes) in [
            (DetectKind::Url, &[][..]),
            (DetectKind::Url, &["file"]),
            (DetectKind::Url, &["s3", "FILE"]),
            (DetectKind::Url, &["s 3"]),
            (DetectKind::Url, &[""]),
            (DetectKind::Directory, &["s3"]),
        ] {
            assert!(checked(kind, schemes).is_err(), "{kind:?} {schemes:?}");
        }
    }
}
