//! What an operator is, in a plan: closed, comparable, hashable, printable.
//!
//! Each variant's spec stands beside its operator; a new operator is one variant here and one arm in [`Node::spec`].

use crate::catalog::{EventColumn, RelationId};
use crate::error::Result;
use crate::operator::aggregate::Aggregate;
use crate::operator::clock::ClockFilter;
use crate::operator::close::Close;
use crate::operator::in_window::{InWindow, Latest};
use crate::operator::join::Join;
use crate::operator::lateness::Lateness;
use crate::operator::map::MapFilter;
use crate::operator::over::Over;
use crate::operator::session::SessionWindow;
use crate::operator::set::SetOperation;
use crate::operator::stamp::Stamp;
use crate::operator::top::Top;
use crate::operator::union::Union;
use crate::operator::unnest::Unnest;
use crate::operator::values::Values;
use crate::operator::{Keys, Operator, Spec, TableSpec};
use arrow::datatypes::SchemaRef;
use std::hash::{Hash, Hasher};

/// What an operator is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Node {
    /// The changes of a stream, a table or a materialized view.
    Input(Input),
    /// Rows that are there from the start.
    Values(Values),
    /// Rows through expressions.
    MapFilter(MapFilter),
    /// Rows that come and go as the clock passes.
    ClockFilter(ClockFilter),
    /// Rows that are in a window of event time now.
    InWindow(InWindow),
    /// Rows with when they arrived.
    Stamp(Stamp),
    /// The rows of all inputs.
    Union(Union),
    /// One row per group.
    Aggregate(Aggregate),
    /// Pairs of rows.
    Join(Join),
    /// The first rows of each partition.
    Top(Top),
    /// Rows that are, or are not, in another input.
    SetOperation(SetOperation),
    /// A row per element of a list.
    Unnest(Unnest),
    /// Rows with what they see of their partition.
    Over(Over),
    /// Rows with the session they are in.
    SessionWindow(SessionWindow),
    /// Rows whose windows are open.
    Lateness(Lateness),
    /// Rows once they are final.
    Close(Close),
}

/// The changes of a relation.
///
/// Its identity is the relation's id alone; the rest is what the catalog knows of it.
#[derive(Debug, Clone)]
pub struct Input {
    /// Which relation.
    pub relation: RelationId,
    /// Its name, for those who read plans.
    pub name: String,
    /// Its columns, under their own names.
    pub schema: SchemaRef,
    /// Whether rows are only ever added.
    pub growth: Growth,
    /// The columns of its primary key; `None` where there is none.
    pub key: Option<Vec<usize>>,
    /// The column of its event time, if it has a watermark.
    pub watermark: Option<usize>,
    /// The columns that follow event time; without any, the relation holds no watermark back.
    pub events: Vec<EventColumn>,
    /// The column that carries the watermark just before each row, if there is one; it is the last.
    pub judge: Option<usize>,
}

/// Whether rows are ever taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Growth {
    /// Never: every weight is positive.
    AppendOnly,
    /// They may be.
    Changing,
}

impl PartialEq for Input {
    fn eq(&self, other: &Self) -> bool {
        self.relation == other.relation
    }
}

impl Eq for Input {}

impl Hash for Input {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.relation.hash(state);
    }
}

impl Node {
    /// The spec, for all but inputs.
    pub fn spec(&self) -> Option<&dyn Spec> {
        match self {
            Self::Input(_) => None,
            Self::Values(spec) => Some(spec),
            Self::MapFilter(spec) => Some(spec),
            Self::ClockFilter(spec) => Some(spec),
            Self::InWindow(spec) => Some(spec),
            Self::Stamp(spec) => Some(spec),
            Self::Union(spec) => Some(spec),
            Self::Aggregate(spec) => Some(spec),
            Self::Join(spec) => Some(spec),
            Self::Top(spec) => Some(spec),
            Self::SetOperation(spec) => Some(spec),
            Self::Unnest(spec) => Some(spec),
            Self::Over(spec) => Some(spec),
            Self::SessionWindow(spec) => Some(spec),
            Self::Lateness(spec) => Some(spec),
            Self::Close(spec) => Some(spec),
        }
    }

    /// Whether it has something to do when a watermark moves, input or not.
    pub fn follows_watermark(&self) -> bool {
        match self {
            Self::Close(_) => true,
            Self::Aggregate(aggregate) => aggregate.closing.is_some(),
            Self::SessionWindow(session) => session.lateness.is_some(),
            Self::InWindow(window) => window.latest == Latest::Held,
            _ => false,
        }
    }

    /// The operator's name.
    pub fn name(&self) -> &'static str {
        self.spec().map_or("Input", Spec::name)
    }

    /// How its inputs are spread over shards.
    pub fn keys(&self) -> Keys {
        self.spec().map_or(Keys::Stateless, Spec::keys)
    }

    /// The state tables that it needs.
    pub fn tables(&self) -> Vec<TableSpec> {
        self.spec().map_or_else(Vec::new, Spec::tables)
    }

    /// Makes one that runs; `None` for an input.
    pub fn build(&self, inputs: &[SchemaRef]) -> Result<Option<Box<dyn Operator>>> {
        self.spec().map(|spec| spec.build(inputs)).transpose()
    }
}
