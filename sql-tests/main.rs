//! The tests through the front door: the real binary, over a real socket.
//!
//! One binary holds them all, since each further one would link everything again. Each `.slt` file, each case and each
//! test function is one named test; `cargo test --release -- NAME` runs those whose names contain NAME.
//!
//! | module | it tests |
//! |---|---|
//! | `tidy` | how the sources are laid out and written |
//! | `slt` | `slt/*.slt`: statements and what they answer, every view verified after every change |
//! | `cases` | `cases/*.sql`: scripts with PostgreSQL's answers, each run four ways |
//! | `docs` | the examples of `docs/sql.md` and of the README |
//! | `wire` | the protocol: prepared statements, portals, cancelling, COPY, errors |
//! | `crash` | that a killed server loses nothing and repeats nothing |
//! | `postgres` | nothing of ours: it starts the PostgreSQL that other modules compare with |
//!
//! `HEADWATER_MATRIX=full` runs the scripts on every store, number of workers, and through restarts; without it they
//! run once, on RocksDB with two workers.

mod cases;
mod crash;
mod docs;
mod harness;
mod postgres;
mod slt;
mod tidy;
mod wire;

use sqllogictest::harness::{Arguments, run};

fn main() {
    let arguments = Arguments::from_args();
    let tests = [
        tidy::tests(),
        slt::tests(),
        cases::tests(),
        docs::tests(),
        wire::tests(),
        crash::tests(),
        postgres::tests(),
    ];
    let conclusion = run(&arguments, tests.into_iter().flatten().collect());
    harness::kill_the_rest();
    conclusion.exit();
}
