//! DROP and RENAME: what goes, what goes with it, and what stands in the way.

use super::SYSTEM_SCHEMAS;
use crate::catalog::{Relation, RelationId, RelationKind};
use crate::engine::session::{Session, done};
use crate::engine::{Notice, Outcome};
use crate::error::{Error, Result};
use crate::sql::statement::{DropBehavior, IfExists, Name, ObjectKind};
use std::sync::Arc;

impl Session {
    pub(super) fn drop(
        &mut self,
        kind: ObjectKind,
        names: &[Name],
        if_exists: IfExists,
        behavior: DropBehavior,
    ) -> Result<Outcome> {
        let tag = format!(
            "DROP {}",
            if kind == ObjectKind::User {
                "ROLE".to_owned()
            } else {
                kind.noun().to_uppercase()
            }
        );
        match kind {
            ObjectKind::Schema => {
                for name in names {
                    self.drop_schema(&name.name, if_exists, behavior)?;
                }
            }
            ObjectKind::User => {
                for name in names {
                    self.drop_user(&name.name, if_exists)?;
                }
            }
            _ => {
                let mut found = Vec::new();
                for name in names {
                    match self.find(kind, name) {
                        Ok(relation) => found.push(relation),
                        Err(error) if error.code() == "42P01" && if_exists == IfExists::Notice => {
                            let text = format!("{} \"{name}\" does not exist, skipping", kind.noun());
                            self.notice(Notice::new(text));
                        }
                        Err(error) => return Err(error),
                    }
                }
                self.remove(&found, behavior)?;
            }
        }
        done(&tag)
    }

    /// Takes relations away, and with CASCADE all that use them.
    pub(super) fn remove(&mut self, relations: &[Arc<Relation>], behavior: DropBehavior) -> Result<()> {
        let catalog = self.catalog();
        let mut gone: Vec<RelationId> = relations.iter().map(|relation| relation.id).collect();
        let mut users: Vec<(Arc<Relation>, Arc<Relation>)> = Vec::new();
        let mut next = relations.to_vec();
        while let Some(relation) = next.pop() {
            for user in catalog.users_of(relation.id) {
                if !gone.contains(&user.id) {
                    gone.push(user.id);
                    users.push((user.clone(), relation.clone()));
                    next.push(user);
                }
            }
        }
        users.retain(|(user, _)| !matches!(user.kind, RelationKind::Index { .. }));
        if !users.is_empty() {
            users.sort_by_key(|(user, _)| user.id);
            if behavior == DropBehavior::Restrict {
                return Err(in_use(&relations[0], &users));
            }
            self.notice(cascaded(&users));
        }
        self.change_catalog(|catalog| {
            gone.iter().for_each(|id| {
                catalog.relations.remove(id);
            });
            Ok(())
        })?;
        let work = self.work()?;
        gone.iter().for_each(|id| {
            work.overlay.remove(id);
        });
        work.plans.retain(|plan| !gone.contains(&plan.relation));
        Ok(())
    }

    fn drop_schema(&mut self, name: &str, if_exists: IfExists, behavior: DropBehavior) -> Result<()> {
        let catalog = self.catalog();
        if !catalog.schemas.iter().any(|schema| schema == name) {
            if if_exists == IfExists::Notice {
                self.notice(Notice::new(format!("schema \"{name}\" does not exist, skipping")));
                return Ok(());
            }
            if name == "public" || SYSTEM_SCHEMAS.contains(&name) {
                return Err(Error::unsupported(format!("schema \"{name}\" cannot be dropped")));
            }
            return Err(Error::semantic("3F000", format!("schema \"{name}\" does not exist")));
        }
        let inside: Vec<Arc<Relation>> = catalog
            .relations
            .values()
            .filter(|relation| relation.schema == name)
            .cloned()
            .collect();
        if !inside.is_empty() {
            if behavior == DropBehavior::Restrict {
                let lines: Vec<String> = inside
                    .iter()
                    .map(|relation| format!("{} {name}.{} depends on schema {name}", relation.noun(), relation.name))
                    .collect();
                return Err(Error::semantic(
                    "2BP01",
                    format!("cannot drop schema {name} because other objects depend on it"),
                )
                .with_detail(lines.join("\n"))
                .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            self.remove(&inside, behavior)?;
        }
        self.change_catalog(|catalog| {
            catalog.schemas.retain(|schema| schema != name);
            Ok(())
        })
    }

    fn drop_user(&mut self, name: &str, if_exists: IfExists) -> Result<()> {
        if !self.catalog().users.contains_key(name) {
            if if_exists == IfExists::Notice {
                self.notice(Notice::new(format!("role \"{name}\" does not exist, skipping")));
                return Ok(());
            }
            return Err(Error::semantic("42704", format!("role \"{name}\" does not exist")));
        }
        self.change_catalog(|catalog| {
            catalog.users.remove(name);
            Ok(())
        })
    }

    pub(super) fn rename(&mut self, kind: ObjectKind, name: &Name, to: &str, if_exists: IfExists) -> Result<Outcome> {
        let tag = format!("ALTER {}", kind.noun().to_uppercase());
        let relation = match self.find(kind, name) {
            Err(error) if error.code() == "42P01" && if_exists == IfExists::Notice => {
                self.notice(Notice::new(format!("relation \"{name}\" does not exist, skipping")));
                return done(&tag);
            }
            found => found?,
        };
        let catalog = self.catalog();
        if catalog.find(&relation.schema, to).is_some() {
            return Err(Error::semantic("42P07", format!("relation \"{to}\" already exists")));
        }
        // The texts of the queries that read it name it: they would no longer be read as they were meant.
        let users = catalog.users_of(relation.id);
        if let Some(user) = users
            .iter()
            .find(|user| !matches!(user.kind, RelationKind::Index { .. }))
        {
            return Err(Error::semantic(
                "2BP01",
                format!(
                    "cannot rename {} \"{}\" because other objects depend on it",
                    relation.noun(),
                    relation.name
                ),
            )
            .with_detail(format!("{} {} reads it by name", user.noun(), user.name))
            .with_hint("Drop the dependent objects first, and make them again over the new name."));
        }
        self.change_catalog(|catalog| {
            let mut renamed = relation.as_ref().clone();
            to.clone_into(&mut renamed.name);
            renamed.sql = crate::engine::show::create_statement(&renamed);
            catalog.relations.insert(renamed.id, Arc::new(renamed));
            Ok(())
        })?;
        done(&tag)
    }
}

fn in_use(relation: &Relation, users: &[(Arc<Relation>, Arc<Relation>)]) -> Error {
    let lines: Vec<String> = users
        .iter()
        .map(|(user, used)| format!("{} {} depends on {} {}", user.noun(), user.name, used.noun(), used.name))
        .collect();
    Error::semantic(
        "2BP01",
        format!(
            "cannot drop {} {} because other objects depend on it",
            relation.noun(),
            relation.name
        ),
    )
    .with_detail(lines.join("\n"))
    .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

fn cascaded(users: &[(Arc<Relation>, Arc<Relation>)]) -> Notice {
    match users {
        [(user, _)] => Notice::new(format!("drop cascades to {} {}", user.noun(), user.name)),
        many => {
            let lines: Vec<String> = many
                .iter()
                .map(|(user, _)| format!("drop cascades to {} {}", user.noun(), user.name))
                .collect();
            Notice {
                detail: Some(lines.join("\n")),
                ..Notice::new(format!("drop cascades to {} other objects", many.len()))
            }
        }
    }
}
