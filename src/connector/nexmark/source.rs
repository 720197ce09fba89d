//! The generator as a source: pulled in chunks, paced, positioned by the number of the event.

use super::{CHUNK_EVENTS, Content, ROW_BYTES, SHUFFLE_STRIDE, Settings, Table};
use crate::catalog::Column;
use crate::connector::pace::Pace;
use crate::connector::{
    Budget, Options, Polled, Position, Progress, Source, SourceRequest, SourceState, delivered, schema_of,
};
use crate::delta::{Batch, Delta, batch_of};
use crate::error::{Error, Result};
use crate::types::Type;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The stored position.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Mark {
    place: u64,
}

struct Nexmark {
    settings: Settings,
    table: Table,
    contents: Vec<Content>,
    schema: SchemaRef,
    place: u64,
    end: Option<u64>,
    pace: Option<Pace>,
    delivered: u64,
}

/// Opens the table that the options name.
pub(super) fn open(options: &Options<'_>, request: &SourceRequest<'_>) -> Result<Box<dyn Source>> {
    let tables = [
        ("person", Table::Person),
        ("auction", Table::Auction),
        ("bid", Table::Bid),
    ];
    let table = options.choice("table", &tables)?.expect("a required option is there");
    let group = options.whole("out_of_order", 1)?.unwrap_or(1);
    if group % SHUFFLE_STRIDE == 0 {
        return Err(options.wrong("out_of_order", "It is not a multiple of 953."));
    }
    let settings = Settings {
        seed: options.whole("seed", 0)?.unwrap_or(0),
        event_rate: options.whole("event_rate", 1)?.unwrap_or(100_000),
        out_of_order: group,
    };
    let columns = delivered(request)?;
    let contents = columns
        .iter()
        .map(|column| content_of(table, column))
        .collect::<Result<Vec<_>>>()?;
    let mark: Option<Mark> = request.position.map(Position::read).transpose()?;
    Ok(Box::new(Nexmark {
        settings,
        table,
        contents,
        schema: schema_of(&columns),
        place: mark.map_or(0, |mark| mark.place),
        end: options.whole("events", 0)?,
        pace: options.rate("rate")?.map(Pace::new),
        delivered: 0,
    }))
}

/// What a declared column holds.
fn content_of(table: Table, column: &Column) -> Result<Content> {
    let known = table.contents();
    let Some((_, content)) = known.iter().find(|(name, _)| *name == column.name) else {
        let names: Vec<String> = known
            .iter()
            .map(|(name, content)| format!("{name} {}", content.kind()))
            .collect();
        return Err(Error::semantic(
            "42703",
            format!("column \"{}\" does not exist in the generated table", column.name),
        )
        .with_hint(format!("Its columns are: {}.", names.join(", "))));
    };
    if column.kind.arrow() != content.kind().arrow()
        || !matches!(
            column.kind,
            Type::Int8 | Type::Text | Type::Varchar(None) | Type::Timestamp(None | Some(6))
        )
    {
        return Err(Error::semantic(
            "42804",
            format!(
                "column \"{}\" is of type {} but the generated one is {}",
                column.name,
                column.kind,
                content.kind()
            ),
        ));
    }
    Ok(*content)
}

impl Nexmark {
    /// How many places to go so that about `rows` rows of the table come, never more.
    fn places_for(&self, rows: u64) -> u64 {
        if rows >= CHUNK_EVENTS {
            return CHUNK_EVENTS;
        }
        let mut places = 0;
        let mut found = 0;
        while places < CHUNK_EVENTS {
            if Table::of_event(self.settings.event_at(self.place + places)) == self.table {
                found += 1;
                if found > rows {
                    break;
                }
            }
            places += 1;
        }
        places
    }
}

impl Source for Nexmark {
    fn poll(&mut self, budget: Budget) -> Result<Polled> {
        let mut polled = Polled {
            delta: Delta::new(),
            errors: Vec::new(),
            state: SourceState::More,
        };
        let mut allowed = u64::MAX;
        if let Some(pace) = &mut self.pace {
            allowed = pace.allowed(Instant::now()) as u64;
        }
        let (mut rows_left, mut bytes_left) = (budget.rows_max.max(1) as u64, budget.bytes_max as u64);
        let mut taken = 0;
        while rows_left > 0 && (taken == 0 || bytes_left > 0) {
            let there = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.place));
            if there == 0 {
                polled.state = SourceState::Finished;
                break;
            }
            if allowed == 0 {
                break;
            }
            let affordable = rows_left.min(bytes_left / ROW_BYTES + 1);
            let places = self.places_for(affordable).min(there).min(allowed);
            let events = self.settings.events_of(self.table, self.place..self.place + places);
            let arrays = self
                .contents
                .iter()
                .map(|content| self.settings.column(*content, &events))
                .collect();
            let batch = Batch::inserts(batch_of(self.schema.clone(), arrays, events.len())?);
            bytes_left = bytes_left.saturating_sub(batch.rows.get_array_memory_size() as u64);
            polled.delta.push(batch);
            rows_left -= events.len() as u64;
            self.place += places;
            self.delivered += events.len() as u64;
            taken += places;
            allowed -= places.min(allowed);
        }
        if let Some(pace) = &mut self.pace {
            pace.took(taken as usize);
            if polled.state == SourceState::More && allowed == 0 {
                polled.state = SourceState::Idle {
                    retry_at: Some(pace.next()),
                };
            }
        }
        Ok(polled)
    }

    fn position(&self) -> Position {
        Position::of(&Mark { place: self.place })
    }

    fn progress(&self) -> Progress {
        Progress {
            position: format!("event {}", self.place),
            total: self.end,
            lag: self.end.map(|end| end.saturating_sub(self.place)),
            unit: "events",
            rows: self.delivered,
        }
    }
}
