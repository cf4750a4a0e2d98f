//! A keeper whose disk fails, over an engine that only remembers what was asked of it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use sandboxer_core::model::{Row, RowChange};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::engine::{Changes, Executed, Page, Status};

/// One row differs, until it is committed. With `breaks`, the keeper's directory is gone once the commit was made.
struct Memory {
    dir: PathBuf,
    breaks: bool,
    /// A commit that fails after it has ended the transaction.
    fails: bool,
    transaction: u32,
}

impl Memory {
    fn make_real(&mut self) -> Result<()> {
        self.transaction += 1;
        if self.breaks {
            fs::remove_dir_all(&self.dir).unwrap();
        }
        if self.fails { Err(Error::usage("the answer was lost")) } else { Ok(()) }
    }
}

fn row(id: u32) -> Row {
    serde_json::from_value(json!({ "id": id })).unwrap()
}

impl Engine for Memory {
    fn status(&mut self) -> Status {
        Status::Held { notices: Vec::new() }
    }

    fn schema(&mut self) -> Result<String> {
        Ok(String::new())
    }

    fn tables(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn rows(&mut self, _: &str, _: &Page) -> Result<Vec<Row>> {
        Ok(Vec::new())
    }

    fn row(&mut self, _: &str, _: &str) -> Result<Option<Row>> {
        Ok(None)
    }

    fn query(&mut self, _: &str) -> Result<Vec<Row>> {
        Ok(Vec::new())
    }

    fn execute(&mut self, _: &str) -> Result<Executed> {
        Ok(Executed::default())
    }

    fn put_row(&mut self, _: &str, _: &str, _: Option<&Row>) -> Result<bool> {
        Ok(false)
    }

    fn changes(&mut self) -> Result<Changes> {
        let change = RowChange { table: "t".into(), key: row(1), old: None, new: Some(row(1)) };
        Ok(Changes { rows: vec![change], ..Changes::default() })
    }

    fn checkpoint(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn restore(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        Ok(())
    }

    fn intent(&mut self, _: &str) -> Result<Prepared> {
        Ok(Prepared::Durable(json!(self.transaction)))
    }

    fn commit(&mut self, _: &str) -> Result<()> {
        self.make_real()
    }

    fn prepare(&mut self, operation: &str) -> Result<Prepared> {
        self.intent(operation)
    }

    fn finish(&mut self, _: &Prepared) -> Result<()> {
        self.make_real()
    }

    fn abort(&mut self, _: &Prepared) -> Result<bool> {
        panic!("what is real cannot be aborted")
    }

    fn close(&mut self) {}
}

/// A keeper in a directory of its own.
fn keeper(breaks: bool, fails: bool) -> (Server, PathBuf, TempDir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("keeper");
    fs::create_dir(&dir).unwrap();
    let engine = Memory { dir: dir.clone(), breaks, fails, transaction: 0 };
    (Server::new(&dir, Box::new(engine)), dir, temp)
}

fn commit(operation: &str) -> Request {
    Request::Commit { operation: operation.to_owned(), digest: None }
}

fn committed(answer: Result<(Answer, Vec<u8>)>) -> CommitResult {
    match answer.unwrap().0 {
        Answer::Committed(result) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_record_that_is_lost_after_the_commit_is_a_notice() {
    let (server, _dir, _temp) = keeper(true, false);
    let result = committed(server.reply(commit("op"), &[]));
    assert_eq!(result.entries.len(), 1);
    assert!(result.notices.iter().any(|notice| notice.message.contains("committed")), "{result:?}");
}

#[test]
fn a_record_that_is_lost_after_finishing_is_a_notice_and_finished_is_finished() {
    let (server, dir, _temp) = keeper(true, false);
    let operation = || "op".to_owned();
    server.reply(Request::Prepare { operation: operation(), digest: None }, &[]).unwrap();
    let before = fs::read(dir.join("record.json")).unwrap();
    let result = committed(server.reply(Request::Finish { operation: operation() }, &[]));
    assert_eq!(result.notices.len(), 1, "{result:?}");
    // As it is where only the last write failed.
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("record.json"), before).unwrap();
    assert_eq!(committed(server.reply(Request::Abort { operation: operation() }, &[])).entries.len(), 1);
    assert_eq!(committed(server.reply(Request::Finish { operation: operation() }, &[])).entries.len(), 1);
}

#[test]
fn a_commit_that_ended_the_transaction_and_failed_can_still_be_told() {
    let (server, dir, _temp) = keeper(false, true);
    server.reply(commit("op"), &[]).unwrap_err();
    assert!(Record::of(&dir, "op").unwrap().is_some());
}

#[test]
fn a_name_that_is_used_again_is_not_taken_for_what_it_was() {
    let (server, _dir, _temp) = keeper(false, false);
    committed(server.reply(commit("whole"), &[]));
    server.reply(Request::Prepare { operation: "whole".to_owned(), digest: None }, &[]).unwrap();
    assert!(!server.record("whole").unwrap().unwrap().committed);
}
