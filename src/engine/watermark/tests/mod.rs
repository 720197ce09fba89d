//! Time under a clock that the test drives.

mod clock;

use crate::config::Config;
use crate::engine::{Engine, Outcome, Parameters, Session};
use crate::error::Result;
use crate::time::Clock;
use arrow::util::display::array_value_to_string;
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const SECOND: i64 = 1_000_000;

/// 2024-01-01 10:00.
const TEN: i64 = 1_704_103_200 * SECOND;

async fn run(session: &mut Session, text: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for statement in session.parse(text)? {
        if let Outcome::Rows { mut rows, .. } = session.execute(&statement, &Parameters::default()).await? {
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                for row in 0..batch.num_rows() {
                    let cells = batch.columns().iter();
                    let cells: Vec<String> = cells
                        .map(|column| array_value_to_string(column, row).unwrap_or_default())
                        .collect();
                    lines.push(cells.join(" "));
                }
            }
        }
    }
    Ok(lines)
}

fn with_clock<T>(test: impl AsyncFnOnce(Session, Arc<AtomicI64>) -> Result<T>) -> Result<T> {
    let clock = Arc::new(AtomicI64::new(TEN));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| crate::error::Error::io(error.to_string()))?;
    runtime.block_on(async {
        let engine = Engine::open_with(
            &Config {
                data_dir: None,
                ..Config::default()
            },
            Clock::Manual(clock.clone()),
        )?;
        let session = engine.connect("tester", "headwater", &[])?;
        let done = test(session, clock).await;
        engine.shutdown().await;
        done
    })
}

/// W09: a stream without rows closes its last windows as the clock passes, by as much as has passed since it was idle.
#[test]
fn an_idle_stream_closes_its_windows() -> Result<()> {
    with_clock(async |mut session, clock| {
        run(
            &mut session,
            "CREATE STREAM s (ts timestamp, v int, WATERMARK FOR ts AS ts) WITH (idle_timeout = '1 minute')",
        )
        .await?;
        let view = "CREATE MATERIALIZED VIEW c AS SELECT window_start, count(*) AS n \
                    FROM TUMBLE(s, ts, INTERVAL '1 minute') GROUP BY window_start, window_end EMIT ON WINDOW CLOSE";
        run(&mut session, view).await?;
        run(&mut session, "INSERT INTO s VALUES ('2024-01-01 09:59:30', 1)").await?;
        clock.store(TEN + 89 * SECOND, Ordering::SeqCst);
        run(&mut session, "FLUSH").await?;
        assert_eq!(
            run(&mut session, "SELECT n FROM c").await?.len(),
            0,
            "29 seconds idle: 09:59:59"
        );
        clock.store(TEN + 90 * SECOND, Ordering::SeqCst);
        run(&mut session, "FLUSH").await?;
        assert_eq!(
            run(&mut session, "SELECT n FROM c").await?,
            ["1"],
            "30 seconds idle: 10:00"
        );
        run(&mut session, "INSERT INTO s VALUES ('2024-01-01 09:59:59', 1)").await?;
        assert_eq!(
            run(&mut session, "SELECT v, weight FROM late_rows('c')").await?,
            ["1 1"]
        );
        assert!(run(&mut session, "VERIFY MATERIALIZED VIEW c").await?.is_empty());
        Ok(())
    })
}

/// W07: a stream without rows does not hold back the one that it is joined with; what it then brings from before is late.
#[test]
fn an_idle_stream_holds_nothing_back() -> Result<()> {
    with_clock(async |mut session, clock| {
        for name in ["a", "b"] {
            let stream = format!(
                "CREATE STREAM {name} (ts timestamp, v int, WATERMARK FOR ts AS ts) WITH (idle_timeout = '1 minute')"
            );
            run(&mut session, &stream).await?;
        }
        let count = |name: &str| {
            format!(
                "(SELECT window_start, window_end, count(*) AS n FROM TUMBLE({name}, ts, INTERVAL '1 minute') \
                 GROUP BY window_start, window_end)"
            )
        };
        let view = format!(
            "CREATE MATERIALIZED VIEW c AS SELECT a.window_start, a.n FROM {} AS a LEFT JOIN {} AS b \
             ON a.window_start = b.window_start AND a.window_end = b.window_end EMIT ON WINDOW CLOSE",
            count("a"),
            count("b")
        );
        run(&mut session, &view).await?;
        run(&mut session, "INSERT INTO b VALUES ('2024-01-01 10:00:00', 1)").await?;
        run(
            &mut session,
            "INSERT INTO a VALUES ('2024-01-01 10:00:30', 1), ('2024-01-01 10:03:00', 1)",
        )
        .await?;
        assert_eq!(run(&mut session, "SELECT n FROM c").await?.len(), 0, "b holds a back");
        clock.store(TEN + 60 * SECOND, Ordering::SeqCst);
        run(&mut session, "INSERT INTO a VALUES ('2024-01-01 10:03:01', 1)").await?;
        assert_eq!(run(&mut session, "SELECT n FROM c").await?, ["1"]);
        run(&mut session, "INSERT INTO b VALUES ('2024-01-01 10:00:40', 2)").await?;
        assert_eq!(
            run(&mut session, "SELECT v, weight FROM late_rows('c')").await?,
            ["2 1"]
        );
        assert!(run(&mut session, "VERIFY MATERIALIZED VIEW c").await?.is_empty());
        Ok(())
    })
}

/// W24: what is kept of windows is what is open, however many have closed.
#[test]
fn closed_windows_leave_no_state() -> Result<()> {
    with_clock(async |mut session, _| {
        run(
            &mut session,
            "CREATE STREAM s (ts timestamp, v int, WATERMARK FOR ts AS ts)",
        )
        .await?;
        let view = "CREATE MATERIALIZED VIEW c AS SELECT v % 3 AS k, window_start, count(*) AS n, sum(v) AS total \
                    FROM TUMBLE(s, ts, INTERVAL '1 minute') GROUP BY v % 3, window_start, window_end";
        run(&mut session, view).await?;
        for hour in 0..20 {
            let insert = format!(
                "INSERT INTO s SELECT timestamp '2024-01-01' + interval '1 hour' * {hour} + interval '1 second' * g, g \
                 FROM generate_series(0, 3599) AS g"
            );
            run(&mut session, &insert).await?;
        }
        let kept = "SELECT state_rows FROM headwater.operators WHERE operator = 'Aggregate'";
        assert_eq!(run(&mut session, kept).await?, ["3"], "of 1200 windows one is open");
        assert_eq!(
            run(&mut session, "SELECT count(*), sum(n) FROM c").await?,
            ["3600 72000"]
        );
        assert!(run(&mut session, "VERIFY MATERIALIZED VIEW c").await?.is_empty());
        Ok(())
    })
}

/// W08: the end of a finite file closes all of its windows.
#[test]
fn the_end_of_a_file_closes_its_windows() -> Result<()> {
    let directory = tempfile::tempdir().map_err(|error| crate::error::Error::io(error.to_string()))?;
    let path = directory.path().join("rows.csv");
    std::fs::write(&path, "ts,v\n2024-01-01 10:00:01,1\n2024-01-01 10:05:01,2\n")
        .map_err(|error| crate::error::Error::io(error.to_string()))?;
    with_clock(async |mut session, _| {
        let stream = format!(
            "CREATE STREAM s (ts timestamp, v int, WATERMARK FOR ts AS ts) \
             WITH (connector = 'file', path = '{}', format = 'csv')",
            path.display()
        );
        run(&mut session, &stream).await?;
        let view = "CREATE MATERIALIZED VIEW c AS SELECT window_start, count(*) AS n \
                    FROM TUMBLE(s, ts, INTERVAL '1 minute') GROUP BY window_start, window_end EMIT ON WINDOW CLOSE";
        run(&mut session, view).await?;
        for _ in 0..10_000 {
            run(&mut session, "FLUSH").await?;
            let state = run(&mut session, "SELECT state FROM headwater.watermarks WHERE name = 's'").await?;
            if state == ["finished"] {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(
            run(&mut session, "SELECT n FROM c ORDER BY window_start").await?,
            ["1", "1"]
        );
        Ok(())
    })
}
