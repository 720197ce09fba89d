//! What of a session decides how its values are read and written.

use super::calendar::Zone;

/// In which order the numbers of an ambiguous date such as `1/2/2024` stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DateOrder {
    /// Month, day, year.
    #[default]
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

/// The settings of a session that its values depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The zone in which `timestamptz` is shown, and read where a literal names none.
    pub time_zone: Zone,
    /// The order of day, month and year in the input of dates. Output is ISO always.
    pub date_order: DateOrder,
    /// What `now`, `today` and their like are in input: the transaction's start, microseconds since 1970.
    pub now_micros: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            time_zone: Zone::UTC,
            date_order: DateOrder::Mdy,
            now_micros: 0,
        }
    }
}
