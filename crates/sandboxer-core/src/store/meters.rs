//! The meters: what was used, as triggers and commands write it down (see `meters.sql`), added up.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::Store;
use crate::Result;
use crate::environment::Cost;
use crate::model::SandboxId;
use crate::service::{Limit, Measure, Standing, UsageBy, UsageQuery, UsageRow, Used};

/// A day of UTC, in microseconds.
const DAY: i64 = 86_400_000_000;
const HOUR: f64 = 3_600e6;

/// What a span has within a period: `?1` is now, `?2` the period's beginning and `?3` its end.
const WITHIN: &str = "max(0, min(coalesce(p.ended, ?1), ?3) - max(p.began, ?2))";
/// The spans that are in it; one that was over at once counts where it began.
const SPANS: &str = "FROM spans p JOIN meters m ON m.sandbox_id = p.sandbox_id
    WHERE p.began < ?3 AND (coalesce(p.ended, ?1) > ?2 OR p.began >= ?2)";

/// What commands reported on days of it: `?1` is the first, `?2` the last.
const COMMANDS: &str = "FROM use_by_day u JOIN meters m ON m.sandbox_id = u.sandbox_id
    WHERE u.day BETWEEN ?1 AND ?2";

/// Who asked for a metered sandbox.
const PRINCIPAL: &str = "(SELECT s.principal FROM sandboxes s WHERE s.id = m.sandbox_id)";

/// Whose meters are read: columns, and what each has to be.
struct Scope<'a>(Vec<(&'static str, &'a str)>);

impl<'a> Scope<'a> {
    fn of_query(query: &'a UsageQuery) -> Self {
        // Whoever is held to one consumer stays so, whichever project is asked for besides.
        let consumer = query.consumer.as_ref();
        let wanted = [
            ("m.actor_type", consumer.map(|c| c.actor_type.as_str())),
            ("m.project", consumer.map(|c| c.project.as_str())),
            ("m.project", query.project.as_deref()),
            ("m.sandbox_id", query.sandbox.as_ref().map(SandboxId::as_str)),
            (PRINCIPAL, query.principal.as_deref()),
        ];
        Self::of(wanted)
    }

    fn of_limit(limit: &'a Limit) -> Self {
        Self::of([("m.actor_type", limit.actor_type.as_deref()), ("m.project", Some(limit.project.as_str()))])
    }

    fn of<const N: usize>(wanted: [(&'static str, Option<&'a str>); N]) -> Self {
        Self(wanted.into_iter().filter_map(|(column, value)| Some((column, value?))).collect())
    }

    /// The condition, with parameters after the fixed ones, and the values of all.
    fn bind(&self, fixed: &[i64]) -> (String, Vec<Value>) {
        let mut values: Vec<Value> = fixed.iter().map(|number| Value::Integer(*number)).collect();
        let mut condition = String::new();
        for (column, wanted) in &self.0 {
            values.push(Value::Text((*wanted).to_owned()));
            condition += &format!(" AND {} = ?{}", column, values.len());
        }
        (condition, values)
    }
}

/// A period, in microseconds, with the present.
struct Period {
    now: i64,
    since: i64,
    until: i64,
}

impl Period {
    fn new(since: Option<Timestamp>, until: Option<Timestamp>, now: Timestamp) -> Self {
        Self {
            now: now.as_microsecond(),
            since: since.map_or(i64::MIN, |at| at.as_microsecond()),
            until: until.map_or(i64::MAX, |at| at.as_microsecond()),
        }
    }

    fn moments(&self) -> [i64; 3] {
        [self.now, self.since, self.until]
    }

    /// The first and the last day that it touches.
    fn days(&self) -> [i64; 2] {
        [self.since.div_euclid(DAY), (self.until.saturating_sub(1)).div_euclid(DAY)]
    }
}

impl Store {
    /// Adds what a command used on the day of `at`. What a power cut takes of it is not billed.
    pub fn add_use(
        &self,
        id: &SandboxId,
        cpu: Duration,
        memory_peak: Option<u64>,
        at: Timestamp,
    ) -> Result<()> {
        let whole = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        self.write_unflushed("meter a command", |t| {
            let sql = "INSERT INTO use_by_day (sandbox_id, day, cpu, memory_peak) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (sandbox_id, day) DO UPDATE
                       SET cpu = cpu + excluded.cpu, memory_peak = max(memory_peak, excluded.memory_peak)";
            let day = at.as_microsecond().div_euclid(DAY);
            let peak = whole(memory_peak.unwrap_or(0).into());
            t.prepare_cached(sql)?.execute(params![id.as_str(), day, whole(cpu.as_micros()), peak]).map(drop)
        })
    }

    /// Remembers what sandboxes take on disk, and when that was measured.
    pub fn set_disk(&self, measured: &[(&SandboxId, u64)], at: Timestamp) -> Result<()> {
        if measured.is_empty() {
            return Ok(());
        }
        self.write_unflushed("meter the disk", |t| {
            let sql = "UPDATE meters SET disk = ?2, disk_at = ?3 WHERE sandbox_id = ?1 AND EXISTS
                       (SELECT 1 FROM sandboxes WHERE id = ?1 AND state NOT IN ('destroyed', 'failed'))";
            let mut statement = t.prepare_cached(sql)?;
            for (id, bytes) in measured {
                let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
                statement.execute(params![id.as_str(), bytes, at.as_microsecond()])?;
            }
            Ok(())
        })
    }

    /// The ids of what was measured from then on.
    pub fn measured_since(&self, since: Timestamp) -> Result<HashSet<String>> {
        self.read("read the meters", |c| {
            let sql = "SELECT sandbox_id FROM meters WHERE disk_at >= ?1";
            c.prepare_cached(sql)?.query_map([since.as_microsecond()], |row| row.get(0))?.collect()
        })
    }

    /// What was used, row by row, in no order.
    pub fn usage(&self, query: &UsageQuery, now: Timestamp) -> Result<Vec<UsageRow>> {
        self.read("read the meters", |c| {
            // One look at everything: what ends between two questions would be in the one and not in the other.
            let snapshot = c.unchecked_transaction()?;
            let mut rows = Rows { query, by_key: BTreeMap::new() };
            let period = Period::new(query.since, query.until, now);
            rows.read_spans(&snapshot, &period)?;
            rows.read_use(&snapshot, &period)?;
            rows.read_disk(&snapshot)?;
            rows.read_names(&snapshot)?;
            Ok(rows.by_key.into_values().collect())
        })
    }

    /// How much is used of each limit; of money, in each currency.
    pub fn standings(&self, limits: &[Limit], now: Timestamp) -> Result<Vec<Standing>> {
        self.read("read the meters", |c| {
            let mut standings = Vec::new();
            for limit in limits {
                standings.extend(standing(c, limit, now)?);
            }
            Ok(standings)
        })
    }
}

/// The first limit that another sandbox at that price would go beyond. What costs nothing is held to no limit of money, and what costs
/// something to that of its own currency.
pub(super) fn reached(
    connection: &Connection,
    limits: &[Limit],
    price: Option<&Cost>,
    now: Timestamp,
) -> rusqlite::Result<Option<Standing>> {
    let currency = price.filter(|price| price.per_hour > 0.0).map(|price| price.currency.clone());
    for limit in limits {
        let mut standings = standing(connection, limit, now)?;
        if limit.measure == Measure::Cost {
            let Some(currency) = &currency else { continue };
            let spent = standings.iter().find(|known| known.currency == *currency).map_or(0.0, |s| s.used);
            standings = vec![Standing { limit: limit.clone(), used: spent, currency: currency.clone() }];
        }
        if let Some(reached) = standings.into_iter().find(|known| known.used >= limit.of) {
            return Ok(Some(reached));
        }
    }
    Ok(None)
}

fn standing(connection: &Connection, limit: &Limit, now: Timestamp) -> rusqlite::Result<Vec<Standing>> {
    let period = Period::new(limit.per.began(now), None, now);
    let (select, fixed) = amounts(limit.measure, &period);
    let (condition, values) = Scope::of_limit(limit).bind(&fixed);
    let mut statement = connection.prepare_cached(&format!("{select}{condition} GROUP BY 1"))?;
    let read = |row: &rusqlite::Row<'_>| {
        let used = row.get::<_, Option<f64>>(1)?.unwrap_or(0.0);
        Ok(Standing { limit: limit.clone(), used, currency: row.get(0)? })
    };
    let found: Vec<Standing> =
        statement.query_map(params_from_iter(values), read)?.collect::<rusqlite::Result<_>>()?;
    match found.is_empty() {
        true => Ok(vec![Standing { limit: limit.clone(), used: 0.0, currency: None }]),
        false => Ok(found),
    }
}

/// What asks for a currency, where it is money, and how much; with the numbers that come first.
fn amounts(measure: Measure, period: &Period) -> (String, Vec<i64>) {
    let open = "FROM spans p JOIN meters m ON m.sandbox_id = p.sandbox_id WHERE p.ended IS NULL";
    match measure {
        Measure::Sandboxes => (format!("SELECT NULL, count(*) {open}"), Vec::new()),
        Measure::Disk => ("SELECT NULL, sum(m.disk) FROM meters m WHERE 1".to_owned(), Vec::new()),
        Measure::CpuHours => {
            (format!("SELECT NULL, sum(u.cpu) / {HOUR:.1} {COMMANDS}"), period.days().to_vec())
        }
        Measure::WallHours => {
            (format!("SELECT NULL, sum({WITHIN}) / {HOUR:.1} {SPANS}"), period.moments().to_vec())
        }
        Measure::Cost => {
            let sum = format!("sum({WITHIN} * p.per_hour) / {HOUR:.1}");
            (
                format!("SELECT p.currency, {sum} {SPANS} AND p.currency IS NOT NULL"),
                period.moments().to_vec(),
            )
        }
    }
}

/// A question to the meters `m`, whose condition the scope goes on with.
struct Ask<'a> {
    columns: &'a str,
    from: &'a str,
    fixed: &'a [i64],
    group: &'a str,
}

/// The rows of a report while they are put together.
struct Rows<'a> {
    query: &'a UsageQuery,
    by_key: BTreeMap<String, UsageRow>,
}

impl Rows<'_> {
    fn key(&self) -> &'static str {
        match self.query.by {
            UsageBy::Consumer => "m.actor_type || ':' || m.project",
            UsageBy::Project => "m.project",
            UsageBy::Profile => "m.profile",
            UsageBy::Extension => "m.extension",
            UsageBy::Sandbox => "m.sandbox_id",
        }
    }

    fn row(&mut self, key: String) -> &mut UsageRow {
        let new = || UsageRow { key: key.clone(), name: None, used: Used::default(), limits: Vec::new() };
        self.by_key.entry(key.clone()).or_insert_with(new)
    }

    /// Asks, and hands each line of the answer to `take`; its first column is the key.
    fn each(
        &mut self,
        connection: &Connection,
        ask: &Ask<'_>,
        mut take: impl FnMut(&mut Self, &rusqlite::Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let (condition, values) = Scope::of_query(self.query).bind(ask.fixed);
        let sql =
            format!("SELECT {}, {} {}{condition} GROUP BY {}", self.key(), ask.columns, ask.from, ask.group);
        let mut statement = connection.prepare_cached(&sql)?;
        let mut lines = statement.query(params_from_iter(values))?;
        while let Some(line) = lines.next()? {
            take(self, line)?;
        }
        Ok(())
    }

    fn read_spans(&mut self, connection: &Connection, period: &Period) -> rusqlite::Result<()> {
        let live = "CASE WHEN p.ended IS NULL THEN p.sandbox_id END";
        let counts = format!("count(DISTINCT p.sandbox_id), count(DISTINCT {live})");
        let ask = Ask { columns: &counts, from: SPANS, fixed: &period.moments(), group: "1" };
        self.each(connection, &ask, |rows, line| {
            let used = &mut rows.row(line.get(0)?).used;
            (used.sandboxes, used.live) = (natural(line, 1)?, natural(line, 2)?);
            Ok(())
        })?;
        let sums = format!("p.currency, sum({WITHIN}), sum({WITHIN} * p.per_hour)");
        let ask = Ask { columns: &sums, group: "1, 2", ..ask };
        self.each(connection, &ask, |rows, line| {
            let used = &mut rows.row(line.get(0)?).used;
            used.wall_seconds += line.get::<_, i64>(2)? as f64 / 1e6;
            if let Some(currency) = line.get::<_, Option<String>>(1)? {
                used.cost.insert(currency, line.get::<_, Option<f64>>(3)?.unwrap_or(0.0) / HOUR);
            }
            Ok(())
        })
    }

    fn read_use(&mut self, connection: &Connection, period: &Period) -> rusqlite::Result<()> {
        let columns = "sum(u.cpu), max(u.memory_peak)";
        let ask = Ask { columns, from: COMMANDS, fixed: &period.days(), group: "1" };
        self.each(connection, &ask, |rows, line| {
            let used = &mut rows.row(line.get(0)?).used;
            used.cpu_seconds = line.get::<_, i64>(1)? as f64 / 1e6;
            used.memory_peak = Some(natural(line, 2)?).filter(|peak| *peak > 0);
            Ok(())
        })
    }

    /// Disk is what there is now: it is told of those who used something in the period, and up to now of those who only keep something.
    fn read_disk(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let up_to_now = self.query.until.is_none();
        let from = "FROM meters m WHERE m.disk IS NOT NULL";
        let ask = Ask { columns: "sum(m.disk)", from, fixed: &[], group: "1" };
        self.each(connection, &ask, |rows, line| {
            let (key, disk): (String, u64) = (line.get(0)?, natural(line, 1)?);
            if rows.by_key.contains_key(&key) || (up_to_now && disk > 0) {
                rows.row(key).used.disk = Some(disk);
            }
            Ok(())
        })
    }

    fn read_names(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if self.query.by != UsageBy::Sandbox {
            return Ok(());
        }
        let from = "FROM meters m JOIN sandboxes s ON s.id = m.sandbox_id WHERE 1";
        let ask = Ask { columns: "s.name", from, fixed: &[], group: "1" };
        self.each(connection, &ask, |rows, line| {
            if let Some(row) = rows.by_key.get_mut(&line.get::<_, String>(0)?) {
                row.name = line.get(1)?;
            }
            Ok(())
        })
    }
}

fn natural(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.unsigned_abs())
}

#[cfg(test)]
#[path = "meters_tests.rs"]
mod tests;
