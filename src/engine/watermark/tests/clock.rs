//! Filters on `now()`: rows come and go by the clock alone.

use super::{SECOND, TEN, run, with_clock};
use crate::config::Config;
use crate::engine::{Engine, Session};
use crate::error::{Error, Result};
use crate::time::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What a query answers once the clock shows so many seconds after ten, and that all views are right then.
async fn at(session: &mut Session, clock: &AtomicI64, seconds: i64, query: &str) -> Result<Vec<String>> {
    clock.store(TEN + seconds * SECOND, Ordering::SeqCst);
    run(session, "FLUSH").await?;
    for view in run(session, "SELECT name FROM headwater.views ORDER BY name").await? {
        let wrong = run(session, &format!("VERIFY MATERIALIZED VIEW {view}")).await?;
        assert!(wrong.is_empty(), "{view} after {seconds} seconds: {wrong:?}");
    }
    run(session, query).await
}

/// W15: a row comes at its time and leaves when time has passed, without new input; what is above it follows.
#[test]
fn w15_rows_come_and_go_by_the_clock() -> Result<()> {
    with_clock(async |mut session, clock| {
        let views = "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, pinned boolean); \
             CREATE MATERIALIZED VIEW recent AS SELECT id FROM t WHERE at > now() - INTERVAL '1 minute' AND at <= now(); \
             CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n, max(id) AS last FROM recent; \
             CREATE MATERIALIZED VIEW either AS SELECT id FROM t WHERE at > now() OR pinned; \
             CREATE MATERIALIZED VIEW aged AS SELECT id FROM t WHERE now() - at < INTERVAL '45 seconds'; \
             CREATE MATERIALIZED VIEW between_both AS SELECT id FROM t WHERE now() BETWEEN at AND at + INTERVAL '10 seconds'; \
             CREATE MATERIALIZED VIEW not_between AS SELECT id FROM t WHERE now() NOT BETWEEN at AND at + INTERVAL '10 seconds'; \
             CREATE MATERIALIZED VIEW exactly AS SELECT id FROM t WHERE at = now(); \
             CREATE MATERIALIZED VIEW monthly AS SELECT id FROM t WHERE at > now() - INTERVAL '1 month'; \
             CREATE MATERIALIZED VIEW today AS SELECT id FROM t WHERE at::date >= current_date - 1; \
             CREATE MATERIALIZED VIEW this_hour AS SELECT id FROM t WHERE at >= date_trunc('hour', now()); \
             CREATE MATERIALIZED VIEW groups AS SELECT pinned, max(at) AS last FROM t GROUP BY pinned \
               HAVING max(at) > now() - INTERVAL '1 minute'; \
             CREATE MATERIALIZED VIEW pairs AS SELECT a.id, b.id AS other FROM t a JOIN t b ON a.id < b.id \
               WHERE a.at > now() - INTERVAL '1 minute' AND b.at <= now()";
        for view in views.split("; ") {
            run(&mut session, view).await?;
        }
        let rows = "INSERT INTO t VALUES (1, '2024-01-01 10:00:00+00', false), (2, '2024-01-01 10:00:30+00', true), \
                    (3, '2024-01-01 09:58:00+00', true), (4, NULL, NULL), (5, '2024-01-01 10:00:30+00', false)";
        run(&mut session, rows).await?;
        let recent = "SELECT id FROM recent ORDER BY id";
        assert_eq!(at(&mut session, &clock, 0, recent).await?, ["1"]);
        assert_eq!(at(&mut session, &clock, 0, "SELECT id FROM exactly").await?, ["1"]);
        assert_eq!(at(&mut session, &clock, 29, recent).await?, ["1"]);
        assert_eq!(at(&mut session, &clock, 29, "SELECT id FROM exactly").await?.len(), 0);
        assert_eq!(at(&mut session, &clock, 30, recent).await?, ["1", "2", "5"]);
        assert_eq!(at(&mut session, &clock, 30, "SELECT * FROM counted").await?, ["3 5"]);
        assert_eq!(
            at(&mut session, &clock, 30, "SELECT id FROM exactly ORDER BY 1").await?,
            ["2", "5"]
        );
        assert_eq!(
            at(&mut session, &clock, 59, "SELECT id FROM either ORDER BY id").await?,
            ["2", "3"]
        );
        run(&mut session, "DELETE FROM t WHERE id = 5").await?;
        assert_eq!(at(&mut session, &clock, 60, recent).await?, ["2"]);
        run(&mut session, "UPDATE t SET at = at + INTERVAL '1 minute' WHERE id = 1").await?;
        assert_eq!(at(&mut session, &clock, 61, recent).await?, ["1", "2"]);
        assert_eq!(at(&mut session, &clock, 90, recent).await?, ["1"]);
        assert_eq!(at(&mut session, &clock, 1000, recent).await?.len(), 0);
        assert_eq!(at(&mut session, &clock, 1000, "SELECT * FROM counted").await?, ["0 "]);
        let monthly = "SELECT id FROM monthly ORDER BY id";
        assert_eq!(at(&mut session, &clock, 30 * 86400, monthly).await?, ["1", "2", "3"]);
        assert_eq!(at(&mut session, &clock, 31 * 86400 + 59, monthly).await?, ["1"]);
        assert_eq!(at(&mut session, &clock, 40 * 86400, monthly).await?.len(), 0);
        let kept = "SELECT sum(state_rows) FROM headwater.operators WHERE operator = 'FilterByClock'";
        assert_eq!(at(&mut session, &clock, 40 * 86400, kept).await?, ["0"]);
        Ok(())
    })
}

/// W15: what happened to the clock while the engine was down is made up for; definitions move no view's clock.
#[test]
fn w15_time_passes_while_the_engine_is_down() -> Result<()> {
    let directory = tempfile::tempdir().map_err(|error| Error::io(error.to_string()))?;
    let config = Config {
        data_dir: Some(directory.path().to_owned()),
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Error::io(error.to_string()))?;
    runtime.block_on(async {
        let clock = Arc::new(AtomicI64::new(TEN));
        let engine = Engine::open_with(&config, Clock::Manual(clock.clone()))?;
        let mut session = engine.connect("tester", "headwater", &[])?;
        run(&mut session, "CREATE TABLE t (id int, at timestamptz)").await?;
        run(
            &mut session,
            "CREATE MATERIALIZED VIEW recent AS SELECT id FROM t WHERE at > now() - INTERVAL '1 minute'",
        )
        .await?;
        run(
            &mut session,
            "INSERT INTO t VALUES (1, '2024-01-01 10:00:00+00'), (2, '2024-01-01 10:00:30+00')",
        )
        .await?;
        clock.store(TEN + 70 * SECOND, Ordering::SeqCst);
        run(&mut session, "CREATE TABLE other (id int)").await?;
        assert!(run(&mut session, "VERIFY MATERIALIZED VIEW recent").await?.is_empty());
        clock.store(TEN + 10 * SECOND, Ordering::SeqCst);
        drop(session);
        engine.shutdown().await;
        drop(engine);
        clock.store(TEN + 75 * SECOND, Ordering::SeqCst);
        // The driver's thread lets go of the directory when it ends, just after it has answered.
        let engine = loop {
            match Engine::open_with(&config, Clock::Manual(clock.clone())) {
                Err(error) if error.code() == "55006" => tokio::task::yield_now().await,
                opened => break opened?,
            }
        };
        let mut session = engine.connect("tester", "headwater", &[])?;
        assert!(run(&mut session, "VERIFY MATERIALIZED VIEW recent").await?.is_empty());
        let recent = "SELECT id FROM recent";
        assert_eq!(at(&mut session, &clock, 75, recent).await?, ["2"]);
        assert_eq!(at(&mut session, &clock, 95, recent).await?.len(), 0);
        engine.shutdown().await;
        Ok(())
    })
}

/// W15: nobody has to ask: the engine wakes when the next row goes.
#[test]
fn w15_a_timer_wakes_the_engine() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Error::io(error.to_string()))?;
    runtime.block_on(async {
        let config = Config {
            data_dir: None,
            ..Config::default()
        };
        let engine = Engine::open_with(&config, Clock::System)?;
        let mut session = engine.connect("tester", "headwater", &[])?;
        run(&mut session, "CREATE TABLE t (id int, at timestamptz)").await?;
        run(
            &mut session,
            "CREATE MATERIALIZED VIEW recent AS SELECT id FROM t WHERE at > now() - INTERVAL '300 milliseconds'",
        )
        .await?;
        run(&mut session, "INSERT INTO t VALUES (1, now())").await?;
        while !run(&mut session, "SELECT id FROM recent").await?.is_empty() {
            tokio::task::yield_now().await;
        }
        engine.shutdown().await;
        Ok(())
    })
}

/// W18: the clock is the epoch's, or refused; never a row's.
#[test]
fn w18_now_elsewhere_is_refused() -> Result<()> {
    with_clock(async |mut session, _| {
        run(&mut session, "CREATE TABLE t (id int, at timestamptz)").await?;
        for query in [
            "SELECT id, now() AS n FROM t",
            "SELECT id FROM t GROUP BY id, now()",
            "SELECT count(*) FILTER (WHERE at > now()) AS n FROM t",
            "SELECT id FROM t WHERE extract(hour FROM now()) > id",
            "SELECT id FROM t WHERE at + (now() - at) > now()",
            "SELECT id FROM t ORDER BY at - now() LIMIT 1",
        ] {
            let refused = run(&mut session, &format!("CREATE MATERIALIZED VIEW v AS {query}")).await;
            let error = refused.expect_err(query);
            assert_eq!(error.code(), "0A000", "{query}: {error}");
            assert!(error.hint().is_some(), "{query}: a hint");
        }
        Ok(())
    })
}

/// Windows over arrival: a relation without event time, by the clock of the epochs.
#[test]
fn windows_over_arrival() -> Result<()> {
    with_clock(async |mut session, clock| {
        for view in [
            "CREATE TABLE t (id int, k text)",
            "CREATE STREAM s (id int, k text)",
            "CREATE MATERIALIZED VIEW minute AS SELECT id FROM t [RANGE 1 MINUTE]",
            "CREATE MATERIALIZED VIEW slid AS SELECT id FROM t [RANGE 1 MINUTE SLIDE 30 SECONDS]",
            "CREATE MATERIALIZED VIEW last AS SELECT id FROM t [ROWS 2]",
            "CREATE MATERIALIZED VIEW each AS SELECT k, id FROM t [PARTITION BY k ROWS 1]",
            "CREATE MATERIALIZED VIEW now_only AS SELECT id FROM t [NOW]",
            "CREATE MATERIALIZED VIEW whole AS SELECT id FROM t [UNBOUNDED]",
            "CREATE MATERIALIZED VIEW of_stream AS SELECT k, id FROM s [PARTITION BY k ROWS 2]",
        ] {
            run(&mut session, view).await?;
        }
        let ids = async |session: &mut Session, seconds: i64, view: &str| -> Result<String> {
            clock.store(TEN + seconds * SECOND, Ordering::SeqCst);
            run(session, "FLUSH").await?;
            Ok(run(session, &format!("SELECT id FROM {view} ORDER BY id"))
                .await?
                .join(" "))
        };
        run(&mut session, "INSERT INTO t VALUES (3, 'a'), (1, 'b'), (2, 'a')").await?;
        run(
            &mut session,
            "INSERT INTO s VALUES (3, 'a'), (1, 'b'), (2, 'a'), (1, 'a')",
        )
        .await?;
        for (view, expected) in [("minute", "1 2 3"), ("slid", "1 2 3"), ("last", "1 2"), ("each", "1 2")] {
            assert_eq!(ids(&mut session, 0, view).await?, expected, "{view}");
        }
        assert_eq!(ids(&mut session, 0, "now_only").await?, "1 2 3");
        assert_eq!(ids(&mut session, 0, "of_stream").await?, "1 1 2");
        assert_eq!(ids(&mut session, 1, "now_only").await?, "");
        clock.store(TEN + 20 * SECOND, Ordering::SeqCst);
        run(&mut session, "INSERT INTO t VALUES (4, 'b')").await?;
        assert_eq!(ids(&mut session, 20, "minute").await?, "1 2 3 4");
        assert_eq!(
            ids(&mut session, 20, "slid").await?,
            "1 2 3",
            "4 enters at the next slide"
        );
        assert_eq!(ids(&mut session, 20, "last").await?, "2 4");
        assert_eq!(ids(&mut session, 20, "each").await?, "2 4");
        assert_eq!(ids(&mut session, 30, "slid").await?, "1 2 3 4");
        run(&mut session, "DELETE FROM t WHERE id = 4").await?;
        assert_eq!(ids(&mut session, 40, "last").await?, "1 2", "those before move up");
        assert_eq!(ids(&mut session, 40, "each").await?, "1 2");
        assert_eq!(ids(&mut session, 59, "minute").await?, "1 2 3");
        assert_eq!(ids(&mut session, 60, "minute").await?, "");
        assert_eq!(ids(&mut session, 60, "slid").await?, "");
        assert_eq!(ids(&mut session, 60, "whole").await?, "1 2 3");
        run(&mut session, "UPDATE t SET k = 'c' WHERE id = 3").await?;
        assert_eq!(ids(&mut session, 61, "minute").await?, "3", "an update arrives");
        assert_eq!(ids(&mut session, 61, "last").await?, "2 3");
        run(&mut session, "DELETE FROM t").await?;
        for view in ["minute", "last", "each", "whole"] {
            assert_eq!(ids(&mut session, 62, view).await?, "", "{view}");
        }
        let error = run(&mut session, "VERIFY MATERIALIZED VIEW minute")
            .await
            .expect_err("it cannot be proved");
        assert_eq!(error.code(), "55000");
        Ok(())
    })
}
