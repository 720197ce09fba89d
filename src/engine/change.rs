//! INSERT, UPDATE, DELETE, TRUNCATE: what rows a statement changes.
//!
//! A statement is evaluated in batch into a change, -old and +new rows. Outside a transaction the change goes to the
//! driver, which checks it against the head; if somebody else was first, the statement is evaluated again at the new
//! head, so it never fails for that reason. In a transaction it joins the transaction's own changes.

use super::command::{Command, Duplicate, Write};
use super::complete::null_refused;
use super::published::Stored;
use super::query::View;
use super::session::{Session, done, result_columns};
use super::{Outcome, Parameters, ResultColumn, RowsTag};
use crate::catalog::{Relation, RelationId, RelationKind};
use crate::delta::{Batch, Delta, Weights, batch_of};
use crate::error::{Error, Kind, Result};
use crate::expr::Expression;
use crate::sql::bind::change::{BoundInsert, ConflictUpdate, OnConflict};
use crate::sql::bind::{Binder, Bound, ParameterTypes};
use crate::sql::statement::{Name, Parsed, Statement};
use ahash::RandomState;
use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use datafusion::logical_expr::LogicalPlan;
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;

/// How often a statement is evaluated again because somebody else was first.
const TRIES_MAX: usize = 1000;

/// A statement's change.
struct Effect {
    relation: Arc<Relation>,
    delta: Delta,
    /// The rows that the statement counts.
    count: usize,
    duplicate: Duplicate,
    /// The rows that RETURNING is about, and what it asks for.
    returning: Option<(Bound, RecordBatch)>,
    tag: &'static str,
}

/// A bound statement.
enum Work {
    Insert(Box<BoundInsert>),
    Update(Arc<Relation>, LogicalPlan, Option<Bound>),
    Delete(Arc<Relation>, LogicalPlan, Option<Bound>),
}

impl Session {
    pub(super) fn describe_change(
        &mut self,
        parsed: &Parsed,
        statement: &Statement,
        types: &mut ParameterTypes,
    ) -> Result<Option<Vec<ResultColumn>>> {
        let view = self.view();
        let returning = match self.bind_change(&view, parsed, statement, types)? {
            Work::Insert(insert) => insert.returning,
            Work::Update(_, _, returning) | Work::Delete(_, _, returning) => returning,
        };
        Ok(returning.map(|bound| result_columns(&bound.columns)))
    }

    fn bind_change(
        &mut self,
        view: &View,
        parsed: &Parsed,
        statement: &Statement,
        types: &mut ParameterTypes,
    ) -> Result<Work> {
        let settings = self.bind_settings();
        let system = super::system::System::new(&self.engine, view, &settings);
        let binder = Binder::new(&view.catalog, &settings, &system).with_source(&parsed.source);
        Ok(match statement {
            Statement::Insert { insert, .. } => Work::Insert(Box::new(binder.bind_insert(insert, types)?)),
            Statement::Update { update, .. } => {
                let bound = binder.bind_update(update, types)?;
                Work::Update(bound.relation, bound.source, bound.returning)
            }
            Statement::Delete { delete, .. } => {
                let bound = binder.bind_delete(delete, types)?;
                Work::Delete(bound.relation, bound.source, bound.returning)
            }
            _ => return Err(Error::internal("not a statement that changes rows")),
        })
    }

    pub(super) async fn change(
        &mut self,
        parsed: &Parsed,
        statement: &Statement,
        parameters: &Parameters,
    ) -> Result<Outcome> {
        if let Statement::Truncate { names, .. } = statement {
            return self.truncate(names).await;
        }
        for turn in 0.. {
            let view = self.view();
            let effect = self.effect(&view, parsed, statement, parameters).await?;
            match self.take_effect(&view, &effect).await {
                Err(error) if error.kind() == Kind::Conflict && self.transaction.is_none() && turn < TRIES_MAX => {}
                Err(error) => return Err(error),
                Ok(()) => return self.answer(view, effect).await,
            }
        }
        Err(Error::internal("a statement was tried without end"))
    }

    /// Hands a change to the driver, or adds it to the transaction.
    async fn take_effect(&mut self, view: &View, effect: &Effect) -> Result<()> {
        if self.transaction.is_some() {
            check_keys(view, &effect.relation, &effect.delta)?;
            return self.overlay(effect.relation.id, effect.delta.clone());
        }
        if effect.delta.is_empty() {
            return Ok(());
        }
        self.check_size(effect.delta.bytes())?;
        let write = Write {
            changes: vec![(effect.relation.id, effect.delta.clone())],
            duplicate: effect.duplicate,
        };
        self.engine
            .shared()
            .commands
            .ask(|reply| Command::Write(write, reply))
            .await
            .map(drop)
    }

    fn check_size(&self, bytes: usize) -> Result<()> {
        let bytes_max = self.engine.shared().config.epoch_bytes_max();
        if bytes > bytes_max {
            return Err(Error::limit(
                "54000",
                format!("the change is larger than epoch_bytes_max ({bytes} of {bytes_max} bytes)"),
            )
            .with_hint("Change fewer rows at once, use COPY ... WITH (batch_rows = n), or raise --memory-limit."));
        }
        Ok(())
    }

    async fn answer(&mut self, view: View, effect: Effect) -> Result<Outcome> {
        let prefix = if effect.tag == "INSERT" { "INSERT 0" } else { effect.tag };
        let Some((bound, rows)) = effect.returning else {
            return done(&format!("{prefix} {}", effect.count));
        };
        let columns = result_columns(&bound.columns);
        let zone = self.settings.zone().name();
        let only = View {
            only: Some((effect.relation.id, rows)),
            ..view
        };
        let plan = crate::sql::bind::fix_now(bound.plan, self.now_micros())?;
        let rows = super::query::run(&only, plan, &columns, &zone).await?;
        Ok(Outcome::Rows {
            columns,
            rows,
            tag: RowsTag::Prefix(prefix.to_owned()),
        })
    }

    /// Adds a change to the transaction's.
    pub(super) fn overlay(&mut self, relation: RelationId, delta: Delta) -> Result<()> {
        let bytes_max = self.engine.shared().config.epoch_bytes_max();
        let Some(transaction) = &mut self.transaction else {
            return Err(Error::internal("a change outside a transaction"));
        };
        let Some(schema) = delta.batches.first().map(|batch| batch.rows.schema()) else {
            return Ok(());
        };
        let work = &mut transaction.work;
        work.bytes += delta.bytes();
        if work.bytes > bytes_max {
            return Err(Error::limit(
                "54000",
                format!("the transaction is larger than epoch_bytes_max ({bytes_max} bytes)"),
            )
            .with_hint("Commit more often, use COPY ... WITH (batch_rows = n), or raise --memory-limit."));
        }
        let own = work.overlay.entry(relation).or_default();
        let appends = delta.is_inserts() && own.is_inserts();
        own.append(delta);
        if !appends {
            *own = own.consolidate(&schema)?;
        }
        Ok(())
    }

    async fn effect(
        &mut self,
        view: &View,
        parsed: &Parsed,
        statement: &Statement,
        parameters: &Parameters,
    ) -> Result<Effect> {
        let mut types = ParameterTypes::given(parameters.types.iter().cloned().map(Some).collect());
        match self.bind_change(view, parsed, statement, &mut types)? {
            Work::Insert(insert) => self.insert(view, *insert, parameters).await,
            Work::Update(relation, source, returning) => {
                let rows = self.rows_of_plan(view, source, parameters).await?;
                updated(relation, &rows, returning)
            }
            Work::Delete(relation, source, returning) => {
                let rows = self.rows_of_plan(view, source, parameters).await?;
                deleted(relation, &rows, returning)
            }
        }
    }

    async fn rows_of_plan(&mut self, view: &View, plan: LogicalPlan, parameters: &Parameters) -> Result<RecordBatch> {
        let plan = self.with_parameters(plan, parameters)?;
        let zone = self.settings.zone().name();
        super::query::collect(view, plan, &zone).await
    }

    async fn insert(&mut self, view: &View, insert: BoundInsert, parameters: &Parameters) -> Result<Effect> {
        let BoundInsert {
            relation,
            source,
            on_conflict,
            returning,
        } = insert;
        let rows = self.rows_of_plan(view, source, parameters).await?;
        let rows = whole_rows(&relation, &rows, 0)?;
        let (delta, affected, duplicate) = match (on_conflict, key_of(view, &relation)) {
            (OnConflict::Fail, _) | (_, None) => (Delta::from(Batch::inserts(rows.clone())), rows, Duplicate::Error),
            (OnConflict::Nothing, Some(stored)) => {
                let fresh = fresh_rows(view, &relation, &stored, &rows)?;
                (Delta::from(Batch::inserts(fresh.clone())), fresh, Duplicate::Conflict)
            }
            (OnConflict::Update(update), Some(stored)) => {
                let (delta, affected) = self.upserted(view, &relation, &stored, &rows, update, parameters)?;
                (delta, affected, Duplicate::Conflict)
            }
        };
        Ok(Effect {
            count: affected.num_rows(),
            returning: returning.map(|bound| (bound, affected)),
            relation,
            delta,
            duplicate,
            tag: "INSERT",
        })
    }

    /// ON CONFLICT DO UPDATE: rows whose key is there change the row that has it, the others are added.
    fn upserted(
        &mut self,
        view: &View,
        relation: &Arc<Relation>,
        stored: &Stored,
        rows: &RecordBatch,
        update: ConflictUpdate,
        parameters: &Parameters,
    ) -> Result<(Delta, RecordBatch)> {
        let found = current_rows(view, relation, stored, rows)?;
        let key = stored
            .key
            .as_ref()
            .ok_or_else(|| Error::internal("a keyed table has no key"))?;
        let keys = key.encode(rows)?;
        let mut seen: HashSet<&[u8], RandomState> = HashSet::default();
        if (0..rows.num_rows()).any(|row| !seen.insert(keys.row(row).data())) {
            return Err(Error::semantic("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time")
                .with_hint(
                    "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
                ));
        }
        let there: Vec<u32> = (0..rows.num_rows() as u32)
            .filter(|row| found[*row as usize].is_some())
            .collect();
        let fresh: Vec<u32> = (0..rows.num_rows() as u32)
            .filter(|row| found[*row as usize].is_none())
            .collect();
        let fresh = picked(rows, &fresh)?;
        let mut delta = Delta::from(Batch::inserts(fresh.clone()));
        if there.is_empty() {
            return Ok((delta, fresh));
        }
        let rows_place = stored
            .rows
            .as_ref()
            .ok_or_else(|| Error::internal("a table keeps no rows"))?;
        let old = rows_place.decode(there.iter().filter_map(|row| found[*row as usize].as_deref()))?;
        let excluded = picked(rows, &there)?;
        let (old, new) = self.conflict_rows(update, &old, &excluded, relation, parameters)?;
        delta.append(difference(&old, &new)?);
        let affected = arrow::compute::concat_batches(&rows.schema(), [&fresh, &new])?;
        Ok((delta, affected))
    }

    /// The rows that ON CONFLICT DO UPDATE changes, and what they become.
    fn conflict_rows(
        &self,
        update: ConflictUpdate,
        old: &RecordBatch,
        excluded: &RecordBatch,
        relation: &Arc<Relation>,
        parameters: &Parameters,
    ) -> Result<(RecordBatch, RecordBatch)> {
        let schema: arrow::datatypes::SchemaRef = Arc::new(update.schema.as_arrow().clone());
        let evaluate = |expr: datafusion::logical_expr::Expr, rows: &RecordBatch| -> Result<ArrayRef> {
            let expr = crate::sql::bind::fix_now_in(expr, self.now_micros())?;
            if parameters.values.is_some() && has_parameter(&expr) {
                return Err(
                    Error::unsupported("parameters in ON CONFLICT DO UPDATE are not supported")
                        .with_hint("Give the value in VALUES, and refer to it as excluded.column."),
                );
            }
            let compiled = Expression::bind(&expr, &update.schema)?.compile(&schema)?;
            let (values, failures) = compiled.evaluate(rows)?;
            match failures.into_iter().next() {
                Some(failure) => Err(failure.error),
                None => Ok(values),
            }
        };
        let beside = |old: &RecordBatch, excluded: &RecordBatch| {
            let columns = old.columns().iter().chain(excluded.columns()).cloned().collect();
            batch_of(schema.clone(), columns, old.num_rows())
        };
        let (mut old, mut excluded) = (old.clone(), excluded.clone());
        if let Some(filter) = update.filter {
            let keep = evaluate(filter, &beside(&old, &excluded)?)?;
            let keep = arrow::array::AsArray::as_boolean(&keep).clone();
            old = arrow::compute::filter_record_batch(&old, &keep)?;
            excluded = arrow::compute::filter_record_batch(&excluded, &keep)?;
        }
        let pairs = beside(&old, &excluded)?;
        let columns = update
            .row
            .into_iter()
            .map(|expr| evaluate(expr, &pairs))
            .collect::<Result<Vec<_>>>()?;
        let fields = super::published::schema_of(relation);
        let named = named_rows(&fields, columns, old.num_rows())?;
        Ok((old, whole_rows(relation, &named, 0)?))
    }

    async fn truncate(&mut self, names: &[Name]) -> Result<Outcome> {
        for name in names {
            for _ in 0..TRIES_MAX {
                let relation = self.find_any(name)?;
                if !matches!(relation.kind, RelationKind::Table { .. }) {
                    return Err(Error::semantic(
                        "42809",
                        format!("\"{}\" is not a table", relation.name),
                    ));
                }
                let text = format!(
                    "SELECT * FROM {}.{}",
                    super::show::quoted(&relation.schema),
                    super::show::quoted(&relation.name)
                );
                let query = crate::sql::parse_query(&text)?;
                let view = self.view();
                let plan = {
                    let settings = self.bind_settings();
                    let system = super::system::System::new(&self.engine, &view, &settings);
                    let binder = Binder::new(&view.catalog, &settings, &system);
                    binder.bind_query(&query.query, &mut ParameterTypes::default())?.plan
                };
                let rows = self.rows_of_plan(&view, plan, &Parameters::default()).await?;
                let effect = deleted(relation, &rows, None)?;
                match self.take_effect(&view, &effect).await {
                    Err(error) if error.kind() == Kind::Conflict && self.transaction.is_none() => {}
                    other => {
                        other?;
                        break;
                    }
                }
            }
        }
        done("TRUNCATE TABLE")
    }
}

fn has_parameter(expr: &datafusion::logical_expr::Expr) -> bool {
    use datafusion::common::tree_node::TreeNode;
    expr.exists(|node| Ok(matches!(node, datafusion::logical_expr::Expr::Placeholder(_))))
        .unwrap_or(false)
}

/// Refuses relations that rows cannot be written to.
pub(super) fn check_target(relation: &Relation, what: &str) -> Result<()> {
    match relation.kind {
        RelationKind::Stream(_) | RelationKind::Table { .. } => Ok(()),
        RelationKind::View { .. } => Err(
            Error::semantic("42809", format!("cannot {what} view \"{}\"", relation.name))
                .with_hint("Write to the tables and streams that it reads."),
        ),
        _ => Err(Error::semantic(
            "42809",
            format!("cannot {what} {} \"{}\"", relation.noun(), relation.name),
        )
        .with_hint("Write to the tables and streams that it reads.")),
    }
}

/// The rows of a batch, from column `from` on, as rows of a relation; NULLs where they are refused are an error.
fn whole_rows(relation: &Arc<Relation>, rows: &RecordBatch, from: usize) -> Result<RecordBatch> {
    let schema = super::published::schema_of(relation);
    let columns = rows.columns()[from..from + schema.fields().len()].to_vec();
    let whole = named_rows(&schema, columns, rows.num_rows())?;
    for (column, values) in relation.columns.iter().zip(whole.columns()) {
        if column.not_null && values.null_count() > 0 {
            let row = (0..values.len()).find(|row| values.is_null(*row)).unwrap_or(0);
            return Err(null_refused(relation, &column.name, &whole, row));
        }
    }
    Ok(whole)
}

fn named_rows(schema: &arrow::datatypes::SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let columns = columns
        .into_iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                Ok(column)
            } else {
                arrow::compute::cast(&column, field.data_type())
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    batch_of(schema.clone(), columns, rows)
}

fn picked(rows: &RecordBatch, indices: &[u32]) -> Result<RecordBatch> {
    let indices = UInt32Array::from(indices.to_vec());
    let columns = rows
        .columns()
        .iter()
        .map(|column| take(column, &indices, None))
        .collect::<Result<_, _>>()?;
    batch_of(rows.schema(), columns, indices.len())
}

/// -old +new, without the rows that stay as they are.
fn difference(old: &RecordBatch, new: &RecordBatch) -> Result<Delta> {
    let mut delta = Delta::from(Batch::deletes(old.clone()));
    delta.push(Batch::inserts(new.clone()));
    delta.consolidate(&new.schema())
}

fn updated(relation: Arc<Relation>, rows: &RecordBatch, returning: Option<Bound>) -> Result<Effect> {
    let width = relation.columns.len();
    let rows = first_of_each(&relation, rows)?;
    let old = whole_rows_as_they_are(&relation, &rows, 0)?;
    let new = whole_rows(&relation, &rows, width)?;
    let delta = difference(&old, &new)?;
    Ok(Effect {
        relation,
        delta,
        count: new.num_rows(),
        duplicate: Duplicate::Error,
        returning: returning.map(|bound| (bound, new)),
        tag: "UPDATE",
    })
}

fn deleted(relation: Arc<Relation>, rows: &RecordBatch, returning: Option<Bound>) -> Result<Effect> {
    let rows = first_of_each(&relation, rows)?;
    let old = whole_rows_as_they_are(&relation, &rows, 0)?;
    let delta = Delta::from(Batch::deletes(old.clone())).consolidate(&old.schema())?;
    Ok(Effect {
        relation,
        delta,
        count: old.num_rows(),
        duplicate: Duplicate::Error,
        returning: returning.map(|bound| (bound, old)),
        tag: "DELETE",
    })
}

fn whole_rows_as_they_are(relation: &Arc<Relation>, rows: &RecordBatch, from: usize) -> Result<RecordBatch> {
    let schema = super::published::schema_of(relation);
    let columns = rows.columns()[from..from + schema.fields().len()].to_vec();
    named_rows(&schema, columns, rows.num_rows())
}

/// Of a keyed table's rows each once: a join in the statement may have found one several times.
fn first_of_each(relation: &Arc<Relation>, rows: &RecordBatch) -> Result<RecordBatch> {
    let RelationKind::Table { primary_key } = &relation.kind else {
        return Ok(rows.clone());
    };
    if primary_key.is_empty() {
        return Ok(rows.clone());
    }
    let columns: Vec<ArrayRef> = primary_key.iter().map(|index| rows.column(*index).clone()).collect();
    let codec = crate::delta::KeyCodec::keys(columns.iter().map(|column| column.data_type().clone()).collect())?;
    let keys = codec.encode(&columns, rows.num_rows())?;
    let mut seen: HashSet<&[u8], RandomState> = HashSet::default();
    let firsts: Vec<u32> = (0..rows.num_rows())
        .filter(|row| seen.insert(keys.row(*row).data()))
        .map(|row| row as u32)
        .collect();
    if firsts.len() == rows.num_rows() {
        Ok(rows.clone())
    } else {
        picked(rows, &firsts)
    }
}

/// Where a keyed table's rows are.
fn key_of(view: &View, relation: &Relation) -> Option<Arc<Stored>> {
    let keyed = matches!(&relation.kind, RelationKind::Table { primary_key } if !primary_key.is_empty());
    view.published.relations.get(&relation.id).filter(|_| keyed).cloned()
}

/// The rows (encoded) that a statement sees under the keys of these rows.
fn current_rows(view: &View, relation: &Relation, stored: &Stored, rows: &RecordBatch) -> Result<Vec<Option<Vec<u8>>>> {
    let key = stored
        .key
        .as_ref()
        .ok_or_else(|| Error::internal("a keyed table has no key"))?;
    let place = stored
        .rows
        .as_ref()
        .ok_or_else(|| Error::internal("a table keeps no rows"))?;
    let mut own: HashMap<Vec<u8>, Option<Vec<u8>>, RandomState> = HashMap::default();
    if let Some(overlay) = view.overlay.get(&relation.id) {
        for deletes in [true, false] {
            for batch in &overlay.batches {
                let keys = key.encode(&batch.rows)?;
                let encoded = place.encode(&batch.rows)?;
                for row in (0..batch.len()).filter(|row| (batch.weights.at(*row) < 0) == deletes) {
                    let value = (!deletes).then(|| encoded.row(row).data().to_vec());
                    own.insert(keys.row(row).data().to_vec(), value);
                }
            }
        }
    }
    let keys = key.encode(rows)?;
    keys.iter()
        .map(|key| match own.get(key.data()) {
            Some(value) => Ok(value.clone()),
            None => place.get(&view.published.snapshot, key.data()),
        })
        .collect()
}

/// The rows whose key is not there yet, each key once.
fn fresh_rows(view: &View, relation: &Relation, stored: &Stored, rows: &RecordBatch) -> Result<RecordBatch> {
    let found = current_rows(view, relation, stored, rows)?;
    let key = stored
        .key
        .as_ref()
        .ok_or_else(|| Error::internal("a keyed table has no key"))?;
    let keys = key.encode(rows)?;
    let mut seen: HashSet<&[u8], RandomState> = HashSet::default();
    let fresh: Vec<u32> = (0..rows.num_rows())
        .filter(|row| found[*row].is_none() && seen.insert(keys.row(*row).data()))
        .map(|row| row as u32)
        .collect();
    picked(rows, &fresh)
}

/// In a transaction a duplicate key is found when the statement runs.
fn check_keys(view: &View, relation: &Arc<Relation>, delta: &Delta) -> Result<()> {
    let Some(stored) = key_of(view, relation) else {
        return check_new_table(view, relation, delta);
    };
    let key = stored
        .key
        .as_ref()
        .ok_or_else(|| Error::internal("a keyed table has no key"))?;
    let mut gone: HashSet<Vec<u8>, RandomState> = HashSet::default();
    for batch in &delta.batches {
        let keys = key.encode(&batch.rows)?;
        let deletes = (0..batch.len()).filter(|row| batch.weights.at(*row) < 0);
        gone.extend(deletes.map(|row| keys.row(row).data().to_vec()));
    }
    let mut seen: HashSet<Vec<u8>, RandomState> = HashSet::default();
    for batch in &delta.batches {
        let found = current_rows(view, relation, &stored, &batch.rows)?;
        let keys = key.encode(&batch.rows)?;
        for row in (0..batch.len()).filter(|row| batch.weights.at(*row) > 0) {
            let bytes = keys.row(row).data();
            let there = found[row].is_some() && !gone.contains(bytes);
            let twice = matches!(&batch.weights, Weights::Each(_)) && batch.weights.at(row) > 1;
            if there || twice || !seen.insert(bytes.to_vec()) {
                return Err(super::base::duplicate_key(relation, &key.columns, &batch.rows, row));
            }
        }
    }
    Ok(())
}

/// A keyed table that this transaction made: all its rows are the transaction's own.
fn check_new_table(view: &View, relation: &Arc<Relation>, delta: &Delta) -> Result<()> {
    let RelationKind::Table { primary_key } = &relation.kind else {
        return Ok(());
    };
    if primary_key.is_empty() {
        return Ok(());
    }
    let mut all = view.overlay.get(&relation.id).cloned().unwrap_or_default();
    all.append(delta.clone());
    let schema = super::published::schema_of(relation);
    let all = all.consolidate(&schema)?;
    let mut seen: HashSet<Vec<u8>, RandomState> = HashSet::default();
    for batch in &all.batches {
        let columns: Vec<ArrayRef> = primary_key
            .iter()
            .map(|index| batch.rows.column(*index).clone())
            .collect();
        let codec = crate::delta::KeyCodec::keys(columns.iter().map(|column| column.data_type().clone()).collect())?;
        let keys = codec.encode(&columns, batch.len())?;
        for row in 0..batch.len() {
            if batch.weights.at(row) > 1 || !seen.insert(keys.row(row).data().to_vec()) {
                return Err(super::base::duplicate_key(relation, primary_key, &batch.rows, row));
            }
        }
    }
    Ok(())
}
