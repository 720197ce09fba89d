//! The wire entrance beside PostgreSQL's, in one run on one file system, in turns.
//!
//! Headwater keeps six views of the demonstration up to date over the stream that is written to; PostgreSQL writes the
//! same rows to a plain table without a view or an index. Both sync before they acknowledge. That the views are right
//! is verified in the same run.

mod server;

use crate::Result;
use headwater::demo;
use server::Server;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage};

/// The views that are maintained: those that the speed is promised for.
const VIEWS: &[&str] = &[
    "carrier_delays",
    "hourly_departures",
    "rolling_delays",
    "worst_routes",
    "flight_weather",
    "busiest_planes",
];

/// The columns of a flight in the file.
const COLUMNS: usize = 19;

const COPY_ROUNDS: usize = 5;
const INSERT_ROUNDS: usize = 5;
const INSERTS_OF_ONE: usize = 300;
const CLIENTS: usize = 16;
const INSERTS_OF_EACH: usize = 100;
const DEFINITIONS: usize = 10;
const IDLE: Duration = Duration::from_secs(5);

/// How a client gives its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// A text with the values in it.
    Simple,
    /// A prepared statement with parameters.
    Prepared,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple protocol",
            Self::Prepared => "prepared statement",
        }
    }
}

/// Runs the benchmark.
pub(crate) fn run(_: &crate::Options) -> Result {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let directory = tempfile::Builder::new().prefix("headwater-wire-").tempdir()?;
    // The other server runs under another user.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open)?;
    runtime.block_on(measure(directory.path()))
}

async fn measure(directory: &Path) -> Result {
    let flights = Flights::unpack(directory)?;
    let headwater = Server::headwater(directory)?;
    idle(&headwater, "new and empty").await?;
    definitions(&headwater).await?;
    headwater.connect().await?.batch_execute(&tables()).await?;
    load_tables(&headwater, directory)?;
    let postgres = Server::postgres(directory).await?;
    if postgres.is_none() {
        println!("PostgreSQL is not installed: figures without ratios");
    }
    let servers: Vec<&Server> = [&headwater].into_iter().chain(&postgres).collect();
    copies(&servers, &flights).await?;
    verify(&headwater).await?;
    for protocol in [Protocol::Simple, Protocol::Prepared] {
        inserts(&servers, &flights, protocol).await?;
    }
    verify(&headwater).await?;
    idle(&headwater, "after all this").await
}

/// The flights, as a file for psql and as texts of values.
struct Flights {
    file: PathBuf,
    rows: Vec<Vec<String>>,
}

impl Flights {
    fn unpack(directory: &Path) -> Result<Self> {
        let packed = demo::unpack(directory)?;
        let file = directory.join("flights.csv");
        let mut reader = flate2::read::GzDecoder::new(std::fs::File::open(packed)?);
        std::io::copy(&mut reader, &mut std::fs::File::create(&file)?)?;
        let text = std::fs::read_to_string(&file)?;
        let rows = text
            .lines()
            .skip(1)
            .take(INSERT_ROUNDS * CLIENTS * INSERTS_OF_EACH)
            .map(|line| {
                line.split(',')
                    .map(|value| value.trim_matches('"').to_owned())
                    .collect()
            })
            .collect();
        Ok(Self { file, rows })
    }
}

/// A statement of the demonstration, without its semicolon.
fn statement(beginning: &str) -> Result<&'static str> {
    let at = demo::DEMO_SQL
        .find(beginning)
        .ok_or_else(|| format!("the demonstration has no {beginning}"))?;
    Ok(demo::DEMO_SQL[at..].split(';').next().unwrap_or_default())
}

/// The tables of the demonstration.
fn tables() -> String {
    let from = demo::DEMO_SQL.find("CREATE TABLE").unwrap_or(0);
    let to = demo::DEMO_SQL.find("CREATE STREAM").unwrap_or(from);
    demo::DEMO_SQL[from..to].to_owned()
}

/// The stream that is written to, without its file, and the views.
fn stream_and_views() -> Result<Vec<String>> {
    let stream = statement("CREATE STREAM flights")?;
    let columns = stream.split(" WITH (").next().unwrap_or(stream);
    let mut statements = vec![columns.to_owned()];
    for view in VIEWS {
        statements.push(statement(&format!("CREATE MATERIALIZED VIEW {view} "))?.to_owned());
    }
    Ok(statements)
}

/// The same columns as a plain table.
fn plain_table() -> Result<String> {
    let stream = statement("CREATE STREAM flights")?;
    let columns = stream.split("sched_dep timestamp").next().unwrap_or(stream).trim();
    let columns = columns.trim_end_matches(',').replace("CREATE STREAM", "CREATE TABLE");
    Ok(format!("{columns})"))
}

fn load_tables(headwater: &Server, directory: &Path) -> Result {
    for table in demo::TABLES {
        let file = directory.join(table.name).with_extension("csv");
        std::fs::write(&file, table.csv)?;
        copy(headwater, table.name, &file)?;
    }
    Ok(())
}

fn copy(server: &Server, relation: &str, file: &Path) -> Result<Duration> {
    let null = demo::NULL;
    server.psql(&format!(
        "\\copy {relation} FROM '{}' WITH (FORMAT csv, HEADER, NULL '{null}')",
        file.display()
    ))
}

/// Makes the relation that is written to anew, with its views where there are some.
async fn renew(server: &Server) -> Result {
    let client = server.connect().await?;
    if server.is_headwater() {
        client.batch_execute("DROP STREAM IF EXISTS flights CASCADE").await?;
        for statement in stream_and_views()? {
            client.batch_execute(&statement).await?;
        }
    } else {
        client.batch_execute("DROP TABLE IF EXISTS flights").await?;
        client.batch_execute(&plain_table()?).await?;
    }
    Ok(())
}

async fn copies(servers: &[&Server], flights: &Flights) -> Result {
    let mut seconds = vec![Vec::new(); servers.len()];
    let mut cpu = vec![Vec::new(); servers.len()];
    for _ in 0..COPY_ROUNDS {
        for (index, server) in servers.iter().enumerate() {
            renew(server).await?;
            let before = server.usage()?.cpu_seconds;
            seconds[index].push(copy(server, "flights", &flights.file)?.as_secs_f64());
            cpu[index].push(server.usage()?.cpu_seconds - before);
        }
    }
    println!("\n\\copy of the flights ({COPY_ROUNDS} rounds, medians)");
    let mut table = Table::of(servers);
    table.row("seconds", seconds.iter_mut().map(|values| median(values)).collect());
    table.row(
        "server's CPU-seconds",
        cpu.iter_mut().map(|values| median(values)).collect(),
    );
    Ok(())
}

/// The middle one.
fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

/// A client that inserts one row at a time.
struct Writer {
    client: Client,
    statement: Option<tokio_postgres::Statement>,
}

impl Writer {
    async fn open(server: &Server, protocol: Protocol) -> Result<Self> {
        let client = server.connect().await?;
        let statement = match protocol {
            Protocol::Simple => None,
            Protocol::Prepared => {
                let names: Vec<String> = (1..=COLUMNS).map(|number| format!("${number}")).collect();
                let text = format!("INSERT INTO flights VALUES ({})", names.join(", "));
                Some(client.prepare(&text).await?)
            }
        };
        Ok(Self { client, statement })
    }

    async fn insert(&self, values: &[String]) -> Result {
        match &self.statement {
            None => {
                let literals: Vec<String> = values.iter().map(|value| literal(value)).collect();
                let text = format!("INSERT INTO flights VALUES ({})", literals.join(", "));
                self.client.simple_query(&text).await?;
            }
            Some(statement) => {
                let values: Vec<Box<dyn ToSql + Sync>> = values
                    .iter()
                    .zip(statement.params())
                    .map(|(value, kind)| parameter(value, kind))
                    .collect::<Result<_>>()?;
                let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value.as_ref() as _).collect();
                self.client.execute(statement, &values).await?;
            }
        }
        Ok(())
    }

    /// Inserts rows one after the other; the milliseconds that each took.
    async fn insert_all(&self, rows: &[Vec<String>]) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(rows.len());
        for row in rows {
            let started = Instant::now();
            self.insert(row).await?;
            times.push(started.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(times)
    }
}

fn literal(value: &str) -> String {
    if value == demo::NULL {
        "NULL".to_owned()
    } else if value.parse::<i64>().is_ok() {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', "''"))
    }
}

fn parameter(value: &str, kind: &Type) -> Result<Box<dyn ToSql + Sync>> {
    let value = (value != demo::NULL).then_some(value);
    Ok(match *kind {
        Type::INT4 => Box::new(value.map(str::parse::<i32>).transpose()?),
        Type::TIMESTAMP => {
            let time = value.map(chrono::DateTime::parse_from_rfc3339).transpose()?;
            Box::new(time.map(std::time::SystemTime::from))
        }
        _ => Box::new(value.map(str::to_owned)),
    })
}

/// What one server did in one round of inserts.
#[derive(Default)]
struct Inserts {
    /// The milliseconds of each acknowledgement.
    times: Vec<f64>,
    /// Commits per second, by round.
    rates: Vec<f64>,
    commits: u64,
    syncs: u64,
    cpu_seconds: f64,
}

impl Inserts {
    async fn round(&mut self, server: &Server, protocol: Protocol, clients: usize, rows: &[Vec<String>]) -> Result {
        let mut writers = Vec::new();
        for _ in 0..clients {
            writers.push(Writer::open(server, protocol).await?);
        }
        let syncs = server.syncs().await?;
        let cpu = server.usage()?.cpu_seconds;
        let started = Instant::now();
        let work = writers
            .iter()
            .zip(rows.chunks(rows.len().div_ceil(clients)))
            .map(|(writer, rows)| writer.insert_all(rows));
        for times in futures::future::try_join_all(work).await? {
            self.times.extend(times);
        }
        self.rates.push(rows.len() as f64 / started.elapsed().as_secs_f64());
        self.commits += rows.len() as u64;
        self.cpu_seconds += server.usage()?.cpu_seconds - cpu;
        drop(writers);
        self.syncs += server.syncs().await? - syncs;
        Ok(())
    }
}

/// One-row inserts: one client, then many, in turns of the servers.
async fn inserts(servers: &[&Server], flights: &Flights, protocol: Protocol) -> Result {
    let mut one: Vec<Inserts> = servers.iter().map(|_| Inserts::default()).collect();
    let mut many: Vec<Inserts> = servers.iter().map(|_| Inserts::default()).collect();
    let rows = &flights.rows;
    for round in 0..INSERT_ROUNDS {
        for (index, server) in servers.iter().enumerate() {
            let rows = &rows[round * INSERTS_OF_ONE..][..INSERTS_OF_ONE];
            one[index].round(server, protocol, 1, rows).await?;
        }
        let share = CLIENTS * INSERTS_OF_EACH;
        for (index, server) in servers.iter().enumerate() {
            many[index]
                .round(server, protocol, CLIENTS, &rows[round * share..][..share])
                .await?;
        }
    }
    for (clients, done) in [(1, &mut one), (CLIENTS, &mut many)] {
        println!(
            "\none-row INSERT, {clients} client(s), {} ({INSERT_ROUNDS} rounds)",
            protocol.name()
        );
        let mut table = Table::of(servers);
        for (what, share) in [("median, ms", 0.5), ("p99, ms", 0.99)] {
            table.row(
                what,
                done.iter_mut().map(|done| quantile(&mut done.times, share)).collect(),
            );
        }
        table.row(
            "commits/s",
            done.iter_mut().map(|done| median(&mut done.rates)).collect(),
        );
        let per_commit = |count: f64, done: &Inserts| count / done.commits as f64;
        table.row(
            "syncs per commit",
            done.iter().map(|done| per_commit(done.syncs as f64, done)).collect(),
        );
        table.row(
            "server's CPU-ms per commit",
            done.iter()
                .map(|done| per_commit(done.cpu_seconds * 1000.0, done))
                .collect(),
        );
    }
    let gain = one
        .iter_mut()
        .zip(&mut many)
        .map(|(one, many)| median(&mut many.rates) / median(&mut one.rates));
    println!("\ngain of {CLIENTS} clients over one, {}", protocol.name());
    Table::of(servers).row("commits/s over commits/s", gain.collect());
    Ok(())
}

/// How long definitions over nothing take.
async fn definitions(server: &Server) -> Result {
    let client = server.connect().await?;
    let (mut streams, mut views) = (Vec::new(), Vec::new());
    for _ in 0..DEFINITIONS {
        for (index, text) in [
            "CREATE STREAM idle_flights (carrier text, delay integer)",
            "CREATE MATERIALIZED VIEW idle_delays AS SELECT carrier, count(*), avg(delay) FROM idle_flights GROUP BY carrier",
        ]
        .into_iter()
        .enumerate()
        {
            let started = Instant::now();
            client.batch_execute(text).await?;
            let times = if index == 0 { &mut streams } else { &mut views };
            times.push(started.elapsed().as_secs_f64() * 1000.0);
        }
        client.batch_execute("DROP STREAM idle_flights CASCADE").await?;
    }
    println!("\ndefinitions over nothing, ms ({DEFINITIONS} times)");
    for (what, times) in [
        ("CREATE STREAM", &mut streams),
        ("CREATE MATERIALIZED VIEW", &mut views),
    ] {
        println!(
            "  {what:<28} median {:>8.2}   most {:>8.2}",
            median(times),
            quantile(times, 1.0)
        );
    }
    Ok(())
}

/// What a server uses while nobody asks it for anything.
async fn idle(server: &Server, when: &str) -> Result {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = server.usage()?;
    tokio::time::sleep(IDLE).await;
    let after = server.usage()?;
    let share = (after.cpu_seconds - before.cpu_seconds) / IDLE.as_secs_f64() * 100.0;
    println!(
        "\nidle, {when}: {share:.1} % of a core, {:.0} MiB resident",
        after.resident_bytes as f64 / f64::from(1 << 20)
    );
    Ok(())
}

/// Checks that every view holds what its query says.
async fn verify(server: &Server) -> Result {
    let client = server.connect().await?;
    for view in VIEWS {
        let answer = client.simple_query(&format!("VERIFY MATERIALIZED VIEW {view}")).await?;
        let wrong = answer
            .iter()
            .filter(|message| matches!(message, SimpleQueryMessage::Row(_)))
            .count();
        if wrong > 0 {
            return Err(format!("{view} is wrong in {wrong} rows").into());
        }
    }
    println!("\nall {} views are verified", VIEWS.len());
    Ok(())
}

/// A table of figures: one column per server, and the ratio of the first to the second.
struct Table;

impl Table {
    fn of(servers: &[&Server]) -> Self {
        print!("  {:<28}", "");
        for server in servers {
            print!(" {:>12}", server.name);
        }
        println!(" {:>8}", if servers.len() == 2 { "ratio" } else { "" });
        Self
    }

    fn row(&mut self, what: &str, values: Vec<f64>) {
        print!("  {what:<28}");
        for value in &values {
            print!(" {value:>12.3}");
        }
        match values.as_slice() {
            [ours, theirs] => println!(" {:>8.2}", ours / theirs),
            _ => println!(),
        }
    }
}
