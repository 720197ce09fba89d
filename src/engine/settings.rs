//! A session's settings: what SET changes and SHOW tells.
//!
//! The table names every setting with its default; a setting that PostgreSQL has and that changes nothing here is
//! accepted, so that clients can set what they always set. Sessions do not share settings.

use crate::error::{Error, Result};
use crate::types::Zone;
use std::collections::BTreeMap;

/// A setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name, as SHOW ALL prints it.
    pub name: &'static str,
    /// Its value unless it is set.
    pub default: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// Who may change it.
    pub change: Change,
}

/// Who may change a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Any session, for itself; the client is told of the new value.
    Reported,
    /// Any session, for itself.
    Session,
    /// Nobody.
    Fixed,
}

const fn setting(name: &'static str, default: &'static str, change: Change, description: &'static str) -> Setting {
    Setting {
        name,
        default,
        description,
        change,
    }
}

/// All settings of a session, by name.
pub const SETTINGS: &[Setting] = &[
    setting(
        "application_name",
        "",
        Change::Reported,
        "The name of the client's program.",
    ),
    setting(
        "array_nulls",
        "on",
        Change::Session,
        "Accepted: NULL in array input is always NULL.",
    ),
    setting(
        "backslash_quote",
        "safe_encoding",
        Change::Session,
        "Accepted, without effect.",
    ),
    setting(
        "block_size",
        "8192",
        Change::Fixed,
        "PostgreSQL's block size, for clients that ask.",
    ),
    setting("bytea_output", "hex", Change::Session, "The text form of bytea: hex."),
    setting(
        "check_function_bodies",
        "on",
        Change::Session,
        "Accepted, without effect.",
    ),
    setting(
        "client_encoding",
        "UTF8",
        Change::Reported,
        "The client's encoding: UTF8.",
    ),
    setting(
        "client_min_messages",
        "notice",
        Change::Session,
        "The least severity that the client is told.",
    ),
    setting(
        "DateStyle",
        "ISO, MDY",
        Change::Reported,
        "The form of dates; output is ISO.",
    ),
    setting("default_tablespace", "", Change::Session, "Accepted, without effect."),
    setting(
        "default_transaction_isolation",
        "repeatable read",
        Change::Session,
        "The level of new transactions.",
    ),
    setting(
        "default_transaction_read_only",
        "off",
        Change::Reported,
        "Whether new transactions may not write.",
    ),
    setting(
        "extra_float_digits",
        "1",
        Change::Session,
        "Accepted: floats are printed shortest-exact.",
    ),
    setting(
        "idle_in_transaction_session_timeout",
        "0",
        Change::Session,
        "Accepted, without effect.",
    ),
    setting(
        "in_hot_standby",
        "off",
        Change::Fixed,
        "Whether this is a standby server.",
    ),
    setting(
        "integer_datetimes",
        "on",
        Change::Fixed,
        "Whether times are integers on the wire.",
    ),
    setting(
        "IntervalStyle",
        "postgres",
        Change::Reported,
        "The form of intervals: postgres.",
    ),
    setting(
        "is_superuser",
        "on",
        Change::Fixed,
        "Whether the user may do everything.",
    ),
    setting("jit", "off", Change::Session, "Accepted, without effect."),
    setting("lc_collate", "C", Change::Fixed, "How text is ordered: by its bytes."),
    setting("lc_ctype", "C.UTF-8", Change::Fixed, "How text is classified."),
    setting("lc_messages", "C", Change::Session, "The language of messages."),
    setting(
        "listed_rows_max",
        "100000",
        Change::Session,
        "The late and failed rows that a view lists at most.",
    ),
    setting("lock_timeout", "0", Change::Session, "Accepted: readers take no locks."),
    setting("max_identifier_length", "63", Change::Fixed, "The bytes of a name."),
    setting("max_index_keys", "32", Change::Fixed, "The columns of an index."),
    setting(
        "password_encryption",
        "scram-sha-256",
        Change::Session,
        "How passwords are kept.",
    ),
    setting("row_security", "on", Change::Session, "Accepted, without effect."),
    setting(
        "search_path",
        "\"$user\", public",
        Change::Session,
        "The schemas that names are looked up in.",
    ),
    setting(
        "server_encoding",
        "UTF8",
        Change::Fixed,
        "The encoding of what is stored.",
    ),
    setting(
        "server_version",
        "",
        Change::Fixed,
        "The version of PostgreSQL that is spoken.",
    ),
    setting("server_version_num", "150013", Change::Fixed, "The same as a number."),
    setting("session_authorization", "", Change::Fixed, "The session's user."),
    setting(
        "standard_conforming_strings",
        "on",
        Change::Reported,
        "Whether backslashes in strings are plain.",
    ),
    setting(
        "statement_timeout",
        "0",
        Change::Session,
        "The milliseconds after which a statement is cancelled; 0: never.",
    ),
    setting(
        "synchronize_seqscans",
        "on",
        Change::Session,
        "Accepted, without effect.",
    ),
    setting(
        "synchronous_commit",
        "on",
        Change::Session,
        "Accepted: commits are always on the disk.",
    ),
    setting(
        "TimeZone",
        "UTC",
        Change::Reported,
        "The time zone in which timestamptz is shown and read.",
    ),
    setting(
        "transaction_isolation",
        "repeatable read",
        Change::Session,
        "The level of this transaction.",
    ),
    setting(
        "transaction_read_only",
        "off",
        Change::Session,
        "Whether this transaction may not write.",
    ),
    setting(
        "use_views",
        "on",
        Change::Session,
        "Whether a query may read a view that already holds its answer.",
    ),
    setting("work_mem", "4MB", Change::Session, "Accepted, without effect."),
    setting("xmloption", "content", Change::Session, "Accepted, without effect."),
];

/// The values of a session's settings.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    values: BTreeMap<&'static str, String>,
    initial: BTreeMap<&'static str, String>,
    custom: BTreeMap<String, String>,
    zone: Zone,
}

impl SessionSettings {
    /// The defaults for a user.
    pub fn new(user: &str) -> Self {
        let mut values: BTreeMap<&'static str, String> = SETTINGS
            .iter()
            .map(|setting| (setting.name, setting.default.to_owned()))
            .collect();
        values.insert("server_version", crate::config::server_version());
        values.insert("session_authorization", user.to_owned());
        Self {
            initial: values.clone(),
            values,
            custom: BTreeMap::new(),
            zone: Zone::UTC,
        }
    }

    /// The setting of a name, whatever its case.
    pub fn find(name: &str) -> Option<&'static Setting> {
        let name = match name {
            "time zone" | "timezone" => "TimeZone",
            other => other,
        };
        SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }

    /// The value of a setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        match Self::find(name) {
            Some(setting) => self.values.get(setting.name).map(String::as_str),
            None => self.custom.get(&name.to_ascii_lowercase()).map(String::as_str),
        }
    }

    /// Changes a setting. The name and new value are returned if the client is to be told.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Option<(String, String)>> {
        let Some(setting) = Self::find(name) else {
            if name.contains('.') {
                self.custom.insert(name.to_ascii_lowercase(), value.to_owned());
                return Ok(None);
            }
            return Err(unknown(name));
        };
        if setting.change == Change::Fixed {
            return Err(Error::semantic(
                "55P02",
                format!("parameter \"{}\" cannot be changed", setting.name),
            ));
        }
        let value = self.checked(setting, value)?;
        let changed = self.values.insert(setting.name, value.clone()).as_ref() != Some(&value);
        let reported = changed && setting.change == Change::Reported;
        Ok(reported.then(|| (setting.name.to_owned(), value)))
    }

    /// Makes the current values those that RESET goes back to: what the client asked for when it connected.
    pub fn set_initial(&mut self) {
        self.initial = self.values.clone();
    }

    /// Takes a setting back to what it was when the session began.
    pub fn reset(&mut self, name: &str) -> Result<Option<(String, String)>> {
        match Self::find(name) {
            Some(setting) => {
                let value = self.initial.get(setting.name).cloned().unwrap_or_default();
                if setting.change == Change::Fixed {
                    return Ok(None);
                }
                self.set(setting.name, &value)
            }
            None if self.custom.remove(&name.to_ascii_lowercase()).is_some() => Ok(None),
            None => Err(unknown(name)),
        }
    }

    /// Takes all settings back.
    pub fn reset_all(&mut self) -> Vec<(String, String)> {
        self.custom.clear();
        let names = SETTINGS.iter().filter(|setting| setting.change != Change::Fixed);
        names
            .filter_map(|setting| self.reset(setting.name).ok().flatten())
            .collect()
    }

    /// The time zone.
    pub fn zone(&self) -> Zone {
        self.zone
    }

    /// The schemas that names are looked up in.
    pub fn search_path(&self, user: &str) -> Vec<String> {
        let path = self.get("search_path").unwrap_or("public");
        path.split(',')
            .map(|part| part.trim().trim_matches('"'))
            .filter(|part| !part.is_empty())
            .map(|part| {
                if part == "$user" {
                    user.to_owned()
                } else {
                    part.to_owned()
                }
            })
            .collect()
    }

    /// After how long a statement is cancelled.
    pub fn statement_timeout(&self) -> Option<std::time::Duration> {
        let millis = millis_of(self.get("statement_timeout")?)?;
        (millis > 0).then(|| std::time::Duration::from_millis(millis))
    }

    fn checked(&mut self, setting: &Setting, value: &str) -> Result<String> {
        let invalid = || {
            Error::semantic(
                "22023",
                format!("invalid value for parameter \"{}\": \"{value}\"", setting.name),
            )
        };
        match setting.name {
            "TimeZone" => {
                let zone = Zone::parse(value)?;
                self.zone = zone;
                Ok(zone.name())
            }
            "client_encoding" => match value.to_ascii_lowercase().as_str() {
                "utf8" | "utf-8" | "unicode" => Ok("UTF8".to_owned()),
                _ => Err(Error::unsupported(format!("encoding \"{value}\" is not supported")).with_hint("Use UTF8.")),
            },
            "IntervalStyle" => match value.to_ascii_lowercase().as_str() {
                "postgres" => Ok("postgres".to_owned()),
                _ => Err(
                    Error::unsupported(format!("IntervalStyle \"{value}\" is not supported"))
                        .with_hint("Use postgres."),
                ),
            },
            "DateStyle" => date_style(value, self.get("DateStyle").unwrap_or("ISO, MDY")).ok_or_else(invalid),
            "bytea_output" if !value.eq_ignore_ascii_case("hex") => {
                Err(Error::unsupported("bytea_output is hex").with_hint("Use SET bytea_output = 'hex'."))
            }
            "default_transaction_isolation" | "transaction_isolation" => {
                isolation(value)?;
                Ok("repeatable read".to_owned())
            }
            "standard_conforming_strings" if !matches!(boolean(value), Some(true)) => {
                Err(Error::unsupported("standard_conforming_strings is always on"))
            }
            "default_transaction_read_only" | "transaction_read_only" | "use_views" | "jit" | "row_security" => {
                let on = boolean(value).ok_or_else(|| {
                    Error::semantic(
                        "22023",
                        format!("parameter \"{}\" requires a Boolean value", setting.name),
                    )
                })?;
                Ok(if on { "on" } else { "off" }.to_owned())
            }
            "statement_timeout" | "lock_timeout" | "idle_in_transaction_session_timeout" => {
                millis_of(value).ok_or_else(invalid)?;
                Ok(value.to_owned())
            }
            "extra_float_digits" | "listed_rows_max" => {
                value.parse::<i64>().map_err(|_| invalid())?;
                Ok(value.to_owned())
            }
            _ => Ok(value.to_owned()),
        }
    }
}

/// Whether a level of isolation is one that is there.
pub fn isolation(level: &str) -> Result<()> {
    match level.to_ascii_lowercase().as_str() {
        "serializable" => Err(Error::unsupported("SERIALIZABLE transactions are not supported")
            .with_hint("Use REPEATABLE READ: a transaction reads one epoch.")),
        "repeatable read" | "read committed" | "read uncommitted" | "default" => Ok(()),
        other => Err(Error::semantic(
            "22023",
            format!("invalid value for parameter \"transaction_isolation\": \"{other}\""),
        )),
    }
}

/// The truth in a word, as PostgreSQL reads it.
pub fn boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

fn millis_of(value: &str) -> Option<u64> {
    let value = value.trim();
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let number: f64 = digits.parse().ok()?;
    let unit = match value[digits.len()..].trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    (number >= 0.0).then_some((number * unit) as u64)
}

fn date_style(value: &str, current: &str) -> Option<String> {
    let mut order = current.split(", ").nth(1).unwrap_or("MDY").to_owned();
    for part in value.split(',') {
        match part.trim().to_ascii_uppercase().as_str() {
            "ISO" | "DEFAULT" => {}
            "MDY" | "US" | "NONEURO" => "MDY".clone_into(&mut order),
            "DMY" | "EURO" => "DMY".clone_into(&mut order),
            "YMD" => "YMD".clone_into(&mut order),
            _ => return None,
        }
    }
    Some(format!("ISO, {order}"))
}

fn unknown(name: &str) -> Error {
    Error::semantic("42704", format!("unrecognized configuration parameter \"{name}\""))
}
