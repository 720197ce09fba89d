//! What is refused: each statement of `errors.txt` with the code and the place of its error, here and in PostgreSQL.
//!
//! A line is the SQLSTATE, the position in the statement (or `-`), and the statement. Behind the line
//! `# ours alone` the code is PostgreSQL's and the place is not.

use crate::harness::{Result, Server, Setup, block_on, root, trial};
use crate::postgres::Postgres;
use sqllogictest::harness::Trial;
use tokio_postgres::Client;
use tokio_postgres::error::ErrorPosition;

/// The tests of this module.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("errors::say_what_and_where", || {
            let server = Server::start(Setup::QUICK)?;
            Ok(block_on(async {
                let client = server.connect().await?;
                wrong(&client, &lines(Whose::All)?).await
            })?)
        }),
        trial("errors::as_postgres_has_them", || {
            let postgres = Postgres::start()?;
            Ok(block_on(async {
                let client = postgres.connect().await?;
                wrong(&client, &lines(Whose::Shared)?).await
            })?)
        }),
    ]
}

/// Which lines are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    All,
    Shared,
}

/// A statement and its error.
struct Line {
    code: String,
    position: String,
    sql: String,
}

fn lines(whose: Whose) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(root().join("sql-tests/errors.txt"))?;
    let shared = text.split("\n# ours alone").next().unwrap_or_default();
    let meant = if whose == Whose::All { text.as_str() } else { shared };
    meant
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut parts = line.splitn(3, ' ');
            match (parts.next(), parts.next(), parts.next()) {
                (Some(code), Some(position), Some(sql)) => Ok(Line {
                    code: code.to_owned(),
                    position: position.to_owned(),
                    sql: sql.to_owned(),
                }),
                _ => Err(format!("not a line of errors.txt: {line}").into()),
            }
        })
        .collect()
}

async fn wrong(client: &Client, lines: &[Line]) -> Result {
    client
        .batch_execute(
            "CREATE TABLE t (id int PRIMARY KEY, v int);
             CREATE MATERIALIZED VIEW m AS SELECT v FROM t;
             INSERT INTO t VALUES (1, 1)",
        )
        .await?;
    let mut wrong = String::new();
    for Line { code, position, sql } in lines {
        let got = match client.simple_query(sql).await {
            Ok(_) => "no error".to_owned(),
            Err(error) => match error.as_db_error() {
                Some(error) => {
                    let place = match error.position() {
                        Some(ErrorPosition::Original(place)) => place.to_string(),
                        _ => "-".to_owned(),
                    };
                    if error.code().code() == code && place == *position {
                        continue;
                    }
                    format!("{} {place} {}", error.code().code(), error.message())
                }
                None => return Err(format!("{sql}: {error}").into()),
            },
        };
        wrong += &format!("{sql}: expected {code} {position}, got {got}\n");
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}
