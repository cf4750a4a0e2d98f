//! What can be set: by the extension's definition for all its environments, by a profile for one.

use std::collections::BTreeMap;

use sandboxer_core::environment::{ExtensionDefinition, Provision};
use sandboxer_core::{Error, Result};
use serde_json::Value;

/// Which engine is spoken to is the definition's to say: what was made has to be found again without the profile.
const OF_DEFINITION: [&str; 2] = ["engine", "host"];
const OF_BOTH: [&str; 4] = ["image", "user", "command", "pull"];

/// The options of a definition.
#[derive(Clone, Debug)]
pub(super) struct Defined {
    /// `docker`, `podman`, or the path of a program that is called as one of them is; `None` for whichever is installed.
    pub engine: Option<String>,
    /// The daemon's address, where the program is not to find it by itself.
    pub host: Option<String>,
    defaults: BTreeMap<String, Value>,
}

/// The options of one environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub image: String,
    pub user: Option<String>,
    /// What keeps it alive; empty for the image's own.
    pub command: Vec<String>,
    /// Whether an image that is missing may be fetched.
    pub pull: bool,
}

impl Defined {
    pub fn of(definition: &ExtensionDefinition) -> Result<Self> {
        let whose = format!("extension {}", definition.id);
        let known: Vec<&str> = OF_DEFINITION.into_iter().chain(OF_BOTH).collect();
        refuse_unknown(&definition.options, &known, &whose)?;
        let engine = string(&definition.options, "engine", &whose)?.filter(|engine| engine != "auto");
        if let Some(engine) = engine.as_deref().filter(|engine| !is_engine(engine)) {
            return Err(Error::Usage {
                message: format!("{whose}: there is no engine {engine:?}"),
                hint: Some(
                    "set options.engine to docker, podman, auto, or a program's absolute path".to_owned(),
                ),
            });
        }
        let host = string(&definition.options, "host", &whose)?;
        Ok(Self { engine, host, defaults: definition.options.clone() })
    }

    /// The options of a request over those of the definition.
    pub fn wanted(&self, request: &Provision) -> Result<Wanted> {
        let whose = format!("profile {}", request.profile_id);
        if let Some(key) = OF_DEFINITION.iter().find(|key| request.options.contains_key(**key)) {
            return Err(Error::Usage {
                message: format!("{whose}: options.{key} is not a profile's to set"),
                hint: Some(format!("set options.{key} in a definition of an extension, and use that")),
            });
        }
        refuse_unknown(&request.options, &OF_BOTH, &whose)?;
        let mut options = self.defaults.clone();
        options.extend(request.options.clone());
        Ok(Wanted {
            image: image(&options, &whose)?,
            user: string(&options, "user", &whose)?.map(|user| plain(user, "user", &whose)).transpose()?,
            command: command(&options, &whose)?,
            pull: flag(&options, "pull", &whose)?,
        })
    }
}

fn is_engine(word: &str) -> bool {
    matches!(word, "docker" | "podman") || word.starts_with('/')
}

fn refuse_unknown(options: &BTreeMap<String, Value>, known: &[&str], whose: &str) -> Result<()> {
    let Some(odd) = options.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let hint = Some(format!("the options of a container are {}", known.join(", ")));
    Err(Error::Usage { message: format!("{whose}: a container has no option {odd:?}"), hint })
}

fn string(options: &BTreeMap<String, Value>, key: &str, whose: &str) -> Result<Option<String>> {
    match options.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        // A user may be a number.
        Some(Value::Number(number)) if key == "user" => Ok(Some(number.to_string())),
        Some(other) => Err(wrong(whose, key, other, "a word")),
    }
}

fn flag(options: &BTreeMap<String, Value>, key: &str, whose: &str) -> Result<bool> {
    match options.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(wrong(whose, key, other, "true or false")),
    }
}

fn image(options: &BTreeMap<String, Value>, whose: &str) -> Result<String> {
    let image = string(options, "image", whose)?.ok_or_else(|| Error::Usage {
        message: format!("{whose}: it does not say which image a container is made from"),
        hint: Some("set options.image in the profile, such as debian:12".to_owned()),
    })?;
    plain(image, "image", whose)
}

/// No word that an engine would take for a flag, or for two.
fn plain(word: String, key: &str, whose: &str) -> Result<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    if word.chars().all(fits) && !word.starts_with('-') {
        return Ok(word);
    }
    Err(wrong(whose, key, &Value::String(word), "of letters, digits and . _ - / : @ +"))
}

fn command(options: &BTreeMap<String, Value>, whose: &str) -> Result<Vec<String>> {
    let odd = |value: &Value| wrong(whose, "command", value, "a list of words, without control characters");
    match options.get("command") {
        None | Some(Value::Null) => Ok(["sleep", "infinity"].map(str::to_owned).into()),
        Some(value) => {
            let words: Option<Vec<&str>> =
                value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
            let words = words.ok_or_else(|| odd(value))?;
            let fits = |word: &&str| !word.chars().any(|c| c.is_control() && c != '\n');
            // The first is the program, and `--entrypoint=` would mean the image's own.
            if words.first().is_some_and(|program| program.is_empty()) || !words.iter().all(fits) {
                return Err(odd(value));
            }
            Ok(words.into_iter().map(str::to_owned).collect())
        }
    }
}

fn wrong(whose: &str, key: &str, value: &Value, wanted: &str) -> Error {
    Error::usage(format!("{whose}: options.{key} is {value}; it has to be {wanted}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::super::tests::{definition, request};
    use super::*;

    fn wanted(defined: Value, profile: Value) -> Result<Wanted> {
        let definition = definition(defined);
        let mut request = request("sbx_1");
        request.options = serde_json::from_value(profile).unwrap();
        Defined::of(&definition)?.wanted(&request)
    }

    #[test]
    fn a_profile_is_over_the_definition() {
        let wanted = wanted(json!({"image": "a", "user": 7}), json!({"image": "b:1", "pull": true})).unwrap();
        let command = vec!["sleep".to_owned(), "infinity".to_owned()];
        assert_eq!(wanted, Wanted { image: "b:1".into(), user: Some("7".into()), command, pull: true });
    }

    #[test]
    fn no_command_is_the_images_own() {
        assert!(wanted(json!({"image": "a", "command": []}), json!({})).unwrap().command.is_empty());
    }

    #[test]
    fn the_engine_is_the_definitions_to_name() {
        let of = |engine: &str| Defined::of(&definition(json!({"engine": engine}))).map(|d| d.engine);
        assert_eq!(of("auto").unwrap(), None);
        assert_eq!(of("podman").unwrap().as_deref(), Some("podman"));
        assert_eq!(of("/opt/docker").unwrap().as_deref(), Some("/opt/docker"));
        of("rm").unwrap_err();
        for key in OF_DEFINITION {
            wanted(json!({"image": "a"}), json!({key: "docker"})).unwrap_err();
        }
    }

    #[test]
    fn odd_values_are_refused() {
        let odd = [
            json!({}),
            json!({"image": "-v/:/host"}),
            json!({"image": "a b"}),
            json!({"image": 7}),
            json!({"image": ""}),
            json!({"image": "a", "user": "a b"}),
            json!({"image": "a", "pull": "yes"}),
            json!({"image": "a", "command": "sleep"}),
            json!({"image": "a", "command": [""]}),
            json!({"image": "a", "command": ["a\0b"]}),
            json!({"image": "a", "imgae": "b"}),
        ];
        for options in odd {
            wanted(json!({}), options.clone()).expect_err(&options.to_string());
        }
    }
}
