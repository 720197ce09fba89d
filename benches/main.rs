//! The benchmarks: `make bench`, or some of them with `cargo bench --profile release -- NAME OPTION=VALUE ...`.
//!
//! | name | it measures | options |
//! |---|---|---|
//! | `nexmark` | events per second of each Nexmark query, in process | `queries`, `events`, `verify_events`, `stores`, `workers`, `profile` |
//! | `change` | the cost of a small change with little and with much behind it | `classes`, `rows`, `rounds`, `workers` |
//! | `wire` | COPY and one-row INSERTs through the socket beside PostgreSQL, definitions, and the idle server | |
//!
//! Figures are ratios within one run: machines are noisy, and what else runs on one slows everything on it alike.

mod change;
mod nexmark;
mod session;
mod wire;

use std::collections::HashMap;
use std::process::ExitCode;

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whatever goes wrong in a benchmark.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The outcome of a benchmark, or of a step of one.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// What runs a benchmark.
type Bench = fn(&Options) -> Result;

/// The benchmarks by name.
const BENCHES: &[(&str, Bench)] = &[("nexmark", nexmark::run), ("change", change::run), ("wire", wire::run)];

/// What `OPTION=VALUE` arguments say.
#[derive(Debug, Default)]
pub(crate) struct Options(HashMap<String, String>);

impl Options {
    /// The text of an option.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// An option that is a number; `1m` is a million, `10k` ten thousand.
    pub(crate) fn number(&self, name: &str, default: u64) -> Result<u64> {
        self.text(name).map_or(Ok(default), number)
    }

    /// An option that is a list; all of `all` unless given.
    pub(crate) fn list<'a>(&'a self, name: &str, all: &[&'a str]) -> Vec<&'a str> {
        match self.text(name) {
            Some(text) => text.split(',').collect(),
            None => all.to_vec(),
        }
    }
}

/// Reads a number with an optional `k` or `m`.
pub(crate) fn number(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(['k', 'm']);
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        other => return Err(format!("\"{other}\" is no unit").into()),
    };
    Ok(digits.parse::<u64>()? * factor)
}

fn main() -> ExitCode {
    let mut asked = Vec::new();
    let mut options = Options::default();
    for argument in std::env::args().skip(1).filter(|argument| !argument.starts_with('-')) {
        match argument.split_once('=') {
            Some((name, value)) => {
                options.0.insert(name.to_owned(), value.to_owned());
            }
            None => asked.push(argument),
        }
    }
    let mut end = ExitCode::SUCCESS;
    for (name, run) in BENCHES {
        if !asked.is_empty() && !asked.iter().any(|asked| asked == name) {
            continue;
        }
        println!("## {name}");
        if let Err(error) = run(&options) {
            println!("{name} failed: {error}");
            end = ExitCode::FAILURE;
        }
    }
    end
}
