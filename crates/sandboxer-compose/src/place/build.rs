//! Images: named, or built from the workspace.

use sandboxer_core::Result;
use serde_json::{Map, Value, json};

use super::Placer;
use super::service::PROXIES;
use crate::at::{At, shown};
use crate::dockerfile::Fetch;
use crate::files::{Kind, Place};
use crate::model::Definition;
use crate::policy::Allowance;
use crate::read;

/// Keys of a build that are never followed.
const REFUSED: [&str; 10] = [
    "additional_contexts",
    "ssh",
    "secrets",
    "cache_from",
    "cache_to",
    "entitlements",
    "privileged",
    "extra_hosts",
    "isolation",
    "dockerfile_inline",
];
const DROPPED: [&str; 7] = ["pull", "no_cache", "tags", "platforms", "ulimits", "provenance", "sbom"];
const KEPT: [&str; 7] = ["context", "dockerfile", "args", "labels", "target", "shm_size", "network"];

/// Words before a colon that podman does not take for an image's name.
const TRANSPORTS: [&str; 12] = [
    "dir",
    "docker",
    "docker-archive",
    "docker-daemon",
    "oci",
    "oci-archive",
    "containers-storage",
    "sif",
    "ostree",
    "tarball",
    "atomic",
    "transient",
];

impl Placer<'_> {
    /// The image of a service, and the directory that it is built from, if it is.
    pub(super) fn image(
        &self,
        name: &str,
        definition: &Definition,
        out: &mut Map<String, Value>,
    ) -> Result<(String, Option<String>)> {
        let at = definition.at(name, "image");
        let named = definition.keys.get("image").map(|image| read::text(image, &at)).transpose()?;
        if let Some(named) = named.as_deref().filter(|named| !is_reference(named)) {
            let what = format!("{:?} is not the name of an image", shown(named));
            return Err(at.refuse(what, "write it as `registry/name:tag`"));
        }
        let Some(build) = definition.keys.get("build") else {
            let Some(image) = named else {
                let at = definition.at_itself(name);
                return Err(
                    at.refuse("it has no image, and is not built", "write `image: NAME` or `build: ./PATH`")
                );
            };
            out.insert("image".to_owned(), image.clone().into());
            self.pull_policy(name, definition, out)?;
            return Ok((image, None));
        };
        let at = definition.at(name, "build");
        let (build, context) = self.build(read::map(build, &at)?, &at)?;
        let image = self.tag(name);
        if named.is_some() {
            self.note(&definition.at(name, "image"), &format!("replaced: what is built is called {image}"));
        }
        out.insert("build".to_owned(), build);
        out.insert("image".to_owned(), image.clone().into());
        Ok((image, Some(context)))
    }

    fn pull_policy(&self, name: &str, definition: &Definition, out: &mut Map<String, Value>) -> Result<()> {
        let at = definition.at(name, "pull_policy");
        let Some(value) = definition.keys.get("pull_policy") else { return Ok(()) };
        let policy = match read::text(value, &at)?.as_str() {
            "missing" | "if_not_present" => "if_not_present",
            // Whoever owns the name at a registry would replace what others on the host call by it.
            "always" | "daily" | "weekly" => {
                self.note(&at, "an image that the host has is not fetched anew");
                "if_not_present"
            }
            "never" => "never",
            "build" => return Ok(()),
            odd => return Err(at.unknown("the policy", odd, &["missing", "always", "never", "build"])),
        };
        out.insert("pull_policy".to_owned(), policy.into());
        Ok(())
    }

    /// A name of ours: a stack cannot replace an image that others use.
    fn tag(&self, service: &str) -> String {
        let project = self.placing.project;
        let whole = if project.starts_with("sandboxer") { String::new() } else { "sandboxer-".to_owned() };
        let whole = format!("{whole}{project}-{service}");
        let plain: String = whole.to_ascii_lowercase().replace(['_', '.'], "-");
        let plain = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
        if plain == whole {
            return plain;
        }
        format!("{plain}-{}", &blake3::hash(whole.as_bytes()).to_hex()[..8])
    }

    fn build(&self, build: &Map<String, Value>, at: &At) -> Result<(Value, String)> {
        if let Some(odd) = REFUSED.iter().find(|key| build.contains_key(**key)) {
            let hint = "leave it out: a build sees its context, its arguments, and nothing else";
            return Err(at.key(odd).refuse("builds cannot have this here", hint));
        }
        let known: Vec<&str> = KEPT.into_iter().chain(DROPPED).collect();
        read::known_keys(build, &known, at)?;
        for key in DROPPED.iter().filter(|key| build.contains_key(**key)) {
            self.note(&at.key(key), "dropped: builds are the sandbox's");
        }
        let context = self.context(build, at)?;
        let mut out = json!({"context": self.there(&context, Kind::Directory(0))?});
        let arguments = self.arguments(build.get("args"), &at.key("args"))?;
        out["dockerfile"] = self.dockerfile(build, &context, &arguments, at)?.into();
        out["labels"] = self.labels(build.get("labels"), &at.key("labels"))?;
        if arguments != json!({}) {
            out["args"] = arguments;
        }
        if let Some(target) = build.get("target") {
            let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
            out["target"] = super::keys::plain_text(target, &at.key("target"), &fits)?;
        }
        if let Some(size) = build.get("shm_size") {
            out["shm_size"] = read::bytes(size, &at.key("shm_size"))?.into();
        }
        if let Some(network) = self.build_network(build.get("network"), &at.key("network"))? {
            out["network"] = network.into();
        }
        Ok((out, context))
    }

    fn context(&self, build: &Map<String, Value>, at: &At) -> Result<String> {
        let at = at.key("context");
        let path = match build.get("context").and_then(Place::from_value) {
            Some(Place::Inside(path)) => path,
            Some(Place::Outside(path)) => {
                let what = format!("{:?} is not a directory of the workspace", shown(&path));
                return Err(at.refuse(what, "build from a directory of the workspace, by a relative path"));
            }
            None => return Err(at.refuse("it does not say what is built", "write `context: ./PATH`")),
        };
        if let Kind::File(_) = self.expect_there(&path, &at)? {
            return Err(at.refuse(format!("{:?} is not a directory", shown(&path)), "name a directory"));
        }
        let ignored =
            if path.is_empty() { ".dockerignore".to_owned() } else { format!("{path}/.dockerignore") };
        if self.model.kinds.get(&ignored) == Some(&Kind::Link) {
            return Err(
                at.refuse(format!("{:?} is a symbolic link", shown(&ignored)), "put the file itself there")
            );
        }
        Ok(path)
    }

    /// The Dockerfile's path as compose programs want it, after a look at what it fetches.
    fn dockerfile(
        &self,
        build: &Map<String, Value>,
        context: &str,
        arguments: &Value,
        at: &At,
    ) -> Result<String> {
        let at = at.key("dockerfile");
        let place = build.get("dockerfile").and_then(Place::from_value);
        let place = place.ok_or_else(|| at.refuse("there is none", "name one"))?;
        let path = crate::load::inside(place, &at)?;
        if !matches!(self.expect_there(&path, &at)?, Kind::File(_)) {
            return Err(at.refuse(format!("{:?} is not a file", shown(&path)), "name a file"));
        }
        if self.denied() && !self.allows(Allowance::BuildFetch) {
            self.fetches_nothing(&path, arguments, &at)?;
        }
        let prefix = if context.is_empty() { String::new() } else { format!("{context}/") };
        let there = self.there(&path, Kind::File(0))?;
        Ok(path.strip_prefix(&prefix).map_or(there, str::to_owned))
    }

    /// Refuses what would make the engine fetch, and notes the images that could: only the engine knows what is in them.
    fn fetches_nothing(&self, path: &str, arguments: &Value, at: &At) -> Result<()> {
        let fetch = self.model.fetches.get(path).and_then(Clone::clone);
        let images = self.model.bases.get(path).map(|bases| bases.images(arguments, is_reference));
        match (fetch, images) {
            (Some(fetch), _) | (None, Some(Err(fetch))) => {
                let Fetch { line, what } = fetch;
                let path = shown(path);
                let what = format!("line {line} of {path:?} has {what}, and the sandbox has no network");
                Err(at.needs(what, Allowance::BuildFetch))
            }
            (None, images) => {
                self.bases
                    .borrow_mut()
                    .extend(images.and_then(std::result::Result::ok).into_iter().flatten());
                Ok(())
            }
        }
    }

    fn arguments(&self, given: Option<&Value>, at: &At) -> Result<Value> {
        let mut out = Map::new();
        for (name, value) in given.map(|given| read::map(given, at)).transpose()?.into_iter().flatten() {
            let at = at.key(name);
            if !read::is_variable(name) {
                return Err(at.refuse("this is not an argument's name", "use letters, digits and `_`"));
            }
            if name.to_ascii_uppercase().starts_with("BUILDKIT_") && self.denied() {
                self.demand(
                    Allowance::BuildFetch,
                    &at,
                    "it makes the engine fetch a program that reads the build",
                )?;
            }
            out.insert(name.clone(), value.as_str().unwrap_or_default().into());
        }
        for proxy in PROXIES.iter().filter(|_| self.denied()) {
            out.entry(*proxy).or_insert_with(|| "".into());
        }
        Ok(out.into())
    }

    fn build_network(&self, given: Option<&Value>, at: &At) -> Result<Option<&'static str>> {
        let given = given.map(|given| read::text(given, at)).transpose()?;
        match given.as_deref() {
            Some("host") => {
                self.demand(Allowance::HostNetwork, at, "the build shares the host's network")?;
                self.demand_network(at)?;
                Ok(Some("host"))
            }
            None | Some("" | "default" | "none") if self.denied() => Ok(Some("none")),
            None | Some("" | "default") => Ok(None),
            Some("none") => Ok(Some("none")),
            Some(odd) => Err(at.unknown("the network", odd, &["default", "none"])),
        }
    }
}

/// Whether it is `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`, and not a path or an option.
fn is_reference(text: &str) -> bool {
    let (name, digest) = text.split_once('@').unwrap_or((text, "sha256:0"));
    let word = |text: &str| {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.chars().all(fits)
    };
    let digest_fits = digest.split_once(':').is_some_and(|(algorithm, hex)| {
        word(algorithm) && !hex.is_empty() && hex.chars().all(|letter| letter.is_ascii_hexdigit())
    });
    let parts: Vec<&str> = name.split('/').collect();
    let Some((last, before)) = parts.split_last() else { return false };
    let (last, tag) = last.split_once(':').unwrap_or((last, "latest"));
    let tag_fits =
        !tag.is_empty() && tag.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter));
    let hosts = before.iter().enumerate().all(|(index, part)| match part.split_once(':') {
        Some((host, port)) => {
            index == 0 && word(host) && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
        }
        None => word(part),
    });
    let transport = before.is_empty() && text.contains(':') && TRANSPORTS.contains(&last);
    text.len() <= 512 && digest_fits && tag_fits && hosts && word(last) && !transport
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_names_and_nothing_else() {
        for good in [
            "alpine",
            "alpine:3.20",
            "library/alpine",
            "ghcr.io/a/b-c_d:v1.2",
            "localhost:5000/x:y",
            "a@sha256:0123abcd",
            "a:b@sha256:0123abcd",
            "docker",
            "docker.io/library/redis:7-alpine",
        ] {
            assert!(is_reference(good), "{good}");
        }
        for bad in [
            "",
            "-alpine",
            "--privileged",
            "dir:/etc",
            "oci:x",
            "docker-archive:x.tar",
            "a b",
            "a:b:c",
            "a@x",
            "/etc",
            "a//b",
            "../a",
            "a/-b",
            "https://x/y",
            "a:",
            "docker://x",
            "x:5000/../y",
            "a@sha256:",
        ] {
            assert!(!is_reference(bad), "{bad}");
        }
    }
}
