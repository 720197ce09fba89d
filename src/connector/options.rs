//! The options of a WITH clause: declared once, then read with the type that the reader needs.
//!
//! A declaration says all that a user can be told about an option; [`Options`] holds the given values after they were
//! checked against the declarations, so that a misspelled or forgotten option is reported before anything is opened.

use super::Connector;
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// The option that names the connector.
pub(super) const CONNECTOR_KEY: &str = "connector";

/// What a connector is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Rows come from it.
    Source,
    /// Changes go to it.
    Sink,
}

impl Role {
    /// The word for it in messages.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
        }
    }
}

/// The declaration of an option.
#[derive(Debug, Clone, Copy)]
pub struct ConnectorOption {
    /// Its name.
    pub name: &'static str,
    /// What it is when it is not given: a value, or words in parentheses; `None` if it must be given.
    pub default: Option<&'static str>,
    /// What it is used for; `None` for both.
    pub role: Option<Role>,
    /// What it means.
    pub doc: &'static str,
}

impl ConnectorOption {
    /// Its line in the reference.
    pub(super) fn table_row(&self) -> String {
        let default = match self.default {
            None => "required".to_owned(),
            Some("") => "empty".to_owned(),
            Some(words) if words.starts_with('(') => words.trim_matches(['(', ')']).to_owned(),
            Some(value) => format!("`{}`", value.replace('|', "\\|")),
        };
        let role = self.role.map_or("both", Role::noun);
        format!("| `{}` | {role} | {default} | {} |\n", self.name, self.doc)
    }
}

/// The given options of one connector, all of them known to it.
pub struct Options<'a> {
    connector: &'static Connector,
    given: &'a BTreeMap<String, String>,
}

impl<'a> Options<'a> {
    /// Checks that every given option is known and every required one given.
    pub(super) fn check(
        connector: &'static Connector,
        role: Role,
        given: &'a BTreeMap<String, String>,
    ) -> Result<Self> {
        let fits = |option: &&ConnectorOption| option.role.is_none_or(|only| only == role);
        let known: Vec<&str> = connector
            .options
            .iter()
            .filter(fits)
            .map(|option| option.name)
            .collect();
        let hint = if known.is_empty() {
            format!("Connector \"{}\" has no options.", connector.name)
        } else {
            format!(
                "The options of connector \"{}\" are: {}.",
                connector.name,
                known.join(", ")
            )
        };
        for name in given.keys().filter(|name| *name != CONNECTOR_KEY) {
            match connector.options.iter().find(|option| option.name == name) {
                None => {
                    return Err(Error::syntax(format!(
                        "option \"{name}\" is not known to connector \"{}\"",
                        connector.name
                    ))
                    .with_hint(hint));
                }
                Some(option) if !fits(&option) => {
                    let other = option.role.map_or("other use", Role::noun);
                    return Err(Error::syntax(format!(
                        "option \"{name}\" of connector \"{}\" is for a {other}",
                        connector.name
                    ))
                    .with_hint(hint));
                }
                Some(_) => {}
            }
        }
        for option in connector.options.iter().filter(fits) {
            if option.default.is_none() && !given.contains_key(option.name) {
                return Err(Error::syntax(format!(
                    "option \"{}\" of connector \"{}\" is missing",
                    option.name, connector.name
                ))
                .with_hint(format!("{} = {}", option.name, option.doc)));
            }
        }
        Ok(Self { connector, given })
    }

    /// The given value.
    pub fn given(&self, name: &str) -> Option<&'a str> {
        debug_assert!(
            self.connector.options.iter().any(|option| option.name == name),
            "an option is read undeclared"
        );
        self.given.get(name).map(String::as_str)
    }

    /// The value, or the declared default.
    pub fn text(&self, name: &str) -> &'a str {
        self.given(name).unwrap_or_else(|| {
            let option = self.connector.options.iter().find(|option| option.name == name);
            option.and_then(|option| option.default).unwrap_or("")
        })
    }

    /// The value as one of a few words; `None` if it was not given.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let Some(value) = self.given(name) else {
            return Ok(None);
        };
        match choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(value)) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                Err(self.wrong(name, &format!("It can be: {}.", words.join(", "))))
            }
        }
    }

    /// The value, or the declared default, as a boolean.
    pub fn flag(&self, name: &str) -> Result<bool> {
        match self.text(name).to_ascii_lowercase().as_str() {
            "true" | "on" | "yes" | "1" | "t" => Ok(true),
            "false" | "off" | "no" | "0" | "f" => Ok(false),
            _ => Err(self.wrong(name, "It can be: true, false.")),
        }
    }

    /// The value as a whole number of at least `least`.
    pub fn whole(&self, name: &str, least: u64) -> Result<Option<u64>> {
        let Some(value) = self.given(name) else {
            return Ok(None);
        };
        match value.trim().parse::<u64>() {
            Ok(number) if number >= least => Ok(Some(number)),
            _ => Err(self.wrong(name, &format!("It is a whole number, {least} or more."))),
        }
    }

    /// The value as a rate per second, greater than 0.
    pub fn rate(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.given(name) else {
            return Ok(None);
        };
        match value.trim().parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(Some(rate)),
            _ => Err(self.wrong(name, "It is a number of rows per second, greater than 0.")),
        }
    }

    /// The value, or the declared default, as one ASCII character.
    pub fn byte(&self, name: &str) -> Result<u8> {
        match self.text(name) {
            "\\t" => Ok(b'\t'),
            text => match text.as_bytes() {
                [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0) => Ok(*byte),
                _ => Err(self.wrong(name, "It is one ASCII character, or \\t for a tab.")),
            },
        }
    }

    /// The error for a value that the option cannot have.
    pub fn wrong(&self, name: &str, hint: &str) -> Error {
        Error::semantic(
            "22023",
            format!("invalid value for option \"{name}\": \"{}\"", self.text(name)),
        )
        .with_hint(hint)
    }
}
