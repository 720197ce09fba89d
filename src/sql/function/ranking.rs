//! Window functions that count, with PostgreSQL's types: DataFusion counts in a type that PostgreSQL does not have.

use crate::types::{Nullability, Type};
use arrow::array::ArrayRef;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl};
use datafusion::physical_expr::PhysicalExpr;
use std::ops::Range;
use std::sync::Arc;

/// The function with PostgreSQL's type of result, if it is one that counts; else as it is.
pub(super) fn with_own_type(function: Arc<WindowUDF>) -> Arc<WindowUDF> {
    let kind = match function.name() {
        "row_number" | "rank" | "dense_rank" => Type::Int8,
        "ntile" => Type::Int4,
        _ => return function,
    };
    Arc::new(WindowUDF::new_from_impl(Counting { inner: function, kind }))
}

/// A function of DataFusion's with its result cast.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Counting {
    inner: Arc<WindowUDF>,
    kind: Type,
}

impl WindowUDFImpl for Counting {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        Ok(Box::new(Evaluator {
            inner,
            kind: self.kind.arrow(),
        }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let name = args.name().to_owned();
        let nullable = self.inner.field(args)?.is_nullable();
        let nullability = if nullable {
            Nullability::Nullable
        } else {
            Nullability::NotNull
        };
        Ok(Arc::new(self.kind.field(name, nullability)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::NotSupported
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct Evaluator {
    inner: Box<dyn PartitionEvaluator>,
    kind: DataType,
}

impl PartitionEvaluator for Evaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, index: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(index, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all(values, rows)?, &self.kind)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.kind)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all_with_rank(rows, ranks)?, &self.kind)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
