#![allow(clippy::unwrap_used)]
use super::*;
use crate::mysql::lexer::{Mode, Script};

fn judged(sql: &str) -> Result<Kind> {
    judge(&Script::new(sql).next(Mode::default()).unwrap().unwrap())
}

#[test]
fn what_reads_and_writes_rows_is_allowed() {
    for (sql, kind) in [
        ("select 1", Kind::Read),
        ("(select 1) union (select 2)", Kind::Read),
        ("/* c */ -- d\n insert into t values (1)", Kind::Write),
        ("with a as (select 1) select * from a for update", Kind::Read),
        ("with a as (select 1) delete from t", Kind::Write),
        ("call p()", Kind::Write),
        ("set @a = (select 1, 2)", Kind::Set),
        ("/*!40101 SET NAMES utf8mb4 */", Kind::Set),
        ("/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO' */", Kind::Set),
        ("set @@session.foreign_key_checks = 0, session sql_mode := ''", Kind::Set),
        ("savepoint a", Kind::Savepoint),
        ("rollback work to savepoint `a`", Kind::Savepoint),
        ("release savepoint a", Kind::Savepoint),
        ("select /*! straight_join */ 1", Kind::Read),
    ] {
        assert_eq!(judged(sql).unwrap(), kind, "{sql}");
    }
}

#[test]
fn what_ends_the_transaction_or_reaches_beyond_it_is_refused() {
    for sql in [
        "begin",
        "begin not atomic commit; end",
        "start transaction",
        "/* a */ commit",
        "/*!50001 commit */",
        "/*!99999 select 1 */ commit",
        "/*! select */ /*!99999 1 */ 1",
        "commit and chain",
        "rollback",
        "rollback and chain",
        "rollback to sandboxer_unit",
        "savepoint SANDBOXER_unit",
        "xa end 'a'",
        "set autocommit = 1",
        "set @a = 1, autocommit = 1",
        "set @@autocommit = 1",
        "set session autocommit = 1",
        "set @@session.autocommit = 1",
        "set global sql_mode = ''",
        "set @@global.sql_mode = ''",
        "set persist sql_mode = ''",
        "set transaction isolation level serializable",
        "set statement sql_mode = '' for commit",
        "set password = 'x'",
        "set role none",
        "create table t (a int)",
        "create temporary table t (a int)",
        "select 1 into outfile '/tmp/x'",
        "select 1 into dumpfile '/tmp/x'",
        "load data infile 'x' into table t",
        "lock tables t write",
        "execute immediate 'commit'",
        "prepare s from 'commit'",
        "if 1 then commit; end if",
        "handler t open",
        "'commit'",
        "use other",
        "analyze table t",
    ] {
        assert!(matches!(judged(sql), Err(Error::Refused { .. })), "{sql}");
    }
}
