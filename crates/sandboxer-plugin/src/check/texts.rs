//! Text that two have changed, and text of which only a part is committed.

use sandboxer_core::model::{CommitRequest, HunkSelection, OnConflict, RelPath, SandboxRef};

use super::Check;
use super::commits::{done_with, pending};
use super::report::Verdict;

const EIGHTEENTH: &[u8] = b"@@ -18 +18 @@\n-18\n+eighteen\n";

/// The numbers up to twenty, a line each, with other words in some lines.
fn lines(replaced: &[(usize, &str)]) -> Vec<u8> {
    let word = |number: usize| replaced.iter().find(|(line, _)| *line == number).map(|(_, word)| *word);
    let line = |number: usize| word(number).map_or_else(|| format!("{number}\n"), |word| format!("{word}\n"));
    (1..=20).map(line).collect::<String>().into_bytes()
}

impl Check<'_> {
    pub(super) fn merge_both_sides(&mut self) -> Verdict {
        let (kept, sandbox) = self.edited(&[(2, "sandbox")])?;
        let theirs = lines(&[(18, "meanwhile")]);
        // An edit by hand that is merged is still nobody's commit, and in the way of those that follow.
        match self.can.branches {
            true => self.commit_meanwhile(&kept, &theirs)?,
            false => self.change_meanwhile(&kept, &theirs)?,
        }
        let request = CommitRequest { on_conflict: OnConflict::Merge, ..CommitRequest::default() };
        self.commit_with(&sandbox, &request)?;
        self.expect_text(&kept, &[(2, "sandbox"), (18, "meanwhile")])?;
        done_with(self, &sandbox)?;
        Ok("two lines that two have changed are both in the resource".to_owned())
    }

    pub(super) fn commit_a_hunk(&mut self) -> Verdict {
        let both = [(2, "two"), (18, "eighteen")];
        let (kept, sandbox) = self.edited(&both)?;
        let hunks = vec![HunkSelection { path: kept.clone(), patch: EIGHTEENTH.to_vec() }];
        self.commit_with(&sandbox, &CommitRequest { hunks, ..CommitRequest::default() })?;
        self.expect_text(&kept, &both[1..])?;
        self.expect_seen(&sandbox, &kept, Some(&lines(&both)))?;
        super::expect_entries(&self.diff(&sandbox)?, &pending(&kept))?;
        done_with(self, &sandbox)?;
        Ok("the hunk that was selected is real, the other is pending".to_owned())
    }

    /// A sandbox of numbered lines in which some have other words.
    fn edited(&mut self, replaced: &[(usize, &str)]) -> Result<(RelPath, SandboxRef), String> {
        let kept = self.kept()?;
        let first = self.open()?;
        self.write(&first, &kept, &lines(&[]))?;
        self.commit_with(&first, &CommitRequest::default())?;
        done_with(self, &first)?;
        let sandbox = self.open()?;
        self.write(&sandbox, &kept, &lines(replaced))?;
        Ok((kept, sandbox))
    }

    fn expect_text(&mut self, path: &RelPath, replaced: &[(usize, &str)]) -> Result<(), String> {
        let found = self.real(path)?.unwrap_or_default();
        if found == lines(replaced) {
            return Ok(());
        }
        let in_one_line = |text: &[u8]| String::from_utf8_lossy(text).trim_end().replace('\n', " ");
        let (expected, found) = (in_one_line(&lines(replaced)), in_one_line(&found));
        Err(format!("{path} in the resource: expected the lines {expected}, found {found}"))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn some_of_twenty_lines_have_other_words() {
        let text = String::from_utf8(super::lines(&[(2, "two")])).unwrap_or_default();
        assert!(text.starts_with("1\ntwo\n3\n") && text.ends_with("\n20\n"), "{text}");
    }
}
