//! "What does the network see?" PostgreSQL's protocol ([`pg`]) and a page over HTTP ([`http`]).
//!
//! The server knows the engine and nothing below it but statements, types and errors.

pub mod demo;
pub mod http;
pub mod pg;
pub mod script;
mod shutdown;

pub use shutdown::{Shutdown, Trigger};
