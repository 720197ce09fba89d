//! Times read and shown in a time zone: `AT TIME ZONE`.

use super::times_of;
use crate::error::{Error, Result};
use crate::sql::function::cast::is_infinite;
use crate::sql::function::definition::Call;
use crate::types::calendar::Zone;
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{IntervalMonthDayNanoType, TimestampMicrosecondType};

/// Which way AT TIME ZONE goes.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// From an instant to what clocks show.
    ToLocal,
    /// From what clocks show to an instant.
    ToInstant,
}

fn converted(micros: i64, zone: Zone, way: Way) -> i64 {
    if is_infinite(micros) {
        return micros;
    }
    match way {
        Way::ToLocal => zone.local_of_instant(micros),
        Way::ToInstant => zone.instant_of_local(micros),
    }
}

pub(super) fn in_zone(call: &Call<'_>, way: Way) -> Result<ArrayRef> {
    let names = call.arguments[0].as_string::<i32>();
    let times = call.arguments[1].as_primitive::<TimestampMicrosecondType>();
    let mut last: Option<(String, Zone)> = None;
    let mut values = Vec::with_capacity(call.rows);
    for (name, time) in names.iter().zip(times) {
        let (Some(name), Some(time)) = (name, time) else {
            values.push(None);
            continue;
        };
        let zone = match &last {
            Some((known, zone)) if known == name => *zone,
            _ => {
                let zone = Zone::parse(name)
                    .map_err(|_| Error::semantic("22023", format!("time zone \"{name}\" not recognized")))?;
                last = Some((name.to_owned(), zone));
                zone
            }
        };
        values.push(Some(converted(time, zone, way)));
    }
    times_of(values, call)
}

pub(super) fn at_offset(call: &Call<'_>, way: Way) -> Result<ArrayRef> {
    let offsets = call.arguments[0].as_primitive::<IntervalMonthDayNanoType>();
    let times = call.arguments[1].as_primitive::<TimestampMicrosecondType>();
    let mut values = Vec::with_capacity(call.rows);
    for (offset, time) in offsets.iter().zip(times) {
        let (Some(offset), Some(time)) = (offset, time) else {
            values.push(None);
            continue;
        };
        if offset.months != 0 || offset.days != 0 {
            return Err(Error::semantic(
                "22023",
                "interval time zone must not include months or days",
            ));
        }
        let zone = Zone::Fixed((offset.nanoseconds / 1_000_000_000) as i32);
        values.push(Some(converted(time, zone, way)));
    }
    times_of(values, call)
}
