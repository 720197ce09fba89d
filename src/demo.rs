//! The demonstration: a year of flights out of New York, built into the binary.
//!
//! [`unpack`] writes the flights to a file that the file connector then replays as a live stream; the tables that go
//! with them are loaded from memory ([`TABLES`]); [`sql`] is what is run. The data and where it is from:
//! `benches/data/flights/README.md`.

use crate::error::{Error, Result};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The statements of the demonstration, with `{path}` and `{rate}` to be filled in; see [`sql`].
pub const DEMO_SQL: &str = include_str!("demo.sql");

/// How many flights a second the demonstration replays unless told otherwise: the year takes about eleven minutes.
pub const FLIGHTS_PER_SECOND: u32 = 500;

/// How many flights there are.
pub const FLIGHTS_COUNT: u64 = 336_776;

/// What means NULL in the data.
pub const NULL: &str = "NA";

/// A table that is loaded from memory.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its rows: CSV with a header, in which [`NULL`] means NULL.
    pub csv: &'static [u8],
}

/// The tables, each to be loaded in the transaction that creates it.
pub const TABLES: &[Table] = &[
    Table {
        name: "airlines",
        csv: include_bytes!("../benches/data/flights/airlines.csv"),
    },
    Table {
        name: "airports",
        csv: include_bytes!("../benches/data/flights/airports.csv"),
    },
    Table {
        name: "planes",
        csv: include_bytes!("../benches/data/flights/planes.csv"),
    },
    Table {
        name: "weather",
        csv: include_bytes!("../benches/data/flights/weather.csv"),
    },
];

const FLIGHTS: &[u8] = include_bytes!("../benches/data/flights/flights.csv.gz");

/// The file of flights below `directory`, written there first if it is not there.
pub fn unpack(directory: &Path) -> Result<PathBuf> {
    let place = directory.join("flights").join("flights.csv.gz");
    let is_there = fs::metadata(&place).is_ok_and(|metadata| metadata.len() == FLIGHTS.len() as u64);
    if is_there {
        return Ok(place);
    }
    let aside = place.with_extension("unfinished");
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(directory.join("flights"))?;
        let mut file = fs::File::create(&aside)?;
        file.write_all(FLIGHTS)?;
        file.sync_all()?;
        fs::rename(&aside, &place)
    };
    write().map_err(|error| Error::io(format!("could not write file \"{}\": {error}", place.display())))?;
    Ok(place)
}

/// The statements of the demonstration: the flights of `file` at `flights_per_second`.
pub fn sql(file: &Path, flights_per_second: u32) -> String {
    let path = file.display().to_string().replace('\'', "''");
    DEMO_SQL
        .replace("{path}", &path)
        .replace("{rate}", &flights_per_second.max(1).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flights_are_unpacked_once_and_whole() {
        let directory = tempfile::tempdir().unwrap();
        let place = unpack(directory.path()).unwrap();
        assert_eq!(fs::read(&place).unwrap(), FLIGHTS);
        let written = fs::metadata(&place).unwrap().modified().unwrap();
        assert_eq!(unpack(directory.path()).unwrap(), place);
        assert_eq!(fs::metadata(&place).unwrap().modified().unwrap(), written);
        fs::write(&place, b"cut").unwrap();
        unpack(directory.path()).unwrap();
        assert_eq!(
            fs::read(&place).unwrap(),
            FLIGHTS,
            "a file that was cut is written again"
        );
    }

    #[test]
    fn the_statements_are_filled_in() {
        let sql = sql(Path::new("/it's/flights.csv.gz"), 250);
        assert!(sql.contains("path = '/it''s/flights.csv.gz'") && sql.contains("rate = '250'"));
        assert!(!sql.split("CREATE TABLE airlines").last().unwrap().contains(['{', '}']));
        for table in TABLES {
            assert!(sql.contains(&format!("CREATE TABLE {} (", table.name)));
        }
    }
}
