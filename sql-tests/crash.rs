//! A server that is killed at any moment loses nothing that it acknowledged, and repeats nothing.
//!
//! Clients insert numbered rows, alone and in transactions, while the server is killed at a random moment and started
//! again with another number of workers. After each round every acknowledged row is there once, a row whose answer
//! never came is there once or not at all, a transaction is there whole or not at all, and the views agree with their
//! queries. `HEADWATER_CRASH_ROUNDS` says how many rounds (4 unless told otherwise).

use crate::harness::{Restarts, Result, Server, Setup, Storage, block_on, connect};
use sqllogictest::harness::Trial;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};
use tokio_postgres::Client;

const WRITERS: usize = 4;

/// The rows of a transaction.
const BATCH: i64 = 3;

/// The tests of this module.
pub(crate) fn tests() -> Vec<Trial> {
    vec![crate::harness::trial("crash::acknowledged_rows_survive", || {
        Ok(acknowledged_rows_survive()?)
    })]
}

fn rounds() -> usize {
    std::env::var("HEADWATER_CRASH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(4)
}

/// A number that differs from run to run: when the server is killed.
fn any_below(limit: u64) -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    now.subsec_nanos() as u64 / 1_000 % limit
}

/// What a client knows of the rows that it sent, by the first of them.
#[derive(Default)]
struct Ledger {
    acknowledged: Vec<i64>,
    unanswered: Vec<i64>,
}

fn acknowledged_rows_survive() -> Result {
    let mut server = Server::start(Setup {
        storage: Storage::Disk,
        workers: 1,
        restarts: Restarts::Never,
    })?;
    block_on(async {
        let client = server.connect().await?;
        client
            .batch_execute(
                "CREATE TABLE t (id bigint PRIMARY KEY, batch bigint NOT NULL);
                 CREATE STREAM s (id bigint, batch bigint);
                 CREATE MATERIALIZED VIEW by_batch AS SELECT batch, count(*) AS n FROM t GROUP BY batch;
                 CREATE MATERIALIZED VIEW joined AS SELECT t.id FROM t JOIN s ON t.id = s.id;",
            )
            .await?;
        let next = Arc::new(AtomicI64::new(0));
        let mut ledger = Ledger::default();
        for round in 0..rounds() {
            let wait = Duration::from_millis(20 + any_below(400));
            let port = server.port;
            let writers: Vec<_> = (0..WRITERS)
                .map(|_| tokio::spawn(write_until_cut(port, next.clone())))
                .collect();
            tokio::time::sleep(wait).await;
            server.restart()?;
            for writer in writers {
                let own = writer.await??;
                ledger.acknowledged.extend(own.acknowledged);
                ledger.unanswered.extend(own.unanswered);
            }
            check(&server.connect().await?, &ledger)
                .await
                .map_err(|error| format!("round {round}, killed after {wait:?}: {error}\n{}", server.log()))?;
        }
        if ledger.acknowledged.is_empty() {
            return Err("no row was ever acknowledged".into());
        }
        Ok(())
    })
}

/// Inserts transactions of a few rows until the connection breaks.
async fn write_until_cut(port: u16, next: Arc<AtomicI64>) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    let Ok(client) = connect(port).await else {
        return Ok(ledger);
    };
    loop {
        let first = next.fetch_add(BATCH, Ordering::SeqCst);
        let rows: Vec<String> = (first..first + BATCH).map(|id| format!("({id}, {first})")).collect();
        let rows = rows.join(", ");
        let sent = client
            .batch_execute(&format!(
                "BEGIN; INSERT INTO t VALUES {rows}; INSERT INTO s VALUES {rows}; COMMIT"
            ))
            .await;
        match sent {
            Ok(()) => ledger.acknowledged.push(first),
            Err(error)
                if error
                    .as_db_error()
                    .is_some_and(|answer| !answer.code().code().starts_with("57")) =>
            {
                return Err(error.into());
            }
            Err(_) => {
                ledger.unanswered.push(first);
                return Ok(ledger);
            }
        }
    }
}

async fn check(client: &Client, ledger: &Ledger) -> Result {
    for relation in ["t", "s"] {
        let query = format!("SELECT batch, count(*), count(DISTINCT id) FROM {relation} GROUP BY batch");
        let rows = client.query(&query, &[]).await?;
        let found: HashMap<i64, (i64, i64)> = rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
        for first in &ledger.acknowledged {
            if found.get(first) != Some(&(BATCH, BATCH)) {
                return Err(format!(
                    "{relation}: acknowledged batch {first} is there as {:?}",
                    found.get(first)
                )
                .into());
            }
        }
        if let Some((first, counts)) = found.iter().find(|(_, counts)| **counts != (BATCH, BATCH)) {
            return Err(format!("{relation}: batch {first} is there in part or twice: {counts:?}").into());
        }
        let known = |first: &i64| ledger.acknowledged.contains(first) || ledger.unanswered.contains(first);
        if let Some(first) = found.keys().find(|first| !known(first)) {
            return Err(format!("{relation}: nobody sent batch {first}").into());
        }
    }
    for view in ["by_batch", "joined"] {
        let differing = client.query(&format!("VERIFY MATERIALIZED VIEW {view}"), &[]).await?;
        if !differing.is_empty() {
            return Err(format!("{view} differs from its query in {} rows", differing.len()).into());
        }
    }
    Ok(())
}
