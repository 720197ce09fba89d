//! A function as a line in a table: its name, what it takes, what it gives, and the kernel that computes it.
//!
//! A call is matched against the overloads in PostgreSQL's manner: the types as they are, or else the overload that
//! the least casting reaches. Arguments arrive at the kernel as columns of equal length in the types it asked for.

use super::cast::{Context, exists, is_float, is_integer, is_numeric, is_text};
use super::kernel::{columnar, expand};
use crate::error::{Error, Result};
use crate::sql::error::external;
use crate::types::calendar::Zone;
use crate::types::{Nullability, Type};
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What an argument must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int4,
    Int8,
    Float8,
    /// Any exact number, as it is; integers become numerics.
    Numeric,
    Text,
    Bytea,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
    /// An array of texts.
    Texts,
    /// Any array, as it is.
    Array,
    /// Anything, as it is.
    Any,
}

impl Kind {
    /// How far a type is from this; `None` if it cannot be cast to it.
    fn distance(self, given: &Type) -> Option<u32> {
        if *given == Type::Unknown {
            return Some(if matches!(self, Self::Text | Self::Any) { 1 } else { 2 });
        }
        let exact = match self {
            Self::Any => return Some(5),
            Self::Array => return matches!(given, Type::Array(_)).then_some(0),
            Self::Text => is_text(given),
            Self::Numeric => is_numeric(given),
            Self::Timestamp => matches!(given, Type::Timestamp(_)),
            Self::Timestamptz => matches!(given, Type::Timestamptz(_)),
            other => *given == other.target(given),
        };
        if exact {
            return Some(0);
        }
        // Text may be a literal, whose type Arrow does not tell: it is read as whatever is asked for, at a price.
        if is_text(given) {
            return Some(40);
        }
        let target = self.target(given);
        if !exists(given, &target, Context::Implicit) {
            return None;
        }
        Some(match self {
            // Floats are preferred among numbers, timestamptz among times.
            Self::Float8 if is_float(given) => 1,
            Self::Int4 | Self::Int8 => 2,
            // An integer is a float rather than a numeric.
            Self::Float8 if is_integer(given) => 2,
            Self::Numeric => 3,
            Self::Timestamptz => 3,
            Self::Float8 => 4,
            _ => 4,
        })
    }

    /// The type that an argument is cast to.
    fn target(self, given: &Type) -> Type {
        match self {
            Self::Bool => Type::Bool,
            Self::Int4 => Type::Int4,
            Self::Int8 => Type::Int8,
            Self::Float8 => Type::Float8,
            Self::Numeric => match given {
                kind if is_numeric(kind) => kind.clone(),
                Type::Int2 => Type::Numeric(Some((5, 0))),
                Type::Int4 => Type::Numeric(Some((10, 0))),
                kind if is_integer(kind) => Type::Numeric(Some((19, 0))),
                _ => Type::Numeric(None),
            },
            Self::Text => Type::Text,
            Self::Bytea => Type::Bytea,
            Self::Date => Type::Date,
            Self::Time => Type::Time,
            Self::Timestamp => Type::Timestamp(None),
            Self::Timestamptz => Type::Timestamptz(None),
            Self::Interval => Type::Interval,
            Self::Texts => Type::Array(Box::new(Type::Text)),
            Self::Array | Self::Any => match given {
                Type::Unknown => Type::Text,
                other => other.clone(),
            },
        }
    }
}

/// What a kernel is given.
pub(crate) struct Call<'a> {
    /// The arguments, one column each, of equal length.
    pub(crate) arguments: &'a [ArrayRef],
    /// Their types.
    pub(crate) types: &'a [Type],
    /// The type of the result.
    pub(crate) result: &'a Type,
    /// The number of rows.
    pub(crate) rows: usize,
    /// The session's time zone.
    pub(crate) zone: &'a str,
}

impl Call<'_> {
    /// The session's time zone.
    pub(crate) fn time_zone(&self) -> Result<Zone> {
        Zone::parse(self.zone)
    }
}

type Kernel = fn(&Call<'_>) -> Result<ArrayRef>;

/// What a call gives where the values of some arguments are known, from what it would give without them.
type OfConstants = fn(Type, &[Option<&ScalarValue>]) -> Type;

/// One way to call a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overload {
    /// What it takes.
    pub(crate) arguments: &'static [Kind],
    /// What any further arguments are.
    pub(crate) rest: Option<Kind>,
    /// What it gives, of the types of what it is given.
    pub(crate) result: fn(&[Type]) -> Type,
    /// What computes it.
    pub(crate) kernel: Kernel,
    /// What it gives where constants among the arguments say more: the digits of `round(x, 2)`.
    pub(crate) of_constants: Option<OfConstants>,
}

/// A function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does, in one sentence.
    pub(crate) doc: &'static str,
    /// The ways to call it.
    pub(crate) overloads: &'static [Overload],
}

/// A definition as a function that DataFusion calls.
pub(crate) struct Defined {
    definition: &'static Definition,
    zone: String,
    signature: Signature,
}

impl fmt::Debug for Defined {
    /// Only what is the same in every process: plans are told apart by their text, and kernels have addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Defined")
            .field("name", &self.definition.name)
            .field("zone", &self.zone)
            .finish()
    }
}

impl PartialEq for Defined {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name && self.zone == other.zone
    }
}

impl Eq for Defined {}

impl Hash for Defined {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
        self.zone.hash(state);
    }
}

impl Definition {
    /// The function, under a session's time zone.
    pub(crate) fn function(&'static self, zone: &str) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(Defined {
            definition: self,
            zone: zone.to_owned(),
            signature: Signature::new(
                TypeSignature::OneOf(vec![TypeSignature::UserDefined, TypeSignature::Nullary]),
                Volatility::Immutable,
            ),
        }))
    }

    /// The overload that fits best.
    fn resolve(&self, given: &[Type]) -> Option<&'static Overload> {
        self.overloads
            .iter()
            .filter_map(|overload| Some((distance(overload, given)?, overload)))
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, overload)| overload)
    }

    /// `function f(integer) does not exist`.
    fn missing(&self, given: &[Type]) -> Error {
        let types: Vec<String> = given.iter().map(ToString::to_string).collect();
        super::missing(self.name, &types)
    }
}

fn distance(overload: &Overload, given: &[Type]) -> Option<u32> {
    let fixed = overload.arguments.len();
    if given.len() < fixed || (given.len() > fixed && overload.rest.is_none()) {
        return None;
    }
    let kinds = overload.arguments.iter().copied().chain(std::iter::repeat_n(
        overload.rest.unwrap_or(Kind::Any),
        given.len() - fixed,
    ));
    kinds.zip(given).map(|(kind, given)| kind.distance(given)).sum()
}

fn targets(overload: &Overload, given: &[Type]) -> Vec<Type> {
    given
        .iter()
        .enumerate()
        .map(|(index, given)| {
            let kind = overload
                .arguments
                .get(index)
                .copied()
                .or(overload.rest)
                .unwrap_or(Kind::Any);
            kind.target(given)
        })
        .collect()
}

impl ScalarUDFImpl for Defined {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let given: Vec<Type> = given.iter().map(Type::of_arrow).collect();
        let overload = self
            .definition
            .resolve(&given)
            .ok_or_else(|| external(self.definition.missing(&given)))?;
        Ok(targets(overload, &given).iter().map(Type::arrow).collect())
    }

    fn return_type(&self, given: &[DataType]) -> DataFusionResult<DataType> {
        let given: Vec<Type> = given.iter().map(Type::of_arrow).collect();
        let overload = self
            .definition
            .resolve(&given)
            .ok_or_else(|| external(self.definition.missing(&given)))?;
        Ok((overload.result)(&targets(overload, &given)).arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let given: Vec<Type> = args.arg_fields.iter().map(|field| Type::of_field(field)).collect();
        let overload = self
            .definition
            .resolve(&given)
            .ok_or_else(|| external(self.definition.missing(&given)))?;
        let mut result = (overload.result)(&targets(overload, &given));
        if let Some(narrow) = overload.of_constants {
            result = narrow(result, args.scalar_arguments);
        }
        Ok(Arc::new(result.field(self.definition.name, Nullability::Nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let given: Vec<Type> = args.arg_fields.iter().map(|field| Type::of_field(field)).collect();
        let overload = self
            .definition
            .resolve(&given)
            .ok_or_else(|| external(self.definition.missing(&given)))?;
        let types = targets(overload, &given);
        let result = match overload.of_constants {
            Some(_) => Type::of_field(&args.return_field),
            None => (overload.result)(&types),
        };
        let (arrays, shape) = expand(&args)?;
        // A bare NULL has no type of its own.
        let arrays: Vec<ArrayRef> = arrays
            .into_iter()
            .zip(&types)
            .map(|(array, kind)| match array.data_type() {
                DataType::Null => arrow::array::new_null_array(&kind.arrow(), array.len()),
                _ => array,
            })
            .collect();
        let rows = match shape {
            super::kernel::Shape::One => 1,
            super::kernel::Shape::PerRow => args.number_rows,
        };
        let call = Call {
            arguments: &arrays,
            types: &types,
            result: &result,
            rows,
            zone: &self.zone,
        };
        columnar((overload.kernel)(&call).map_err(external)?, shape)
    }
}
