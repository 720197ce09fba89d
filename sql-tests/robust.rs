//! What goes wrong around a server: full disks, files that are not there, huge rows, clients that vanish, directories
//! that are not its own, the order to stop. After each it goes on, or says clearly why not.

use crate::harness::{Launch, Result, Server, Setup, block_on, free_port, told};
use bytes::Bytes;
use futures::SinkExt;
use sqllogictest::harness::Trial;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

/// How long the server may take to get over something.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a stop may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The tests of this module.
pub(crate) fn tests() -> Vec<Trial> {
    let test = |name: &str, body: fn() -> Result| {
        crate::harness::trial(format!("robust::{name}"), move || body().map_err(told))
    };
    vec![
        test("a_full_disk_is_53100_and_passes", a_full_disk_is_53100_and_passes),
        test("a_file_that_is_not_there", a_file_that_is_not_there),
        test("a_row_of_16_mib", a_row_of_16_mib),
        test("a_copy_of_many_rows", a_copy_of_many_rows),
        test("a_client_vanishes_in_copy", a_client_vanishes_in_copy),
        test("a_start_takes_up_views_as_they_are", a_start_takes_up_views_as_they_are),
        test("a_directory_has_one_server", a_directory_has_one_server),
        test("a_directory_of_another_format", a_directory_of_another_format),
        test("sigterm_stops_cleanly", sigterm_stops_cleanly),
        test("idle_it_takes_next_to_nothing", idle_it_takes_next_to_nothing),
        test("what_is_written_is_read_at_once", what_is_written_is_read_at_once),
    ]
}

/// What a statement is refused with: code and message.
async fn refusal(client: &Client, statement: &str) -> Result<(String, String)> {
    match client.batch_execute(statement).await {
        Ok(()) => Err(format!("{} was not refused", &statement[..statement.len().min(80)]).into()),
        Err(error) => match error.as_db_error() {
            Some(answer) => Ok((answer.code().code().to_owned(), answer.message().to_owned())),
            None => Err(error.into()),
        },
    }
}

async fn number(client: &Client, query: &str) -> Result<i64> {
    Ok(client.query_one(query, &[]).await?.get(0))
}

async fn verified(client: &Client, view: &str) -> Result {
    let differing = client.simple_query(&format!("VERIFY MATERIALIZED VIEW {view}")).await?;
    let is_row =
        |message: &tokio_postgres::SimpleQueryMessage| matches!(message, tokio_postgres::SimpleQueryMessage::Row(_));
    match differing.iter().filter(|message| is_row(message)).count() {
        0 => Ok(()),
        rows => Err(format!("{view} differs from its query in {rows} rows").into()),
    }
}

fn mismatch(what: &str, got: impl std::fmt::Debug, expected: impl std::fmt::Debug) -> Result {
    Err(format!("{what}: {got:?}, expected {expected:?}").into())
}

/// A small file system of a test's own, which only root can make.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(place: &Path, mebibytes: u32) -> Result<Option<Self>> {
        std::fs::create_dir_all(place)?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"])
            .arg(place)
            .output();
        Ok(mounted
            .is_ok_and(|output| output.status.success())
            .then(|| Self(place.to_owned())))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn a_full_disk_is_53100_and_passes() -> Result {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("disk");
    let Some(disk) = SmallDisk::mount(&place, 140)? else {
        eprintln!("robust: no small disk could be mounted, which needs root: not tested");
        return Ok(());
    };
    let ballast = place.join("ballast");
    // The store goes on once there is room for its largest buffer, 64 MiB.
    std::fs::write(&ballast, vec![1; 100 << 20])?;
    let mut launch = Launch::serve(Setup::QUICK);
    launch.data_dir = Some(place.join("data"));
    let mut server = Server::launch(launch)?;
    let tested = block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE TABLE t (id bigint PRIMARY KEY, payload text);
                 CREATE MATERIALIZED VIEW v AS SELECT id % 3 AS k, count(*) AS n, sum(length(payload)) AS bytes
                   FROM t GROUP BY id % 3",
            )
            .await?;
        let insert = |id: i64| {
            let payload: String = (0..4096)
                .map(|part: i64| {
                    format!(
                        "{:016x}",
                        (id * 4096 + part).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)
                    )
                })
                .collect();
            format!("INSERT INTO t VALUES ({id}, '{payload}')")
        };
        let mut written = 0;
        let (code, message) = loop {
            match client.batch_execute(&insert(written)).await {
                Ok(()) => written += 1,
                Err(error) => match error.as_db_error() {
                    Some(answer) => break (answer.code().code().to_owned(), answer.message().to_owned()),
                    None => return Err(error.into()),
                },
            }
        };
        eprintln!("robust: full after {written} rows: {code} {message}");
        if code != "53100" {
            return mismatch("a full disk", (code, message), "53100");
        }
        // What was acknowledged is there, nothing else is, and reading goes on.
        for _ in 0..3 {
            let (again, message) = refusal(&client, &insert(written)).await?;
            if again != "53100" {
                return mismatch("still full", (again, message), "53100");
            }
            let (n, sum) = (
                number(&client, "SELECT count(*) FROM t").await?,
                number(&client, "SELECT sum(n)::bigint FROM v").await?,
            );
            if (n, sum) != (written, written) {
                return mismatch("rows, and rows in the view", (n, sum), written);
            }
        }
        std::fs::remove_file(&ballast)?;
        let begun = Instant::now();
        while let Err(error) = client.batch_execute(&insert(written)).await {
            if begun.elapsed() > RECOVERY_TIMEOUT {
                return Err(format!("it does not go on: {error:?}\n{}", server.log()).into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        written += 1;
        eprintln!("robust: it goes on {:?} after there is space", begun.elapsed());
        client.batch_execute(&insert(written)).await?;
        written += 1;
        verified(&client, "v").await?;
        server.restart()?;
        let client = server.connect().await?;
        let n = number(&client, "SELECT count(*) FROM t").await?;
        if n != written {
            return mismatch("rows after a restart", n, written);
        }
        verified(&client, "v").await
    });
    drop(server);
    drop(disk);
    tested
}

/// Waits until a source has stopped; what it says.
async fn stopped(client: &Client, stream: &str) -> Result<String> {
    let begun = Instant::now();
    loop {
        let query = format!("SELECT state FROM headwater.sources WHERE stream LIKE '%{stream}'");
        let state: String = client.query_one(&query, &[]).await?.get(0);
        if state.starts_with("stopped") {
            return Ok(state);
        }
        if begun.elapsed() > RECOVERY_TIMEOUT {
            return Err(format!("the source of {stream} is {state}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn a_file_that_is_not_there() -> Result {
    let mut server = Server::start(Setup::QUICK)?;
    let file = server.directory().join("rows.csv");
    std::fs::write(&file, "a\n1\n2\n")?;
    std::fs::create_dir(server.directory().join("folder.csv"))?;
    block_on(async {
        let client = server.connect().await?;
        let cases = [
            (
                "none.csv",
                "58P01",
                "could not open file \"none.csv\": No such file or directory",
            ),
            ("folder.csv", "42809", "\"folder.csv\" is a directory"),
            ("/dev/null", "42809", "\"/dev/null\" is not a regular file"),
        ];
        for (path, code, message) in cases {
            let statement =
                format!("CREATE STREAM s (a int) WITH (connector = 'file', format = 'csv', path = '{path}')");
            let got = refusal(&client, &statement).await?;
            if got != (code.to_owned(), message.to_owned()) {
                return mismatch(path, got, (code, message));
            }
        }
        client
            .batch_execute(
                "CREATE STREAM s (a int) WITH (connector = 'file', path = 'rows.csv', follow = true);
                 CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(a) AS s FROM s;
                 CREATE TABLE t (a int)",
            )
            .await?;
        // The file goes while nobody looks: the stream is stopped, all else goes on.
        let begun = Instant::now();
        while number(&client, "SELECT n FROM v").await? != 2 {
            if begun.elapsed() > RECOVERY_TIMEOUT {
                return Err("the rows do not come".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.kill()?;
        std::fs::remove_file(&file)?;
        server.start_again()?;
        let client = server.connect().await?;
        let state = stopped(&client, "s").await?;
        if !state.contains("No such file or directory") {
            return mismatch("the state of the source", state, "No such file or directory");
        }
        client.batch_execute("INSERT INTO t VALUES (1)").await?;
        if number(&client, "SELECT n FROM v").await? != 2 {
            return Err("rows that were read are gone".into());
        }
        Ok(())
    })
}

fn a_row_of_16_mib() -> Result {
    let mut server = Server::start(Setup::QUICK)?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, payload text);
                 CREATE MATERIALIZED VIEW v AS SELECT payload, count(*) AS n FROM t GROUP BY payload",
            )
            .await?;
        let payload = "x".repeat(16 << 20);
        let begun = Instant::now();
        client.execute("INSERT INTO t VALUES (1, $1)", &[&payload]).await?;
        client
            .batch_execute(&format!("INSERT INTO t VALUES (2, '{payload}')"))
            .await?;
        let inserted = begun.elapsed();
        let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await?;
        futures::pin_mut!(sink);
        sink.send(Bytes::from(format!("3\t{payload}\n"))).await?;
        sink.finish().await?;
        eprintln!(
            "robust: 16 MiB twice by INSERT {inserted:?}, by COPY {:?}",
            begun.elapsed() - inserted
        );
        let check = async |client: &Client| {
            let row = client
                .query_one("SELECT n, length(payload)::bigint FROM v", &[])
                .await?;
            let got: (i64, i64) = (row.get(0), row.get(1));
            if got != (3, 16 << 20) {
                mismatch("the rows", got, (3, 16 << 20))
            } else {
                Ok(())
            }
        };
        check(&client).await?;
        server.restart()?;
        let client = server.connect().await?;
        check(&client).await?;
        let whole: String = client
            .query_one("SELECT payload FROM t WHERE id = 3", &[])
            .await?
            .get(0);
        if whole != payload {
            return Err("the row comes back otherwise than it went".into());
        }
        client.batch_execute("DELETE FROM t WHERE id < 3").await?;
        verified(&client, "v").await?;
        // What is too much is refused, and the server goes on.
        let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await?;
        futures::pin_mut!(sink);
        let part = Bytes::from("x".repeat(8 << 20));
        let mut sent = sink.send(Bytes::from("9\t")).await;
        for _ in 0..10 {
            if sent.is_ok() {
                sent = sink.send(part.clone()).await;
            }
        }
        let refused = match sent {
            Ok(()) => sink.finish().await.err(),
            Err(error) => Some(error),
        };
        let refused = refused.ok_or("a row of 80 MiB was taken")?;
        let answer = refused
            .as_db_error()
            .map(|answer| (answer.code().code().to_owned(), answer.message().to_owned()));
        eprintln!("robust: a row of 80 MiB by COPY: {answer:?}");
        if answer.as_ref().is_none_or(|(code, _)| code != "54000") {
            return mismatch("a row of 80 MiB", (answer, refused.to_string()), "54000");
        }
        let client = server.connect().await?;
        if number(&client, "SELECT count(*) FROM t").await? != 1 {
            return Err("a part of what was refused is there".into());
        }
        Ok(())
    })
}

fn a_copy_of_many_rows() -> Result {
    let server = Server::start(Setup::QUICK)?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, v int);
                 CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(v) AS s FROM t",
            )
            .await?;
        let rows: String = (0..200_000).map(|id| format!("{id}\t{}\n", id % 10)).collect();
        let rows = Bytes::from(rows);
        for (statement, pieces) in [
            ("COPY t FROM STDIN", 1_000),
            ("COPY t FROM STDIN WITH (batch_rows = 3000)", 70_000),
        ] {
            client.batch_execute("DELETE FROM t").await?;
            let sink = client.copy_in::<_, Bytes>(statement).await?;
            futures::pin_mut!(sink);
            for from in (0..rows.len()).step_by(pieces) {
                sink.send(rows.slice(from..rows.len().min(from + pieces))).await?;
            }
            let copied = sink.finish().await?;
            let counts = client.query_one("SELECT n, s FROM v", &[]).await?;
            let got: (i64, i64) = (counts.get(0), counts.get(1));
            if copied != 200_000 || got != (200_000, 900_000) {
                return mismatch(statement, (copied, got), (200_000, 900_000));
            }
        }
        verified(&client, "v").await
    })
}

fn a_client_vanishes_in_copy() -> Result {
    let server = Server::start(Setup::QUICK)?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, v int);
                 CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t",
            )
            .await?;
        for round in 0..5_i32 {
            let parameters = format!("host=127.0.0.1 port={} user=tester dbname=headwater", server.port);
            let (other, connection) = tokio_postgres::connect(&parameters, NoTls).await?;
            let connection = tokio::spawn(connection);
            if round % 2 == 1 {
                other.batch_execute("BEGIN").await?;
            }
            let mut sink = Box::pin(other.copy_in::<_, Bytes>("COPY t FROM STDIN").await?);
            for id in 0..20_000 {
                sink.send(Bytes::from(format!("{id}\t{round}\n"))).await?;
            }
            sink.flush().await?;
            // The socket closes without a word.
            connection.abort();
            let _ = connection.await;
            std::mem::forget(sink);
        }
        let begun = Instant::now();
        loop {
            let open = number(&client, "SELECT count(*) FROM headwater.sessions").await?;
            if open == 1 {
                break;
            }
            if begun.elapsed() > RECOVERY_TIMEOUT {
                return mismatch("sessions", open, 1);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let rows = number(&client, "SELECT n FROM v").await?;
        if rows != 0 {
            return mismatch("rows of a COPY that never ended", rows, 0);
        }
        client
            .batch_execute("INSERT INTO t SELECT i, i FROM generate_series(1, 100) AS s(i)")
            .await?;
        verified(&client, "v").await
    })
}

/// A view whose plan reads otherwise after a start is filled anew, which for a large one takes long.
fn a_start_takes_up_views_as_they_are() -> Result {
    let mut server = Server::start(Setup::QUICK)?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, k text, at timestamp, v numeric(10,2), j jsonb);
                 CREATE TABLE u (k text, w float8);
                 CREATE MATERIALIZED VIEW functions AS
                   SELECT upper(k) || '-' || length(k) AS k, date_trunc('hour', at) AS hour, abs(v) + round(v, 1) AS v,
                          coalesce(k, 'none') AS c, j ->> 'a' AS a, extract(year FROM at) AS y, k LIKE 'a%' AS l
                   FROM t WHERE k <> 'x' AND at > '2020-01-01';
                 CREATE MATERIALIZED VIEW groups AS
                   SELECT lower(k) AS k, count(*) AS n, sum(length(k)) AS l, avg(v) AS a, min(at) AS first,
                          string_agg(k, ',' ORDER BY id) AS list FROM t GROUP BY lower(k);
                 CREATE MATERIALIZED VIEW joined AS SELECT t.id, u.w * 2 AS w FROM t LEFT JOIN u ON u.k = t.k;
                 CREATE MATERIALIZED VIEW ranked AS
                   SELECT id, row_number() OVER (PARTITION BY k ORDER BY at DESC, id) AS r FROM t;
                 CREATE MATERIALIZED VIEW windows AS SELECT window_start, k, count(*) AS n
                   FROM TUMBLE(t, at, INTERVAL '1 hour') GROUP BY window_start, window_end, k;
                 CREATE MATERIALIZED VIEW top AS SELECT k, id FROM t ORDER BY v DESC, id LIMIT 3;
                 CREATE MATERIALIZED VIEW above AS SELECT DISTINCT k FROM groups WHERE n > 1;
                 CREATE SINK file FROM groups WITH (connector = 'file', path = 'groups.csv');
                 INSERT INTO t SELECT i, 'k' || i % 5, timestamp '2024-01-01' + i * INTERVAL '1 minute', i, '{\"a\": 1}'
                   FROM generate_series(1, 100) AS s(i);",
            )
            .await?;
        for _ in 0..2 {
            server.restart()?;
            let log = server.log();
            if log.contains("planned otherwise") || log.contains("WARN") || log.contains("ERROR") {
                return Err(log.into());
            }
            let client = server.connect().await?;
            let live = number(&client, "SELECT count(*) FROM headwater.views WHERE status = 'live'").await?;
            if live != 7 {
                return mismatch("views that are live at once", live, 7);
            }
            verified(&client, "functions").await?;
            verified(&client, "groups").await?;
        }
        Ok(())
    })
}

/// Starts a server that is not to get ready; what it says.
fn does_not_start(launch: &Launch, directory: &Path) -> Result<String> {
    let mut child = launch.command(directory, free_port()?).spawn()?;
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > RECOVERY_TIMEOUT {
            child.kill()?;
            return Err("it runs".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8(output.stderr)?;
    if output.status.code() != Some(1) {
        return Err(format!("it ended with {}:\n{said}", output.status).into());
    }
    Ok(said)
}

fn a_directory_has_one_server() -> Result {
    let server = Server::start(Setup::QUICK)?;
    let said = does_not_start(server.how(), server.directory())?;
    eprintln!("robust: a second server: {}", said.trim());
    if !said.contains("is in use by another server") || !said.contains("hint: Stop the other server") {
        return mismatch("a second server", said, "is in use by another server");
    }
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
            .await?;
        Ok(())
    })
}

fn a_directory_of_another_format() -> Result {
    let mut server = Server::start(Setup::QUICK)?;
    let (how, directory) = (server.how().clone(), server.directory().to_owned());
    server.stop()?;
    let file = directory.join("data/FORMAT");
    let own = std::fs::read_to_string(&file)?;
    for other in ["headwater 1\n", "headwater 99\n", "", "another program's\n"] {
        std::fs::write(&file, other)?;
        let said = does_not_start(&how, &directory)?;
        eprintln!("robust: {other:?}: {}", said.trim());
        if !said.contains("has the format") || !said.contains("hint: Start the version of Headwater that wrote it") {
            return mismatch(other, said, "has the format");
        }
    }
    std::fs::remove_file(&file)?;
    let said = does_not_start(&how, &directory)?;
    if !said.contains("holds a store but no FORMAT file") {
        return mismatch("no FORMAT", said, "holds a store but no FORMAT file");
    }
    std::fs::write(&file, own)?;
    server.start_again()
}

fn sigterm_stops_cleanly() -> Result {
    let mut server = Server::start(Setup::QUICK)?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE STREAM events (auction bigint, price bigint)
                   WITH (connector = 'nexmark', \"table\" = 'bid', rate = '2000');
                 CREATE TABLE t (id bigint);
                 CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t;
                 CREATE MATERIALIZED VIEW e AS SELECT count(*) AS n FROM events",
            )
            .await?;
        let port = server.port;
        let writing = tokio::spawn(async move {
            let client = crate::harness::connect(port).await?;
            let mut written = 0_i64;
            while client.execute("INSERT INTO t VALUES ($1)", &[&written]).await.is_ok() {
                written += 1;
            }
            Ok::<_, crate::harness::Failure>(written)
        });
        let listening = server.connect().await?;
        let mut subscription = Box::pin(listening.simple_query_raw("SUBSCRIBE TO v").await?);
        let reading = tokio::spawn(async move {
            use futures::StreamExt;
            while subscription.next().await.is_some() {}
        });
        tokio::time::sleep(Duration::from_millis(700)).await;
        let begun = Instant::now();
        let status = server.stop()?;
        let took = begun.elapsed();
        eprintln!("robust: stopped with {status} after {took:?}");
        if !status.success() || took > STOP_TIMEOUT {
            return mismatch("the stop", (status, took), "success at once");
        }
        let written = writing.await??;
        reading.await?;
        server.start_again()?;
        let client = server.connect().await?;
        let n = number(&client, "SELECT n FROM v").await?;
        // The last INSERT may have been made without being answered.
        if n != written && n != written + 1 {
            return mismatch("rows", n, written);
        }
        verified(&client, "e").await
    })
}

/// What a process has used and holds.
#[derive(Debug)]
struct Usage {
    processor_seconds: f64,
    /// Its own memory, and that of the files mapped into it (its program).
    own_mebibytes: f64,
    mapped_mebibytes: f64,
}

impl Usage {
    fn of(id: u32) -> Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<f64>().ok());
        let (user, system) = ticks(11).zip(ticks(12)).ok_or("/proc tells no processor time")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let mebibytes = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kilobytes / 1024.0)
        };
        Ok(Self {
            processor_seconds: (user + system) / 100.0,
            own_mebibytes: mebibytes("RssAnon:").ok_or("/proc tells no memory")?,
            mapped_mebibytes: mebibytes("RssFile:").ok_or("/proc tells no memory")?,
        })
    }
}

fn idle_it_takes_next_to_nothing() -> Result {
    let server = Server::start(Setup::QUICK)?;
    std::fs::write(server.directory().join("rows.csv"), "a\n1\n2\n")?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, v int);
                 CREATE STREAM s (at timestamp, v int, WATERMARK FOR at AS at - INTERVAL '1 second');
                 CREATE STREAM f (a int) WITH (connector = 'file', path = 'rows.csv', follow = true);
                 CREATE MATERIALIZED VIEW sums AS SELECT v, count(*) AS n FROM t GROUP BY v;
                 CREATE MATERIALIZED VIEW joined AS SELECT t.id, s.at FROM t JOIN s ON t.v = s.v;
                 CREATE MATERIALIZED VIEW windows AS SELECT window_start, count(*) AS n
                   FROM TUMBLE(s, at, INTERVAL '1 minute') GROUP BY window_start, window_end;
                 CREATE SINK k FROM sums WITH (connector = 'file', path = 'out.csv');
                 INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 1000) AS s(i);
                 INSERT INTO s SELECT timestamp '2024-01-01' + i * INTERVAL '1 second', i
                   FROM generate_series(1, 1000) AS s(i);",
            )
            .await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = Usage::of(server.id())?;
        let span = Duration::from_secs(5);
        tokio::time::sleep(span).await;
        let after = Usage::of(server.id())?;
        let percent = (after.processor_seconds - before.processor_seconds) / span.as_secs_f64() * 100.0;
        eprintln!(
            "robust: idle, {percent:.2} % of a processor, {:.0} MiB, and {:.0} MiB of the program's file",
            after.own_mebibytes, after.mapped_mebibytes
        );
        // How much of the program's file is mapped depends on how it was built.
        if percent >= 1.0 || after.own_mebibytes >= 100.0 {
            return mismatch("idle", (percent, after), "less than 1 % and 100 MiB");
        }
        Ok(())
    })
}

/// How many rows are written and read.
fn reads() -> i32 {
    let given = std::env::var("HEADWATER_READS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(2_000)
}

fn what_is_written_is_read_at_once() -> Result {
    let server = Server::start(Setup::QUICK)?;
    block_on(async {
        let (writer, reader) = (server.connect().await?, server.connect().await?);
        writer
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, k int);
                 CREATE TABLE names (k int PRIMARY KEY, name text);
                 INSERT INTO names SELECT i, 'name ' || i FROM generate_series(0, 9) AS s(i);
                 CREATE MATERIALIZED VIEW counted AS SELECT k, count(*) AS n, max(id) AS last FROM t GROUP BY k;
                 CREATE MATERIALIZED VIEW joined AS SELECT t.id, n.name FROM t JOIN names n ON n.k = t.k",
            )
            .await?;
        let insert = writer.prepare("INSERT INTO t VALUES ($1, $2)").await?;
        let counted = reader.prepare("SELECT n, last FROM counted WHERE k = $1").await?;
        let joined = reader.prepare("SELECT name FROM joined WHERE id = $1").await?;
        let begun = Instant::now();
        for id in 0..reads() {
            let k = id % 10;
            writer.execute(&insert, &[&id, &k]).await?;
            let row = reader.query_opt(&counted, &[&k]).await?;
            let got: Option<(i64, i32)> = row.map(|row| (row.get(0), row.get(1)));
            let expected = (i64::from(id / 10) + 1, id);
            if got != Some(expected) {
                return mismatch(&format!("row {id} in the aggregate"), got, expected);
            }
            // The second view is read every tenth time once it is large: a read of it is a scan.
            if id < 500 || id % 20 == 0 {
                let row = reader.query_opt(&joined, &[&id]).await?;
                let got: Option<String> = row.map(|row| row.get(0));
                if got != Some(format!("name {k}")) {
                    return mismatch(&format!("row {id} in the join"), got, format!("name {k}"));
                }
            }
        }
        eprintln!("robust: {} rows written and read in {:?}", reads(), begun.elapsed());
        verified(&reader, "counted").await?;
        verified(&reader, "joined").await
    })
}
