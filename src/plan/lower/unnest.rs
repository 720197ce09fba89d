//! Lists become rows, structs become columns.

use super::Lowering;
use crate::error::{Error, Result};
use crate::expr::Expression;
use crate::operator::unnest::{KeepEmpty, Unnest};
use crate::plan::{Node, NodeId};
use datafusion::common::NullHandling;
use datafusion::logical_expr;

impl Lowering {
    pub(super) fn unnest(&mut self, unnest: &logical_expr::Unnest) -> Result<NodeId> {
        let mut node = self.node(&unnest.input)?;
        let lists: Vec<usize> = unnest.list_type_columns.iter().map(|(index, _)| *index).collect();
        let deep = unnest.list_type_columns.iter().any(|(_, list)| list.depth != 1);
        let mut distinct = lists.clone();
        distinct.dedup();
        if deep || distinct.len() != lists.len() {
            return Err(
                Error::unsupported("unnesting several levels at once is not supported in a maintained view")
                    .with_hint("Unnest one level in a subquery, and the next one above it."),
            );
        }
        if !lists.is_empty() {
            let keep_empty = keep_empty(unnest.options.null_handling)?;
            node = self.add(
                Node::Unnest(Unnest {
                    columns: lists,
                    keep_empty,
                }),
                vec![node],
            )?;
        }
        if unnest.struct_type_columns.is_empty() {
            return Ok(node);
        }
        let mut columns: Vec<Expression> = Vec::new();
        for (index, column) in self.columns(node).into_iter().enumerate() {
            if unnest.struct_type_columns.contains(&index) {
                columns.extend(column.fields()?);
            } else {
                columns.push(column);
            }
        }
        self.map(node, None, columns)
    }
}

fn keep_empty(handling: NullHandling) -> Result<KeepEmpty> {
    match handling {
        NullHandling::Drop => Ok(KeepEmpty::No),
        NullHandling::PreserveAndExpandEmpty => Ok(KeepEmpty::Yes),
        // PostgreSQL has nothing that keeps NULL lists but not empty ones.
        NullHandling::Preserve => Err(
            Error::unsupported("this form of unnest is not supported in a maintained view")
                .with_hint("Use unnest in FROM."),
        ),
    }
}
