//! What differs between inside and outside, row by row.
//!
//! Both sides hash the rows of a table in buckets; buckets that differ are read by key and hash; rows that differ are read whole. Production may commit between any
//! two of these steps. But a row that the sandbox has written is locked: outside it stays as it is. So a row counts only if it is the same outside
//! before and after it was read inside, and differs from that, twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mysql::prelude::Queryable;
use mysql::{Conn, Value as Raw};
use sandboxer_core::model::{Row, RowChange};
use sandboxer_core::{Error, Result};

use super::held::Held;
use super::rows::select;
use super::tables::{Catalogue, Column, Table, quoted};
use super::touched;
use crate::engine::{Changes, key_text};

/// How many rows are in a bucket, about: what is read of each bucket that differs.
const BUCKET: u64 = 64;
/// How many rows are asked for at once.
const CHUNK: usize = 200;

pub(super) fn of(held: &mut Held, max_rows: usize) -> Result<Changes> {
    let (names, notice) = touched::tables(held)?;
    let mut changes = Changes { notices: notice.into_iter().collect(), ..Changes::default() };
    let server = held.server.clone();
    for (schema, name) in names {
        let found = Catalogue { server: &server, conn: held.outside()? }.find(&schema, &name)?;
        let Some(table) = found else { continue };
        let mut rows = if table.key.is_empty() { whole(held, &table)? } else { keyed(held, &table)? };
        if table.key.is_empty() && !rows.is_empty() {
            changes.notices.push(format!("{} has no primary key and was compared as a whole", table.shown));
        }
        changes.rows.append(&mut rows);
        if changes.rows.len() > max_rows {
            return Err(too_many(max_rows));
        }
    }
    changes.rows.sort_by_cached_key(|change| {
        (change.table.clone(), key_text(change.key.0.iter().map(|(_, value)| value)))
    });
    Ok(changes)
}

fn too_many(max_rows: usize) -> Error {
    Error::Refused {
        reason: format!("the difference has more than {max_rows} rows"),
        hint: Some("set max_rows higher, or roll back a part".to_owned()),
    }
}

/// The same question to either side; inside leaves no trace.
struct Sides<'a> {
    held: &'a mut Held,
    what: String,
}

impl Sides<'_> {
    fn inside<T>(&mut self, action: impl FnOnce(&mut Conn) -> mysql::Result<T>) -> Result<T> {
        let what = self.what.clone();
        self.held.unit(false, |held| held.run(&what, action))
    }

    fn outside<T>(&mut self, action: impl FnOnce(&mut Conn) -> mysql::Result<T>) -> Result<T> {
        let result = action(self.held.outside()?);
        result.map_err(|error| self.held.failed(&self.what, &error))
    }
}

fn keyed(held: &mut Held, table: &Table) -> Result<Vec<RowChange>> {
    let mut sides = Sides { held, what: format!("comparing {}", table.shown) };
    let buckets = Buckets::of(&mut sides, table)?;
    let hash = |conn: &mut Conn| buckets.hash(conn, table);
    let (inside, outside) = (sides.inside(hash)?, sides.outside(hash)?);
    let differing = differing(&inside, &outside);
    let mut keys = BTreeMap::new();
    for chunk in differing.chunks(CHUNK) {
        let members = |conn: &mut Conn| buckets.members(conn, table, chunk);
        let (inside, outside) = (sides.inside(members)?, sides.outside(members)?);
        for key in self::differing(&inside, &outside) {
            let row = inside.get(&key).or_else(|| outside.get(&key));
            keys.extend(row.map(|(_, values)| (key.clone(), values.clone())));
        }
    }
    let keys: Vec<Vec<Raw>> = keys.into_values().collect();
    let mut changes = Vec::new();
    for chunk in keys.chunks(CHUNK) {
        changes.extend(confirmed(&mut sides, table, chunk)?);
    }
    Ok(changes)
}

fn differing<K: Clone + Ord + std::hash::Hash, V: PartialEq>(a: &HashMap<K, V>, b: &HashMap<K, V>) -> Vec<K> {
    let keys: BTreeSet<&K> = a.keys().chain(b.keys()).collect();
    keys.into_iter().filter(|key| a.get(key) != b.get(key)).cloned().collect()
}

/// How the rows of a table are parted.
struct Buckets {
    /// The number of a row's bucket.
    number: String,
    /// How wide a bucket is, where it is a range of one integer key: then it can be found by the index.
    range: Option<(String, u64)>,
}

impl Buckets {
    fn of(sides: &mut Sides<'_>, table: &Table) -> Result<Self> {
        if let [column] = table.key_columns()[..]
            && column.is_integer()
        {
            return Ok(Self::ranges(column));
        }
        let sql = format!("SELECT COUNT(*) FROM {}", table.sql());
        let rows: u64 = sides.outside(|conn| Ok(conn.query_first(&sql)?.unwrap_or(0)))?;
        let count = (rows / BUCKET).clamp(1, 65_536);
        let key = digest(&table.key_columns(), 8);
        Ok(Self { number: format!("CAST({key} AS SIGNED) % {count}"), range: None })
    }

    fn ranges(column: &Column) -> Self {
        let name = quoted(&column.name);
        // Rounds down, as `DIV` does not, and without the decimals of `/`, which a setting can take away.
        let rest = format!("MOD(MOD({name},{BUCKET})+{BUCKET},{BUCKET})");
        Self { number: format!("({name} - {rest}) DIV {BUCKET}"), range: Some((name, BUCKET)) }
    }

    fn hash(&self, conn: &mut Conn, table: &Table) -> mysql::Result<HashMap<i64, (u64, u64)>> {
        let columns: Vec<&Column> = table.columns.iter().collect();
        let sql = format!(
            "SELECT {} AS bucket, COUNT(*), BIT_XOR({}) FROM {} GROUP BY bucket",
            self.number,
            digest(&columns, 16),
            table.sql()
        );
        let rows: Vec<(i64, u64, u64)> = conn.query(sql)?;
        Ok(rows.into_iter().map(|(bucket, count, hash)| (bucket, (count, hash))).collect())
    }

    /// The rows of some buckets, by their keys: what they hash to, and the key's values.
    fn members(&self, conn: &mut Conn, table: &Table, buckets: &[i64]) -> mysql::Result<Members> {
        let columns: Vec<&Column> = table.columns.iter().collect();
        let sql = format!(
            "SELECT {}, {} FROM {} WHERE {}",
            digest(&columns, 16),
            table.key_list(),
            table.sql(),
            self.condition(buckets)
        );
        let rows: Vec<mysql::Row> = conn.exec(sql, ())?;
        let member = |row: mysql::Row| {
            let mut values = row.unwrap();
            let key = values.split_off(1);
            (format!("{key:?}"), (values.pop().unwrap_or(Raw::NULL), key))
        };
        Ok(rows.into_iter().map(member).collect())
    }

    fn condition(&self, buckets: &[i64]) -> String {
        let all = |text: &dyn Fn(&i64) -> String, by| buckets.iter().map(text).collect::<Vec<_>>().join(by);
        match &self.range {
            Some((name, width)) => {
                let range = |bucket: &i64| {
                    let first = i128::from(*bucket) * i128::from(*width);
                    format!("{name} BETWEEN {first} AND {}", first + i128::from(*width) - 1)
                };
                all(&range, " OR ")
            }
            None => format!("{} IN ({})", self.number, all(&i64::to_string, ",")),
        }
    }
}

type Members = HashMap<String, (Raw, Vec<Raw>)>;

/// So many hexadecimal digits of a hash over columns, as a number. Not CRC32: combined by XOR, two rows that swap their values would cancel each other.
fn digest(columns: &[&Column], digits: usize) -> String {
    let parts: Vec<String> = columns.iter().map(|column| column.digest()).collect();
    format!("CAST(CONV(LEFT(MD5(CONCAT_WS(',',{})),{digits}),16,10) AS UNSIGNED)", parts.join(","))
}

/// The rows at these keys that are really different, and stay so.
fn confirmed(sides: &mut Sides<'_>, table: &Table, keys: &[Vec<Raw>]) -> Result<Vec<RowChange>> {
    let places: Vec<String> =
        keys.iter().map(|key| format!("({})", vec!["?"; key.len()].join(","))).collect();
    let sql = format!(
        "SELECT {} FROM {} WHERE ({}) IN ({})",
        table.column_list(),
        table.sql(),
        table.key_list(),
        places.join(",")
    );
    let values: Vec<Raw> = keys.iter().flatten().cloned().collect();
    let read = |conn: &mut Conn| Ok(by_key(table, select(conn, &sql, values.clone())?));
    let mut candidates = difference(&read, sides)?;
    let again = difference(&read, sides)?;
    candidates.retain(|key, change| again.get(key) == Some(change));
    Ok(candidates
        .into_values()
        .map(|(key, old, new)| RowChange { table: table.shown.clone(), key, old, new })
        .collect())
}

type Difference = BTreeMap<String, (Row, Option<Row>, Option<Row>)>;

/// Outside, inside, and outside once more: what changed outside meanwhile is not ours.
fn difference(
    read: &impl Fn(&mut Conn) -> mysql::Result<BTreeMap<String, (Row, Row)>>,
    sides: &mut Sides<'_>,
) -> Result<Difference> {
    let (before, inside, after) = (sides.outside(read)?, sides.inside(read)?, sides.outside(read)?);
    let keys: BTreeSet<&String> = before.keys().chain(inside.keys()).collect();
    let mut found = Difference::new();
    for key in keys.into_iter().filter(|key| before.get(*key) == after.get(*key)) {
        let (old, new) = (before.get(key), inside.get(key));
        if let Some((values, _)) = old.or(new).filter(|_| old != new) {
            let row = |side: Option<&(Row, Row)>| side.map(|(_, row)| row.clone());
            found.insert(key.clone(), (values.clone(), row(old), row(new)));
        }
    }
    Ok(found)
}

fn by_key(table: &Table, rows: Vec<Row>) -> BTreeMap<String, (Row, Row)> {
    let mut found = BTreeMap::new();
    for row in rows {
        let value = |name: &String| row.get(name).map(|value| (name.clone(), value.clone()));
        let key: Row = table.key.iter().filter_map(value).collect();
        found.insert(key_text(key.0.iter().map(|(_, value)| value)), (key, row));
    }
    found
}

/// A table without a key: how often each row is there.
fn whole(held: &mut Held, table: &Table) -> Result<Vec<RowChange>> {
    let mut sides = Sides { held, what: format!("comparing {}", table.shown) };
    let first = surplus(&mut sides, table)?;
    if first.is_empty() {
        return Ok(Vec::new());
    }
    let again = surplus(&mut sides, table)?;
    let hashes: Vec<u64> = first.keys().filter(|hash| first.get(hash) == again.get(hash)).copied().collect();
    let mut changes = Vec::new();
    for chunk in hashes.chunks(CHUNK) {
        let rows = |conn: &mut Conn| samples(conn, table, chunk);
        let (inside, outside) = (sides.inside(rows)?, sides.outside(rows)?);
        for hash in chunk {
            let count = first.get(hash).copied().unwrap_or(0);
            let row = if count > 0 { inside.get(hash) } else { outside.get(hash) };
            let (old, new) = if count > 0 { (None, row.cloned()) } else { (row.cloned(), None) };
            let change = RowChange { table: table.shown.clone(), key: Row::default(), old, new };
            changes.extend(std::iter::repeat_n(
                change,
                usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
            ));
        }
    }
    Ok(changes)
}

/// How many more of each row there are inside, leaving out those whose number changes outside.
fn surplus(sides: &mut Sides<'_>, table: &Table) -> Result<HashMap<u64, i64>> {
    let columns: Vec<&Column> = table.columns.iter().collect();
    let sql = format!("SELECT {} AS hash, COUNT(*) FROM {} GROUP BY hash", digest(&columns, 16), table.sql());
    let counts = |conn: &mut Conn| -> mysql::Result<HashMap<u64, i64>> {
        Ok(conn.query::<(u64, i64), _>(&sql)?.into_iter().collect())
    };
    let (before, inside, after) = (sides.outside(counts)?, sides.inside(counts)?, sides.outside(counts)?);
    let count = |side: &HashMap<u64, i64>, hash: &u64| side.get(hash).copied().unwrap_or(0);
    let hashes: BTreeSet<u64> = before.keys().chain(inside.keys()).copied().collect();
    let steady = hashes.into_iter().filter(|hash| count(&before, hash) == count(&after, hash));
    let differences = steady.map(|hash| (hash, count(&inside, &hash) - count(&before, &hash)));
    Ok(differences.filter(|(_, difference)| *difference != 0).collect())
}

/// One row for each of these hashes.
fn samples(conn: &mut Conn, table: &Table, hashes: &[u64]) -> mysql::Result<HashMap<u64, Row>> {
    let columns: Vec<&Column> = table.columns.iter().collect();
    let hash = digest(&columns, 16);
    let list = hashes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let sql = format!("SELECT {}, {hash} FROM {} WHERE {hash} IN ({list})", table.column_list(), table.sql());
    let rows = select(conn, &sql, Vec::new())?;
    let parted = rows.into_iter().filter_map(|mut row| {
        let (_, hash) = row.0.pop()?;
        Some((hash.as_u64()?, row))
    });
    Ok(parted.collect())
}
