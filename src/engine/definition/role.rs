//! Schemas, users and settings of the whole system.

use super::SYSTEM_SCHEMAS;
use crate::engine::session::{Session, done};
use crate::engine::{Notice, Outcome};
use crate::error::{Error, Result};
use crate::sql::statement::{IfExists, SetValue};

impl Session {
    pub(super) fn create_schema(&mut self, name: &str, if_exists: IfExists) -> Result<Outcome> {
        if self.catalog().has_schema(name) || SYSTEM_SCHEMAS.contains(&name) {
            if if_exists == IfExists::Notice {
                let notice = Notice::new(format!("schema \"{name}\" already exists, skipping"));
                self.notice(Notice {
                    code: "42P06",
                    ..notice
                });
                return done("CREATE SCHEMA");
            }
            return Err(Error::semantic("42P06", format!("schema \"{name}\" already exists")));
        }
        self.change_catalog(|catalog| {
            catalog.schemas.push(name.to_owned());
            Ok(())
        })?;
        done("CREATE SCHEMA")
    }

    pub(super) fn create_user(&mut self, name: &str, password: Option<&str>, if_exists: IfExists) -> Result<Outcome> {
        if self.catalog().users.contains_key(name) {
            if if_exists == IfExists::Notice {
                self.notice(Notice::new(format!("role \"{name}\" already exists, skipping")));
                return done("CREATE ROLE");
            }
            return Err(Error::semantic("42710", format!("role \"{name}\" already exists")));
        }
        let verifier = password.map(crate::scram::verifier_of).transpose()?.unwrap_or_default();
        self.change_catalog(|catalog| {
            catalog.users.insert(name.to_owned(), verifier);
            Ok(())
        })?;
        done("CREATE ROLE")
    }

    pub(super) fn alter_user(&mut self, name: &str, password: Option<&str>) -> Result<Outcome> {
        let verifier = password.map(crate::scram::verifier_of).transpose()?.unwrap_or_default();
        let known = self.catalog().users.contains_key(name) || name == self.user;
        if !known {
            return Err(Error::semantic("42704", format!("role \"{name}\" does not exist")));
        }
        self.change_catalog(|catalog| {
            catalog.users.insert(name.to_owned(), verifier);
            Ok(())
        })?;
        done("ALTER ROLE")
    }

    pub(super) fn alter_system(&mut self, name: Option<&str>, value: &SetValue) -> Result<Outcome> {
        let name = name.ok_or_else(|| Error::unsupported("ALTER SYSTEM RESET ALL is not supported"))?;
        if name != "workers" {
            return Err(
                Error::unsupported(format!("setting \"{name}\" cannot be changed by ALTER SYSTEM"))
                    .with_hint("Give it on the command line of `headwater serve`."),
            );
        }
        let value = match value {
            SetValue::Default => None,
            SetValue::Values(values) => values.first().cloned(),
        };
        if let Some(text) = &value
            && !text.parse::<usize>().is_ok_and(|workers| (1..=64).contains(&workers))
        {
            return Err(
                Error::semantic("22023", format!("invalid value for parameter \"workers\": \"{text}\""))
                    .with_hint("A number from 1 to 64."),
            );
        }
        self.change_catalog(|catalog| {
            match value {
                Some(value) => catalog.settings.insert(name.to_owned(), value),
                None => catalog.settings.remove(name),
            };
            Ok(())
        })?;
        self.notice(Notice::new("the new value takes effect at the next start"));
        done("ALTER SYSTEM")
    }
}
