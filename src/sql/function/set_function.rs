//! Functions in FROM that return sets: each becomes a list per row, which is then unnested.

use super::call;
use super::cast::{Context, cast_expression};
use crate::error::{Error, Result};
use crate::types::Type;
use datafusion::logical_expr::Expr;

/// Lists to be unnested side by side, and what their columns are called.
pub(crate) struct Lists {
    /// Expressions of lists; one, of records, if `is_record`.
    pub(crate) lists: Vec<Expr>,
    /// The columns' names.
    pub(crate) names: Vec<String>,
    /// Whether the columns are the fields of one list's records.
    pub(crate) is_record: bool,
}

fn one(list: Expr, name: &str) -> Lists {
    Lists {
        lists: vec![list],
        names: vec![name.to_owned()],
        is_record: false,
    }
}

/// The lists that a call gives.
pub(crate) fn lists(name: &str, args: Vec<Expr>, types: &[Type], zone: &str) -> Result<Lists> {
    let missing = || {
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        super::missing(name, &types)
    };
    match name {
        "unnest" => {
            if args.is_empty() || !types.iter().all(|kind| matches!(kind, Type::Array(_) | Type::Unknown)) {
                return Err(missing());
            }
            let names = vec!["unnest".to_owned(); args.len()];
            Ok(Lists {
                lists: args,
                names,
                is_record: false,
            })
        }
        "generate_series" => series(args, types, zone).map(|list| one(list, name)),
        "generate_subscripts" => Ok(one(call("__subscripts", args), name)),
        "string_to_table" => Ok(one(call("string_to_array", args), name)),
        "regexp_split_to_table" => Ok(one(call("regexp_split_to_array", args), name)),
        "regexp_matches" => Ok(one(call("__regexp_matches", args), name)),
        "json_array_elements" | "jsonb_array_elements" | "json_array_elements_text" | "jsonb_array_elements_text" => {
            Ok(one(call(&format!("__{name}"), args), "value"))
        }
        "json_object_keys" | "jsonb_object_keys" => Ok(one(call("__json_object_keys", args), name)),
        "json_each" | "jsonb_each" | "json_each_text" | "jsonb_each_text" => Ok(Lists {
            lists: vec![call(&format!("__{name}"), args)],
            names: vec!["key".to_owned(), "value".to_owned()],
            is_record: true,
        }),
        _ => Err(Error::unsupported(format!("{name}() in FROM is not supported"))),
    }
}

/// `generate_series(start, stop [, step])` of integers, numerics or timestamps.
fn series(args: Vec<Expr>, types: &[Type], zone: &str) -> Result<Expr> {
    let missing = || {
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        super::missing("generate_series", &types)
    };
    if !(2..=3).contains(&args.len()) {
        return Err(missing());
    }
    let time = |kind: &Type| matches!(kind, Type::Date | Type::Timestamp(_) | Type::Timestamptz(_));
    let (kind, step) = if types[..2].iter().any(time) {
        let zoned = types[..2]
            .iter()
            .any(|kind| matches!(kind, Type::Timestamptz(_) | Type::Date));
        let plain = types[..2].iter().any(|kind| matches!(kind, Type::Timestamp(_)));
        (
            if zoned && !plain {
                Type::Timestamptz(None)
            } else {
                Type::Timestamp(None)
            },
            Type::Interval,
        )
    } else {
        let mut kind = Type::Int4;
        for given in types {
            kind = match given {
                Type::Int2 | Type::Int4 | Type::Unknown => kind,
                Type::Int8 if matches!(kind, Type::Numeric(_)) => kind,
                Type::Int8 if kind == Type::Int4 => Type::Int8,
                Type::Int8 => kind,
                Type::Numeric(_) | Type::Quotient => {
                    crate::sql::bind::expression::common_type(&kind, given).unwrap_or(Type::Numeric(None))
                }
                _ => return Err(missing()),
            };
        }
        (kind.clone(), kind)
    };
    if step == Type::Interval && args.len() == 2 {
        return Err(missing());
    }
    let args = args
        .into_iter()
        .zip(types)
        .enumerate()
        .map(|(index, (arg, given))| {
            let target = if index == 2 { &step } else { &kind };
            cast_expression(arg, given, target, Context::Implicit, zone)
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(super::call_in_zone("__series", args, zone))
}
