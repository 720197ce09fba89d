//! COALESCE, GREATEST and LEAST: one of several values, all in a common type.
//!
//! DataFusion computes them; the types are PostgreSQL's. The binder casts the arguments where it knows a literal for
//! one; what is left, texts in place of literals, is coerced here.

use super::DATAFUSION;
use crate::error::Error;
use crate::sql::bind::expression::common_type;
use crate::sql::error::external;
use crate::types::{Nullability, Type};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// The names of these functions.
const NAMES: &[&str] = &["coalesce", "greatest", "least"];

#[derive(Debug, PartialEq, Eq, Hash)]
struct Chosen {
    theirs: Arc<ScalarUDF>,
    signature: Signature,
}

/// The function of that name.
pub(super) fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    let name = NAMES.iter().find(|known| **known == name)?;
    Some(Arc::new(ScalarUDF::new_from_impl(Chosen {
        theirs: DATAFUSION.get(*name)?.clone(),
        signature: Signature::user_defined(Volatility::Immutable),
    })))
}

/// Whether a call chooses one of its arguments; the word for it in messages.
pub(crate) fn chooses(function: &ScalarUDF) -> Option<String> {
    function.inner().is::<Chosen>().then(|| function.name().to_uppercase())
}

impl Chosen {
    /// The common type, a text being whatever the others are.
    fn common(&self, given: &[Type]) -> DataFusionResult<Type> {
        let mut common = Type::Unknown;
        for kind in given {
            common = match (&common, kind) {
                (Type::Text, other) | (other, Type::Text) if *other != Type::Unknown => other.clone(),
                _ => common_type(&common, kind).ok_or_else(|| {
                    let word = self.theirs.name().to_uppercase();
                    external(Error::semantic(
                        "42804",
                        format!("{word} types {common} and {kind} cannot be matched"),
                    ))
                })?,
            };
        }
        Ok(if common == Type::Unknown { Type::Text } else { common })
    }
}

impl ScalarUDFImpl for Chosen {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let types: Vec<Type> = given.iter().map(Type::of_arrow).collect();
        Ok(vec![self.common(&types)?.arrow(); given.len()])
    }

    fn return_type(&self, given: &[DataType]) -> DataFusionResult<DataType> {
        let types: Vec<Type> = given.iter().map(Type::of_arrow).collect();
        Ok(self.common(&types)?.arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let types: Vec<Type> = args.arg_fields.iter().map(|field| Type::of_field(field)).collect();
        let nullability = if args.arg_fields.iter().all(|field| field.is_nullable()) {
            Nullability::Nullable
        } else {
            Nullability::NotNull
        };
        Ok(Arc::new(self.common(&types)?.field(self.name(), nullability)))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> DataFusionResult<ExprSimplifyResult> {
        self.theirs.inner().simplify(args, info)
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.theirs.inner().conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.theirs.inner().short_circuits()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        self.theirs.invoke_with_args(args)
    }
}
