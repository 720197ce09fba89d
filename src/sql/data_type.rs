//! The names of types: from sqlparser's tree to [`Type`].

use crate::error::{Error, Result};
use crate::types::{OID_TYPES, Type};
use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, ObjectName, TimezoneInfo};

/// The most characters that `varchar(n)` and `char(n)` may ask for, as in PostgreSQL.
const LENGTH_MAX: u64 = 10_485_760;

/// The most digits that a `numeric` column may ask for.
const PRECISION_MAX: u64 = 76;

/// The type that a type's name means.
pub fn type_of(data_type: &DataType) -> Result<Type> {
    Ok(match data_type {
        DataType::Boolean | DataType::Bool => Type::Bool,
        DataType::SmallInt(_) | DataType::Int2(_) => Type::Int2,
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => Type::Int4,
        DataType::BigInt(_) | DataType::Int8(_) => Type::Int8,
        DataType::Real | DataType::Float4 => Type::Float4,
        DataType::Float(info) => float(info)?,
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 => Type::Float8,
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info)?,
        DataType::Text => Type::Text,
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            Type::Varchar(character_length(length, "varchar")?)
        }
        DataType::Char(length) | DataType::Character(length) => {
            Type::Char(Some(character_length(length, "char")?.unwrap_or(1)))
        }
        DataType::Bytea => Type::Bytea,
        DataType::Date => Type::Date,
        DataType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Type::Time,
        DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            Type::Timestamp(fraction(*digits))
        }
        DataType::Timestamp(digits, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => {
            Type::Timestamptz(fraction(*digits))
        }
        DataType::Interval { .. } => Type::Interval,
        DataType::Uuid => Type::Uuid,
        DataType::JSON => Type::Json,
        DataType::JSONB => Type::Jsonb,
        DataType::Regclass => Type::Oid("regclass".to_owned()),
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _) | ArrayElemTypeDef::AngleBracket(element)) => {
            // PostgreSQL does not tell int[] from int[][].
            match type_of(element)? {
                array @ Type::Array(_) => array,
                element => Type::Array(Box::new(element)),
            }
        }
        DataType::Custom(name, arguments) => custom(name, arguments)?,
        other => return Err(unknown(&other.to_string())),
    })
}

fn float(info: &ExactNumberInfo) -> Result<Type> {
    match info {
        ExactNumberInfo::None => Ok(Type::Float8),
        ExactNumberInfo::Precision(digits) if (1..=24).contains(digits) => Ok(Type::Float4),
        ExactNumberInfo::Precision(digits) if (25..=53).contains(digits) => Ok(Type::Float8),
        ExactNumberInfo::Precision(0) => Err(Error::semantic(
            "22023",
            "precision for type float must be at least 1 bit",
        )),
        _ => Err(Error::semantic(
            "22023",
            "precision for type float must be less than 54 bits",
        )),
    }
}

fn numeric(info: &ExactNumberInfo) -> Result<Type> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(Type::Numeric(None)),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    if precision == 0 || precision > 1000 {
        return Err(Error::semantic(
            "22023",
            format!("NUMERIC precision {precision} must be between 1 and 1000"),
        ));
    }
    if precision > PRECISION_MAX {
        return Err(Error::unsupported(format!(
            "numeric with a precision of {precision} digits is not supported"
        ))
        .with_hint(format!("The most is {PRECISION_MAX} digits.")));
    }
    if scale < 0 || scale > precision as i64 {
        return Err(
            Error::unsupported(format!("numeric({precision},{scale}) is not supported"))
                .with_hint("The scale must be between 0 and the precision."),
        );
    }
    Ok(Type::Numeric(Some((precision as u8, scale as i8))))
}

fn character_length(length: &Option<CharacterLength>, name: &str) -> Result<Option<u32>> {
    match length {
        None | Some(CharacterLength::Max) => Ok(None),
        Some(CharacterLength::IntegerLength { length: 0, .. }) => Err(Error::semantic(
            "22023",
            format!("length for type {name} must be at least 1"),
        )),
        Some(CharacterLength::IntegerLength { length, .. }) if *length > LENGTH_MAX => Err(Error::semantic(
            "22023",
            format!("length for type {name} cannot exceed {LENGTH_MAX}"),
        )),
        Some(CharacterLength::IntegerLength { length, .. }) => Ok(Some(*length as u32)),
    }
}

/// The digits of a timestamp's fraction; six and more are what there is anyway.
fn fraction(digits: Option<u64>) -> Option<u8> {
    digits.filter(|digits| *digits < 6).map(|digits| digits as u8)
}

fn custom(name: &ObjectName, arguments: &[String]) -> Result<Type> {
    let text = name
        .0
        .last()
        .and_then(|part| part.as_ident())
        .map(|ident| match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_ascii_lowercase(),
        })
        .unwrap_or_default();
    let number = arguments.first().and_then(|argument| argument.parse::<u64>().ok());
    Ok(match text.as_str() {
        "bool" => Type::Bool,
        "int2" | "smallserial" | "serial2" => Type::Int2,
        "int4" | "serial" | "serial4" => Type::Int4,
        "int8" | "bigserial" | "serial8" => Type::Int8,
        "float4" => Type::Float4,
        "float8" => Type::Float8,
        "text" | "cstring" => Type::Text,
        "varchar" => Type::Varchar(number.map(|n| n as u32)),
        "bpchar" => Type::Char(number.map(|n| n as u32)),
        "char" => Type::InternalChar,
        "name" => Type::Name,
        "date" => Type::Date,
        "time" => Type::Time,
        "timestamp" => Type::Timestamp(fraction(number)),
        "timestamptz" => Type::Timestamptz(fraction(number)),
        "interval" => Type::Interval,
        "uuid" => Type::Uuid,
        "json" => Type::Json,
        "jsonb" => Type::Jsonb,
        "bytea" => Type::Bytea,
        "numeric" => Type::Numeric(None),
        "unknown" => Type::Text,
        other if OID_TYPES.contains(&other) => Type::Oid(other.to_owned()),
        // The catalog's arrays and vectors, which clients cast to.
        "oidvector" => Type::Array(Box::new(Type::Oid("oid".to_owned()))),
        "int2vector" => Type::Array(Box::new(Type::Int2)),
        "regprocedure" | "regoper" | "regoperator" | "regconfig" | "regdictionary" | "regcollation" => {
            Type::Oid("oid".to_owned())
        }
        other => return Err(unknown(other)),
    })
}

fn unknown(name: &str) -> Error {
    Error::semantic("42704", format!("type \"{}\" does not exist", name.to_lowercase()))
}
