//! Schemas, the database, users, and the few things that are the same everywhere.

use super::kind::OPERATOR_CLASSES;
use crate::engine::system::Facts;
use crate::engine::system::object::{self, BTREE, DATABASE, HEAP, OWNER, PG_CATALOG};
use crate::engine::system::sheet::{Cell, Sheet};

/// `pg_namespace`.
pub(super) fn schemas(facts: &Facts, sheet: &mut Sheet) {
    for (oid, name) in object::schemas(&facts.catalog) {
        sheet.row([
            ("oid", oid.into()),
            ("nspname", name.into()),
            ("nspowner", OWNER.into()),
        ]);
    }
}

/// `pg_database`: the one that the session is connected to.
pub(super) fn databases(facts: &Facts, sheet: &mut Sheet) {
    sheet.row([
        ("oid", DATABASE.into()),
        ("datname", (&facts.settings.database).into()),
        ("datdba", OWNER.into()),
        ("encoding", Cell::Int(6)),
        ("datlocprovider", "c".into()),
        ("datallowconn", true.into()),
        ("datconnlimit", Cell::Int(-1)),
        ("dattablespace", Cell::Int(1663)),
        ("datcollate", "C".into()),
        ("datctype", "C.UTF-8".into()),
    ]);
}

/// `pg_roles`, `pg_user`, `pg_shadow`, `pg_authid`: every user may do everything. No password is shown.
pub(super) fn users(facts: &Facts, relation: &str, sheet: &mut Sheet) {
    for (oid, name) in object::users(facts) {
        match relation {
            "pg_roles" | "pg_authid" => sheet.row([
                ("oid", oid.into()),
                ("rolname", name.into()),
                ("rolsuper", true.into()),
                ("rolinherit", true.into()),
                ("rolcreaterole", true.into()),
                ("rolcreatedb", true.into()),
                ("rolcanlogin", true.into()),
                ("rolreplication", false.into()),
                ("rolconnlimit", Cell::Int(-1)),
                (
                    "rolpassword",
                    if relation == "pg_roles" {
                        "********".into()
                    } else {
                        Cell::Null
                    },
                ),
                ("rolbypassrls", true.into()),
            ]),
            _ => sheet.row([
                ("usename", name.into()),
                ("usesysid", oid.into()),
                ("usecreatedb", true.into()),
                ("usesuper", true.into()),
                ("userepl", false.into()),
                ("usebypassrls", true.into()),
                (
                    "passwd",
                    if relation == "pg_user" {
                        "********".into()
                    } else {
                        Cell::Null
                    },
                ),
            ]),
        }
    }
}

/// `pg_am`.
pub(super) fn access_methods(sheet: &mut Sheet) {
    for (oid, name, handler, variety) in [(HEAP, "heap", 3, "t"), (BTREE, "btree", 330, "i")] {
        sheet.row([
            ("oid", oid.into()),
            ("amname", name.into()),
            ("amhandler", Cell::Int(handler)),
            ("amtype", variety.into()),
        ]);
    }
}

/// `pg_collation`: text is ordered by its bytes.
pub(super) fn collations(sheet: &mut Sheet) {
    for (oid, name, provider) in [(100, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")] {
        sheet.row([
            ("oid", Cell::Int(oid)),
            ("collname", name.into()),
            ("collnamespace", PG_CATALOG.into()),
            ("collowner", OWNER.into()),
            ("collprovider", provider.into()),
            ("collisdeterministic", true.into()),
            ("collencoding", Cell::Int(-1)),
        ]);
    }
}

/// `pg_language`.
pub(super) fn languages(sheet: &mut Sheet) {
    for (oid, name, trusted) in [(12, "internal", false), (14, "sql", true)] {
        sheet.row([
            ("oid", Cell::Int(oid)),
            ("lanname", name.into()),
            ("lanowner", OWNER.into()),
            ("lanpltrusted", trusted.into()),
        ]);
    }
}

/// `pg_extension`: the one that clients take for granted.
pub(super) fn extensions(sheet: &mut Sheet) {
    sheet.row([
        ("oid", Cell::Int(13559)),
        ("extname", "plpgsql".into()),
        ("extowner", OWNER.into()),
        ("extnamespace", PG_CATALOG.into()),
        ("extversion", "1.0".into()),
    ]);
}

/// `pg_tablespace`.
pub(super) fn tablespaces(sheet: &mut Sheet) {
    for (oid, name) in [(1663, "pg_default"), (1664, "pg_global")] {
        sheet.row([
            ("oid", Cell::Int(oid)),
            ("spcname", name.into()),
            ("spcowner", OWNER.into()),
        ]);
    }
}

/// `pg_opclass`.
pub(super) fn operator_classes(sheet: &mut Sheet) {
    for (oid, name, family, kind) in OPERATOR_CLASSES {
        sheet.row([
            ("oid", (*oid).into()),
            ("opcmethod", BTREE.into()),
            ("opcname", (*name).into()),
            ("opcnamespace", PG_CATALOG.into()),
            ("opcowner", OWNER.into()),
            ("opcfamily", (*family).into()),
            ("opcintype", (*kind).into()),
            ("opcdefault", true.into()),
        ]);
    }
}
