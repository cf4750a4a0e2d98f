//! Checkpoints: names that users give, and the savepoints that stand for them.

use sandboxer_core::{Error, Result};

/// What the savepoints of checkpoints are called.
const PREFIX: &str = "sandboxer_checkpoint_";

/// The checkpoints of one held transaction, oldest first. A savepoint is inside those before it: going back to one ends all later ones.
#[derive(Debug, Default)]
pub struct Checkpoints {
    kept: Vec<(String, u64)>,
    ended: Vec<String>,
    count: u64,
}

impl Checkpoints {
    /// The savepoint for a new checkpoint of that name. To be noted with [`Checkpoints::made`] once it is there.
    pub fn next(&self) -> String {
        format!("{PREFIX}{}", self.count)
    }

    /// The savepoint that [`Checkpoints::next`] named is there. One of the same name is forgotten.
    pub fn made(&mut self, name: &str) {
        self.kept.retain(|(kept, _)| kept != name);
        self.ended.retain(|ended| ended != name);
        self.kept.push((name.to_owned(), self.count));
        self.count += 1;
    }

    /// The savepoint of a checkpoint.
    pub fn find(&self, name: &str) -> Result<String> {
        if let Some((_, number)) = self.kept.iter().find(|(kept, _)| kept == name) {
            return Ok(format!("{PREFIX}{number}"));
        }
        if self.ended.iter().any(|ended| ended == name) {
            return Err(Error::Usage {
                message: format!(
                    "checkpoint {name:?} ended when an earlier one was restored, or all was rolled back"
                ),
                hint: self.hint(),
            });
        }
        let similar = self.kept.iter().map(|(kept, _)| kept.clone()).collect();
        Err(Error::NotFound { what: "checkpoint", name: name.to_owned(), similar })
    }

    fn hint(&self) -> Option<String> {
        let names: Vec<_> = self.kept.iter().map(|(kept, _)| kept.as_str()).collect();
        (!names.is_empty()).then(|| format!("there are still {}", names.join(", ")))
    }

    /// It was restored: later ones are gone.
    pub fn restored(&mut self, name: &str) {
        if let Some(place) = self.kept.iter().position(|(kept, _)| kept == name) {
            self.ended.extend(self.kept.drain(place + 1..).map(|(ended, _)| ended));
        }
    }

    /// The transaction is over.
    pub fn over(&mut self) {
        self.ended.extend(self.kept.drain(..).map(|(ended, _)| ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ones_end_when_an_earlier_one_is_restored() {
        let mut checkpoints = Checkpoints::default();
        for name in ["a", "b", "c"] {
            checkpoints.made(name);
        }
        assert_eq!(checkpoints.find("b").unwrap(), "sandboxer_checkpoint_1");
        checkpoints.restored("b");
        assert_eq!(checkpoints.find("b").unwrap(), "sandboxer_checkpoint_1");
        let error = checkpoints.find("c").unwrap_err();
        assert!(error.to_string().contains("ended"), "{error}");
        assert!(matches!(checkpoints.find("d").unwrap_err(), Error::NotFound { .. }));
        checkpoints.made("c");
        assert_eq!(checkpoints.find("c").unwrap(), "sandboxer_checkpoint_3");
        checkpoints.made("a");
        assert_eq!(checkpoints.find("a").unwrap(), "sandboxer_checkpoint_4");
        checkpoints.over();
        assert!(checkpoints.find("a").is_err());
    }
}
