//! Headwater: streams go in, always-fresh materialized views come out.
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
