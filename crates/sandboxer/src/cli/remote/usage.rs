//! What was used, as a server has it on its meters.

use sandboxer_core::service::UsageReport;

use super::client::{Question, query};
use super::{Remote, done, refuse};
use crate::cli::Outcome;
use crate::cli::catalogue::word;
use crate::cli::commands::usage;

pub fn usage(remote: &mut Remote<'_>, args: &usage::Args) -> Outcome {
    refuse("usage", &[("--disk", args.disk)])?;
    let wanted = args.query(remote.app.ui.json)?;
    let (by, since, until) =
        (word(&wanted.by), wanted.since.map(|at| at.to_string()), wanted.until.map(|at| at.to_string()));
    let asked = query(&[("by", Some(&by)), ("since", since.as_deref()), ("until", until.as_deref())]);
    let document = remote.client.document(Question::get(format!("/v1/usage{asked}")))?;
    if remote.shown(&document)? {
        return done();
    }
    let report: UsageReport = remote.client.shaped(&document)?;
    usage::show(&mut remote.app.ui, &report, args.csv)?;
    done()
}
