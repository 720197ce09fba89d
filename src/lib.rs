//! Headwater: streams go in, always-fresh materialized views come out.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod delta;
pub mod error;
pub mod types;
