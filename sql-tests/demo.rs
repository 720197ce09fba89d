//! The demonstration, killed again and again while it replays, and compared with PostgreSQL over the same files.
//!
//! The flights go through the file connector, watermarks, windows, joins with tables, a view on a view and two top-k
//! views. At whatever moment one looks, the server has read the first `n` flights, so PostgreSQL, which has all of
//! them with their numbers, is asked the same queries over `number <= n`. Every view is verified after every start.
//!
//! `HEADWATER_DEMO=full` kills ten times and replays to the end; otherwise it is three kills and the beginning.

use crate::harness::{Launch, Random, Result, Server, Setup, block_on, told};
use crate::postgres::Postgres;
use flate2::read::GzDecoder;
use futures::SinkExt;
use sqllogictest::harness::Trial;
use std::io::Read;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, SimpleQueryMessage};

/// The rows of `flights.csv.gz`.
const FLIGHTS: i64 = 336_776;

/// How long the rest of the replay may take.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(600);

/// How long views may take to be filled anew after a start.
const FILL_TIMEOUT: Duration = Duration::from_secs(60);

/// The tests of this module.
pub(crate) fn tests() -> Vec<Trial> {
    let limit = Extent::of_this_run().timeout;
    vec![crate::harness::trial_within(
        "demo::is_what_postgres_answers",
        limit,
        || is_what_postgres_answers().map_err(told),
    )]
}

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    /// Starts that are killed before the server is ready.
    early_kills: usize,
    /// Kills while it replays.
    kills: usize,
    flights_per_second: u32,
    /// How long it runs after a start before it is killed, in milliseconds.
    run_ms: (u64, u64),
    to_the_end: bool,
    timeout: Duration,
}

impl Extent {
    fn of_this_run() -> Self {
        if std::env::var("HEADWATER_DEMO").as_deref() == Ok("full") {
            return Self {
                early_kills: 3,
                kills: 10,
                flights_per_second: 20_000,
                run_ms: (20, 2_500),
                to_the_end: true,
                timeout: Duration::from_secs(1_200),
            };
        }
        Self {
            early_kills: 1,
            kills: 2,
            flights_per_second: 1_000,
            run_ms: (20, 1_500),
            to_the_end: false,
            timeout: Duration::from_secs(300),
        }
    }
}

fn is_what_postgres_answers() -> Result {
    let extent = Extent::of_this_run();
    let postgres = Postgres::start()?;
    let rate = extent.flights_per_second.to_string();
    let launch = Launch::with(Setup::QUICK, &["demo", "--rate", &rate]);
    let mut random = Random::new("demo");
    let mut server = Server::launch(launch)?;
    server.kill()?;
    for _ in 0..extent.early_kills {
        server.start_and_kill(random.millis(1, 1_000))?;
    }
    server.start_again()?;
    block_on(async {
        let oracle = postgres.connect().await?;
        load(&oracle).await?;
        for kill in 1..=extent.kills {
            tokio::time::sleep(random.millis(extent.run_ms.0, extent.run_ms.1)).await;
            server.restart()?;
            let client = server.connect().await?;
            filled(&client).await?;
            // All views each third time, otherwise one of them: each recomputes its query over all that was read.
            let chosen = (kill % 3 != 1).then(|| random.below(VIEWS.len() as u64) as usize);
            let verified = verify(&client, chosen).await;
            verified.map_err(|error| format!("after kill {kill}: {error}\n{}", server.log()))?;
        }
        let client = server.connect().await?;
        if extent.to_the_end {
            read_to_the_end(&client).await?;
        }
        let flights = compare(&client, &oracle).await?;
        if extent.to_the_end && flights != FLIGHTS {
            return Err(format!("{flights} of {FLIGHTS} flights were read").into());
        }
        verify(&client, None).await?;
        let log = server.log();
        if !log.contains("psql -h 127.0.0.1") {
            return Err(format!("nobody is told what to try:\n{log}").into());
        }
        eprintln!(
            "demo: {} kills, compared at {flights} flights",
            extent.early_kills + extent.kills
        );
        Ok(())
    })
}

/// Waits until no view is being filled any more.
async fn filled(client: &Client) -> Result {
    let started = Instant::now();
    loop {
        let busy = client
            .query("SELECT name FROM headwater.views WHERE status <> 'live'", &[])
            .await?;
        if busy.is_empty() {
            return Ok(());
        }
        if started.elapsed() > FILL_TIMEOUT {
            return Err(format!("{} views are not live", busy.len()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Every view, or the one of that number, is its query.
async fn verify(client: &Client, chosen: Option<usize>) -> Result {
    let views = client
        .query("SELECT matviewname FROM pg_matviews ORDER BY 1", &[])
        .await?;
    let names: Vec<String> = views.iter().map(|row| row.get(0)).collect();
    let mut known: Vec<&str> = VIEWS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    if names != known {
        return Err(format!("the views are {names:?}; this test compares {known:?}").into());
    }
    let one = chosen.and_then(|number| names.get(number).cloned());
    for name in one.map_or(names, |name| vec![name]) {
        let differing = client.simple_query(&format!("VERIFY MATERIALIZED VIEW {name}")).await?;
        let rows = text_rows(differing);
        if !rows.is_empty() {
            return Err(format!(
                "{name} differs from its query in {} rows: {:?}",
                rows.len(),
                rows.first()
            )
            .into());
        }
    }
    Ok(())
}

async fn read_to_the_end(client: &Client) -> Result {
    let started = Instant::now();
    loop {
        let query = "SELECT state FROM headwater.sources WHERE stream LIKE '%flights'";
        let state: String = client.query_one(query, &[]).await?.get(0);
        match state.as_str() {
            "finished" => break,
            "running" | "idle" => {}
            stopped => return Err(format!("the source is {stopped}").into()),
        }
        if started.elapsed() > REPLAY_TIMEOUT {
            return Err("the replay does not come to its end".into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    client.batch_execute("FLUSH").await?;
    Ok(())
}

/// Holds all views of one epoch against PostgreSQL; how many flights they are about.
async fn compare(client: &Client, oracle: &Client) -> Result<i64> {
    client.batch_execute("BEGIN").await?;
    let flights: i64 = client.query_one("SELECT count(*) FROM flights", &[]).await?.get(0);
    oracle
        .batch_execute(&format!(
            "CREATE OR REPLACE VIEW flights AS SELECT * FROM all_flights WHERE number <= {flights}"
        ))
        .await?;
    let mut wrong = String::new();
    for (name, query) in VIEWS.iter().chain(&[TOTALS]) {
        let ours = if *name == TOTALS.0 {
            (*query).to_owned()
        } else {
            format!("SELECT * FROM {name}")
        };
        let mut found = text_rows(client.simple_query(&ours).await?);
        let mut expected = text_rows(oracle.simple_query(query).await?);
        found.sort();
        expected.sort();
        if found != expected {
            wrong += &difference(name, &found, &expected);
        }
    }
    client.batch_execute("COMMIT").await?;
    if wrong.is_empty() {
        Ok(flights)
    } else {
        Err(format!("at {flights} flights:\n{wrong}").into())
    }
}

/// A row as text.
type Row = Vec<Option<String>>;

fn text_rows(messages: Vec<SimpleQueryMessage>) -> Vec<Row> {
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| {
        (0..row.len())
            .map(|column| row.get(column).map(str::to_owned))
            .collect()
    })
    .collect()
}

fn difference(name: &str, found: &[Row], expected: &[Row]) -> String {
    let only = |these: &[Row], those: &[Row]| {
        let there: std::collections::HashSet<&Row> = those.iter().collect();
        let rest: Vec<Row> = these
            .iter()
            .filter(|row| !there.contains(row))
            .take(3)
            .cloned()
            .collect();
        rest
    };
    format!(
        "{name}: {} rows, PostgreSQL has {}; only here {:?}, only there {:?}\n",
        found.len(),
        expected.len(),
        only(found, expected),
        only(expected, found)
    )
}

/// Gives PostgreSQL the files, the flights with their numbers.
async fn load(oracle: &Client) -> Result {
    oracle.batch_execute(TABLES).await?;
    for table in ["airlines", "airports", "planes", "weather"] {
        copy(oracle, table, std::fs::read(file(&format!("{table}.csv")))?).await?;
    }
    let mut flights = Vec::new();
    GzDecoder::new(std::fs::File::open(file("flights.csv.gz"))?).read_to_end(&mut flights)?;
    let header = flights.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let columns = String::from_utf8(header.to_vec())?;
    copy(oracle, &format!("all_flights ({columns})"), flights).await?;
    oracle.batch_execute("ANALYZE").await?;
    Ok(())
}

fn file(name: &str) -> std::path::PathBuf {
    crate::harness::root().join("benches/data/flights").join(name)
}

async fn copy(oracle: &Client, target: &str, data: Vec<u8>) -> Result {
    let statement = format!("COPY {target} FROM STDIN WITH (FORMAT csv, HEADER, NULL 'NA')");
    let sink = oracle.copy_in(&statement).await?;
    futures::pin_mut!(sink);
    sink.send(bytes::Bytes::from(data)).await?;
    sink.finish().await?;
    Ok(())
}

const TABLES: &str = "
CREATE TABLE airlines (carrier text PRIMARY KEY, name text);
CREATE TABLE airports (
  faa text PRIMARY KEY, name text, lat float8, lon float8, alt int, tz int, dst text, tzone text);
CREATE TABLE planes (
  tailnum text PRIMARY KEY, year int, type text, manufacturer text, model text, engines int, seats int, speed int,
  engine text);
CREATE TABLE weather (
  origin text, year int, month int, day int, hour int, temp float8, dewp float8, humid float8, wind_dir int,
  wind_speed float8, wind_gust float8, precip float8, pressure float8, visib float8, time_hour timestamp,
  PRIMARY KEY (origin, time_hour));
CREATE TABLE all_flights (
  number bigint GENERATED ALWAYS AS IDENTITY,
  year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
  arr_delay int, carrier text, flight int, tailnum text, origin text, dest text, air_time int, distance int, hour int,
  minute int, time_hour timestamp,
  sched_dep timestamp GENERATED ALWAYS AS (time_hour + minute * INTERVAL '1 minute') STORED);
";

/// What is asked of both in the same words.
const TOTALS: (&str, &str) = (
    "the totals",
    "SELECT count(*), count(dep_time), sum(dep_delay), sum(distance), min(sched_dep), max(sched_dep),
            count(DISTINCT tailnum) FROM flights",
);

/// Each view of the demonstration, and PostgreSQL's query for it.
const VIEWS: &[(&str, &str)] = &[
    (
        "carrier_delays",
        "SELECT a.name, count(*), count(*) FILTER (WHERE f.dep_time IS NULL), round(avg(f.dep_delay), 1),
                round(avg(f.arr_delay), 1), max(f.arr_delay)
         FROM flights f JOIN airlines a ON a.carrier = f.carrier GROUP BY a.name",
    ),
    (
        "hourly_departures",
        "SELECT date_trunc('hour', sched_dep), origin, count(*), count(dep_time) FROM flights GROUP BY 1, 2",
    ),
    (
        "rolling_delays",
        "SELECT w, w + INTERVAL '3 hours', origin, count(dep_delay), round(avg(dep_delay), 1), max(dep_delay)
         FROM flights, LATERAL (
           SELECT date_bin('30 minutes', sched_dep, '1970-01-01') AS last) b,
           generate_series(last - INTERVAL '150 minutes', last, INTERVAL '30 minutes') w
         GROUP BY w, origin",
    ),
    (
        "daily_summary",
        "SELECT date_trunc('day', sched_dep), count(*), count(*) FILTER (WHERE dep_time IS NULL),
                round(avg(arr_delay), 1)
         FROM flights GROUP BY 1",
    ),
    (
        "worst_routes",
        "SELECT f.origin, f.dest, p.name, count(f.arr_delay), round(avg(f.arr_delay), 1)
         FROM flights f LEFT JOIN airports p ON p.faa = f.dest
         GROUP BY f.origin, f.dest, p.name HAVING count(f.arr_delay) >= 50
         ORDER BY avg(f.arr_delay) DESC, f.origin, f.dest LIMIT 10",
    ),
    (
        "flight_weather",
        "SELECT f.sched_dep, f.carrier, f.flight, f.origin, f.dest, f.dep_delay, w.temp, w.wind_speed, w.precip,
                w.visib
         FROM flights f JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour",
    ),
    (
        "weather_delays",
        "SELECT CASE WHEN visib < 3 THEN 'low visibility' WHEN precip > 0 THEN 'rain or snow'
                     WHEN wind_speed > 20 THEN 'wind' ELSE 'fair' END,
                count(*), count(*) FILTER (WHERE dep_delay IS NULL), round(avg(dep_delay), 1)
         FROM flights f JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour GROUP BY 1",
    ),
    (
        "busiest_planes",
        "SELECT f.tailnum, p.manufacturer, p.model, p.seats, count(f.air_time), sum(f.distance)
         FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.air_time IS NOT NULL
         GROUP BY f.tailnum, p.manufacturer, p.model, p.seats
         ORDER BY count(f.air_time) DESC, f.tailnum LIMIT 20",
    ),
];
