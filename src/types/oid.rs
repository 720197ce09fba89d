//! The numbers that clients know types by: object identifiers, type modifiers, lengths.
//!
//! A client sees a column as an OID, a modifier and a length; it names a parameter's type by its OID alone.
//! [`TYPES`] is the one table of both directions.

use super::Type;

/// What the wire says of a type that has no other name: `unknown`.
pub const UNKNOWN: u32 = 705;

/// The pseudo-type of anonymous rows.
const RECORD: u32 = 2249;
const RECORD_ARRAY: u32 = 2287;

/// One scalar type: its name in `pg_type`, its OID, the OID of its array type, its length (-1: varying, -2: a
/// C string) and its array's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The name in `pg_type`.
    pub name: &'static str,
    /// The OID.
    pub oid: u32,
    /// The OID of the array of this type.
    pub array_oid: u32,
    /// The bytes of a value, -1 where they vary, -2 for a C string.
    pub length: i16,
}

const fn known(name: &'static str, oid: u32, array_oid: u32, length: i16) -> Known {
    Known {
        name,
        oid,
        array_oid,
        length,
    }
}

/// Every scalar type that Headwater has.
pub const TYPES: &[Known] = &[
    known("bool", 16, 1000, 1),
    known("bytea", 17, 1001, -1),
    known("char", 18, 1002, 1),
    known("name", 19, 1003, 64),
    known("int8", 20, 1016, 8),
    known("int2", 21, 1005, 2),
    known("int4", 23, 1007, 4),
    known("regproc", 24, 1008, 4),
    known("text", 25, 1009, -1),
    known("oid", 26, 1028, 4),
    known("xid", 28, 1011, 4),
    known("json", 114, 199, -1),
    known("float4", 700, 1021, 4),
    known("float8", 701, 1022, 8),
    known("unknown", UNKNOWN, 0, -2),
    known("bpchar", 1042, 1014, -1),
    known("varchar", 1043, 1015, -1),
    known("date", 1082, 1182, 4),
    known("time", 1083, 1183, 8),
    known("timestamp", 1114, 1115, 8),
    known("timestamptz", 1184, 1185, 8),
    known("interval", 1186, 1187, 16),
    known("numeric", 1700, 1231, -1),
    known("regclass", 2205, 2210, 4),
    known("regtype", 2206, 2211, 4),
    known("record", RECORD, RECORD_ARRAY, -1),
    known("uuid", 2950, 2951, 16),
    known("jsonb", 3802, 3807, -1),
    known("regrole", 4096, 4097, 4),
    known("regnamespace", 4089, 4090, 4),
];

impl Type {
    /// The name in `pg_type` of the type, or of the innermost element's type of an array.
    fn catalog_name(&self) -> &str {
        match self {
            Self::Unknown => "unknown",
            Self::Bool => "bool",
            Self::Int2 => "int2",
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::Float4 => "float4",
            Self::Float8 => "float8",
            Self::Numeric(_) | Self::Quotient => "numeric",
            Self::Text => "text",
            Self::Varchar(_) => "varchar",
            Self::Char(_) => "bpchar",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Time => "time",
            Self::Timestamp(_) => "timestamp",
            Self::Timestamptz(_) => "timestamptz",
            Self::Interval => "interval",
            Self::Uuid => "uuid",
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Array(element) => element.catalog_name(),
            Self::Record(_) => "record",
            Self::Oid(name) => name,
            Self::Name => "name",
            Self::InternalChar => "char",
        }
    }

    fn known(&self) -> Known {
        let name = self.catalog_name();
        *TYPES.iter().find(|known| known.name == name).unwrap_or(&TYPES[9])
    }

    /// The type's OID. PostgreSQL has one array type for all numbers of dimensions, so `int[][]` is `int[]`.
    pub fn oid(&self) -> u32 {
        match self {
            Self::Array(_) => self.known().array_oid,
            _ => self.known().oid,
        }
    }

    /// The OID of the array of this type.
    pub fn array_oid(&self) -> u32 {
        self.known().array_oid
    }

    /// The bytes of a value; -1 where they vary.
    pub fn length(&self) -> i16 {
        match self {
            Self::Array(_) => -1,
            _ => self.known().length,
        }
    }

    /// The type modifier, as `atttypmod` and RowDescription have it; -1 for none. An array's is its element's.
    pub fn modifier(&self) -> i32 {
        match self {
            Self::Varchar(Some(length)) | Self::Char(Some(length)) => {
                i32::try_from(*length).map_or(-1, |length| length.saturating_add(4))
            }
            Self::Numeric(Some((precision, scale))) => {
                ((i32::from(*precision) << 16) | (i32::from(*scale) & 0x7ff)) + 4
            }
            Self::Timestamp(Some(digits)) | Self::Timestamptz(Some(digits)) => i32::from(*digits),
            Self::Array(element) => element.modifier(),
            _ => -1,
        }
    }

    /// The type of an OID, without a modifier; `None` for one that Headwater does not have.
    pub fn of_oid(oid: u32) -> Option<Self> {
        if let Some(known) = TYPES.iter().find(|known| known.oid == oid) {
            return Some(Self::of_catalog_name(known.name));
        }
        let known = TYPES
            .iter()
            .find(|known| known.array_oid == oid && known.array_oid != 0)?;
        Some(Self::Array(Box::new(Self::of_catalog_name(known.name))))
    }

    /// The type of an OID and its modifier.
    pub fn of_oid_and_modifier(oid: u32, modifier: i32) -> Option<Self> {
        Some(Self::of_oid(oid)?.with_modifier(modifier))
    }

    /// This type with a modifier as [`Type::modifier`] gives it.
    #[must_use]
    pub fn with_modifier(self, modifier: i32) -> Self {
        if modifier < 0 {
            return self;
        }
        match self {
            Self::Varchar(_) => Self::Varchar(u32::try_from(modifier - 4).ok()),
            Self::Char(_) => Self::Char(u32::try_from(modifier - 4).ok()),
            Self::Numeric(_) if modifier >= 4 => {
                let packed = modifier - 4;
                let precision = ((packed >> 16) & 0xffff) as u8;
                // The scale is an 11-bit two's complement number.
                let scale = ((packed & 0x7ff) ^ 1024) - 1024;
                Self::Numeric(Some((precision, scale as i8)))
            }
            Self::Timestamp(_) => Self::Timestamp(u8::try_from(modifier).ok()),
            Self::Timestamptz(_) => Self::Timestamptz(u8::try_from(modifier).ok()),
            Self::Array(element) => Self::Array(Box::new(element.with_modifier(modifier))),
            other => other,
        }
    }

    fn of_catalog_name(name: &str) -> Self {
        match name {
            "unknown" => Self::Unknown,
            "bool" => Self::Bool,
            "int2" => Self::Int2,
            "int4" => Self::Int4,
            "int8" => Self::Int8,
            "float4" => Self::Float4,
            "float8" => Self::Float8,
            "numeric" => Self::Numeric(None),
            "varchar" => Self::Varchar(None),
            "bpchar" => Self::Char(None),
            "bytea" => Self::Bytea,
            "date" => Self::Date,
            "time" => Self::Time,
            "timestamp" => Self::Timestamp(None),
            "timestamptz" => Self::Timestamptz(None),
            "interval" => Self::Interval,
            "uuid" => Self::Uuid,
            "json" => Self::Json,
            "jsonb" => Self::Jsonb,
            "record" => Self::Record(Vec::new()),
            "name" => Self::Name,
            "char" => Self::InternalChar,
            "text" => Self::Text,
            oid => Self::Oid(oid.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_type_comes_back_from_its_oid() {
        for known in TYPES {
            let kind = Type::of_oid(known.oid).unwrap();
            assert_eq!(kind.oid(), known.oid, "{}", known.name);
            assert_eq!(kind.length(), known.length, "{}", known.name);
            if known.array_oid != 0 {
                let array = Type::of_oid(known.array_oid).unwrap();
                assert_eq!(array, Type::Array(Box::new(kind)));
                assert_eq!(array.oid(), known.array_oid);
                assert_eq!(array.length(), -1);
            }
        }
        assert_eq!(Type::of_oid(1), None);
        assert_eq!(Type::of_oid(0), None);
    }

    #[test]
    fn modifiers_are_those_of_postgresql() {
        for (kind, modifier) in [
            (Type::Varchar(Some(10)), 14),
            (Type::Char(Some(3)), 7),
            (Type::Numeric(Some((10, 2))), 655_366),
            (Type::Numeric(Some((5, -2))), (5 << 16 | 0x7fe) + 4),
            (Type::Timestamp(Some(3)), 3),
            (Type::Array(Box::new(Type::Varchar(Some(5)))), 9),
            (Type::Text, -1),
            (Type::Numeric(None), -1),
            (Type::Quotient, -1),
        ] {
            assert_eq!(kind.modifier(), modifier, "{kind}");
            if modifier >= 0 {
                assert_eq!(Type::of_oid_and_modifier(kind.oid(), modifier), Some(kind));
            }
        }
    }
}
