//! Headwater: streams go in, always-fresh materialized views come out.
//!
//! This is the tour: one INSERT and one query, through every layer. Each module's page begins with the question that
//! it answers; `docs/architecture.md` says what holds everywhere.
//!
//! ```sql
//! CREATE STREAM trips (at timestamp, city text, fare numeric(8,2));
//! CREATE MATERIALIZED VIEW per_city AS SELECT city, count(*) AS n, sum(fare) AS fares FROM trips GROUP BY city;
//! INSERT INTO trips VALUES ('2024-05-01 12:00', 'Lyon', 9.00);
//! SELECT * FROM per_city;
//! ```
//!
//! # The floors
//!
//! A module uses those below it, never its neighbours on the same floor. A test holds that.
//!
//! ```text
//! 11  server                            What does the network see?
//! 10  engine                            What is the system, seen from inside?
//!  9  dataflow                          Who runs, in which order, on which thread?
//!  8  plan                              What must be computed?
//!  7  operator    connector    sql      How does a change become a change?  Where do rows come from and go to?
//!                                       What did the user say?
//!  6  aggregate                         What do many rows come to?
//!  5  catalog     state                 What exists?  What do we remember?
//!  4  expr                              the one home of scalar expressions
//!  3  delta                             What changed?
//!  2  types                             What is a value?
//!  1  config   time   scram   demo      words that everyone uses
//!  0  error
//! ```
//!
//! # The view is made
//!
//! 1. A client connects to [`server::pg`]. Its text arrives in [`server::pg::simple`] (one message, several
//!    statements) or [`server::pg::extended`] (prepared, with parameters), and goes to the client's
//!    [`engine::Session`].
//! 2. [`sql::parser`] makes [statements](sql::Statement) of it. `CREATE MATERIALIZED VIEW` is an arm of
//!    [`engine::session`] that leads to [`engine::definition`], where a new [`catalog::Catalog`] is made that has the
//!    view in it.
//! 3. [`engine::plan::plan_relation`] is the way from text to operators, the same after every restart:
//!    [`sql::bind`] finds the names in the catalog and gives every expression PostgreSQL's types and meaning; the
//!    result is a logical plan of DataFusion, which [`sql::optimise`] rewrites by DataFusion's own rules;
//!    [`plan::lower`] makes a [`plan::Plan`] of it, a DAG whose nodes are ours; [`plan::rule`] rewrites that.
//!    Here it comes to three nodes: *input* `trips`, *map* (keep `city` and `fare`), *aggregate* by `city`.
//! 4. The [`engine::driver`] takes the definition between two epochs ([`engine::install`]), and a
//!    [build](engine::build) fills the view on a thread of its own, from the rows that exist and the epochs that pass
//!    meanwhile. When it has caught up, its [`dataflow::Flow`] is the driver's: the view is live.
//!
//! # The INSERT
//!
//! 1. The session parses and binds it the same way; [`engine::change`] evaluates it in batch. What comes out is a
//!    [`delta::Delta`]: rows, each with a weight, +1 for a new one and -1 for one that goes. An UPDATE is both.
//! 2. It goes to the driver as a [`engine::command::Command`], and the session waits. [`connector`]s send their rows
//!    the same way, by [`engine::source`].
//! 3. The driver takes whatever has arrived: that is an **epoch**. [`engine::base`] checks the change against what is
//!    stored (duplicate keys, rows that somebody else has changed) and applies it to the stream or table, of which
//!    [`state::relation`] knows the form in the store.
//! 4. Every view that reads `trips` steps, in the order in which they were made ([`engine::view`]): its flow takes the
//!    delta through its nodes. [`dataflow`] splits the rows by key group over one copy of each operator per worker;
//!    the [`operator::map`] evaluates expressions, all of them through [`expr`], where a row that fails is set aside;
//!    the [`operator::aggregate`] reads the group of Lyon from its state [`state::Table`], adds the row with the
//!    arithmetic of [`aggregate`], and puts out the old row of Lyon at -1 and the new one at +1. That is the view's own
//!    delta, and the input of the views above it.
//! 5. The row of the stream, the changed groups, the changed rows of every view and the number of the epoch are one
//!    [`state::Commit`]: one atomic write to [`state::Store`], which is RocksDB, synced to the disk.
//! 6. The epoch is [published](engine::published): from here on every reader sees all of it. The session is answered,
//!    and [subscribers](engine::subscribe) get the view's delta.
//!
//! So when `INSERT` returns, the row is durable and in every view, for everyone.
//!
//! # The SELECT
//!
//! 1. The session takes the [`engine::Published`] epoch of this moment. It never waits for the driver, and the driver
//!    never waits for it.
//! 2. The text is parsed and bound as above, but not lowered: [`engine::query`] gives DataFusion the rows of
//!    `per_city` from the epoch's snapshot, and DataFusion runs the rest in batch. What DataFusion means differently,
//!    or cannot do, has a twin in `engine::batch`.
//! 3. Batches stream to the client, value by value in PostgreSQL's text or binary form ([`types`]), under the
//!    client's own back-pressure.
//!
//! Every query thus has two implementations, which share the front end alone. [`engine::verify`] holds one against
//! the other: `VERIFY MATERIALIZED VIEW per_city`.
//!
//! # After `kill -9`
//!
//! Opening the store is all of the recovery. [`engine::Engine::open`] reads the catalog and the last epoch
//! ([`engine::record`]), plans every view again, and builds its operators over the state tables that are there: an
//! operator's fields are parameters and caches, and nothing else.

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod catalog;
pub mod config;
pub mod connector;
pub mod dataflow;
pub mod delta;
pub mod demo;
pub mod engine;
pub mod error;
pub mod expr;
pub mod operator;
pub mod plan;
pub mod scram;
pub mod server;
pub mod sql;
pub mod state;
pub mod time;
pub mod types;
