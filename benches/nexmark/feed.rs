//! The three sources: events that were made beforehand, handed out in chunks that keep in step with one another.
//!
//! A chunk is the rows of one table among some consecutive events. A source never runs further ahead of the slowest
//! one than a few chunks, so that persons, auctions and bids arrive about as they would from one log.

use crate::Result;
use headwater::connector::nexmark::{Settings, Table};
use headwater::connector::{Budget, Polled, Position, Progress, Source, SourceState, Waker};
use headwater::delta::{Batch, Delta};
use headwater::engine::Engine;
use headwater::error::Error;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;

/// The events of a chunk.
const CHUNK_EVENTS: u64 = 32_768;

/// How many chunks a source may be ahead of the slowest one.
const AHEAD_MAX: usize = 2;

const TABLES: [(&str, Table); 3] = [
    ("person", Table::Person),
    ("auction", Table::Auction),
    ("bid", Table::Bid),
];

/// The events, and how far they were handed out.
pub(super) struct Feed {
    chunks: Arc<[Vec<RecordBatch>; 3]>,
    warm_chunks: usize,
    state: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    next: [usize; 3],
    wakers: Vec<Waker>,
    warm: Option<Instant>,
    finished: usize,
}

impl Feed {
    /// Makes the events.
    pub(super) fn new(events: u64) -> Self {
        let settings = Settings::default();
        let starts: Vec<u64> = (0..events).step_by(CHUNK_EVENTS as usize).collect();
        let of = |table: Table| {
            let chunk = |start: &u64| settings.rows(table, *start..(start + CHUNK_EVENTS).min(events));
            starts.iter().map(chunk).collect()
        };
        Self {
            chunks: Arc::new(TABLES.map(|(_, table)| of(table))),
            warm_chunks: starts.len() / 10,
            state: Arc::default(),
        }
    }

    /// The events that are not counted.
    pub(super) fn warm_events(&self) -> u64 {
        self.warm_chunks as u64 * CHUNK_EVENTS
    }

    /// When they had gone by.
    pub(super) fn warm(&self) -> Option<Instant> {
        self.state.state.lock().warm
    }

    /// Attaches the sources to the streams.
    pub(super) fn attach(&self, engine: &Engine) -> Result {
        for (place, (name, _)) in TABLES.into_iter().enumerate() {
            let (chunks, shared, warm) = (self.chunks.clone(), self.state.clone(), self.warm_chunks);
            engine.attach(name, move |position| {
                let next = position.map_or(Ok(0), chunk_of)?;
                shared.state.lock().next[place] = next;
                let source = Replay {
                    chunks: chunks.clone(),
                    shared: shared.clone(),
                    place,
                    next,
                    warm,
                    rows: 0,
                };
                Ok(Box::new(source))
            })?;
        }
        Ok(())
    }

    /// Waits until all rows were handed out.
    pub(super) fn wait(&self) {
        let mut state = self.state.state.lock();
        while state.finished < TABLES.len() {
            self.state.finished.wait(&mut state);
        }
    }
}

fn chunk_of(position: &Position) -> Result<usize, Error> {
    let bytes = position.0.as_slice().try_into();
    let bytes: [u8; 8] = bytes.map_err(|_| Error::corrupt("a position of another source"))?;
    Ok(u64::from_le_bytes(bytes) as usize)
}

/// One table's source.
struct Replay {
    chunks: Arc<[Vec<RecordBatch>; 3]>,
    shared: Arc<Shared>,
    place: usize,
    next: usize,
    warm: usize,
    rows: u64,
}

impl Source for Replay {
    fn poll(&mut self, _: Budget) -> Result<Polled, Error> {
        let own = &self.chunks[self.place];
        let mut polled = Polled {
            delta: Delta::new(),
            errors: Vec::new(),
            state: SourceState::More,
        };
        let mut state = self.shared.state.lock();
        let Some(chunk) = own.get(self.next) else {
            state.finished += 1;
            state.next[self.place] = usize::MAX;
            polled.state = SourceState::Finished;
            state.wakers.iter().for_each(|wake| wake());
            self.shared.finished.notify_all();
            return Ok(polled);
        };
        let slowest = state.next.iter().copied().min().unwrap_or(0);
        if self.next > slowest + AHEAD_MAX {
            polled.state = SourceState::Idle { retry_at: None };
            return Ok(polled);
        }
        polled.delta.push(Batch::inserts(chunk.clone()));
        self.rows += chunk.num_rows() as u64;
        self.next += 1;
        state.next[self.place] = self.next;
        let all_warm = state.next.iter().all(|next| *next > self.warm);
        if all_warm && state.warm.is_none() {
            state.warm = Some(Instant::now());
        }
        state.wakers.iter().for_each(|wake| wake());
        Ok(polled)
    }

    fn position(&self) -> Position {
        Position((self.next as u64).to_le_bytes().to_vec())
    }

    fn progress(&self) -> Progress {
        Progress {
            position: format!("chunk {}", self.next),
            total: Some(self.chunks[self.place].len() as u64),
            lag: None,
            unit: "chunks",
            rows: self.rows,
        }
    }

    fn wake_by(&mut self, waker: Waker) {
        self.shared.state.lock().wakers.push(waker);
    }
}
