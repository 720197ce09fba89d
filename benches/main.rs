//! The benchmarks: `make bench`, or some of them with `cargo bench --profile release -- NAME ...`.
//!
//! | name | it measures |
//! |---|---|
//! | `wire` | COPY and one-row INSERTs through the socket beside PostgreSQL, definitions, and the idle server |
//!
//! Figures are ratios within one run: machines are noisy, and what else runs on one slows everything on it alike.

mod wire;

use std::process::ExitCode;

/// Whatever goes wrong in a benchmark.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The outcome of a benchmark, or of a step of one.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// The benchmarks by name.
const BENCHES: &[(&str, fn() -> Result)] = &[("wire", wire::run)];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let mut end = ExitCode::SUCCESS;
    for (name, run) in BENCHES {
        if !asked.is_empty() && !asked.iter().any(|asked| asked == name) {
            continue;
        }
        println!("## {name}");
        if let Err(error) = run() {
            println!("{name} failed: {error}");
            end = ExitCode::FAILURE;
        }
    }
    end
}
