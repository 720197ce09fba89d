//! The functions that look into the catalog, as lines in a table.
//!
//! A function takes cells and gives a cell, row by row: catalogs are small. Unless a line says otherwise, NULL in any
//! argument gives NULL.

use super::Facts;
use super::describe;
use super::name::{self, external};
use super::object;
use super::pg_catalog::procedure;
use super::sheet::{Cell, column};
use crate::error::{Error, Result};
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, FieldRef, Int16Type, Int32Type, Int64Type};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A number, or a text that is one.
    Number,
    /// A truth.
    Truth,
    /// A text.
    Text,
    /// An object: its number, or its name.
    Object,
    /// Anything, as it is.
    Any,
}

use Kind::{Any, Number, Object, Text, Truth};

/// The variable that holds the number of the session.
pub(in crate::engine) const SESSION: &str = "headwater.session";

/// The functions that are not the same when they are called again.
const VOLATILE: &[&str] = &["set_config", "pg_cancel_backend"];

/// A call of a function for one row.
struct Call<'a> {
    facts: &'a Facts,
    cells: &'a [Cell],
    types: &'a [Type],
}

impl Call<'_> {
    fn int(&self, index: usize) -> Option<i64> {
        self.cells.get(index).and_then(Cell::int)
    }

    fn text(&self, index: usize) -> &str {
        self.cells.get(index).and_then(Cell::text).unwrap_or_default()
    }

    /// The relation that an argument is or names; `42P01` if it names none.
    fn relation(&self, index: usize) -> Result<Option<i64>> {
        match self.cells.get(index) {
            Some(Cell::Text(text)) => match name::relation_oid(self.facts, text)? {
                Some(number) => Ok(Some(number)),
                None => Err(Error::semantic("42P01", format!("relation \"{text}\" does not exist"))),
            },
            Some(other) => Ok(other.int()),
            None => Ok(None),
        }
    }
}

/// Whether NULL is answered with NULL without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nulls {
    GiveNull,
    AreSeen,
}

/// A function.
struct Line {
    name: &'static str,
    arguments: &'static [Kind],
    /// How many of the arguments must be there.
    needed: usize,
    result: fn() -> Type,
    nulls: Nulls,
    compute: fn(&Call<'_>) -> Result<Cell>,
}

const fn line(
    name: &'static str,
    arguments: &'static [Kind],
    needed: usize,
    result: fn() -> Type,
    compute: fn(&Call<'_>) -> Result<Cell>,
) -> Line {
    Line {
        name,
        arguments,
        needed,
        result,
        nulls: Nulls::GiveNull,
        compute,
    }
}

const fn seeing_nulls(line: Line) -> Line {
    Line {
        nulls: Nulls::AreSeen,
        ..line
    }
}

fn text() -> Type {
    Type::Text
}

fn truth() -> Type {
    Type::Bool
}

fn int4() -> Type {
    Type::Int4
}

fn int8() -> Type {
    Type::Int8
}

fn identifier() -> Type {
    Type::Name
}

fn timestamptz() -> Type {
    Type::Timestamptz(None)
}

fn reg(kind: &str) -> Type {
    Type::Oid(kind.to_owned())
}

fn yes(_: &Call<'_>) -> Result<Cell> {
    Ok(Cell::Bool(true))
}

fn no(_: &Call<'_>) -> Result<Cell> {
    Ok(Cell::Bool(false))
}

fn null(_: &Call<'_>) -> Result<Cell> {
    Ok(Cell::Null)
}

fn zero(_: &Call<'_>) -> Result<Cell> {
    Ok(Cell::Int(0))
}

fn as_given(call: &Call<'_>) -> Result<Cell> {
    Ok(call.cells.first().cloned().unwrap_or(Cell::Null))
}

const FUNCTIONS: &[Line] = &[
    // Definitions as text.
    line("pg_get_viewdef", &[Object, Any], 1, text, viewdef),
    line("pg_get_expr", &[Text, Object, Truth], 2, text, as_given),
    line("pg_get_indexdef", &[Object, Number, Truth], 1, text, |call| {
        Ok(describe::index_by_number(call.facts, call.int(0).unwrap_or(0), call.int(1).unwrap_or(0)).into())
    }),
    line("pg_get_constraintdef", &[Number, Truth], 1, text, |call| {
        Ok(describe::constraint_text(call.facts, call.int(0).unwrap_or(0)).into())
    }),
    line("pg_get_ruledef", &[Number, Truth], 1, text, |call| {
        Ok(describe::rule_text(call.facts, call.int(0).unwrap_or(0)).into())
    }),
    line("pg_get_triggerdef", &[Number, Truth], 1, text, null),
    line("pg_get_functiondef", &[Number], 1, text, null),
    line("pg_get_function_result", &[Number], 1, text, |call| {
        Ok(called(call).map(describe::result_text).into())
    }),
    line("pg_get_function_arguments", &[Number], 1, text, |call| {
        Ok(called(call).map(describe::arguments_text).into())
    }),
    line("pg_get_function_identity_arguments", &[Number], 1, text, |call| {
        Ok(called(call).map(describe::arguments_text).into())
    }),
    line("pg_get_function_sqlbody", &[Number], 1, text, null),
    line("pg_get_function_arg_default", &[Number, Number], 2, text, null),
    line("pg_get_partkeydef", &[Object], 1, text, null),
    line("pg_get_partition_constraintdef", &[Object], 1, text, null),
    line("pg_get_statisticsobjdef", &[Number], 1, text, null),
    line("pg_get_statisticsobjdef_columns", &[Number], 1, text, null),
    line("pg_get_statisticsobjdef_expressions", &[Number], 1, text, null),
    line("pg_get_serial_sequence", &[Text, Text], 2, text, null),
    line("pg_get_userbyid", &[Number], 1, identifier, |call| {
        let number = call.int(0).unwrap_or(0);
        let user = object::users(call.facts).into_iter().find(|(oid, _)| *oid == number);
        Ok(user
            .map_or_else(|| format!("unknown (OID={number})"), |(_, name)| name)
            .into())
    }),
    line("pg_encoding_to_char", &[Number], 1, identifier, |call| {
        Ok(if call.int(0) == Some(6) { "UTF8" } else { "" }.into())
    }),
    line("pg_char_to_encoding", &[Text], 1, int4, |call| {
        Ok(if call.text(0).eq_ignore_ascii_case("utf8") {
            6
        } else {
            -1
        }
        .into())
    }),
    seeing_nulls(line("format_type", &[Number, Number], 2, text, |call| {
        Ok(call.int(0).map(|number| name::type_name(number, call.int(1))).into())
    })),
    line(
        "pg_typeof",
        &[Any],
        1,
        || reg("regtype"),
        |call| Ok(call.types.first().map(Type::oid).into()),
    ),
    // Comments: only functions have any.
    line("obj_description", &[Number, Text], 1, text, |call| {
        let function = call.cells.len() == 1 || call.text(1) == "pg_proc";
        let number = call.int(0).filter(|_| function);
        Ok(number.and_then(procedure::description).into())
    }),
    line("col_description", &[Object, Number], 2, text, null),
    line("shobj_description", &[Number, Text], 2, text, null),
    // What a bare name finds.
    line("pg_table_is_visible", &[Number], 1, truth, |call| {
        Ok(call
            .int(0)
            .and_then(|number| name::is_visible(call.facts, number))
            .into())
    }),
    line("pg_type_is_visible", &[Number], 1, truth, yes),
    line("pg_function_is_visible", &[Number], 1, truth, yes),
    line("pg_operator_is_visible", &[Number], 1, truth, yes),
    line("pg_opclass_is_visible", &[Number], 1, truth, yes),
    line("pg_opfamily_is_visible", &[Number], 1, truth, yes),
    line("pg_collation_is_visible", &[Number], 1, truth, yes),
    line("pg_conversion_is_visible", &[Number], 1, truth, yes),
    line("pg_statistics_obj_is_visible", &[Number], 1, truth, yes),
    line("pg_ts_config_is_visible", &[Number], 1, truth, yes),
    line("pg_ts_dict_is_visible", &[Number], 1, truth, yes),
    line("pg_ts_parser_is_visible", &[Number], 1, truth, yes),
    line("pg_ts_template_is_visible", &[Number], 1, truth, yes),
    // Every user may do everything.
    line("has_table_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_column_privilege", &[Any, Any, Any, Any], 3, truth, yes),
    line("has_any_column_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_schema_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_database_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_function_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_language_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_sequence_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_tablespace_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_type_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_foreign_data_wrapper_privilege", &[Any, Any, Any], 2, truth, yes),
    line("has_server_privilege", &[Any, Any, Any], 2, truth, yes),
    line("pg_has_role", &[Any, Any, Any], 2, truth, yes),
    line("row_security_active", &[Any], 1, truth, no),
    // Sizes: what a relation takes is not told apart from the rest of the store.
    line("pg_relation_size", &[Object, Text], 1, int8, |call| {
        call.relation(0).map(|found| found.map(|_| 0).into())
    }),
    line("pg_table_size", &[Object], 1, int8, |call| {
        call.relation(0).map(|found| found.map(|_| 0).into())
    }),
    line("pg_total_relation_size", &[Object], 1, int8, |call| {
        call.relation(0).map(|found| found.map(|_| 0).into())
    }),
    line("pg_indexes_size", &[Object], 1, int8, |call| {
        call.relation(0).map(|found| found.map(|_| 0).into())
    }),
    line("pg_database_size", &[Any], 1, int8, zero),
    line("pg_tablespace_size", &[Any], 1, int8, zero),
    line("pg_size_pretty", &[Number], 1, text, |call| {
        Ok(call.int(0).map(describe::size_text).into())
    }),
    line("pg_relation_is_publishable", &[Object], 1, truth, no),
    line(
        "pg_relation_filenode",
        &[Object],
        1,
        || reg("oid"),
        |call| call.relation(0).map(Cell::from),
    ),
    line("pg_tablespace_location", &[Number], 1, text, |_| Ok("".into())),
    // What changes something.
    line("set_config", &[Text, Text, Truth], 3, text, set_config),
    line("pg_cancel_backend", &[Number], 1, truth, |call| {
        let session = call.int(0).and_then(|number| i32::try_from(number).ok());
        Ok(session.map(|session| call.facts.live.cancel(session)).into())
    }),
    // The server.
    line("pg_backend_pid", &[], 0, int4, |call| {
        let own = call
            .facts
            .settings
            .variables
            .get(SESSION)
            .and_then(|number| number.parse::<i64>().ok());
        Ok(own.into())
    }),
    line("pg_is_in_recovery", &[], 0, truth, no),
    line("pg_is_wal_replay_paused", &[], 0, truth, no),
    line("pg_postmaster_start_time", &[], 0, timestamptz, |call| {
        Ok(Cell::Micros(call.facts.live.started_micros()))
    }),
    line("pg_conf_load_time", &[], 0, timestamptz, |call| {
        Ok(Cell::Micros(call.facts.live.started_micros()))
    }),
    line("pg_advisory_unlock_all", &[], 0, text, |_| Ok("".into())),
    line("pg_my_temp_schema", &[], 0, || reg("oid"), zero),
    line("pg_is_other_temp_schema", &[Number], 1, truth, no),
    line(
        "pg_blocking_pids",
        &[Number],
        1,
        || Type::Array(Box::new(Type::Int4)),
        |_| Ok(Cell::Ints(Vec::new())),
    ),
    line("inet_server_addr", &[], 0, text, null),
    line("inet_server_port", &[], 0, int4, null),
    line("inet_client_addr", &[], 0, text, null),
    line("inet_client_port", &[], 0, int4, null),
    line("txid_current", &[], 0, int8, |call| {
        Ok(call.facts.live.epoch().0.into())
    }),
    line("pg_export_snapshot", &[], 0, text, |call| {
        Ok(call.facts.live.epoch().0.to_string().into())
    }),
    // Names to numbers.
    line(
        "to_regclass",
        &[Text],
        1,
        || reg("regclass"),
        |call| name::relation_oid(call.facts, call.text(0)).map(Cell::from),
    ),
    line(
        "to_regtype",
        &[Text],
        1,
        || reg("regtype"),
        |call| Ok(name::type_oid(call.text(0)).into()),
    ),
    line(
        "to_regproc",
        &[Text],
        1,
        || reg("regproc"),
        |call| name::procedure_oid(call.text(0)).map(Cell::from),
    ),
    line(
        "to_regnamespace",
        &[Text],
        1,
        || reg("regnamespace"),
        |call| name::schema_oid(call.facts, call.text(0)).map(Cell::from),
    ),
    line(
        "to_regrole",
        &[Text],
        1,
        || reg("regrole"),
        |call| name::user_oid(call.facts, call.text(0)).map(Cell::from),
    ),
    line(
        "regclass",
        &[Object],
        1,
        || reg("regclass"),
        |call| call.relation(0).map(Cell::from),
    ),
    line(
        "regtype",
        &[Object],
        1,
        || reg("regtype"),
        |call| found(call, "42704", "type", |text| Ok(name::type_oid(text))),
    ),
    line(
        "regproc",
        &[Object],
        1,
        || reg("regproc"),
        |call| found(call, "42883", "function", name::procedure_oid),
    ),
    line(
        "regnamespace",
        &[Object],
        1,
        || reg("regnamespace"),
        |call| found(call, "3F000", "schema", |text| name::schema_oid(call.facts, text)),
    ),
    line(
        "regrole",
        &[Object],
        1,
        || reg("regrole"),
        |call| found(call, "42704", "role", |text| name::user_oid(call.facts, text)),
    ),
    // And back.
    line("regclassout", &[Number], 1, text, |call| out(call, "regclass")),
    line("regtypeout", &[Number], 1, text, |call| out(call, "regtype")),
    line("regprocout", &[Number], 1, text, |call| out(call, "regproc")),
    line("regnamespaceout", &[Number], 1, text, |call| out(call, "regnamespace")),
    line("regroleout", &[Number], 1, text, |call| out(call, "regrole")),
];

fn called(call: &Call<'_>) -> Option<&'static procedure::Procedure> {
    procedure::find(call.int(0)?)
}

fn out(call: &Call<'_>, kind: &str) -> Result<Cell> {
    Ok(call.int(0).map(|number| name::out(call.facts, kind, number)).into())
}

fn found(call: &Call<'_>, code: &'static str, noun: &str, find: impl Fn(&str) -> Result<Option<i64>>) -> Result<Cell> {
    let Some(Cell::Text(text)) = call.cells.first() else {
        return Ok(call.int(0).into());
    };
    if text == "-" {
        return Ok(Cell::Int(0));
    }
    match find(text)? {
        Some(number) => Ok(Cell::Int(number)),
        None => Err(Error::semantic(code, format!("{noun} \"{text}\" does not exist"))),
    }
}

fn viewdef(call: &Call<'_>) -> Result<Cell> {
    let Some(number) = call.relation(0)? else {
        return Ok(Cell::Null);
    };
    let relation = call
        .facts
        .catalog
        .relations
        .values()
        .find(|relation| i64::from(relation.id.0) == number);
    Ok(relation.and_then(|relation| describe::view_text(relation)).into())
}

/// `set_config`: gives the new value, where setting it changes nothing or it is the value already. A query does not
/// change its session otherwise: SET does.
fn set_config(call: &Call<'_>) -> Result<Cell> {
    let (name, value) = (call.text(0), call.text(1));
    let known = call
        .facts
        .live
        .settings()
        .into_iter()
        .find(|setting| setting.name.eq_ignore_ascii_case(name));
    let Some(known) = known else {
        return Err(Error::semantic(
            "42704",
            format!("unrecognized configuration parameter \"{name}\""),
        ));
    };
    let current = call.facts.settings.variables.get(&known.name.to_lowercase());
    if known.description.starts_with("Accepted") || current.is_some_and(|current| current == value) {
        return Ok(value.to_owned().into());
    }
    Err(
        Error::unsupported(format!("set_config() of \"{}\" is not supported", known.name))
            .with_hint(format!("Use SET {} = '...'.", known.name)),
    )
}

/// Whether there is a function of that name here.
pub(super) fn is_known(name: &str) -> bool {
    FUNCTIONS.iter().any(|line| line.name == name)
}

/// The function of that name.
pub(super) fn find(facts: &Arc<Facts>, name: &str) -> Option<Arc<ScalarUDF>> {
    let line = FUNCTIONS.iter().find(|line| line.name == name)?;
    Some(Arc::new(ScalarUDF::new_from_impl(Function {
        line,
        facts: facts.clone(),
        signature: Signature::new(
            TypeSignature::OneOf(vec![TypeSignature::UserDefined, TypeSignature::Nullary]),
            if VOLATILE.contains(&name) {
                Volatility::Volatile
            } else {
                Volatility::Stable
            },
        ),
    })))
}

/// A line as DataFusion calls it.
struct Function {
    line: &'static Line,
    facts: Arc<Facts>,
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.line.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.line.name == other.line.name && Arc::ptr_eq(&self.facts, &other.facts)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.line.name.hash(state);
    }
}

impl Function {
    fn missing(&self, given: &[DataType]) -> DataFusionError {
        let types: Vec<String> = given.iter().map(|kind| Type::of_arrow(kind).to_string()).collect();
        let message = format!("function {}({}) does not exist", self.line.name, types.join(", "));
        external(Error::semantic("42883", message).with_hint(
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        ))
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.line.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        if given.len() < self.line.needed || given.len() > self.line.arguments.len() {
            return Err(self.missing(given));
        }
        let coerced = given.iter().zip(self.line.arguments).map(|(given, kind)| {
            let text = matches!(given, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
            match kind {
                Number => DataType::Int64,
                Truth => DataType::Boolean,
                Text => DataType::Utf8,
                Object if text => DataType::Utf8,
                Object => DataType::Int64,
                Any => given.clone(),
            }
        });
        Ok(coerced.collect())
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok((self.line.result)().arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        if args.arg_fields.len() < self.line.needed {
            let given: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
            return Err(self.missing(&given));
        }
        Ok(Arc::new(
            (self.line.result)().field(self.line.name, Nullability::Nullable),
        ))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let types: Vec<Type> = args.arg_fields.iter().map(|field| Type::of_field(field)).collect();
        let columns = args
            .args
            .iter()
            .map(|arg| match arg {
                ColumnarValue::Array(array) => cells(array),
                ColumnarValue::Scalar(value) => cells(&value.to_array_of_size(rows)?),
            })
            .collect::<DataFusionResult<Vec<_>>>()?;
        let mut results = Vec::with_capacity(rows);
        for row in 0..rows {
            let cells: Vec<Cell> = columns.iter().map(|column| column[row].clone()).collect();
            if self.line.nulls == Nulls::GiveNull && cells.contains(&Cell::Null) {
                results.push(Cell::Null);
                continue;
            }
            let call = Call {
                facts: &self.facts,
                cells: &cells,
                types: &types,
            };
            results.push((self.line.compute)(&call).map_err(external)?);
        }
        let array = column(&(self.line.result)(), &results).map_err(external)?;
        Ok(if constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
        } else {
            ColumnarValue::Array(array)
        })
    }
}

/// The cells of an argument.
fn cells(array: &ArrayRef) -> DataFusionResult<Vec<Cell>> {
    Ok(match array.data_type() {
        DataType::Int16 => array
            .as_primitive::<Int16Type>()
            .iter()
            .map(|value| value.map(i32::from).into())
            .collect(),
        DataType::Int32 => array.as_primitive::<Int32Type>().iter().map(Cell::from).collect(),
        DataType::Int64 => array.as_primitive::<Int64Type>().iter().map(Cell::from).collect(),
        DataType::Boolean => array.as_boolean().iter().map(Cell::from).collect(),
        DataType::Utf8 => array
            .as_string::<i32>()
            .iter()
            .map(|value| value.map(str::to_owned).into())
            .collect(),
        _ => (0..array.len())
            .map(|row| {
                if array.is_null(row) {
                    Cell::Null
                } else {
                    Cell::Bool(true)
                }
            })
            .collect(),
    })
}
