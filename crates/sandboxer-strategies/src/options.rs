//! What a registration or a resource sets.

use std::path::PathBuf;
use std::time::Duration;

use sandboxer_core::model::{RelPath, Resource};
use sandboxer_core::registry::{StrategyContext, StrategyOptions};
use sandboxer_core::{Error, Result};
use sandboxer_fs::filter::Patterns;
use sandboxer_fs::space::Means;
use serde_json::Value;

use crate::overlay::Watchers;

/// Options of a file strategy, from its registration.
#[derive(Clone, Debug, PartialEq)]
pub struct FileOptions {
    /// Patterns on top of the resource's own.
    pub include: Vec<String>,
    /// Patterns on top of the resource's own.
    pub exclude: Vec<String>,
    /// On how many threads.
    pub threads: Option<usize>,
    /// Where workspaces go, instead of the state directory.
    pub scratch: Option<PathBuf>,
    /// How long to wait for a resource's lock.
    pub lock_wait: Option<Duration>,
    /// How many bytes of base content a workspace keeps for merging.
    pub keep_base: u64,
    /// Whether an overlay may lose what was written last when the machine goes down.
    pub volatile: bool,
}

/// Enough for the sources of most projects; a create writes that much more at the most.
const KEEP_BASE: u64 = 64 << 20;

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            include: Vec::new(),
            exclude: Vec::new(),
            threads: None,
            scratch: None,
            lock_wait: None,
            keep_base: KEEP_BASE,
            volatile: true,
        }
    }
}

impl FileOptions {
    /// Reads the options of the registration called `name`; an unknown key or a wrong type is an error.
    pub fn parse(name: &str, options: &StrategyOptions) -> Result<Self> {
        let mut parsed = Self::default();
        for (key, value) in options {
            let wrong =
                || Error::usage(format!("option {key:?} of strategy {name:?} has the wrong type: {value}"));
            match key.as_str() {
                "include" => parsed.include = strings(value).ok_or_else(wrong)?,
                "exclude" => parsed.exclude = strings(value).ok_or_else(wrong)?,
                "threads" => {
                    parsed.threads = Some(value.as_u64().filter(|n| *n > 0).ok_or_else(wrong)? as usize)
                }
                "scratch" => parsed.scratch = Some(value.as_str().ok_or_else(wrong)?.into()),
                "lock_wait_ms" => {
                    parsed.lock_wait = Some(Duration::from_millis(value.as_u64().ok_or_else(wrong)?));
                }
                "keep_base" => parsed.keep_base = value.as_u64().ok_or_else(wrong)?,
                "durability" => {
                    parsed.volatile = match value.as_str() {
                        Some("volatile") => true,
                        Some("strict") => false,
                        _ => return Err(wrong()),
                    }
                }
                _ => return Err(Error::usage(format!("strategy {name:?} has no option {key:?}"))),
            }
        }
        Ok(parsed)
    }

    /// How the engine is to work.
    pub fn means(&self, context: &StrategyContext) -> Means {
        let default = Means::default();
        Means {
            threads: self.threads.unwrap_or(default.threads),
            lock_wait: self.lock_wait.unwrap_or(default.lock_wait),
            progress: context.progress.clone(),
            cancel: context.cancel.clone(),
            neighbours: Watchers::of(context),
            history: None,
        }
    }

    /// The patterns for `resource`.
    pub fn patterns(&self, resource: &Resource) -> Patterns {
        let mut patterns = Patterns {
            include: resource.string_list("include"),
            exclude: resource.string_list("exclude"),
            skip: resource.string_list("skip").iter().filter_map(|path| RelPath::parse(path).ok()).collect(),
            ..Patterns::default()
        };
        patterns.include.extend(self.include.iter().cloned());
        patterns.exclude.extend(self.exclude.iter().cloned());
        patterns
    }
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(key: &str, value: Value) -> Result<FileOptions> {
        FileOptions::parse("mine", &StrategyOptions::from([(key.to_owned(), value)]))
    }

    #[test]
    fn every_option_is_checked() {
        assert_eq!(parse("threads", json!(3)).unwrap().threads, Some(3));
        assert_eq!(parse("exclude", json!(["a"])).unwrap().exclude, ["a"]);
        assert_eq!(parse("scratch", json!("/x")).unwrap().scratch, Some("/x".into()));
        assert_eq!(parse("lock_wait_ms", json!(5)).unwrap().lock_wait, Some(Duration::from_millis(5)));
        assert_eq!(parse("keep_base", json!(7)).unwrap().keep_base, 7);
        for (key, bad) in
            [("threads", json!(0)), ("include", json!("a")), ("scratch", json!(1)), ("thread", json!(1))]
        {
            let error = parse(key, bad).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains("mine"), "{error}");
        }
    }
}
