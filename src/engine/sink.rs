//! Sinks: where a query's changes go.
//!
//! A sink runs like a view that nobody can read. The `blackhole` takes the changes and forgets them.

use crate::catalog::Column;
use crate::connector::{SinkRequest, open_sink};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// Opens a sink once, to refuse wrong options when it is made.
pub fn check(options: &BTreeMap<String, String>, columns: &[Column]) -> Result<()> {
    if options.get("connector").map(String::as_str) != Some("blackhole") {
        if options.get("connector").map(String::as_str) == Some("file") {
            return Err(Error::unsupported("connector \"file\" is not supported for a sink")
                .with_hint("Use COPY (SUBSCRIBE TO v) TO STDOUT, or connector = 'blackhole'."));
        }
        open_sink(&SinkRequest {
            options,
            columns,
            position: None,
        })?;
    }
    Ok(())
}
