//! Functions of the session: who, where, when; and the stand-in for functions that do not exist.

use super::Session;
use crate::error::Error;
use crate::sql::error::external;
use crate::time::Clock;
use crate::types::{Nullability, Type};
use arrow::array::{ArrayRef, AsArray, Float64Array, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The functions of this file and what they do.
const DOCUMENTED: &[(&str, &str)] = &[
    ("now", "The transaction's start; in a view, the epoch's clock."),
    ("clock_timestamp", "The time of the wall clock."),
    ("timeofday", "The time of the wall clock, as text."),
    ("random", "A random number from 0 up to 1."),
    ("gen_random_uuid", "A random uuid."),
    ("version", "The version of PostgreSQL that is spoken, and ours."),
    ("current_user", "The user."),
    ("session_user", "The user."),
    ("current_role", "The user."),
    ("user", "The user."),
    ("current_database", "The database."),
    ("current_catalog", "The database."),
    ("current_schema", "The first schema of the search path."),
    ("current_schemas", "The schemas of the search path."),
    ("current_setting", "The value of a setting."),
    ("pg_typeof", "The type of a value."),
    ("pg_backend_pid", "The number of the session."),
    ("pg_is_in_recovery", "Whether this is a standby: it never is."),
];

/// The version that clients choose their queries by.
pub const POSTGRES_VERSION: &str = "15.8";

pub(super) fn documented() -> impl Iterator<Item = (&'static str, &'static str)> {
    DOCUMENTED.iter().copied()
}

pub(super) fn is_known(name: &str) -> bool {
    DOCUMENTED.iter().any(|(known, _)| *known == name)
}

/// What a function of the session gives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Answer {
    /// The same text always.
    Text(Type, String),
    /// The same texts always.
    Texts(Vec<String>),
    /// The same number always.
    Integer(i32),
    /// The same truth always.
    Bool(bool),
    /// `now()`: put in by whoever runs the plan.
    Now,
    /// The wall clock.
    Clock,
    /// The wall clock, as text.
    TimeOfDay,
    /// A random number.
    Random,
    /// A random uuid.
    RandomUuid,
    /// The type of the argument.
    TypeOf,
    /// A setting by name.
    Setting(BTreeMap<String, String>),
    /// There is no such function.
    Missing,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SessionFunction {
    name: String,
    answer: Answer,
    signature: Signature,
}

fn make(name: &str, answer: Answer, signature: TypeSignature, volatility: Volatility) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(SessionFunction {
        name: name.to_owned(),
        answer,
        signature: Signature::new(signature, volatility),
    }))
}

/// What stands for a function that does not exist, and says so when it is typed.
pub(super) fn stand_in(name: &str) -> Arc<ScalarUDF> {
    let any = TypeSignature::OneOf(vec![TypeSignature::UserDefined, TypeSignature::Nullary]);
    make(name, Answer::Missing, any, Volatility::Immutable)
}

pub(super) fn function(name: &str, session: &Session) -> Option<Arc<ScalarUDF>> {
    let constant = |answer| Some(make(name, answer, TypeSignature::Nullary, Volatility::Immutable));
    let name_type = |text: &str| constant(Answer::Text(Type::Name, text.to_owned()));
    let volatile = |answer| Some(make(name, answer, TypeSignature::Nullary, Volatility::Volatile));
    let first = session.search_path.iter().find(|schema| *schema != "$user");
    match name {
        // Not to be folded, moved or run twice: as volatile as DataFusion can be told.
        "now" => volatile(Answer::Now),
        "clock_timestamp" => volatile(Answer::Clock),
        "timeofday" => volatile(Answer::TimeOfDay),
        "random" => volatile(Answer::Random),
        "gen_random_uuid" => volatile(Answer::RandomUuid),
        "version" => constant(Answer::Text(
            Type::Text,
            format!(
                "PostgreSQL {POSTGRES_VERSION} (Headwater {})",
                env!("CARGO_PKG_VERSION")
            ),
        )),
        "current_user" | "session_user" | "current_role" | "user" => name_type(&session.user),
        "current_database" | "current_catalog" => name_type(&session.database),
        "current_schema" => name_type(first.map_or("public", String::as_str)),
        "current_schemas" => {
            let mut all = vec!["pg_catalog".to_owned()];
            all.extend(session.search_path.iter().filter(|schema| *schema != "$user").cloned());
            Some(make(
                name,
                Answer::Texts(all),
                TypeSignature::Any(1),
                Volatility::Immutable,
            ))
        }
        "pg_backend_pid" => constant(Answer::Integer(std::process::id() as i32)),
        "pg_is_in_recovery" => constant(Answer::Bool(false)),
        "pg_typeof" => Some(make(name, Answer::TypeOf, TypeSignature::Any(1), Volatility::Immutable)),
        "current_setting" => Some(make(
            name,
            Answer::Setting(session.variables.clone()),
            TypeSignature::OneOf(vec![TypeSignature::Any(1), TypeSignature::Any(2)]),
            Volatility::Immutable,
        )),
        _ => None,
    }
}

impl SessionFunction {
    fn kind(&self) -> Type {
        match &self.answer {
            Answer::Text(kind, _) => kind.clone(),
            Answer::Texts(_) => Type::Array(Box::new(Type::Name)),
            Answer::Integer(_) => Type::Int4,
            Answer::Bool(_) => Type::Bool,
            Answer::Now | Answer::Clock => Type::Timestamptz(None),
            Answer::Random => Type::Float8,
            Answer::RandomUuid => Type::Uuid,
            Answer::TypeOf => Type::Oid("regtype".to_owned()),
            Answer::TimeOfDay | Answer::Setting(_) | Answer::Missing => Type::Text,
        }
    }

    fn missing(&self, types: &[DataType]) -> Error {
        let types: Vec<String> = types.iter().map(|kind| Type::of_arrow(kind).to_string()).collect();
        super::missing(&self.name, &types)
    }
}

impl ScalarUDFImpl for SessionFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        Err(external(self.missing(types)))
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        match self.answer {
            Answer::Missing => Err(external(self.missing(types))),
            // A type's name is text as long as types have no numbers here.
            Answer::TypeOf => Ok(DataType::Utf8),
            _ => Ok(self.kind().arrow()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        match self.answer {
            Answer::Missing => {
                let types: Vec<String> = args
                    .arg_fields
                    .iter()
                    .map(|field| Type::of_field(field).to_string())
                    .collect();
                Err(external(super::missing(&self.name, &types)))
            }
            Answer::TypeOf => Ok(Arc::new(Type::Text.field("pg_typeof", Nullability::NotNull))),
            Answer::Setting(_) => Ok(Arc::new(Type::Text.field(&self.name, Nullability::Nullable))),
            _ => Ok(Arc::new(self.kind().field(&self.name, Nullability::NotNull))),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let one = |value: ScalarValue| Ok(ColumnarValue::Scalar(value));
        match &self.answer {
            Answer::Text(_, text) => one(ScalarValue::Utf8(Some(text.clone()))),
            Answer::Texts(texts) => {
                let values: Vec<ScalarValue> = texts.iter().map(|text| ScalarValue::Utf8(Some(text.clone()))).collect();
                let list = ScalarValue::new_list(&values, &DataType::Utf8, true);
                let field = self.kind().arrow();
                one(ScalarValue::List(list).cast_to(&field)?)
            }
            Answer::Integer(value) => one(ScalarValue::Int32(Some(*value))),
            Answer::Bool(value) => one(ScalarValue::Boolean(Some(*value))),
            Answer::Now => Err(external(Error::internal("now() was not settled"))),
            Answer::Clock => {
                let values = vec![wall_clock_micros(); args.number_rows];
                let array = TimestampMicrosecondArray::from(values).with_data_type(self.kind().arrow());
                Ok(ColumnarValue::Array(Arc::new(array)))
            }
            Answer::TimeOfDay => {
                let now = chrono::DateTime::from_timestamp_micros(wall_clock_micros());
                let text = now.map(|now| now.format("%a %b %d %H:%M:%S%.6f %Y UTC").to_string());
                one(ScalarValue::Utf8(text))
            }
            Answer::Random => {
                let values: Vec<f64> = (0..args.number_rows).map(|_| random_unit()).collect();
                Ok(ColumnarValue::Array(Arc::new(Float64Array::from(values))))
            }
            Answer::RandomUuid => {
                let values: Vec<String> = (0..args.number_rows).map(|_| random_uuid()).collect();
                Ok(ColumnarValue::Array(Arc::new(StringArray::from(values))))
            }
            Answer::TypeOf => {
                let name = args
                    .arg_fields
                    .first()
                    .map_or(Type::Unknown, |field| Type::of_field(field));
                let name = match name {
                    Type::Varchar(Some(_)) => Type::Varchar(None).to_string(),
                    Type::Char(_) => "character".to_owned(),
                    Type::Numeric(_) => "numeric".to_owned(),
                    Type::Timestamp(_) => Type::Timestamp(None).to_string(),
                    Type::Timestamptz(_) => Type::Timestamptz(None).to_string(),
                    other => other.to_string(),
                };
                one(ScalarValue::Utf8(Some(name)))
            }
            Answer::Setting(variables) => setting(variables, &args),
            Answer::Missing => Err(external(self.missing(&[]))),
        }
    }
}

/// `current_setting(name [, missing_ok])`.
fn setting(variables: &BTreeMap<String, String>, args: &ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
    let (arrays, shape) = super::kernel::expand(args)?;
    let Some(names) = arrays.first().and_then(|array| array.as_string_opt::<i32>()) else {
        return Err(external(Error::semantic(
            "42883",
            "function current_setting() does not exist",
        )));
    };
    let lenient = arrays
        .get(1)
        .and_then(|array| array.as_boolean_opt())
        .is_some_and(|flags| flags.iter().any(|flag| flag == Some(true)));
    let mut values = Vec::with_capacity(arrow::array::Array::len(names));
    for name in names {
        let Some(name) = name else {
            values.push(None);
            continue;
        };
        match variables.get(&name.to_lowercase()) {
            Some(value) => values.push(Some(value.clone())),
            None if lenient => values.push(None),
            None => {
                return Err(external(Error::semantic(
                    "42704",
                    format!("unrecognized configuration parameter \"{name}\""),
                )));
            }
        }
    }
    let array: ArrayRef = Arc::new(StringArray::from(values));
    super::kernel::columnar(array, shape)
}

fn wall_clock_micros() -> i64 {
    Clock::System.now().0
}

/// 64 bits that nobody can foresee: the hasher's keys are drawn from the operating system.
fn random_bits() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn random_unit() -> f64 {
    (random_bits() >> 11) as f64 / (1u64 << 53) as f64
}

fn random_uuid() -> String {
    let bits = (u128::from(random_bits()) << 64) | u128::from(random_bits());
    // Version 4, variant 1.
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
