//! `lag` and `lead`, whose offset and default may be any expressions: those of the row itself count.

use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::compute::{cast, interleave};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;

/// Which way to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    Back,
    Ahead,
}

/// `lag` or `lead`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Neighbour {
    way: Way,
    signature: Signature,
}

/// The functions of this file.
pub(super) fn all() -> impl Iterator<Item = Arc<WindowUDF>> {
    [Way::Back, Way::Ahead].into_iter().map(|way| {
        Arc::new(WindowUDF::new_from_impl(Neighbour {
            way,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    })
}

/// The common type of value and default.
fn common(value: &DataType, default: Option<&DataType>) -> DataType {
    match (value, default) {
        (DataType::Null, Some(DataType::Null) | None) => DataType::Utf8,
        (DataType::Null, Some(default)) => default.clone(),
        (value, Some(default)) if value.is_integer() && (default.is_floating() || default.is_decimal()) => {
            default.clone()
        }
        _ => value.clone(),
    }
}

impl WindowUDFImpl for Neighbour {
    fn name(&self) -> &str {
        match self.way {
            Way::Back => "lag",
            Way::Ahead => "lead",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.is_empty() || types.len() > 3 {
            let names: Vec<String> = types.iter().map(|kind| Type::of_arrow(kind).to_string()).collect();
            return Err(crate::sql::error::external(super::missing(self.name(), &names)));
        }
        let value = common(&types[0], types.get(2));
        let all = [value.clone(), DataType::Int64, value];
        Ok(all[..types.len()].to_vec())
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let fields = args.input_fields();
        let kind = fields.first().map(|field| field.data_type());
        let default = fields.get(2).map(|field| field.data_type());
        let value = common(kind.unwrap_or(&DataType::Null), default);
        Ok(match fields.first().filter(|field| field.data_type() == &value) {
            Some(field) => Arc::new(field.as_ref().clone().with_name(args.name()).with_nullable(true)),
            None => Arc::new(Type::of_arrow(&value).field(args.name(), Nullability::Nullable)),
        })
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Evaluator {
            way: self.way,
            ignores_nulls: args.ignore_nulls(),
        }))
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::NotSupported
    }

    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

#[derive(Debug)]
struct Evaluator {
    way: Way,
    ignores_nulls: bool,
}

impl Evaluator {
    /// The row that a row sees at an offset.
    fn seen(&self, values: &ArrayRef, row: usize, offset: i64) -> Option<usize> {
        let offset = match self.way {
            Way::Back => offset.saturating_neg(),
            Way::Ahead => offset,
        };
        if !self.ignores_nulls {
            let seen = usize::try_from((row as i64).saturating_add(offset)).ok();
            return seen.filter(|seen| *seen < values.len());
        }
        let left = usize::try_from(offset.unsigned_abs()).ok()?;
        match offset.signum() {
            0 => Some(row),
            1 => (row + 1..values.len())
                .filter(|row| values.is_valid(*row))
                .nth(left - 1),
            _ => (0..row).rev().filter(|row| values.is_valid(*row)).nth(left - 1),
        }
    }
}

impl PartitionEvaluator for Evaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let value = &values[0];
        let offsets = values.get(1).map(|column| cast(column, &DataType::Int64)).transpose()?;
        let offsets = offsets.as_ref().map(|column| column.as_primitive::<Int64Type>());
        let default = match values.get(2) {
            Some(column) => cast(column, value.data_type())?,
            None => new_null_array(value.data_type(), rows),
        };
        let nothing = new_null_array(value.data_type(), 1);
        let place = |row: usize| {
            let offset = match offsets {
                None => 1,
                Some(offsets) if offsets.is_null(row) => return (2, 0),
                Some(offsets) => offsets.value(row),
            };
            self.seen(value, row, offset).map_or((1, row), |seen| (0, seen))
        };
        let places: Vec<(usize, usize)> = (0..rows).map(place).collect();
        Ok(interleave(
            &[value.as_ref(), default.as_ref(), nothing.as_ref()],
            &places,
        )?)
    }
}
