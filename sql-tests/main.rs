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
//! | `wire` | the protocol: prepared statements, portals, cancelling, COPY |
//! | `errors` | `errors.txt`: what is refused, with its code and place, here and in PostgreSQL |
//! | `crash` | that a killed server loses nothing and repeats nothing |
//! | `sink` | that a file holds each change of its view once, through kills and failing disks |
//! | `robust` | full disks, missing files, huge rows, vanishing clients, the order to stop |
//! | `demo` | the demonstration, killed and compared with PostgreSQL over the same files |
//! | `postgres` | nothing of ours: it starts the PostgreSQL that other modules compare with |
//!
//! `HEADWATER_MATRIX=full` runs the scripts on every store, number of workers, and through restarts; without it they
//! run once, on RocksDB with two workers. `HEADWATER_DEMO=full` replays the demonstration to its end;
//! `HEADWATER_SEED=n` repeats the random moments of a run.

mod cases;
mod crash;
mod demo;
mod docs;
mod errors;
mod harness;
mod postgres;
mod robust;
mod sink;
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
        errors::tests(),
        crash::tests(),
        demo::tests(),
        robust::tests(),
        sink::tests(),
        postgres::tests(),
    ];
    let conclusion = run(&arguments, tests.into_iter().flatten().collect());
    harness::kill_the_rest();
    conclusion.exit();
}
