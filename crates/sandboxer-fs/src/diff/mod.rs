//! What differs between a copy and its base.
//!
//! Three steps, each cheaper than it looks: [`scan`] stats the copy and keeps what was touched, [`describe`] reads just that and
//! drops what is the same after all, [`renames`] pairs what went with what came.

mod describe;
mod flags;
mod recall;
mod renames;
mod scan;
mod self_running;
mod staying;

use sandboxer_core::Result;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::{DiffEntry, DiffView, RelPath};

use crate::base::Base;
use crate::filter::Filter;
use crate::hash::ContentHash;
use crate::manifest::Entry;
use crate::root::Root;
use crate::space::History;
use crate::stamp::Stamp;
use crate::xattrs::Xattrs;

pub use describe::{OTHER_ATTRIBUTES, base_node, describe_all, describe_content, node_of, original_moved};
pub use flags::{flags_found, flags_of, flags_told};
pub use renames::pair as pair_renames;
pub use scan::{Candidate, LinkGroup, Links, Scan, scan, settle_links};

/// What is compared.
pub struct Comparison<'a> {
    /// Where base content is read.
    pub original: &'a Root,
    /// The copy that was worked in.
    pub copy: &'a Root,
    /// The base.
    pub base: &'a dyn Base,
    /// What counts.
    pub filter: &'a Filter,
    /// On how many threads.
    pub threads: usize,
    /// Looked at between directories.
    pub cancel: &'a CancelFlag,
    /// What the original's own history knows.
    pub history: Option<&'a dyn History>,
}

/// One difference, with what a commit needs to know beyond what is shown.
#[derive(Clone, Debug)]
pub struct Delta {
    /// As it is shown.
    pub entry: DiffEntry,
    /// The base at its path (for a rename, at the path it came from).
    pub base: Option<Entry>,
    /// What is at its path now.
    pub now: Option<Seen>,
    /// How it is committed, where that is not as it is.
    pub plan: Plan,
}

/// How a difference is committed.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// This content instead of the copy's: some of its hunks, or a merge.
    pub content: Option<Vec<u8>>,
    /// Whether the copy is given that content as well, so that it does not look as if it took the other side back.
    pub settles: bool,
    /// What the copy was when that content was made from it.
    pub copy: Option<Seen>,
    /// Where in the pack the committed content is kept.
    pub kept: Option<u64>,
    /// What the original has there instead of the base, and may be replaced all the same.
    pub over: Option<Over>,
    /// The entry goes as a whole, although only its mode, owner or attributes differ from the base.
    pub whole: bool,
}

/// What the original has at the path of a difference (and where a renamed one came from), when that was decided about.
#[derive(Clone, Copy, Debug)]
pub struct Over {
    /// At the path.
    pub at: Option<Stamp>,
    /// Where it came from.
    pub from: Option<Stamp>,
}

/// What was found in the copy.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its stamp, when it was read.
    pub stamp: Stamp,
    /// Hash of a file's content.
    pub hash: Option<ContentHash>,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// Target of a link.
    pub target: Vec<u8>,
}

/// All differences, sorted by path.
pub struct Differences {
    /// Sorted by path.
    pub deltas: Vec<Delta>,
    /// Files with several names.
    pub links: Links,
    /// Directories that are gone from the copy, and stay in the original: what it has left in them is hidden.
    pub staying: Vec<RelPath>,
}

impl Differences {
    /// As it is shown.
    pub fn view(&self) -> DiffView {
        DiffView::new(self.deltas.iter().map(|d| d.entry.clone()).collect())
    }

    /// The deltas whose entries are in `view`.
    pub fn selected(self, paths: &[RelPath]) -> (Vec<Delta>, Links) {
        let chosen: std::collections::BTreeSet<_> =
            self.view().select(paths).entries.into_iter().map(|e| e.path).collect();
        let deltas = self.deltas.into_iter().filter(|d| chosen.contains(&d.entry.path)).collect();
        (deltas, self.links)
    }
}

/// Finds all differences.
pub fn differences(comparison: &Comparison<'_>) -> Result<Differences> {
    let Scan { candidates, mut links, uncertain } = comparison.base.scan(comparison)?;
    let mut deltas = describe::describe_all(comparison, candidates, &links)?;
    // With a history, git knows whether the file was there before.
    if comparison.history.is_none() {
        deltas.iter_mut().for_each(|delta| delta.entry.moved |= uncertain.contains(&delta.entry.path));
    }
    deltas.sort_by(|a, b| a.entry.path.cmp(&b.entry.path));
    recall::settle_moved(comparison, &mut deltas)?;
    settle_links(&mut links, |path| deltas.binary_search_by(|d| d.entry.path.cmp(path)).is_ok());
    let staying = staying::take(comparison, &mut deltas)?;
    Ok(Differences { deltas: renames::pair(deltas), links, staying })
}
