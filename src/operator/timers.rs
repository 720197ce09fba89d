//! When keys next need a look: an operator's keys by time.
//!
//! Each entry, a time and a key, stands under the *home* of the key's key group, of which there is one for each group:
//! so a shard finds its own entries whatever the number of shards was before.
//!
//! ```text
//! home of group 7:  [10:05 a] [10:06 f] [10:30 a]       until 10:06: a, f are due
//! home of group 8:  [10:01 b]                                        b is due
//! ```

use crate::delta::{KEY_GROUPS, key_group};
use crate::error::Result;
use crate::state::Tables;
use std::sync::OnceLock;

/// The keys of an operator by time, in one of its arrangements.
pub(super) struct Timers {
    /// Which of the operator's tables.
    table: usize,
    first: Earliest,
}

/// The earliest time of all entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Earliest {
    /// Not looked up yet.
    Unknown,
    /// There is no entry.
    Never,
    /// No entry is earlier.
    At(i64),
}

/// Something that is due: its time and its key.
pub(super) type Due = (i64, Vec<u8>);

/// A time as bytes that sort as it does.
pub(super) fn sortable(micros: i64) -> [u8; 8] {
    (micros ^ i64::MIN).to_be_bytes()
}

/// The time of bytes that [`sortable`] made.
pub(super) fn time_of(bytes: &[u8]) -> i64 {
    bytes
        .first_chunk::<8>()
        .map_or(0, |bytes| i64::from_be_bytes(*bytes) ^ i64::MIN)
}

/// The key under which a group's entries stand: the least number that falls into the group.
fn home(group: u8) -> &'static [u8] {
    static HOMES: OnceLock<Vec<[u8; 4]>> = OnceLock::new();
    let homes = HOMES.get_or_init(|| {
        let least = |group: usize| (0..u32::MAX).find(|number| usize::from(key_group(&number.to_be_bytes())) == group);
        let all = (0..KEY_GROUPS).map(|group| least(group).unwrap_or_default().to_be_bytes());
        all.collect()
    });
    &homes[usize::from(group)]
}

impl Timers {
    /// The timers in that table of the operator's.
    pub(super) fn new(table: usize) -> Self {
        Self {
            table,
            first: Earliest::Unknown,
        }
    }

    /// Adds an entry, or takes it away.
    pub(super) fn change(&mut self, tables: &mut Tables, key: &[u8], time: i64, amount: i64) -> Result<()> {
        let home = home(key_group(key));
        let table = tables.arranged(self.table);
        table.load([home])?;
        table.update(home, &[&sortable(time), key].concat(), amount)?;
        if amount > 0 {
            self.first = match self.first {
                Earliest::Unknown => Earliest::Unknown,
                Earliest::Never => Earliest::At(time),
                Earliest::At(first) => Earliest::At(first.min(time)),
            };
        }
        Ok(())
    }

    /// Takes away what is due up to and including a time, in the order of time within each key.
    pub(super) fn take_due(&mut self, tables: &mut Tables, until: i64) -> Result<Vec<Due>> {
        match self.first {
            Earliest::Never => return Ok(Vec::new()),
            Earliest::At(first) if first > until => return Ok(Vec::new()),
            _ => {}
        }
        let part = tables.1;
        let table = tables.arranged(self.table);
        let end = until.checked_add(1).map(sortable);
        let mut due = Vec::new();
        let mut first = None::<i64>;
        for group in (0..=u8::MAX).filter(|group| part.owns(*group)) {
            let home = home(group);
            table.load([home])?;
            let entries = table.group(home);
            let mut gone: Vec<(Box<[u8]>, i64)> = Vec::new();
            for (entry, weight) in entries.iter() {
                if end.is_some_and(|end| entry >= &end[..]) {
                    first = Some(first.map_or(time_of(entry), |known| known.min(time_of(entry))));
                    break;
                }
                gone.push((entry.into(), weight));
            }
            for (entry, weight) in gone {
                table.update(home, &entry, -weight)?;
                due.push((time_of(&entry), entry[8..].to_vec()));
            }
        }
        self.first = first.map_or(Earliest::Never, Earliest::At);
        Ok(due)
    }
}
