//! A statement ends when it is done, when it is cancelled, or when it has taken too long: its work and its rows.

use crate::engine::{Outcome, RowStream};
use crate::error::{Error, Result};
use futures::StreamExt;
use std::future::Future;
use tokio_util::sync::CancellationToken;

/// Waits for work, until it is cancelled or takes too long.
pub(super) async fn cancellable<T>(
    token: CancellationToken,
    timeout: Option<std::time::Duration>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let late = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = token.cancelled() => Err(Error::cancelled()),
        result = work => result,
        () = late => Err(timed_out()),
    }
}

fn timed_out() -> Error {
    Error::new(
        crate::error::Kind::Cancelled,
        "57014",
        "canceling statement due to statement timeout",
    )
}

/// The outcome with rows that end when the statement is cancelled.
pub(super) fn watched(outcome: Outcome, token: CancellationToken, timeout: Option<std::time::Duration>) -> Outcome {
    let watch = |rows: RowStream| -> RowStream {
        let deadline = timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        futures::stream::unfold((rows, token, State::Open), move |(mut rows, token, state)| async move {
            if state == State::Ended {
                return None;
            }
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = token.cancelled() => Some((Err(Error::cancelled()), (rows, token, State::Ended))),
                next = rows.next() => next.map(|item| (item, (rows, token, State::Open))),
                () = late => Some((Err(timed_out()), (rows, token, State::Ended))),
            }
        })
        .boxed()
    };
    match outcome {
        Outcome::Rows { columns, rows, tag } => Outcome::Rows {
            columns,
            rows: watch(rows),
            tag,
        },
        Outcome::CopyOut { columns, rows, format } => Outcome::CopyOut {
            columns,
            rows: watch(rows),
            format,
        },
        Outcome::Subscribe { columns, rows } => Outcome::Subscribe {
            columns,
            rows: watch(rows),
        },
        other => other,
    }
}

#[derive(PartialEq, Eq)]
enum State {
    Open,
    Ended,
}
