//! Types: the rows of PostgreSQL's own, for the types that there are.

use crate::engine::system::object::{OWNER, PG_CATALOG};
use crate::engine::system::sheet::{Cell, Sheet};
use crate::types::Type;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A line of `pg_type`.
#[derive(Debug)]
pub(crate) struct Known {
    /// The type's number.
    pub(crate) oid: i64,
    /// Its name.
    pub(crate) name: &'static str,
    length: i64,
    /// Whether a value is passed as a word.
    pub(crate) by_value: bool,
    variety: &'static str,
    category: &'static str,
    preferred: bool,
    delimiter: &'static str,
    /// The array of it.
    pub(crate) array: i64,
    /// What it is an array of.
    pub(crate) element: i64,
    functions: [i64; 6],
    /// How a value is aligned.
    pub(crate) align: &'static str,
    /// How a value is stored.
    pub(crate) storage: &'static str,
    /// The collation of it: 100 for texts.
    pub(crate) collation: i64,
    subscript: i64,
}

static TYPES: LazyLock<Vec<Known>> = LazyLock::new(|| include_str!("types.txt").lines().map(parse).collect());

static BY_OID: LazyLock<HashMap<i64, &'static Known>> =
    LazyLock::new(|| TYPES.iter().map(|known| (known.oid, known)).collect());

fn parse(line: &'static str) -> Known {
    let words: Vec<&'static str> = line.split(' ').collect();
    let word = |index: usize| words.get(index).copied().unwrap_or_default();
    let number = |index: usize| word(index).parse().unwrap_or_default();
    Known {
        oid: number(0),
        name: word(1),
        length: number(2),
        by_value: word(3) == "t",
        variety: word(4),
        category: word(5),
        preferred: word(6) == "t",
        delimiter: word(7),
        array: number(8),
        element: number(9),
        functions: std::array::from_fn(|index| number(10 + index)),
        align: word(16),
        storage: word(17),
        collation: number(18),
        subscript: number(19),
    }
}

/// The type of a number.
pub(crate) fn find(oid: i64) -> Option<&'static Known> {
    BY_OID.get(&oid).copied()
}

/// The type of a name in `pg_type`.
pub(crate) fn find_name(name: &str) -> Option<&'static Known> {
    TYPES.iter().find(|known| known.name == name)
}

/// `pg_type`.
pub(super) fn types(sheet: &mut Sheet) {
    for known in TYPES.iter() {
        let [input, output, receive, send, modifier_in, modifier_out] = known.functions;
        sheet.row([
            ("oid", known.oid.into()),
            ("typname", known.name.into()),
            ("typnamespace", PG_CATALOG.into()),
            ("typowner", OWNER.into()),
            ("typlen", known.length.into()),
            ("typbyval", known.by_value.into()),
            ("typtype", known.variety.into()),
            ("typcategory", known.category.into()),
            ("typispreferred", known.preferred.into()),
            ("typisdefined", true.into()),
            ("typdelim", known.delimiter.into()),
            ("typsubscript", known.subscript.into()),
            ("typelem", known.element.into()),
            ("typarray", known.array.into()),
            ("typinput", input.into()),
            ("typoutput", output.into()),
            ("typreceive", receive.into()),
            ("typsend", send.into()),
            ("typmodin", modifier_in.into()),
            ("typmodout", modifier_out.into()),
            ("typalign", known.align.into()),
            ("typstorage", known.storage.into()),
            ("typtypmod", Cell::Int(-1)),
            ("typcollation", known.collation.into()),
        ]);
    }
}

/// The operator classes of B-trees: number, name, family, type, whether it is the type's default.
pub(super) const OPERATOR_CLASSES: &[(i64, &str, i64, i64)] = &[
    (10000, "array_ops", 397, 2277),
    (10003, "bool_ops", 424, 16),
    (10004, "bpchar_ops", 426, 1042),
    (10006, "bytea_ops", 428, 17),
    (10007, "char_ops", 429, 18),
    (3122, "date_ops", 434, 1082),
    (10012, "float4_ops", 1970, 700),
    (3123, "float8_ops", 1970, 701),
    (1979, "int2_ops", 1976, 21),
    (1978, "int4_ops", 1976, 23),
    (3124, "int8_ops", 1976, 20),
    (10022, "interval_ops", 1982, 1186),
    (10028, "name_ops", 1994, 19),
    (3125, "numeric_ops", 1988, 1700),
    (1981, "oid_ops", 1989, 26),
    (10034, "record_ops", 2994, 2249),
    (3126, "text_ops", 1994, 25),
    (10038, "time_ops", 1996, 1083),
    (3127, "timestamptz_ops", 434, 1184),
    (3128, "timestamp_ops", 434, 1114),
    (10065, "uuid_ops", 2968, 2950),
    (10088, "jsonb_ops", 4033, 3802),
];

/// The operator class that an index over a type uses.
pub(super) fn operator_class(kind: &Type) -> i64 {
    let oid = match kind {
        Type::Array(_) => 2277,
        Type::Varchar(_) => 25,
        other => i64::from(other.oid()),
    };
    OPERATOR_CLASSES
        .iter()
        .find(|class| class.3 == oid)
        .map_or(0, |class| class.0)
}
