//! Everything that has a limit or a default, by name.
//!
//! [`Config`] is what the command line says; the constants are the limits that it does not change. Names carry their
//! unit last. Documentation and `headwater.settings` list [`SETTINGS`].

use crate::error::{Error, Result};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The version that Headwater reports.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of PostgreSQL whose behaviour we keep to; clients choose their queries by it.
pub const POSTGRES_VERSION: &str = "15.13";

/// What `SHOW server_version` and the start of a connection say.
pub fn server_version() -> String {
    format!("{POSTGRES_VERSION} (Headwater {VERSION})")
}

/// Where PostgreSQL clients connect, unless told otherwise.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:5433";
/// Where the console and the metrics are, unless told otherwise.
pub const HTTP_LISTEN_DEFAULT: &str = "127.0.0.1:5480";
/// Where data is kept, unless told otherwise.
pub const DATA_DIR_DEFAULT: &str = "./headwater-data";
/// What all state may take in memory, unless told otherwise.
pub const MEMORY_LIMIT_DEFAULT: &str = "4GiB";

/// The connections of clients at one time; more are refused with `53300`.
pub const CONNECTIONS_MAX: usize = 1_000;
/// The bytes of one message from a client; a longer one ends its connection with `08P01`.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The bytes of the first message of a connection, as in PostgreSQL.
pub const STARTUP_MESSAGE_BYTES_MAX: usize = 10_000;
/// The milliseconds that a client has to authenticate.
pub const AUTHENTICATION_TIMEOUT_MS: u64 = 60_000;
/// The bytes of answers that wait in memory before they are sent; a slow client holds up its own statement only.
pub const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The bytes that are read ahead from a client while its statement runs, so that its disappearance is noticed.
pub const READ_AHEAD_BYTES_MAX: usize = 1 << 20;
/// The milliseconds that a statement has to stop after its client is gone, before it is abandoned.
pub const ABANDON_TIMEOUT_MS: u64 = 5_000;
/// The prepared statements of one connection.
pub const PREPARED_STATEMENTS_MAX: usize = 10_000;
/// The open portals of one connection.
pub const PORTALS_MAX: usize = 10_000;
/// The bytes of one row of COPY input.
pub const COPY_ROW_BYTES_MAX: usize = 64 << 20;
/// The bytes of an error's text that are sent to a client.
pub const ERROR_TEXT_BYTES_MAX: usize = 8 << 10;
/// The bytes of the head of a request to the console.
pub const HTTP_HEAD_BYTES_MAX: usize = 16 << 10;
/// The milliseconds that a request to the console may take to arrive.
pub const HTTP_TIMEOUT_MS: u64 = 10_000;
/// The milliseconds that connections have to end when the server stops.
pub const SHUTDOWN_TIMEOUT_MS: u64 = 10_000;

/// The bytes of the latest changes that are kept in memory for `SUBSCRIBE ... AS OF EPOCH`.
pub const CHANGE_LOG_BYTES_MAX: usize = 64 << 20;

/// Who may connect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Authentication {
    /// Anyone, under any name. Only on loopback.
    #[default]
    Trust,
    /// Users made by `CREATE USER ... PASSWORD`, by SCRAM-SHA-256.
    Scram,
}

/// The files of a TLS identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The chain of certificates, PEM.
    pub certificates: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// What the command line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where data is kept; `None` keeps it in memory.
    pub data_dir: Option<PathBuf>,
    /// Where PostgreSQL clients connect.
    pub listen: SocketAddr,
    /// Where the console and the metrics are; `None` switches them off.
    pub http: Option<SocketAddr>,
    /// The number of shards that step in parallel.
    pub workers: usize,
    /// The bytes that all state may take in memory.
    pub memory_limit_bytes: usize,
    /// Who may connect.
    pub authentication: Authentication,
    /// The identity for TLS; `None` switches it off.
    pub tls: Option<Tls>,
    /// A script that is run once, on an empty store, before clients are served.
    pub init: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: Some(PathBuf::from(DATA_DIR_DEFAULT)),
            listen: SocketAddr::from(([127, 0, 0, 1], 5433)),
            http: Some(SocketAddr::from(([127, 0, 0, 1], 5480))),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            memory_limit_bytes: 4 << 30,
            authentication: Authentication::Trust,
            tls: None,
            init: None,
        }
    }
}

impl Config {
    /// Refuses what would be unsafe or cannot work.
    pub fn check(&self) -> Result<()> {
        if !self.listen.ip().is_loopback() && self.authentication == Authentication::Trust {
            return Err(Error::semantic(
                "22023",
                format!(
                    "listening on {} without authentication is refused: anyone could connect",
                    self.listen
                ),
            )
            .with_hint("Use --auth scram (users are made by CREATE USER ... PASSWORD), or listen on loopback."));
        }
        if self.workers == 0 || self.workers > 1_024 {
            return Err(Error::semantic(
                "22023",
                format!("{} workers: there must be 1 to 1024", self.workers),
            ));
        }
        if self.memory_limit_bytes < MEMORY_LIMIT_BYTES_MIN {
            return Err(Error::semantic("22023", "the memory limit must be at least 64MiB"));
        }
        Ok(())
    }

    /// The bytes of one transaction or COPY: an eighth of the memory limit.
    pub fn epoch_bytes_max(&self) -> usize {
        self.memory_limit_bytes / 8
    }
}

/// The least memory limit.
const MEMORY_LIMIT_BYTES_MIN: usize = 64 << 20;

/// Reads a size such as `512MiB`, `4GB`, `1000` (bytes): powers of 1024, as PostgreSQL's settings have them.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        other => return Err(format!("unknown unit \"{other}\": use B, KiB, MiB, GiB or TiB")),
    };
    let value: f64 = number
        .parse()
        .map_err(|_| format!("\"{text}\" is not a size such as 4GiB"))?;
    let bytes = value * f64::from(2_u32).powi(shift);
    if !(0.0..=9e18).contains(&bytes) {
        return Err(format!("\"{text}\" is out of range"));
    }
    Ok(bytes as usize)
}

/// A setting as documentation and `headwater.settings` list it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value, unit included.
    pub value: &'static str,
    /// What it limits.
    pub description: &'static str,
}

/// The limits of the server.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "connections_max",
        value: "1000",
        description: "Connections of clients at one time.",
    },
    Setting {
        name: "message_bytes_max",
        value: "64MiB",
        description: "Bytes of one message from a client.",
    },
    Setting {
        name: "authentication_timeout_ms",
        value: "60000",
        description: "Time that a client has to authenticate.",
    },
    Setting {
        name: "send_buffer_bytes",
        value: "64KiB",
        description: "Bytes of answers that wait in memory before they are sent.",
    },
    Setting {
        name: "prepared_statements_max",
        value: "10000",
        description: "Prepared statements of one connection.",
    },
    Setting {
        name: "portals_max",
        value: "10000",
        description: "Open portals of one connection.",
    },
    Setting {
        name: "copy_row_bytes_max",
        value: "64MiB",
        description: "Bytes of one row of COPY input.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_units() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("512 mb"), Ok(512 << 20));
        assert_eq!(parse_bytes("1.5k"), Ok(1536));
        assert_eq!(parse_bytes("1000"), Ok(1000));
        assert!(parse_bytes("x").is_err());
        assert!(parse_bytes("1parsec").is_err());
        assert!(parse_bytes("").is_err());
    }

    #[test]
    fn trust_is_for_loopback_only() {
        let mut config = Config::default();
        assert!(config.check().is_ok());
        config.listen = SocketAddr::from(([0, 0, 0, 0], 5433));
        assert!(config.check().is_err());
        config.authentication = Authentication::Scram;
        assert!(config.check().is_ok());
        config.workers = 0;
        assert!(config.check().is_err());
    }
}
