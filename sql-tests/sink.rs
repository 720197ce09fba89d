//! File sinks: what is in the file is what has changed in the view, each change once, whatever happens to the server
//! and to the disk.
//!
//! The changes in a file, added up, must be the view's rows, and must be a possible history of them: epochs in order,
//! and no row taken away that is not there. A change that was lost or came twice shows in either.

use crate::harness::{Launch, Random, Result, Server, Setup, block_on, told};
use sqllogictest::harness::Trial;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, SimpleQueryMessage};

/// How long delivery may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The tests of this module.
pub(crate) fn tests() -> Vec<Trial> {
    let test =
        |name: &str, body: fn() -> Result| crate::harness::trial(format!("sink::{name}"), move || body().map_err(told));
    vec![
        test("each_change_once_through_kills", each_change_once_through_kills),
        test("what_cannot_be_is_refused", what_cannot_be_is_refused),
        test(
            "a_failing_disk_holds_up_its_sink_alone",
            a_failing_disk_holds_up_its_sink_alone,
        ),
        test("rows_alone_where_none_goes", rows_alone_where_none_goes),
    ]
}

/// The kills of a run.
fn kills() -> usize {
    let given = std::env::var("HEADWATER_CRASH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok());
    given.unwrap_or(4)
}

/// Where a sink of a test writes.
fn place(server: &Server, name: &str) -> PathBuf {
    server.directory().join(name)
}

/// Rows of text with a count each.
type Bag = BTreeMap<Vec<String>, i64>;

async fn rows_of(client: &Client, query: &str) -> Result<Vec<Vec<String>>> {
    let messages = client.simple_query(query).await?;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let values = rows.map(|row| (0..row.len()).map(|at| row.get(at).unwrap_or("").to_owned()).collect());
    Ok(values.collect())
}

async fn bag_of(client: &Client, query: &str) -> Result<Bag> {
    let mut bag = Bag::new();
    for row in rows_of(client, query).await? {
        *bag.entry(row).or_default() += 1;
    }
    Ok(bag)
}

/// A change as it is in a file: the epoch, the weight, the row.
type Change = (i64, i64, Vec<String>);

fn csv_changes(path: &Path) -> Result<Vec<Change>> {
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    if header != "epoch,diff,g,n,s" {
        return Err(format!("the first line is {header:?}").into());
    }
    if !text.ends_with('\n') {
        return Err("the last line has no end".into());
    }
    lines
        .map(|line| {
            let mut values = line.split(',').map(str::to_owned);
            let epoch = values.next().unwrap_or_default().parse()?;
            let diff = values.next().ok_or("a line has no diff")?.parse()?;
            Ok((epoch, diff, values.collect()))
        })
        .collect()
}

fn json_changes(path: &Path) -> Result<Vec<Change>> {
    let text = std::fs::read_to_string(path)?;
    text.lines()
        .map(|line| {
            let object: serde_json::Value = serde_json::from_str(line)?;
            let number = |name: &str| object[name].as_i64().ok_or(format!("{line}: no {name}"));
            let row = ["g", "n", "s"].map(|name| object[name].to_string());
            Ok((number("epoch")?, number("diff")?, row.to_vec()))
        })
        .collect()
}

/// The changes in the parts of a Parquet sink, read back as streams.
async fn parquet_changes(client: &Client, directory: &Path) -> Result<Vec<Change>> {
    let mut parts: Vec<PathBuf> = std::fs::read_dir(directory)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    parts.retain(|path| path.extension().is_some_and(|end| end == "parquet"));
    parts.sort();
    let mut changes = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let path = part.display();
        client
            .batch_execute(&format!(
                "CREATE STREAM part_{number} (epoch bigint, diff bigint, g int, n bigint, s bigint)
                 WITH (connector = 'file', path = '{path}')"
            ))
            .await?;
        let begun = Instant::now();
        loop {
            let query = format!("SELECT state FROM headwater.sources WHERE stream LIKE '%part_{number}'");
            let state = rows_of(client, &query).await?;
            if state.first().is_some_and(|row| row[0] == "finished") {
                break;
            }
            if begun.elapsed() > DELIVERY_TIMEOUT {
                return Err(format!("{path} is not read to its end: {state:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        client.batch_execute("FLUSH").await?;
        for row in rows_of(client, &format!("SELECT * FROM part_{number} ORDER BY epoch, diff")).await? {
            changes.push((row[0].parse()?, row[1].parse()?, row[2..].to_vec()));
        }
        client.batch_execute(&format!("DROP STREAM part_{number}")).await?;
    }
    Ok(changes)
}

/// What the changes come to; an error if they cannot be a history.
fn sum(changes: &[Change]) -> Result<Bag> {
    let mut bag = Bag::new();
    let mut last = 0;
    for (epoch, diff, row) in changes {
        if *epoch < last {
            return Err(format!("epoch {epoch} comes after epoch {last}").into());
        }
        last = *epoch;
        let count = bag.entry(row.clone()).or_default();
        *count += diff;
        if *count < 0 {
            return Err(format!("epoch {epoch} takes away {row:?}, which is not there").into());
        }
        if *count == 0 {
            bag.remove(row);
        }
    }
    Ok(bag)
}

/// Waits until nothing is left to deliver.
async fn delivered(client: &Client) -> Result {
    let begun = Instant::now();
    loop {
        let query =
            "SELECT name, status, reason, outbox_rows FROM headwater.sinks WHERE outbox_rows > 0 OR status <> 'live'";
        let waiting = rows_of(client, query).await?;
        if waiting.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > DELIVERY_TIMEOUT {
            return Err(format!("still undelivered: {waiting:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Changes a few random rows, until the connection breaks.
async fn change_until_cut(port: u16, mut random: Random) -> Result<u64> {
    let Ok(client) = crate::harness::connect(port).await else {
        return Ok(0);
    };
    let mut done = 0;
    loop {
        let (id, value) = (random.below(500), random.below(10));
        let statement = match random.below(4) {
            0 => format!("DELETE FROM t WHERE id % 97 = {value}"),
            _ => format!(
                "INSERT INTO t VALUES ({id}, {}, {value}) ON CONFLICT (id) DO UPDATE SET g = excluded.g, v = excluded.v",
                id % 7
            ),
        };
        match client.batch_execute(&statement).await {
            Ok(()) => done += 1,
            Err(error)
                if error
                    .as_db_error()
                    .is_some_and(|answer| !answer.code().code().starts_with("57")) =>
            {
                return Err(error.into());
            }
            Err(_) => return Ok(done),
        }
    }
}

fn each_change_once_through_kills() -> Result {
    let mut random = Random::new("sink");
    let mut server = Server::start(Setup::QUICK)?;
    let (csv, json, parts) = (
        place(&server, "out.csv"),
        place(&server, "out.json"),
        place(&server, "out.parquet"),
    );
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(&format!(
                "CREATE TABLE t (id int PRIMARY KEY, g int, v int);
                 INSERT INTO t SELECT i, i % 7, i FROM generate_series(1, 50) AS s(i);
                 CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g;
                 CREATE SINK csv FROM v WITH (connector = 'file', path = '{}');
                 CREATE SINK json FROM v WITH (connector = 'file', path = '{}');
                 CREATE SINK parquet AS SELECT * FROM v WITH (connector = 'file', path = '{}', roll_seconds = 1);",
                csv.display(),
                json.display(),
                parts.display()
            ))
            .await?;
        let mut changes = 0;
        for _ in 0..kills() {
            let wait = random.millis(20, 1_500);
            let writing = tokio::spawn(change_until_cut(server.port, random.another()));
            tokio::time::sleep(wait).await;
            server.restart()?;
            changes += writing.await??;
        }
        let client = server.connect().await?;
        delivered(&client).await?;
        let view = bag_of(&client, "SELECT * FROM v").await?;
        let check = |name: &str, found: Vec<Change>| {
            let total = sum(&found).map_err(|error| format!("{name}: {error}"))?;
            if total == view {
                eprintln!("sink: {name}: {} changed rows of {changes} changes", found.len());
                return Ok(());
            }
            Err(format!(
                "{name} comes to {total:?}, the view is {view:?}\n{}",
                server.log()
            ))
        };
        check("csv", csv_changes(&csv)?)?;
        check("json", json_changes(&json)?)?;
        check("parquet", parquet_changes(&client, &parts).await?)?;
        if changes == 0 {
            return Err("nothing was ever changed".into());
        }
        client
            .batch_execute("DROP SINK csv; DROP SINK json; DROP SINK parquet")
            .await?;
        Ok(())
    })
}

/// The code of what a statement is refused with.
async fn refusal(client: &Client, statement: &str) -> Result<String> {
    match client.batch_execute(statement).await {
        Ok(()) => Err(format!("{statement} was not refused").into()),
        Err(error) => match error.as_db_error() {
            Some(answer) => Ok(format!("{} {}", answer.code().code(), answer.message())),
            None => Err(error.into()),
        },
    }
}

fn what_cannot_be_is_refused() -> Result {
    let server = Server::start(Setup::QUICK)?;
    std::fs::write(place(&server, "there.csv"), "mine")?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE TABLE t (a int);
                 CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a;
                 CREATE SINK first FROM v WITH (connector = 'file', path = 'first.csv')",
            )
            .await?;
        let cases = [
            (
                "path = 'no/where/x.csv'",
                "58P01 could not open file \"no/where/x.csv\": No such file or directory",
            ),
            ("path = 'there.csv'", "58P02 file \"there.csv\" already exists"),
            ("path = 'first.csv'", "58P02 sink \"first\" writes to that file already"),
            ("path = 'x.csv.gz'", "0A000 compressed file sinks are not supported"),
            (
                "path = 'x.xml'",
                "42601 option \"format\" of connector \"file\" is missing",
            ),
            (
                "path = 'x.csv', rate = '1'",
                "42601 option \"rate\" of connector \"file\" is for a source",
            ),
            (
                "path = 'x.csv', append_only = true",
                "0A000 sink \"x\" cannot be append-only: its query can take rows back",
            ),
            (
                "format = 'csv'",
                "42601 option \"path\" of connector \"file\" is missing",
            ),
        ];
        for (options, expected) in cases {
            let statement = format!("CREATE SINK x FROM v WITH (connector = 'file', {options})");
            let got = refusal(&client, &statement).await?;
            if got != expected {
                return Err(format!("{options}: {got}\nexpected {expected}").into());
            }
        }
        let left = rows_of(&client, "SELECT name FROM headwater.sinks").await?;
        if left != [["first"]] || std::fs::read_to_string(place(&server, "there.csv"))? != "mine" {
            return Err(format!("something is left of what was refused: {left:?}").into());
        }
        // A name line is there though nothing has changed yet.
        let begun = Instant::now();
        while std::fs::read_to_string(place(&server, "first.csv"))? != "epoch,diff,a,n\n" {
            if begun.elapsed() > DELIVERY_TIMEOUT {
                return Err("an empty sink names no columns".into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    })
}

/// The path leads to a device that is always full, then to a file.
fn a_failing_disk_holds_up_its_sink_alone() -> Result {
    let mut server = Server::launch(Launch::serve(Setup::QUICK))?;
    let path = place(&server, "out.csv");
    std::os::unix::fs::symlink("/dev/full", &path)?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE TABLE t (g int, v int);
                 CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g;
                 CREATE SINK k FROM v WITH (connector = 'file', path = 'out.csv');
                 CREATE SINK other FROM v WITH (connector = 'file', path = 'other.csv');
                 INSERT INTO t VALUES (1, 1), (2, 2)",
            )
            .await?;
        let begun = Instant::now();
        loop {
            let shown = rows_of(
                &client,
                "SELECT status, reason, outbox_rows FROM headwater.sinks WHERE name = 'k'",
            )
            .await?;
            let row = shown.first().ok_or("the sink is not listed")?;
            if row[0] == "retrying" && row[1].contains("No space left on device") && row[2] == "2" {
                break;
            }
            if begun.elapsed() > DELIVERY_TIMEOUT {
                return Err(format!("the sink does not show its error: {row:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The view goes on, and so does the other sink; what waits outlives the server.
        client.batch_execute("INSERT INTO t VALUES (1, 10)").await?;
        let view = bag_of(&client, "SELECT * FROM v").await?;
        server.restart()?;
        let client = server.connect().await?;
        client.batch_execute("INSERT INTO t VALUES (3, 3)").await?;
        if view.len() != 2 || rows_of(&client, "SELECT * FROM v").await?.len() != 3 {
            return Err("the view does not go on".into());
        }
        std::fs::remove_file(&path)?;
        std::fs::write(&path, "")?;
        delivered(&client).await?;
        let view = bag_of(&client, "SELECT * FROM v").await?;
        for name in ["out.csv", "other.csv"] {
            let found = sum(&csv_changes(&place(&server, name))?)?;
            if found != view {
                return Err(format!("{name} comes to {found:?}, the view is {view:?}").into());
            }
        }
        Ok(())
    })
}

fn rows_alone_where_none_goes() -> Result {
    let mut server = Server::start(Setup::QUICK)?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE STREAM s (a int, b text);
                 INSERT INTO s VALUES (1, 'one'), (2, NULL);
                 CREATE MATERIALIZED VIEW v AS SELECT a, upper(b) AS b FROM s WHERE a <> 3;
                 CREATE SINK k FROM v WITH (connector = 'file', path = 'rows.csv', append_only = true, null = 'NA');
                 INSERT INTO s VALUES (3, 'three'), (4, 'four')",
            )
            .await?;
        server.restart()?;
        let client = server.connect().await?;
        client.batch_execute("INSERT INTO s VALUES (5, 'five')").await?;
        delivered(&client).await?;
        let text = std::fs::read_to_string(place(&server, "rows.csv"))?;
        let mut lines: Vec<&str> = text.lines().collect();
        lines[1..].sort_unstable();
        if lines != ["a,b", "1,ONE", "2,NA", "4,FOUR", "5,FIVE"] {
            return Err(format!("the file holds {text}").into());
        }
        Ok(())
    })
}
