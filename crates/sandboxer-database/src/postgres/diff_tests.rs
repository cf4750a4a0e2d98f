use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use sandboxer_testkit::servers::Postgres;
use serde_json::json;

use super::super::client::Connection;
use super::super::target::Target;
use super::super::values::set_text_forms;
use super::*;

/// A transaction held by hand, a connection outside it, and one that is production.
struct World {
    inside: Connection,
    outside: Connection,
    production: Connection,
    base: Base,
    target: Target,
}

fn world(schema: &str) -> Option<World> {
    let server = Postgres::shared()?;
    let target = Target::parse(&server.socket_url(&server.database()), "").unwrap();
    let connect = || Connection::connect(&target, None).unwrap();
    let (mut inside, mut outside, mut production) = (connect(), connect(), connect());
    production.query(schema).unwrap();
    outside.query(&set_text_forms("SET")).unwrap();
    inside.query("begin").unwrap();
    let base = Base::read(&mut inside, "sandboxer_guard").unwrap();
    Some(World { inside, outside, production, base, target })
}

impl World {
    fn diff(&mut self) -> RowChanges {
        self.inside.query("savepoint look").unwrap();
        self.inside.query(&set_text_forms("SET LOCAL")).unwrap();
        let changed = rows_changed(&mut self.inside, &mut self.outside, &self.base, 1_000_000).unwrap();
        self.inside.query("rollback to look; release look").unwrap();
        changed
    }

    /// Each change as `table key old -> new`, the values without names.
    fn told(&mut self) -> Vec<String> {
        self.diff().rows.iter().map(tell).collect()
    }

    fn inside(&mut self, sql: &str) {
        self.inside.query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    fn production(&mut self, sql: &str) {
        self.production.query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

fn tell(change: &RowChange) -> String {
    let side =
        |row: &Option<Row>| row.as_ref().map_or("-".to_owned(), |row| key_text(row.0.iter().map(|(_, v)| v)));
    let key = key_text(change.key.0.iter().map(|(_, value)| value));
    format!("{} {key} {} > {}", change.table, side(&change.old), side(&change.new))
}

const USERS: &str = "create table users (id int primary key, name text, age int); \
    insert into users select n, 'u' || n, n from generate_series(1, 20) n; \
    create table posts (id int primary key, author int references users, title text); \
    insert into posts select n, n, 'p' || n from generate_series(1, 10) n";

#[test]
fn inserts_updates_and_deletes_are_told_with_both_sides() {
    let Some(mut world) = world(USERS) else { return };
    assert_eq!(world.told(), Vec::<String>::new());
    world.inside("insert into users values (100, 'new', null)");
    assert_eq!(world.told(), ["public.users 100 - > 100,new,%null"]);
    world.inside("update users set age = 50 where id = 3");
    assert_eq!(world.told(), ["public.users 3 3,u3,3 > 3,u3,50", "public.users 100 - > 100,new,%null"]);
    world.inside("delete from users where id = 15; update users set id = 200 where id = 16");
    assert_eq!(
        world.told(),
        [
            "public.users 3 3,u3,3 > 3,u3,50",
            "public.users 15 15,u15,15 > -",
            "public.users 16 16,u16,16 > -",
            "public.users 100 - > 100,new,%null",
            "public.users 200 - > 200,u16,16",
        ]
    );
    world.inside("delete from users where id = 100; update users set age = 3 where id = 3; insert into users values (15, 'u15', 15)");
    assert_eq!(world.told(), ["public.users 16 16,u16,16 > -", "public.users 200 - > 200,u16,16"]);
}

#[test]
fn a_key_that_was_updated_is_found_without_any_deletion() {
    let Some(mut world) = world(USERS) else { return };
    world.inside("update users set id = 300 where id = 20");
    assert_eq!(world.told(), ["public.users 20 20,u20,20 > -", "public.users 300 - > 300,u20,20"]);
}

#[test]
fn savepoints_that_were_rolled_back_leave_no_trace() {
    let Some(mut world) = world(USERS) else { return };
    world.inside(
        "savepoint a; delete from users where id > 15; insert into users values (99, 'x', 1); rollback to a",
    );
    assert_eq!(world.told(), Vec::<String>::new());
    world.inside(
        "update users set age = 0 where id = 18; savepoint b; update users set age = 1 where id = 18",
    );
    world.inside("savepoint c; update users set age = 2 where id = 18; rollback to c; release b");
    assert_eq!(world.told(), ["public.users 18 18,u18,18 > 18,u18,1"]);
}

#[test]
fn locks_are_no_changes() {
    let Some(mut world) = world(USERS) else { return };
    world.inside("select * from users where id < 4 for update; select * from users where id < 9 for share");
    world.inside(
        "select * from users where id = 10 for no key update; insert into posts values (50, 12, 'fk')",
    );
    world.inside("update users set age = age where id = 5; delete from users where id = 11 and false");
    assert_eq!(world.told(), ["public.posts 50 - > 50,12,fk"]);
}

#[test]
fn rows_that_others_lock_too_are_told_once() {
    let Some(mut world) = world(USERS) else { return };
    // Both orders: production's lock on a key before our update, and after it.
    world.production("begin; insert into posts values (60, 13, 'theirs')");
    world.inside("update users set age = 1 where id in (13, 14)");
    let mut third = Connection::connect(&world.target, None).unwrap();
    third.query("begin; insert into posts values (61, 14, 'theirs, too')").unwrap();
    // A table with a deletion is searched by place.
    world.inside("delete from users where id = 19");
    let expected = [
        "public.users 13 13,u13,13 > 13,u13,1",
        "public.users 14 14,u14,14 > 14,u14,1",
        "public.users 19 19,u19,19 > -",
    ];
    assert_eq!(world.told(), expected);
    world.production("commit");
    third.query("rollback").unwrap();
    assert_eq!(world.told(), expected);
}

#[test]
fn what_production_does_is_not_ours() {
    let Some(mut world) = world(USERS) else { return };
    world.inside("delete from users where id = 20; update users set age = 0 where id = 19");
    world.production("update users set age = -1 where id = 2; delete from posts where id = 3; insert into users values (500, 'p', 0)");
    world.production("begin; update users set age = -2 where id = 4; delete from posts where id = 4");
    let expected = ["public.users 19 19,u19,19 > 19,u19,0", "public.users 20 20,u20,20 > -"];
    assert_eq!(world.told(), expected);
    world.production("commit");
    assert_eq!(world.told(), expected);
    world.inside("update users set age = -3 where id = 4");
    assert_eq!(world.told()[0], "public.users 4 4,u4,-2 > 4,u4,-3");
}

#[test]
fn partitions_are_told_as_their_table() {
    let schema = "create table m (day date, id int, v int, primary key (id, day)) partition by range (day); \
        create table m1 (v int, id int not null, day date not null); \
        alter table m attach partition m1 for values from ('2026-01-01') to ('2026-02-01'); \
        create table m2 partition of m for values from ('2026-02-01') to ('2026-03-01'); \
        insert into m select '2026-01-05', n, n from generate_series(1, 5) n";
    let Some(mut world) = world(schema) else { return };
    world.inside("update m set v = 0 where id = 1; update m set day = '2026-02-02' where id = 2; delete from m1 where id = 3");
    assert_eq!(
        world.told(),
        [
            "public.m 1,2026-01-05 2026-01-05,1,1 > 2026-01-05,1,0",
            "public.m 2,2026-01-05 2026-01-05,2,2 > -",
            "public.m 2,2026-02-02 - > 2026-02-02,2,2",
            "public.m 3,2026-01-05 2026-01-05,3,3 > -",
        ]
    );
}

#[test]
fn without_a_key_rows_are_compared_whole_and_that_is_said() {
    let Some(mut world) =
        world("create table log (a int, b text); insert into log values (1,'x'),(1,'x'),(2,'y'),(3,null)")
    else {
        return;
    };
    world.inside("update log set a = a; delete from log where ctid = (select min(ctid) from log where a = 1); insert into log values (2,'y'), (4,'z')");
    let diff = world.diff();
    let told: Vec<_> = diff.rows.iter().map(tell).collect();
    assert_eq!(told, ["public.log  1,x > -", "public.log  - > 2,y", "public.log  - > 4,z"]);
    assert!(diff.notices[0].contains("public.log has no primary key"), "{:?}", diff.notices);
}

#[test]
fn tables_made_inside_and_tables_that_inherit() {
    let Some(mut world) = world(
        "create table a (id int primary key); create table b (extra int, primary key (id)) inherits (a); insert into b values (1, 2)",
    ) else {
        return;
    };
    world.inside("create table c (id int primary key); insert into c values (7); create temporary table t (x int); insert into t values (1)");
    world.inside("update a set id = 5 where id = 1");
    assert_eq!(world.told(), ["public.b 1 1,2 > -", "public.b 5 - > 5,2", "public.c 7 - > 7"]);
}

#[test]
fn what_cannot_be_read_outside_is_said() {
    let Some(mut world) = world(USERS) else { return };
    world.inside("insert into posts values (70, 1, 'x'); alter table posts add extra int default 5; truncate users cascade");
    world.inside("select lo_create(0)");
    let diff = world.diff();
    assert_eq!(diff.rows.iter().map(tell).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(diff.notices.len(), 3, "{:?}", diff.notices);
    assert!(diff.notices[0].contains("large objects"), "{:?}", diff.notices);
    assert!(diff.notices[1].contains("emptied"), "{:?}", diff.notices);
}

#[test]
fn a_table_whose_definition_changed_shows_what_was_written() {
    let Some(mut world) = world(USERS) else { return };
    world.inside("alter table posts add extra int default 5; insert into posts values (70, 1, 'x')");
    let diff = world.diff();
    assert_eq!(diff.rows.iter().map(tell).collect::<Vec<_>>(), ["public.posts 70 - > 70,1,x,5"]);
    assert!(diff.notices[0].contains("locked against all others"), "{:?}", diff.notices);
}

#[test]
fn too_many_rows_are_refused() {
    let Some(mut world) = world(USERS) else { return };
    world.inside("update users set age = 0");
    let error = rows_changed(&mut world.inside, &mut world.outside, &world.base, 5).unwrap_err();
    assert!(error.to_string().contains("public.users"), "{error}");
}

#[test]
fn values_of_all_types_come_through() {
    let Some(mut world) = world(
        "create table v (k bytea, d date, primary key (k, d), n numeric, f float8, r float4, j jsonb, a text[], \
        i interval, z timestamptz, u uuid, b bool, x xml, p point, l bigint, c char(4), s money, e inet, t int4range)",
    ) else {
        return;
    };
    world.inside("set timezone = 'Asia/Tokyo'; set datestyle = 'German'; set bytea_output = 'escape'");
    world.inside("insert into v values ('\\x00ff', '2026-05-01', 1.50, 'NaN', 0.1, '{\"a\":1}', '{x,null,\"y z\"}', '1 day 2 hours', \
        '2026-01-01 00:00:00+00', '00000000-0000-0000-0000-000000000001', true, '<a/>', '(1,2)', -9223372036854775808, 'ab', 1.5, '10.0.0.1', '[1,5)')");
    let diff = world.diff();
    let new = serde_json::to_value(diff.rows[0].new.as_ref().unwrap()).unwrap();
    let expected = json!({"k": {"b64": "AP8="}, "d": "2026-05-01", "n": "1.50", "f": "NaN", "r": 0.1, "j": "{\"a\": 1}",
        "a": "{x,NULL,\"y z\"}", "i": "1 day 02:00:00", "z": "2026-01-01 00:00:00+00",
        "u": "00000000-0000-0000-0000-000000000001", "b": true, "x": "<a/>", "p": "(1,2)", "l": i64::MIN, "c": "ab  ",
        "s": "$1.50", "e": "10.0.0.1", "t": "[1,5)"});
    assert_eq!(new, expected);
}

/// The sandbox's rows of `users` as one session sees them.
fn all(session: &mut Connection) -> BTreeMap<i64, String> {
    let answer = session.query("select id, name, age from public.users where id < 1000").unwrap();
    let values = |row: &Vec<Option<String>>| {
        key_text(row.iter().map(|v| v.clone().map_or(Value::Null, Value::String)).collect::<Vec<_>>().iter())
    };
    answer.rows.iter().map(|row| (text(row, 0).parse().unwrap(), values(row))).collect()
}

/// What a comparison of everything says.
fn expected(world: &mut World) -> Vec<String> {
    let (old, new) = (all(&mut world.outside), all(&mut world.inside));
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let side = |row: Option<&String>| row.cloned().unwrap_or("-".to_owned());
    let differing = keys.into_iter().filter(|key| old.get(key) != new.get(key));
    differing
        .map(|key| format!("public.users {key} {} > {}", side(old.get(key)), side(new.get(key))))
        .collect()
}

/// A small generator of numbers: the same seed gives the same history.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn play(world: &mut World, dice: &mut Dice) {
    let mut depth = 0;
    for _ in 0..dice.throw(25) {
        let (a, b) = (dice.throw(40), dice.throw(40));
        let sql = match dice.throw(10) {
            0 => format!("insert into users values ({a}, 'n{b}', {b}) on conflict do nothing"),
            1 => format!("update users set age = {b} where id = {a}"),
            2 => format!("delete from users where id = {a}"),
            3 => format!(
                "update users set id = {b} where id = {a} and not exists (select from users where id = {b})"
            ),
            4 => format!("update users set name = name where id between {a} and {b}"),
            5 => format!("select * from users where id between {a} and {b} for update"),
            6 | 7 => {
                depth += 1;
                format!("savepoint s{depth}")
            }
            8 if depth > 0 => format!("rollback to s{}", dice.throw(depth) + 1),
            9 if depth > 0 => {
                depth -= 1;
                format!("release s{}", depth + 1)
            }
            _ => format!("delete from users where id = {a}; insert into users values ({a}, 'again', {b})"),
        };
        if let Some(place) = sql.strip_prefix("rollback to s") {
            depth = place.parse().unwrap();
        }
        world.inside(&sql);
    }
}

/// Commits, rolls back and leaves open, on rows of its own and on keys that the sandbox's rows could have.
fn production_writes(target: &Target, stop: &AtomicBool) {
    let mut session = Connection::connect(target, None).unwrap();
    let mut dice = Dice(77);
    while !stop.load(Memory::Relaxed) {
        let (a, b) = (1001 + dice.throw(60), dice.throw(1000));
        let end = if dice.throw(3) == 0 { "rollback" } else { "commit" };
        let sql = format!(
            "begin; update users set age = {b} where id = {a}; delete from users where id = {} + 1; \
             savepoint s; insert into users values ({} + 1, 'p', {b}); select 1 from users where id < 1000 limit 3; {end}",
            a, a
        );
        let _ = session.query(&sql);
        let _ = session.query("rollback");
    }
}

/// Ids below 1000 are the sandbox's, those above are production's: then a comparison of the former says what has to be told.
#[test]
fn whatever_is_done_inside_is_told_exactly_while_production_writes() {
    let Some(mut world) = world(
        "create table users (id int primary key, name text, age int); \
         insert into users select n, 'u' || n, n from generate_series(1, 30) n; \
         insert into users select n, 'p' || n, n from generate_series(1001, 1060) n",
    ) else {
        return;
    };
    let stop = AtomicBool::new(false);
    let target = world.target.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| production_writes(&target, &stop));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for seed in 1..=80 {
                play(&mut world, &mut Dice(seed * 7919));
                assert_eq!(world.told(), expected(&mut world), "seed {seed}");
                let end = if seed % 4 == 0 { "commit" } else { "rollback" };
                world.inside(&format!("{end}; begin"));
                world.base = Base::read(&mut world.inside, "sandboxer_guard").unwrap();
            }
        }));
        stop.store(true, Memory::Relaxed);
        outcome.unwrap();
    });
}
