//! The demonstration as it is served: completed at every start, and its progress told on stderr.
//!
//! On a terminal the progress is one line that is written over every second; elsewhere it is a line every ten seconds.

use super::script::{Data, Script};
use crate::demo::{self, NULL, TABLES};
use crate::engine::{Engine, SourceReport};
use crate::error::Result;
use crate::sql::statement::{Parsed, Statement};
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time between two lines on a terminal.
const TERMINAL_INTERVAL_MS: u64 = 1_000;

/// The time between two lines elsewhere.
const LOG_INTERVAL_MS: u64 = 10_000;

/// The stream that is replayed.
const STREAM: &str = "flights";

/// What a new user may try first.
const QUERY: &str = "SELECT * FROM carrier_delays ORDER BY arrival_delay DESC";

/// Makes what is missing of the demonstration below `directory`: all of it, or what an earlier start did not get to.
pub async fn begin(engine: &Engine, directory: &Path, flights_per_second: u32) -> Result<()> {
    let file = demo::unpack(directory)?;
    let text = demo::sql(&file, flights_per_second);
    Script::open(engine)?.complete(&text, &Bundled).await
}

/// The tables that are in the binary.
struct Bundled;

impl Data for Bundled {
    fn of(&self, statement: &Parsed) -> Option<(String, &'static [u8])> {
        let Statement::CreateTable { name, .. } = &statement.statement else {
            return None;
        };
        let table = TABLES.iter().find(|table| table.name == name.name)?;
        let copy = format!(
            "COPY {} FROM STDIN WITH (FORMAT csv, HEADER, NULL '{NULL}')",
            table.name
        );
        Some((copy, table.csv))
    }
}

/// Tells on stderr what to try and how far the replay is, until it has ended.
pub async fn tell_progress(engine: Engine, address: SocketAddr) {
    eprintln!(
        "try:  psql -h {} -p {} -U anyone headwater -c \"{QUERY}\"",
        address.ip(),
        address.port()
    );
    let on_terminal = std::io::stderr().is_terminal();
    let interval = if on_terminal {
        TERMINAL_INTERVAL_MS
    } else {
        LOG_INTERVAL_MS
    };
    let mut ticks = tokio::time::interval(Duration::from_millis(interval));
    let mut before: Option<(Instant, u64)> = None;
    loop {
        ticks.tick().await;
        let Some(report) = engine.source_report(STREAM) else {
            return;
        };
        let now = Instant::now();
        let read = flights_read(&report);
        let line = match before.replace((now, read)) {
            // Before the first interval has passed there is no rate to tell.
            None => None,
            Some((then, had)) => {
                let rate = read.saturating_sub(had) as f64 / now.duration_since(then).as_secs_f64().max(1e-9);
                Some(progress_line(read, rate))
            }
        };
        let ended = end_of(&report);
        if let Some(text) = ended.clone().or(line) {
            show(&text, on_terminal, ended.is_some());
        }
        if ended.is_some() {
            return;
        }
    }
}

/// The flights that the source has read since the file's beginning: its position is the next line.
fn flights_read(report: &SourceReport) -> u64 {
    let next_line: u64 = report
        .position
        .strip_prefix("line ")
        .and_then(|line| line.parse().ok())
        .unwrap_or(0);
    // The first line is the header.
    next_line.saturating_sub(2)
}

fn progress_line(read: u64, rows_per_second: f64) -> String {
    let all = demo::FLIGHTS_COUNT;
    let percent = read * 100 / all;
    format!("{STREAM}: {read} of {all} rows ({percent} %), {rows_per_second:.0} rows/s")
}

/// What is to be said when the replay is over.
fn end_of(report: &SourceReport) -> Option<String> {
    match report.state.as_str() {
        "finished" => Some(format!("{STREAM}: all {} rows are read", flights_read(report))),
        state if state.starts_with("stopped") => Some(format!("{STREAM}: the replay has {state}")),
        _ => None,
    }
}

fn show(text: &str, on_terminal: bool, last: bool) {
    let mut stderr = std::io::stderr().lock();
    // Somebody who has closed stderr does not want to be told.
    let _ = match (on_terminal, last) {
        (true, false) => write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush()),
        (true, true) => writeln!(stderr, "\r\x1b[K{text}"),
        (false, _) => writeln!(stderr, "{text}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_tells_the_rows() {
        let mut report = SourceReport {
            position: "line 1".to_owned(),
            ..SourceReport::default()
        };
        assert_eq!(flights_read(&report), 0, "the header is not read yet");
        report.position = "line 1002".to_owned();
        assert_eq!(flights_read(&report), 1000);
        assert_eq!(
            progress_line(168_388, 499.6),
            "flights: 168388 of 336776 rows (50 %), 500 rows/s"
        );
        assert_eq!(end_of(&report), None);
        report.position = format!("line {}", demo::FLIGHTS_COUNT + 2);
        report.state = "finished".to_owned();
        assert_eq!(end_of(&report).as_deref(), Some("flights: all 336776 rows are read"));
    }
}
