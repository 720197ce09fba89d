//! What a relation's name stands for in a plan.
//!
//! A stream, table or materialized view is a table scan over a [`RelationSource`], which the engine and the lowering
//! of plans find again by downcasting. A view's name is replaced by its query's plan, and a system table is whatever
//! the [`SystemRelations`] say.

use super::subquery::SystemSubquery;
use crate::catalog::Relation;
use crate::types::{Nullability, Type};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF, TableSource};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The relations and table functions that are not in the catalog: `pg_catalog`, `information_schema`, `headwater`.
pub trait SystemRelations: Send + Sync {
    /// The relation of that name in that schema.
    fn relation(&self, schema: &str, name: &str) -> Option<Arc<dyn TableSource>>;

    /// The table function of that name, such as `late_rows('view')`; its arguments are constants.
    fn function(&self, name: &str, arguments: &[Expr]) -> Option<crate::error::Result<Arc<dyn TableSource>>>;

    /// The function of that name that looks into the catalog, such as `pg_get_viewdef`.
    fn scalar_function(&self, _name: &str) -> Option<Arc<ScalarUDF>> {
        None
    }

    /// A subquery over these relations as a function of what it takes.
    fn subquery(&self, _subquery: SystemSubquery) -> Option<Arc<ScalarUDF>> {
        None
    }
}

/// No system relations at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSystemRelations;

impl SystemRelations for NoSystemRelations {
    fn relation(&self, _: &str, _: &str) -> Option<Arc<dyn TableSource>> {
        None
    }

    fn function(&self, _: &str, _: &[Expr]) -> Option<crate::error::Result<Arc<dyn TableSource>>> {
        None
    }
}

/// A stream, table or materialized view in a plan.
pub struct RelationSource {
    /// What it is.
    pub relation: Arc<Relation>,
    schema: SchemaRef,
}

impl fmt::Debug for RelationSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.relation.noun(), self.relation.name)
    }
}

impl RelationSource {
    /// The source of a relation's rows.
    pub fn new(relation: Arc<Relation>) -> Self {
        let schema = relation_schema(&relation);
        Self { relation, schema }
    }

    /// The relation that a plan's node scans, if it is one of the catalog's.
    pub fn of(source: &Arc<dyn TableSource>) -> Option<&Self> {
        source.downcast_ref::<Self>()
    }
}

/// The Arrow schema of a relation's rows.
pub fn relation_schema(relation: &Relation) -> SchemaRef {
    let fields: Vec<Field> = relation
        .columns
        .iter()
        .map(|column| {
            let nullability = if column.not_null {
                Nullability::NotNull
            } else {
                Nullability::Nullable
            };
            column.kind.field(&column.name, nullability)
        })
        .collect();
    Arc::new(Schema::new(fields))
}

impl TableSource for RelationSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// A view: its plan takes the place of its name.
pub(super) struct ViewSource {
    pub(super) plan: LogicalPlan,
    pub(super) schema: SchemaRef,
}

impl TableSource for ViewSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }
}

/// The names and types of a plan's columns, as a client sees them.
pub(crate) fn columns_of(plan: &LogicalPlan) -> Vec<(String, Type)> {
    plan.schema()
        .fields()
        .iter()
        .map(|field| {
            let kind = match Type::of_field(field) {
                Type::Unknown => Type::Text,
                kind => kind,
            };
            (crate::sql::error::shown(field.name()).to_owned(), kind)
        })
        .collect()
}
