//! "What did the user say?" Text becomes statements, and statements become plans.
//!
//! [`parser`] turns what a client sent into [`statement::Parsed`] statements; [`bind`] resolves names against the
//! catalog and makes DataFusion logical plans with PostgreSQL's types and meaning; [`function`] is PostgreSQL's
//! functions where DataFusion's differ. [`error`] brings every failure into PostgreSQL's words.

pub mod bind;
pub mod data_type;
pub mod error;
pub mod function;
pub mod parser;
pub mod statement;

pub use bind::{constant_plan, optimise, with_parameter_values};
pub use parser::{parse, parse_query, relation_names};
pub use sqlparser::ast;
pub use statement::{Parsed, Statement};

#[cfg(test)]
mod tests;
