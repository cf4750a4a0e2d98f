#![allow(clippy::unwrap_used)]

use super::*;
use crate::model::{DiffKind, Node, NodeType};

const W: &str = "proj";

fn rel(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

fn node(node_type: NodeType, mode: u32, size: u64) -> Node {
    Node { node_type, mode, uid: 0, gid: 0, size, digest: None, target: None, xattrs: None }
}

fn file(path: &str, kind: DiffKind) -> DiffEntry {
    let side = node(NodeType::File, 0o644, 10);
    let mut entry = DiffEntry::new(rel(path), kind);
    entry.old = (kind != DiffKind::Created).then(|| side.clone());
    entry.new = (kind != DiffKind::Deleted).then_some(side);
    entry
}

fn directory(path: &str, kind: DiffKind) -> DiffEntry {
    let mut entry = file(path, kind);
    for side in [&mut entry.old, &mut entry.new].into_iter().flatten() {
        *side = node(NodeType::Directory, 0o755, 0);
    }
    entry
}

fn created(path: &str) -> DiffEntry {
    file(path, DiffKind::Created)
}

fn flagged(path: &str) -> DiffEntry {
    DiffEntry { flags: vec!["setuid".into(), "runs by itself".into()], ..created(path) }
}

fn renamed(from: &str, path: &str) -> DiffEntry {
    DiffEntry { from: Some(rel(from)), ..file(path, DiffKind::Renamed) }
}

fn executable(path: &str, old: Option<u32>, new: u32) -> DiffEntry {
    let side = |mode| node(NodeType::File, mode, 10);
    DiffEntry { old: old.map(side), new: Some(side(new)), ..file(path, DiffKind::Modified) }
}

fn rules(texts: &[&str]) -> CommitRules {
    let policies = texts.iter().map(|text| Policy::parse(text).unwrap()).collect();
    CommitRules { policies, ..CommitRules::default() }
}

fn check(rules: &CommitRules, entries: &[DiffEntry]) -> Vec<RuleFailure> {
    match rules.check(entries.iter().map(|entry| (W, entry))) {
        Ok(()) => Vec::new(),
        Err(Error::RulesFailed { failures, .. }) => failures,
        Err(other) => panic!("{other:?}"),
    }
}

/// The paths on which the policy fails, or its detail where it is about all of them.
fn found(policy: &str, entries: &[DiffEntry]) -> Vec<String> {
    let failures = check(&rules(&[policy]), entries);
    assert!(failures.len() < 2, "{failures:?}");
    let Some(failure) = failures.into_iter().next() else { return Vec::new() };
    assert_eq!((failure.rule.as_str(), failure.source.as_str()), (policy, "--if"));
    match failure.paths.as_slice() {
        [] => vec![failure.detail],
        paths => paths.iter().map(|failed| failed.path.to_string()).collect(),
    }
}

#[test]
fn every_change_lies_where_it_may() {
    let entries = [created("src/a.rs"), file("tests/b.rs", DiffKind::Deleted), created("README.md")];
    assert_eq!(found("paths=src/**,tests/**,*.md", &entries), [""; 0]);
    assert_eq!(found("paths=src/**,tests/**", &entries), ["README.md"]);
    assert_eq!(found("not-paths=docs/**", &entries), [""; 0]);
    assert_eq!(found("not-paths=tests/**,*.md", &entries), ["tests/b.rs", "README.md"]);
}

#[test]
fn a_rename_is_judged_at_both_ends() {
    let entries = [renamed("etc/passwd", "src/passwd"), renamed("src/a", "src/b")];
    assert_eq!(found("paths=src/**", &entries), ["etc/passwd"]);
    assert_eq!(found("not-paths=etc/**", &entries), ["etc/passwd"]);
    assert_eq!(found("not-paths=src/passwd", &entries), ["src/passwd"]);
}

#[test]
fn directories_need_no_pattern_of_their_own_but_what_replaces_them_does() {
    let new =
        [directory("src", DiffKind::Created), directory("src/a", DiffKind::Created), created("src/a/b.rs")];
    assert_eq!(found("paths=src/**/*.rs", &new), [""; 0]);
    assert_eq!(found("paths=src/**", &[directory("src", DiffKind::Deleted)]), [""; 0]);
    assert_eq!(found("paths=src/**", &[directory("data", DiffKind::Deleted)]), ["data"]);
    assert_eq!(found("paths=src/**", &[directory("src", DiffKind::Metadata)]), ["src"]);
    let mut link = directory("src", DiffKind::Type);
    link.new = Some(node(NodeType::Symlink, 0o777, 0));
    assert_eq!(found("paths=src/**", &[link]), ["src"]);
    assert_eq!(found("paths=src/**", &[created("src")]), ["src"]);
}

#[test]
fn files_are_counted_without_directories() {
    let entries = [directory("d", DiffKind::Created), created("d/a"), file("b", DiffKind::Deleted)];
    assert_eq!(found("max-files=2", &entries), [""; 0]);
    assert_eq!(found("max-files=1", &entries), ["2 files changed"]);
    let mut replaced = directory("x", DiffKind::Type);
    replaced.old = Some(node(NodeType::File, 0o644, 1));
    assert_eq!(found("max-files=0", &[replaced]), ["1 file changed"]);
}

#[test]
fn bytes_are_those_of_the_new_versions() {
    let mut huge = created("huge");
    huge.new = Some(node(NodeType::File, 0o644, u64::MAX));
    let entries = [created("a"), file("b", DiffKind::Modified), file("c", DiffKind::Deleted)];
    assert_eq!(found("max-bytes=20", &entries), [""; 0]);
    assert_eq!(found("max-bytes=19", &entries), ["what changed has 20 bytes together"]);
    assert!(found("max-bytes=1TiB", &[huge, created("a")])[0].contains(&u64::MAX.to_string()));
}

#[test]
fn kinds_and_deletions() {
    let every = [
        created("a"),
        file("b", DiffKind::Modified),
        file("c", DiffKind::Deleted),
        renamed("d", "e"),
        file("f", DiffKind::Metadata),
        file("g", DiffKind::Type),
    ];
    assert_eq!(found("kinds=created,modified,deleted,renamed,metadata,type", &every), [""; 0]);
    assert_eq!(found("kinds=created,modified", &every), ["c", "e", "f", "g"]);
    assert_eq!(found("no-deletes", &every[..2]), [""; 0]);
    assert_eq!(
        found("no-deletes", &every),
        ["c", "e", "g"],
        "a path that is moved or replaced goes away too"
    );
    let failure = &check(&rules(&["no-deletes"]), &every)[0];
    assert_eq!(failure.paths[1].reason.as_deref(), Some("renamed"));
    assert_eq!(failure.detail, "3 paths go away");
}

#[test]
fn content_that_nobody_can_read() {
    let binary = DiffEntry { binary: true, ..created("x.bin") };
    assert_eq!(found("no-binary", &[created("a")]), [""; 0]);
    assert_eq!(found("no-binary", &[created("a"), binary]), ["x.bin"]);
}

#[test]
fn only_a_new_permission_to_execute_counts() {
    let old = [executable("kept", Some(0o755), 0o755), executable("less", Some(0o755), 0o644)];
    assert_eq!(found("no-exec", &old), [""; 0]);
    let new = [
        executable("new", None, 0o700),
        executable("became", Some(0o644), 0o755),
        executable("wider", Some(0o744), 0o755),
    ];
    assert_eq!(found("no-exec", &new), ["new", "became", "wider"]);
    assert_eq!(found("no-exec", &[directory("d", DiffKind::Created)]), [""; 0]);
}

#[test]
fn links_that_come_to_be() {
    let link = |kind| {
        let mut entry = file("l", kind);
        for side in [&mut entry.old, &mut entry.new].into_iter().flatten() {
            *side = node(NodeType::Symlink, 0o777, 0);
        }
        entry
    };
    assert_eq!(found("no-links", &[created("a"), link(DiffKind::Deleted)]), [""; 0]);
    assert_eq!(found("no-links", &[link(DiffKind::Created)]), ["l"]);
    assert_eq!(found("no-links", &[link(DiffKind::Modified)]), ["l"]);
}

#[test]
fn flags_need_a_word_unless_a_policy_has_one() {
    let entries = [created("a"), flagged("b")];
    let accepting = CommitRules { accept_flags: true, ..CommitRules::default() };
    assert_eq!(check(&accepting, &entries), []);
    assert!(accepting.allow_everything());

    let failures = check(&CommitRules::default(), &entries);
    assert_eq!(failures.len(), 1);
    assert!(failures[0].is_about_flags_alone());
    assert_eq!(failures[0].paths[0].reason.as_deref(), Some("setuid, runs by itself"));
    assert_eq!(failures[0].detail, "1 path is to be looked at before it is committed");

    assert_eq!(check(&rules(&["max-files=9"]), &entries), failures, "a policy without a word on flags");
    let strict = CommitRules { accept_flags: true, ..rules(&["no-flags"]) };
    assert_eq!(check(&strict, &entries)[0].rule, "no-flags");
    assert!(!strict.allow_everything());
    let both = check(&rules(&["max-files=9", "no-flags"]), &entries);
    assert_eq!(both.len(), 1, "told once: {both:?}");
    assert!(!both[0].is_about_flags_alone());
}

#[test]
fn what_was_shown_is_accepted_and_nothing_else() {
    let shown = check(&CommitRules::default(), &[flagged("b")]).remove(0).paths;
    let rules = CommitRules { accepted: shown, ..CommitRules::default() };
    assert_eq!(check(&rules, &[flagged("b"), created("c")]), []);
    assert_eq!(check(&rules, &[flagged("b"), flagged("c")])[0].paths[0].path, rel("c"));
    let more = DiffEntry { flags: vec!["large binary".into()], ..created("b") };
    assert_eq!(check(&rules, &[more]).len(), 1, "another flag than the one that was shown");
    assert!(rules.check([("other", &flagged("b"))]).is_err(), "another workspace");
}

#[test]
fn a_refusal_lists_every_rule_that_failed() {
    let binary = DiffEntry { binary: true, ..flagged("lib/x") };
    let rules = rules(&["paths=src/**; max-files=1; kinds=modified", "no-binary; max-bytes=1MiB"]);
    let entries = [binary, created("src/a")];
    let failed: Vec<String> = check(&rules, &entries).iter().map(|f| f.rule.clone()).collect();
    assert_eq!(failed, ["flags", "paths=src/**", "max-files=1", "kinds=modified", "no-binary"]);
    let error = rules.check(entries.iter().map(|entry| (W, entry))).unwrap_err();
    let expected = "refused by these rules: flags; paths=src/** (--if); max-files=1 (--if); \
                    kinds=modified (--if); no-binary (--if)";
    assert_eq!(error.to_string(), expected);
    let one = CommitRules::default().check([(W, &flagged("a"))]).unwrap_err();
    assert_eq!(one.to_string(), "refused by the rule flags");
}

/// Whatever differs: a policy without clauses refuses flags and nothing else.
#[test]
fn a_policy_without_clauses_refuses_nothing_but_flags() {
    let kinds = [
        DiffKind::Created,
        DiffKind::Modified,
        DiffKind::Deleted,
        DiffKind::Renamed,
        DiffKind::Metadata,
        DiffKind::Type,
    ];
    let types = [NodeType::File, NodeType::Directory, NodeType::Symlink, NodeType::Device, NodeType::Other];
    let empty = CommitRules { policies: vec![Policy::default()], ..CommitRules::default() };
    let accepting = CommitRules { accept_flags: true, ..empty.clone() };
    for (kind, node_type, bits) in
        kinds.iter().flat_map(|k| types.iter().flat_map(move |t| (0..8).map(move |bits| (*k, *t, bits))))
    {
        let mut entry = renamed("from", "to");
        entry.kind = kind;
        entry.new = (bits & 1 == 0).then(|| node(node_type, 0o7777, u64::MAX));
        entry.binary = bits & 2 == 0;
        let is_flagged = bits & 4 == 0;
        entry.flags = if is_flagged { vec!["setuid".into()] } else { Vec::new() };
        assert_eq!(check(&empty, std::slice::from_ref(&entry)).len(), usize::from(is_flagged), "{entry:?}");
        assert_eq!(check(&accepting, &[entry]), []);
    }
}
