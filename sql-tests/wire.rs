//! The protocol, by tokio-postgres where it can and by raw messages where it cannot.
//!
//! Expected answers are those of PostgreSQL 15.

mod raw;

use crate::harness::{Result, Server, Setup, block_on};
use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt, pin_mut};
use raw::Raw;
use sqllogictest::harness::Trial;
use std::error::Error as StdError;
use tokio_postgres::error::DbError;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, NoTls};

/// The tests of this module.
pub(crate) fn tests() -> Vec<Trial> {
    let test = |name: &str, body: fn(Server) -> Result| {
        crate::harness::trial(format!("wire::{name}"), move || Ok(body(Server::start(Setup::QUICK)?)?))
    };
    vec![
        test("values_of_every_type_come_back", values_of_every_type_come_back),
        test("types_of_parameters_are_inferred", types_of_parameters_are_inferred),
        test("statements_are_reused", statements_are_reused),
        test("portals_hold_to_their_limit", portals_hold_to_their_limit),
        test("a_portal_is_suspended", a_portal_is_suspended),
        test("a_query_is_cancelled", a_query_is_cancelled),
        test("copy_goes_in_and_out", copy_goes_in_and_out),
        test("a_failed_copy_leaves_nothing", a_failed_copy_leaves_nothing),
        test("a_vanished_client_leaves_nothing", a_vanished_client_leaves_nothing),
        test("the_status_follows_the_transaction", the_status_follows_the_transaction),
        test(
            "several_statements_are_one_transaction",
            several_statements_are_one_transaction,
        ),
        test("an_error_skips_to_the_sync", an_error_skips_to_the_sync),
        test("nothing_is_answered_as_nothing", nothing_is_answered_as_nothing),
        test("a_subscription_follows_its_view", a_subscription_follows_its_view),
        test("others_see_a_write_at_once", others_see_a_write_at_once),
        test("one_read_sees_one_moment", one_read_sees_one_moment),
        test("the_first_committer_wins", the_first_committer_wins),
    ]
}

/// A value in its binary form, whatever its type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binary(Vec<u8>);

impl ToSql for Binary {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Binary {
    fn from_sql(_: &Type, bytes: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(bytes.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The bytes of a binary form, written as hexadecimal digits and blanks.
fn hex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
    Ok(digits.chunks(2).map(byte).collect::<Result<_, _>>()?)
}

/// The server's error in a client's.
fn answer(error: &tokio_postgres::Error) -> Result<&DbError> {
    error
        .as_db_error()
        .ok_or_else(|| format!("not an answer of the server: {error}").into())
}

fn expect<T: PartialEq + std::fmt::Debug>(got: T, expected: T, what: &str) -> Result {
    if got == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, got {got:?}").into())
    }
}

/// The binary forms of PostgreSQL: the type, the bytes, the text.
const VALUES: &[(&str, &str, &str)] = &[
    ("boolean", "01", "true"),
    ("smallint", "8000", "-32768"),
    ("integer", "7fffffff", "2147483647"),
    ("bigint", "8000000000000000", "-9223372036854775808"),
    ("real", "3fc00000", "1.5"),
    ("double precision", "7ff8000000000000", "NaN"),
    ("double precision", "fff0000000000000", "-Infinity"),
    ("numeric(10,2)", "0002 0000 0000 0002 04d2 1388", "1234.50"),
    ("numeric", "0001 0000 4000 0000 0007", "-7"),
    ("text", "c3a9 0a", "é\n"),
    ("varchar(5)", "616263", "abc"),
    ("bytea", "00ff5c", "\\x00ff5c"),
    ("date", "00002279", "2024-02-29"),
    ("date", "7fffffff", "infinity"),
    ("time", "0000000a8be62608", "12:34:56.789"),
    ("timestamp", "0000000000000001", "2000-01-01 00:00:00.000001"),
    ("timestamp", "8000000000000000", "-infinity"),
    ("timestamptz", "ffffffffffffffff", "1999-12-31 23:59:59.999999+00"),
    (
        "interval",
        "00000000000f4240 00000002 0000000e",
        "1 year 2 mons 2 days 00:00:01",
    ),
    (
        "uuid",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ),
    ("json", "7b2261223a 20317d", "{\"a\": 1}"),
    ("jsonb", "01 7b2261223a 20317d", "{\"a\": 1}"),
    (
        "integer[]",
        "00000001 00000001 00000017 00000003 00000001 00000004 00000001 ffffffff 00000004 00000003",
        "{1,NULL,3}",
    ),
    (
        "text[]",
        "00000001 00000000 00000019 00000002 00000001 00000001 61 00000000",
        "{a,\"\"}",
    ),
];

fn values_of_every_type_come_back(server: Server) -> Result {
    block_on(async {
        let client = server.connect().await?;
        client.batch_execute("SET TimeZone = 'UTC'").await?;
        let mut wrong = String::new();
        for (kind, bytes, text) in VALUES {
            if let Err(error) = comes_back(&client, kind, bytes, text).await {
                wrong += &format!("{kind} {text}: {error}\n");
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
    })
}

async fn comes_back(client: &Client, kind: &str, bytes: &str, text: &str) -> Result {
    let value = Binary(hex(bytes)?);
    let row = client
        .query_one(&format!("SELECT $1::{kind}, $1::{kind}::text"), &[&value])
        .await?;
    expect(row.get::<_, Binary>(0), value, "binary form")?;
    expect(row.get::<_, &str>(1), text, "text form")?;
    let row = client.query_one(&format!("SELECT $1::text::{kind}"), &[&text]).await?;
    expect(row.get::<_, Binary>(0), Binary(hex(bytes)?), "binary form of the text")?;
    let absent: Option<Binary> = None;
    let row = client.query_one(&format!("SELECT $1::{kind}"), &[&absent]).await?;
    expect(row.get::<_, Option<Binary>>(0), None, "NULL")
}

fn types_of_parameters_are_inferred(server: Server) -> Result {
    let expected: &[(&str, &[Type])] = &[
        ("SELECT $1", &[Type::TEXT]),
        ("SELECT $1 + 1", &[Type::INT4]),
        (
            "SELECT id FROM t WHERE id = $1 AND name = $2",
            &[Type::INT8, Type::TEXT],
        ),
        ("SELECT $1::date", &[Type::DATE]),
        ("SELECT id FROM t LIMIT $1", &[Type::INT8]),
        ("INSERT INTO t VALUES ($1, $2)", &[Type::INT8, Type::TEXT]),
        ("UPDATE t SET name = $1 WHERE id = $2", &[Type::TEXT, Type::INT8]),
        ("SELECT id FROM t WHERE id = ANY($1)", &[Type::INT8_ARRAY]),
    ];
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
            .await?;
        let mut wrong = String::new();
        for (query, types) in expected {
            match client.prepare(query).await {
                Ok(statement) if statement.params() == *types => {}
                Ok(statement) => wrong += &format!("{query}: {:?}\n", statement.params()),
                Err(error) => wrong += &format!("{query}: {:?}\n", error.as_db_error()),
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
    })
}

fn statements_are_reused(server: Server) -> Result {
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
            .await?;
        let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await?;
        let select = client.prepare("SELECT v FROM t WHERE id = $1").await?;
        for id in 0..5_i32 {
            let name = (id % 2 == 0).then(|| format!("v{id}"));
            expect(client.execute(&insert, &[&id, &name]).await?, 1, "rows inserted")?;
            let row = client.query_one(&select, &[&id]).await?;
            expect(row.get::<_, Option<String>>(0), name, "the row")?;
        }
        let columns: Vec<_> = select
            .columns()
            .iter()
            .map(|column| (column.name(), column.type_().clone()))
            .collect();
        expect(columns, vec![("v", Type::TEXT)], "columns")
    })
}

fn portals_hold_to_their_limit(server: Server) -> Result {
    block_on(async {
        let mut client = server.connect().await?;
        let transaction = client.transaction().await?;
        let portal = transaction
            .bind("SELECT n FROM generate_series(1, 5) AS g(n)", &[])
            .await?;
        let mut counts = Vec::new();
        for _ in 0..3 {
            counts.push(transaction.query_portal(&portal, 2).await?.len());
        }
        expect(counts, vec![2, 2, 1], "rows of each fetch")
    })
}

fn a_portal_is_suspended(server: Server) -> Result {
    let mut raw = Raw::connect(server.port)?;
    raw.parse("", "SELECT n FROM generate_series(1, 3) AS g(n)")?;
    raw.bind("", "")?;
    raw.execute("", 2)?;
    raw.execute("", 2)?;
    raw.sync()?;
    // ParseComplete, BindComplete, two rows, PortalSuspended, one row, CommandComplete.
    expect(raw.until_ready()?.0.as_str(), "12DDsDC", "messages")
}

fn a_query_is_cancelled(server: Server) -> Result {
    block_on(async {
        let client = server.connect().await?;
        let token = client.cancel_token();
        let long = "SELECT count(*) FROM generate_series(1, 3000000) a(n) CROSS JOIN generate_series(1, 3000000) b(m)";
        let query = client.simple_query(long);
        pin_mut!(query);
        // The request may come before the query does: it is repeated until the query ends.
        let ended = loop {
            tokio::select! {
                ended = &mut query => break ended,
                () = tokio::time::sleep(std::time::Duration::from_millis(50)) => token.cancel_query(NoTls).await?,
            }
        };
        let Err(error) = ended else {
            return Err("the query was not cancelled".into());
        };
        expect(answer(&error)?.code().code(), "57014", "SQLSTATE")?;
        expect(
            client.query_one("SELECT 1", &[]).await?.get::<_, i32>(0),
            1,
            "the connection",
        )
    })
}

async fn copy_in(client: &Client, statement: &str, data: &'static str) -> Result<u64, tokio_postgres::Error> {
    let sink = client.copy_in::<_, Bytes>(statement).await?;
    pin_mut!(sink);
    sink.send(Bytes::from_static(data.as_bytes())).await?;
    sink.finish().await
}

async fn copy_out(client: &Client, statement: &str) -> Result<String> {
    let parts: Vec<_> = client.copy_out(statement).await?.collect().await;
    let parts = parts.into_iter().collect::<Result<Vec<Bytes>, _>>()?;
    Ok(String::from_utf8(parts.concat())?)
}

fn copy_goes_in_and_out(server: Server) -> Result {
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text, b bytea)")
            .await?;
        let csv = "id,v,b\n1,\"a \"\"quoted\"\", and\nbroken\",\\x00ff\n2,,\n3,\"\",\\x\n";
        expect(
            copy_in(&client, "COPY t FROM STDIN WITH (FORMAT csv, HEADER)", csv).await?,
            3,
            "rows copied",
        )?;
        let text = copy_out(&client, "COPY (SELECT * FROM t ORDER BY id) TO STDOUT").await?;
        let expected = "1\ta \"quoted\", and\\nbroken\t\\\\x00ff\n2\t\\N\t\\N\n3\t\t\\\\x\n";
        expect(text.as_str(), expected, "text form")?;
        client
            .batch_execute("CREATE TABLE u (id int PRIMARY KEY, v text, b bytea)")
            .await?;
        let statement = "COPY u FROM STDIN";
        let sink = client.copy_in::<_, Bytes>(statement).await?;
        pin_mut!(sink);
        sink.send(Bytes::from(text.clone())).await?;
        expect(sink.finish().await?, 3, "rows copied back")?;
        let again = copy_out(&client, "COPY (SELECT * FROM u ORDER BY id) TO STDOUT").await?;
        expect(again, text, "the same after a round")
    })
}

fn a_failed_copy_leaves_nothing(server: Server) -> Result {
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
            .await?;
        let Err(error) = copy_in(&client, "COPY t FROM STDIN (FORMAT csv)", "1,1\n2,x\n").await else {
            return Err("the COPY worked".into());
        };
        expect(answer(&error)?.code().code(), "22P02", "SQLSTATE")?;
        expect(
            answer(&error)?.where_(),
            Some("COPY t, line 2, column v: \"x\""),
            "context",
        )?;
        let row = client.query_one("SELECT count(*) FROM t", &[]).await?;
        expect(row.get::<_, i64>(0), 0, "rows")
    })
}

fn a_vanished_client_leaves_nothing(server: Server) -> Result {
    let mut raw = Raw::connect(server.port)?;
    raw.query("CREATE TABLE t (id int PRIMARY KEY)")?;
    raw.until_ready()?;
    raw.query("COPY t FROM STDIN")?;
    expect(raw.message()?.0, b'G', "CopyInResponse")?;
    raw.send(b'd', b"1\n2\n")?;
    drop(raw);
    let mut raw = Raw::connect(server.port)?;
    raw.query("BEGIN; INSERT INTO t VALUES (3)")?;
    raw.until_ready()?;
    drop(raw);
    block_on(async {
        let client = server.connect().await?;
        client.batch_execute("INSERT INTO t VALUES (3)").await?;
        let rows = client.query("SELECT id FROM t", &[]).await?;
        expect(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), vec![3], "rows")
    })
}

fn the_status_follows_the_transaction(server: Server) -> Result {
    let mut raw = Raw::connect(server.port)?;
    let steps: &[(&str, u8, &str)] = &[
        ("BEGIN", b'T', "BEGIN"),
        ("SELECT 1", b'T', "SELECT 1"),
        ("SELECT 1/0", b'E', "22012"),
        ("SELECT 1", b'E', "25P02"),
        ("COMMIT", b'I', "ROLLBACK"),
        ("SELECT 1", b'I', "SELECT 1"),
    ];
    for (sql, status, outcome) in steps {
        raw.query(sql)?;
        raw.until_ready()?;
        expect(raw.status, *status, sql)?;
        expect(raw.outcome.as_str(), *outcome, sql)?;
    }
    Ok(())
}

fn several_statements_are_one_transaction(server: Server) -> Result {
    let mut raw = Raw::connect(server.port)?;
    raw.query("CREATE TABLE t (id int PRIMARY KEY)")?;
    raw.until_ready()?;
    raw.query("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); SELECT 1/0")?;
    expect(raw.until_ready()?.0.as_str(), "CCE", "messages")?;
    raw.query("SELECT id FROM t")?;
    expect(
        raw.until_ready()?.0.as_str(),
        "TC",
        "messages of a read that finds nothing",
    )
}

fn an_error_skips_to_the_sync(server: Server) -> Result {
    let mut raw = Raw::connect(server.port)?;
    raw.query("CREATE TABLE t (id int PRIMARY KEY)")?;
    raw.until_ready()?;
    for sql in ["INSERT INTO t VALUES (1)", "SELECT 1/0", "INSERT INTO t VALUES (2)"] {
        raw.parse("", sql)?;
        raw.bind("", "")?;
        raw.execute("", 0)?;
    }
    raw.sync()?;
    raw.parse("", "SELECT id FROM t")?;
    raw.bind("", "")?;
    raw.execute("", 0)?;
    raw.sync()?;
    let first = raw.until_ready()?.0;
    if !["12C1E", "12C12E"].contains(&first.as_str()) {
        return Err(format!("messages of the failed pipeline: {first}").into());
    }
    expect(
        raw.until_ready()?.0.as_str(),
        "12C",
        "a pipeline up to Sync is one transaction: nothing is left of it",
    )
}

fn nothing_is_answered_as_nothing(server: Server) -> Result {
    let mut raw = Raw::connect(server.port)?;
    for sql in ["", "  ", ";", "-- a comment", "/* a comment */;"] {
        raw.query(sql)?;
        expect(raw.until_ready()?.0.as_str(), "I", sql)?;
    }
    Ok(())
}

fn a_subscription_follows_its_view(server: Server) -> Result {
    block_on(async {
        let (client, writer) = (server.connect().await?, server.connect().await?);
        writer
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, g int);
                 CREATE MATERIALIZED VIEW m AS SELECT g, count(*) AS n FROM t GROUP BY g;
                 INSERT INTO t VALUES (1, 1)",
            )
            .await?;
        let mut changes = Box::pin(client.copy_out("COPY (SUBSCRIBE TO m) TO STDOUT").await?);
        let mut text = String::new();
        let mut sent = 0;
        // Each change is made only when the one before it has come.
        for (statement, lines) in [
            ("INSERT INTO t VALUES (2, 1)", 1),
            ("DELETE FROM t", 3),
            ("INSERT INTO t VALUES (3, 2)", 4),
        ] {
            while text.lines().count() < lines {
                let part = changes.next().await.ok_or("the subscription ended")??;
                text += std::str::from_utf8(&part)?;
            }
            writer.batch_execute(statement).await?;
            sent += 1;
        }
        while text.lines().count() < 5 {
            let part = changes.next().await.ok_or("the subscription ended")??;
            text += std::str::from_utf8(&part)?;
        }
        let without_epochs: Vec<&str> = text
            .lines()
            .map(|line| line.split_once('\t').map_or(line, |(_, rest)| rest))
            .collect();
        expect(sent, 3, "changes")?;
        expect(
            without_epochs,
            vec!["1\t1\t1", "-1\t1\t1", "1\t1\t2", "-1\t1\t2", "1\t2\t1"],
            "changes",
        )
    })
}

fn others_see_a_write_at_once(server: Server) -> Result {
    block_on(async {
        let (writer, reader) = (server.connect().await?, server.connect().await?);
        writer
            .batch_execute("CREATE TABLE t (id int); CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
            .await?;
        for number in 1..=50_i64 {
            writer.execute("INSERT INTO t VALUES (1)", &[]).await?;
            expect(
                reader.query_one("SELECT n FROM m", &[]).await?.get(0),
                number,
                "rows seen",
            )?;
        }
        Ok(())
    })
}

fn one_read_sees_one_moment(server: Server) -> Result {
    block_on(async {
        let (writer, reader) = (server.connect().await?, server.connect().await?);
        writer
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, v int);
                 CREATE MATERIALIZED VIEW a AS SELECT sum(v) AS s FROM t;
                 CREATE MATERIALIZED VIEW b AS SELECT count(*) AS n FROM t",
            )
            .await?;
        let writing = tokio::spawn(async move {
            for id in 0..200_i32 {
                writer.execute("INSERT INTO t VALUES ($1, 1)", &[&id]).await?;
            }
            Ok::<_, tokio_postgres::Error>(())
        });
        loop {
            let done = writing.is_finished();
            let row = reader.query_one("SELECT coalesce(a.s, 0), b.n FROM a, b", &[]).await?;
            expect(row.get::<_, i64>(0), row.get::<_, i64>(1), "two views at one moment")?;
            if done {
                return Ok(writing.await??);
            }
        }
    })
}

fn the_first_committer_wins(server: Server) -> Result {
    block_on(async {
        let (mut one, two) = (server.connect().await?, server.connect().await?);
        one.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)")
            .await?;
        let transaction = one.transaction().await?;
        transaction.execute("UPDATE t SET v = v + 1 WHERE id = 1", &[]).await?;
        two.execute("UPDATE t SET v = v + 10 WHERE id = 1", &[]).await?;
        let Err(error) = transaction.commit().await else {
            return Err("the second committer won as well".into());
        };
        expect(answer(&error)?.code().code(), "40001", "SQLSTATE")?;
        expect(
            two.query_one("SELECT v FROM t", &[]).await?.get::<_, i32>(0),
            10,
            "the row",
        )
    })
}
