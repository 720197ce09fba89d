//! What a small change costs with little and with much behind it.
//!
//! Two tables of the same shape, `t` and `u`, and one view at a time over them. A change of `t` is 1,000 rows: a quarter
//! new ones, a quarter deletions, a quarter updates, which are two rows each. It is written through the engine's own
//! entrance, synced, and timed until it is in the view; the figure is the median. The cost must follow the change, not
//! the state: with three million rows behind it, at most twice the cost with ten thousand.

use crate::session::Client;
use crate::{Options, Result, number};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use headwater::delta::{Batch, Delta};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The classes of queries, each with one of it.
const CLASSES: &[(&str, &str)] = &[
    ("none", ""),
    ("filter", "SELECT id, v * 2 AS w, s FROM t WHERE v % 3 = 0"),
    ("aggregate", "SELECT g, count(*), sum(v), avg(v) FROM t GROUP BY g"),
    ("min_max", "SELECT g, min(v), max(v) FROM t GROUP BY g"),
    ("global", "SELECT count(*), sum(v), min(v), max(v) FROM t"),
    ("distinct", "SELECT DISTINCT g, v % 100 AS w FROM t"),
    ("count_distinct", "SELECT g, count(DISTINCT v) FROM t GROUP BY g"),
    (
        "inner_join",
        "SELECT t.id, t.v, u.id AS uid, u.v AS uv FROM t JOIN u ON t.k = u.k",
    ),
    (
        "left_join",
        "SELECT t.id, t.v, u.id AS uid FROM t LEFT JOIN u ON t.k = u.k",
    ),
    (
        "full_join",
        "SELECT t.id, t.v, u.id AS uid FROM t FULL JOIN u ON t.k = u.k",
    ),
    (
        "left_join_residual",
        "SELECT t.id, t.v, u.id AS uid FROM t LEFT JOIN u ON t.k = u.k AND t.v < u.v",
    ),
    (
        "semi_join",
        "SELECT id, v FROM t WHERE k IN (SELECT k FROM u WHERE v % 2 = 0)",
    ),
    (
        "anti_join",
        "SELECT id, v FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    ),
    (
        "top_k",
        "SELECT * FROM (SELECT id, g, v, row_number() OVER (PARTITION BY g ORDER BY v DESC, id) AS rn FROM t) x \
               WHERE rn <= 3",
    ),
    ("limit", "SELECT id, v FROM t ORDER BY v DESC, id LIMIT 100"),
    (
        "distinct_on",
        "SELECT DISTINCT ON (g) g, id, v FROM t ORDER BY g, v, id",
    ),
    ("union", "SELECT k FROM t UNION SELECT k FROM u"),
    ("except", "SELECT k FROM t EXCEPT SELECT k FROM u"),
    ("intersect_all", "SELECT k FROM t INTERSECT ALL SELECT k FROM u"),
    (
        "lag",
        "SELECT id, v, lag(v) OVER (PARTITION BY g ORDER BY v, id) AS before FROM t",
    ),
    (
        "moving_sum",
        "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY v, id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS s \
                    FROM t",
    ),
    (
        "tumble",
        "SELECT window_start, count(*), sum(v) FROM TUMBLE(t, at, INTERVAL '1 minute') w GROUP BY window_start",
    ),
    (
        "hop",
        "SELECT window_start, count(*), max(v) FROM HOP(t, at, INTERVAL '1 minute', INTERVAL '5 minutes') w \
             GROUP BY window_start",
    ),
];

const TABLES: &str = "
CREATE TABLE t (id bigint PRIMARY KEY, g bigint, k bigint, v bigint, at timestamp, s text);
CREATE TABLE u (id bigint PRIMARY KEY, g bigint, k bigint, v bigint, at timestamp, s text);
";

/// The groups, however many rows there are.
const GROUPS: u64 = 1_000;
/// A quarter of a change.
const QUARTER: usize = 250;
/// The changes of which the median is taken.
const ROUNDS: u64 = 21;
/// The rows that are written at once at the start.
const LOAD_ROWS: u64 = 50_000;
/// The most that the cost may grow.
const RATIO_MAX: f64 = 2.0;

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &Options) -> Result {
    let names: Vec<&str> = CLASSES.iter().map(|(name, _)| *name).collect();
    let chosen = options.list("classes", &names);
    let sizes = options.list("rows", &["10k", "3m"]);
    let (rounds, workers) = (
        options.number("rounds", ROUNDS)?,
        options.number("workers", 2)? as usize,
    );
    let mut medians: Vec<Vec<Duration>> = vec![Vec::new(); chosen.len()];
    for size in &sizes {
        let directory = tempfile::Builder::new().prefix("headwater-change-").tempdir()?;
        let mut client = Client::open(Some(directory.path()), workers)?;
        client.run(TABLES).await?;
        let mut rows = Rows::load(&client, number(size)?).await?;
        for (class, medians) in chosen.iter().zip(&mut medians) {
            let median = class_median(class, &mut client, &mut rows, rounds).await;
            medians.push(median.map_err(|error| format!("{class} over {size} rows: {error}"))?);
        }
        client.engine.shutdown().await;
    }
    println!("| class | {} | ratio |", sizes.join(" rows | "));
    println!("|---|{}---|", "---|".repeat(sizes.len()));
    for (class, medians) in chosen.iter().zip(&medians) {
        let shown: Vec<String> = medians
            .iter()
            .map(|median| format!("{:.1} ms", median.as_secs_f64() * 1e3))
            .collect();
        let (first, last) = (medians.first().copied(), medians.last().copied());
        let ratio = last.unwrap_or_default().as_secs_f64() / first.unwrap_or_default().as_secs_f64();
        let verdict = if ratio > RATIO_MAX { " (too much)" } else { "" };
        println!("| {class} | {} | {ratio:.2}{verdict} |", shown.join(" | "));
    }
    Ok(())
}

/// The median cost of a change of `t` with one view over it.
async fn class_median(class: &str, client: &mut Client, rows: &mut Rows, rounds: u64) -> Result<Duration> {
    let (_, query) = CLASSES
        .iter()
        .find(|(name, _)| *name == class)
        .ok_or("there is no such class")?;
    if !query.is_empty() {
        client
            .run(&format!("CREATE MATERIALIZED VIEW measured AS {query}"))
            .await?;
    }
    let mut times = Vec::new();
    for _ in 0..rounds {
        let change = rows.change()?;
        let started = Instant::now();
        client.engine.write(vec![("t", change)]).await?;
        times.push(started.elapsed());
    }
    if !query.is_empty() {
        if rows.count <= 100_000 && client.run("VERIFY MATERIALIZED VIEW measured").await? > 0 {
            return Err("the view differs from its query".into());
        }
        client.run("DROP MATERIALIZED VIEW measured").await?;
    }
    times.sort();
    Ok(times[times.len() / 2])
}

/// The rows of a table: those with these ids, each in one of its versions.
struct Rows {
    live: Vec<(u64, u64)>,
    next_id: u64,
    /// How many there were at first, which decides how many rows share a key.
    count: u64,
    random: u64,
}

impl Rows {
    /// Fills both tables; the rows of `t`.
    async fn load(client: &Client, count: u64) -> Result<Self> {
        let mut rows = Self {
            live: (0..count).map(|id| (id, 0)).collect(),
            next_id: count,
            count,
            random: 1,
        };
        rows.random = count;
        for (table, shift) in [("t", 0), ("u", 7)] {
            for from in (0..count).step_by(LOAD_ROWS as usize) {
                let ids: Vec<(u64, u64)> = (from..(from + LOAD_ROWS).min(count)).map(|id| (id, shift)).collect();
                let batch = Batch::inserts(rows.batch(&ids)?);
                client.engine.write(vec![(table, Delta::from(batch))]).await?;
            }
        }
        Ok(rows)
    }

    fn below(&mut self, end: usize) -> usize {
        self.random = mix(self.random.wrapping_add(0x9E37_79B9_7F4A_7C15));
        (self.random % end as u64) as usize
    }

    /// The next change: it is taken to have happened.
    fn change(&mut self) -> Result<Delta> {
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for _ in 0..QUARTER {
            let place = self.below(self.live.len());
            gone.push(self.live.swap_remove(place));
        }
        let mut updated = Vec::new();
        for _ in 0..QUARTER {
            let place = self.below(self.live.len());
            let (id, version) = self.live.swap_remove(place);
            gone.push((id, version));
            updated.push((id, version + 1));
        }
        for _ in 0..QUARTER {
            come.push((self.next_id, 0));
            self.next_id += 1;
        }
        come.append(&mut updated);
        self.live.extend(&come);
        let mut delta = Delta::new();
        delta.push(Batch::deletes(self.batch(&gone)?));
        delta.push(Batch::inserts(self.batch(&come)?));
        Ok(delta)
    }

    fn batch(&self, rows: &[(u64, u64)]) -> Result<RecordBatch> {
        let numbers = |value: &dyn Fn(u64, u64) -> u64| -> ArrayRef {
            let values = rows.iter().map(|(id, version)| value(*id, *version) as i64);
            Arc::new(Int64Array::from_iter_values(values))
        };
        let keys = self.count / 2;
        let times = rows
            .iter()
            .map(|(id, _)| 1_700_000_000_000_000 + *id as i64 * 1_000_000);
        let texts = rows
            .iter()
            .map(|(id, version)| format!("text {version} of the row {id}"));
        Ok(RecordBatch::try_from_iter([
            ("id", numbers(&|id, _| id)),
            ("g", numbers(&|id, _| id % GROUPS)),
            ("k", numbers(&|id, version| mix(id ^ (version << 40)) % keys)),
            (
                "v",
                numbers(&|id, version| mix(id.wrapping_mul(31) ^ (version << 44)) % 1_000_000),
            ),
            (
                "at",
                Arc::new(TimestampMicrosecondArray::from_iter_values(times)) as ArrayRef,
            ),
            ("s", Arc::new(StringArray::from_iter_values(texts)) as ArrayRef),
        ])?)
    }
}

/// SplitMix64's finisher.
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
