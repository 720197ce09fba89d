//! `connector = 'blackhole'`: takes every change and forgets it. For measuring everything but the sink.

use super::{Connector, Options, Position, Progress, SinkRequest, SinkWriter};
use crate::delta::Delta;
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// Its entry.
pub(super) const CONNECTOR: Connector = Connector {
    name: "blackhole",
    summary: "Takes every change, counts its rows, and forgets them: for measuring everything but the sink.",
    options: &[],
    source: None,
    sink: Some(open),
};

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Counted {
    rows: u64,
    epoch: Option<u64>,
}

struct Blackhole {
    written: Counted,
    flushed: Counted,
    opened_at: u64,
}

fn open(_options: &Options<'_>, request: &SinkRequest<'_>) -> Result<Box<dyn SinkWriter>> {
    let flushed: Counted = request.position.map(Position::read).transpose()?.unwrap_or_default();
    Ok(Box::new(Blackhole {
        written: flushed,
        flushed,
        opened_at: flushed.rows,
    }))
}

impl SinkWriter for Blackhole {
    fn write(&mut self, epoch: u64, delta: &Delta) -> Result<()> {
        if self.flushed.epoch.is_none_or(|flushed| epoch > flushed) {
            self.written.rows += delta.len() as u64;
            self.written.epoch = Some(epoch);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Position> {
        self.flushed = self.written;
        Ok(self.position())
    }

    fn position(&self) -> Position {
        Position::of(&self.flushed)
    }

    fn progress(&self) -> Progress {
        Progress {
            position: format!("row {}", self.written.rows),
            total: None,
            lag: None,
            unit: "rows",
            rows: self.written.rows - self.opened_at,
        }
    }
}
