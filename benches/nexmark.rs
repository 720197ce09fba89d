//! Nexmark, by the engine's own entrance: events made beforehand, as Arrow, from replayable sources in the process.
//!
//! The streams keep no rows (`retention = 'none'`); the sources' positions are as durable as the state. Each query runs
//! in a process of its own: into a materialized view, or, where it keeps no state, into a `blackhole`. A tenth of the
//! events goes by before the clock starts; it stops when the last event is in the view. Before that, the view over a
//! smaller run is verified against its query, recomputed in batch.

mod feed;

use crate::session::Client;
use crate::{Options, Result};
use feed::Feed;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The queries, each after a line with its name.
const QUERIES: &str = include_str!("nexmark/queries.sql");

const STREAMS: &str = "
CREATE STREAM person(id bigint, name text, email_address text, credit_card text, city text, state text,
    date_time timestamp, extra text, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') WITH (RETENTION);
CREATE STREAM auction(id bigint, item_name text, description text, initial_bid bigint, reserve bigint,
    date_time timestamp, expires timestamp, seller bigint, category bigint, extra text,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') WITH (RETENTION);
CREATE STREAM bid(auction bigint, bidder bigint, price bigint, channel text, url text, date_time timestamp, extra text,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') WITH (RETENTION);
CREATE TABLE side_input(key bigint, value text, PRIMARY KEY (key));
INSERT INTO side_input SELECT i, 'v' || i FROM generate_series(0, 9999) AS t(i);
";

/// What is run unless told otherwise, and the thousand events per second that each is held against.
const YARDSTICKS: &[(&str, u32)] = &[
    ("q0", 8_000),
    ("q1", 8_000),
    ("q2", 10_000),
    ("q3", 4_000),
    ("q4", 2_200),
    ("q5", 2_000),
    ("q7", 1_500),
    ("q8", 3_000),
    ("q9", 500),
    ("q11", 1_000),
    ("q14", 4_000),
    ("q15", 1_500),
    ("q16", 400),
    ("q17", 2_000),
    ("q18", 1_100),
    ("q19", 1_100),
    ("q20", 1_200),
    ("q22", 4_000),
];

/// The queries that keep no state.
const STATELESS: &[&str] = &["q0", "q1", "q2", "q10", "q14", "q21", "q22"];

/// The events of a run.
const EVENTS: u64 = 4_000_000;
/// The events of the run that is verified.
const VERIFY_EVENTS: u64 = 200_000;

/// Runs the benchmark, or (with `one`) one query of it.
pub(crate) fn run(options: &Options) -> Result {
    if let Some(query) = options.text("one") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(one(query, options));
    }
    let names: Vec<&str> = YARDSTICKS.iter().map(|(name, _)| *name).collect();
    println!(
        "| query | store | thousand events/s | of the yardstick | CPU-s per million | peak MiB | log MiB | verified |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for query in options.list("queries", &names) {
        for store in options.list("stores", &["disk", "memory"]) {
            let mut child = Command::new(std::env::current_exe()?);
            child
                .arg("nexmark")
                .arg(format!("one={query}"))
                .arg(format!("store={store}"));
            for name in ["events", "verify_events", "workers", "profile"] {
                child.args(options.text(name).map(|value| format!("{name}={value}")));
            }
            let output = child.stderr(Stdio::inherit()).output()?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = said.lines().find(|line| line.starts_with('|'));
            println!(
                "{}",
                line.map_or_else(|| format!("| {query} | {store} | {} |", said.trim()), str::to_owned)
            );
            for line in said.lines().filter(|line| line.starts_with("  ")) {
                println!("{line}");
            }
        }
    }
    Ok(())
}

async fn one(query: &str, options: &Options) -> Result {
    let workers = options.number("workers", 2)? as usize;
    let verify_events = options.number("verify_events", VERIFY_EVENTS)?;
    let verified = match verify_events {
        0 => "-".to_owned(),
        events => match verify(query, events, workers).await? {
            0 => "yes".to_owned(),
            rows => format!("NO: {rows} rows differ"),
        },
    };
    let events = options.number("events", EVENTS)?;
    let feed = Feed::new(events);
    let directory = tempfile::Builder::new().prefix("headwater-nexmark-").tempdir()?;
    let on_disk = options.text("store") != Some("memory");
    let mut client = Client::open(on_disk.then_some(directory.path()), workers)?;
    client.run(&STREAMS.replace("RETENTION", "retention = 'none'")).await?;
    client.run(&definition(query, STATELESS.contains(&query))?).await?;
    let (cpu_before, started) = (cpu_seconds()?, Instant::now());
    feed.attach(&client.engine)?;
    feed.wait();
    client.run("FLUSH").await?;
    let (end, cpu) = (Instant::now(), cpu_seconds()? - cpu_before);
    // What went by before the clock started is left out, and so is its share of the time.
    let warm = feed.warm().unwrap_or(started);
    let measured = events - feed.warm_events();
    let rate = measured as f64 / end.duration_since(warm).as_secs_f64() / 1000.0;
    let yardstick = YARDSTICKS.iter().find(|(name, _)| *name == query);
    println!(
        "| {query} | {} | {rate:.0} | {} | {:.2} | {} | {} | {verified} |",
        if on_disk { "disk" } else { "memory" },
        yardstick.map_or_else(
            || "-".to_owned(),
            |(_, target)| format!("{:.2}", rate / f64::from(*target))
        ),
        cpu * 1e6 / events as f64,
        peak_mib()?,
        written_mib(&client),
    );
    if options.text("profile").is_some() {
        profile(&mut client).await?;
    }
    client.engine.shutdown().await;
    std::process::exit(0);
}

/// Runs a part of the events with streams that keep their rows, and verifies the view; the rows that differ.
async fn verify(query: &str, events: u64, workers: usize) -> Result<usize> {
    let mut client = Client::open(None, workers)?;
    client
        .run(&STREAMS.replace("RETENTION", "retention = 'forever'"))
        .await?;
    client.run(&definition(query, false)?).await?;
    let feed = Feed::new(events);
    feed.attach(&client.engine)?;
    feed.wait();
    client.run("FLUSH").await?;
    let differing = client.run(&format!("VERIFY MATERIALIZED VIEW nexmark_{query}")).await?;
    if client.run(&format!("SELECT * FROM nexmark_{query} LIMIT 1")).await? == 0 {
        return Err("the view is empty".into());
    }
    client.engine.shutdown().await;
    Ok(differing)
}

/// The statement that makes a query's view, or its sink.
fn definition(query: &str, into_sink: bool) -> Result<String> {
    let view = format!("CREATE MATERIALIZED VIEW nexmark_{query} AS");
    let at = QUERIES
        .find(&view)
        .ok_or_else(|| format!("there is no query {query}"))?;
    let text = QUERIES[at..].split(';').next().unwrap_or_default();
    if !into_sink {
        return Ok(text.to_owned());
    }
    let text = text.replace(&view, &format!("CREATE SINK nexmark_{query} AS"));
    Ok(format!("{text} WITH (connector = 'blackhole')"))
}

/// Where the time went, operator by operator.
async fn profile(client: &mut Client) -> Result {
    for line in client.lines("SELECT * FROM headwater.operators").await? {
        println!("  {line}");
    }
    Ok(())
}

/// The processor time of this process.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = after
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|text| text.parse().ok())
        .collect();
    Ok(Duration::from_secs_f64(ticks.iter().sum::<f64>() / 100.0).as_secs_f64())
}

/// The most memory that this process has had, in MiB.
fn peak_mib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.unwrap_or(0) / 1024)
}

/// The bytes that were given to the write-ahead log, in MiB.
fn written_mib(client: &Client) -> u64 {
    let metrics = client.engine.metrics_text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("headwater_written_bytes_total "));
    line.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) >> 20
}
