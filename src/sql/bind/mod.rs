//! Statements become plans: names are found, types settled, and PostgreSQL's meaning given to every expression.
//!
//! ```text
//! ast::Query --desugar--> ast::Query --SqlToRel--> LogicalPlan --analyse--> LogicalPlan
//!             spellings               names, types               casts, coercions
//! ```
//!
//! The [`Binder`] is DataFusion's [`ContextProvider`]: it finds relations in the [`Catalog`] under the session's
//! search path, and functions in `function`. Errors come out with PostgreSQL's code, wording and position.

mod analyse;
pub mod change;
mod check;
mod counted;
mod desugar;
pub(crate) mod expression;
mod frame;
mod guard;
mod label;
mod locate;
mod mark;
pub mod node;
mod object_name;
mod part;
pub mod relation;
mod rows;
mod set_function;
mod subquery;
mod table;
mod whole_row;

pub use crate::sql::function::is_now;
pub use analyse::{fix_now, fix_now_in, optimise};
pub use relation::{NoSystemRelations, RelationSource, SystemRelations};
pub use subquery::{SubqueryForm, SystemSubquery};

use crate::catalog::{Catalog, Relation, RelationKind};
use crate::error::{Error, Result};
use crate::sql::data_type::type_of;
use crate::sql::error::{external, with_location};
use crate::sql::function::{self, Session};
use crate::sql::parser;
use crate::sql::statement::Source;
use crate::types::{Nullability, Type};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, DataFusionError, Result as DataFusionResult, TableReference};
use datafusion::functions_aggregate::planner::AggregateFunctionPlanner;
use datafusion::functions_window::planner::WindowFunctionPlanner;
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, LogicalPlanBuilder, ScalarUDF, TableSource, WindowUDF,
};
use datafusion::sql::planner::{ContextProvider, PlannerContext, SqlToRel};
use relation::{ViewSource, columns_of};
use sqlparser::ast;
use sqlparser::tokenizer::Location;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How deep views may stand on views.
const VIEW_DEPTH_MAX: usize = 100;

/// How many tables of one query may be read as whole rows.
const WHOLE_ROWS_MAX: usize = 16;

/// What of a session decides what a statement means.
#[derive(Debug, Clone)]
pub struct BindSettings {
    /// Where unqualified names are looked for, in order.
    pub search_path: Vec<String>,
    /// The time zone, by name.
    pub time_zone: String,
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// Settings that `current_setting` can be asked for.
    pub variables: BTreeMap<String, String>,
}

impl Default for BindSettings {
    fn default() -> Self {
        Self {
            search_path: vec!["public".to_owned()],
            time_zone: "UTC".to_owned(),
            user: "headwater".to_owned(),
            database: "headwater".to_owned(),
            variables: BTreeMap::new(),
        }
    }
}

/// The types of `$1`, `$2`, ...: those that the client gave, and those that were found out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParameterTypes {
    /// By number, from `$1`; `None` where nothing is known.
    pub types: Vec<Option<Type>>,
}

impl ParameterTypes {
    /// The types that a client gave.
    pub fn given(types: Vec<Option<Type>>) -> Self {
        Self { types }
    }

    fn fields(&self) -> Vec<Option<FieldRef>> {
        self.types
            .iter()
            .enumerate()
            .map(|(index, kind)| {
                let kind = kind.as_ref()?;
                Some(Arc::new(kind.field(format!("${}", index + 1), Nullability::Nullable)))
            })
            .collect()
    }

    /// Takes over what a plan says of its parameters; whatever stays unknown is text.
    fn learn(&mut self, plan: &LogicalPlan) -> Result<()> {
        let found = plan
            .get_parameter_fields()
            .map_err(crate::sql::error::from_datafusion)?;
        for (id, field) in found {
            let Some(index) = id.strip_prefix('$').and_then(|number| number.parse::<usize>().ok()) else {
                continue;
            };
            if index == 0 || index > u16::MAX as usize {
                return Err(Error::semantic("42P02", format!("there is no parameter {id}")));
            }
            if self.types.len() < index {
                self.types.resize(index, None);
            }
            if self.types[index - 1].is_none() {
                self.types[index - 1] = field.as_ref().map(|field| Type::of_field(field));
            }
        }
        Ok(())
    }

    /// Gives the type text to every parameter of which nothing is known.
    pub fn settle(&mut self) {
        for kind in &mut self.types {
            kind.get_or_insert(Type::Text);
        }
    }
}

/// A bound query.
#[derive(Debug, Clone)]
pub struct Bound {
    /// The plan, analysed but not optimised.
    pub plan: LogicalPlan,
    /// The names and types of its columns, as a client sees them: names need not differ.
    pub columns: Vec<(String, Type)>,
}

/// Binds statements against a catalog.
pub struct Binder<'a> {
    /// What exists.
    pub catalog: &'a Catalog,
    /// The session.
    pub settings: &'a BindSettings,
    /// What exists beside the catalog.
    pub system: &'a dyn SystemRelations,
    source: Option<&'a Source>,
    config: ConfigOptions,
    expr_planners: Vec<Arc<dyn ExprPlanner>>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
    types: Arc<dyn TypePlanner>,
    session: Session,
    /// The views being expanded, so that depth is limited.
    views: RefCell<Vec<String>>,
    /// The search path in force: a view's texts are read under its own.
    path: RefCell<Vec<String>>,
}

impl<'a> Binder<'a> {
    /// A binder for one statement.
    pub fn new(catalog: &'a Catalog, settings: &'a BindSettings, system: &'a dyn SystemRelations) -> Self {
        let mut config = ConfigOptions::new();
        config.sql_parser.parse_float_as_decimal = true;
        config.sql_parser.enable_ident_normalization = true;
        config.sql_parser.map_string_types_to_utf8view = false;
        config.sql_parser.collect_spans = true;
        config.sql_parser.enable_subquery_sort_elimination = false;
        config.execution.time_zone = Some("+00:00".to_owned());
        config.execution.enable_recursive_ctes = false;
        Self {
            catalog,
            settings,
            system,
            source: None,
            config,
            expr_planners: vec![
                Arc::new(expression::Operators {
                    zone: settings.time_zone.clone(),
                }),
                // What count(*) counts.
                Arc::new(AggregateFunctionPlanner),
                Arc::new(WindowFunctionPlanner),
            ],
            relation_planners: vec![Arc::new(table::Relations {
                zone: settings.time_zone.clone(),
            })],
            types: Arc::new(Types),
            session: Session {
                zone: settings.time_zone.clone(),
                user: settings.user.clone(),
                database: settings.database.clone(),
                search_path: settings.search_path.clone(),
                variables: settings.variables.clone(),
            },
            views: RefCell::new(Vec::new()),
            path: RefCell::new(settings.search_path.clone()),
        }
    }

    /// Counts the positions of errors in this text.
    #[must_use]
    pub fn with_source(mut self, source: &'a Source) -> Self {
        self.source = Some(source);
        self
    }

    /// Binds a query.
    pub fn bind_query(&self, query: &ast::Query, parameters: &mut ParameterTypes) -> Result<Bound> {
        parser::on_deep_stack(|| {
            let plan = self.plan_query(query, parameters)?;
            let plan = self
                .finish(plan, parameters)
                .map_err(|error| self.located(error, query))?;
            Ok(Bound {
                columns: columns_of(&plan),
                plan,
            })
        })
    }

    /// Binds an expression over columns: a default, a generated column, a watermark.
    ///
    /// The expression is cast to `target` as an assignment would.
    pub fn bind_expression(&self, text: &str, columns: &[(String, Type)], target: Option<&Type>) -> Result<Expr> {
        let parsed = parser::parse_expression(text)?;
        self.bind_ast_expression(&parsed, columns, target)
    }

    /// Binds an expression that is parsed already, such as a parameter of EXECUTE.
    pub fn bind_ast_expression(
        &self,
        parsed: &ast::Expr,
        columns: &[(String, Type)],
        target: Option<&Type>,
    ) -> Result<Expr> {
        let schema = schema_of(columns, None)?;
        parser::on_deep_stack(|| {
            let expr = self.expression(parsed, &schema, &mut PlannerContext::new())?;
            let expr = match target {
                Some(target) => self.assigned(expr, &schema, target, "")?,
                None => expr,
            };
            analyse::expression(expr, &schema, &self.settings.time_zone)
        })
    }

    /// Plans a query, names resolved but types not coerced yet.
    fn plan_query(&self, query: &ast::Query, parameters: &ParameterTypes) -> Result<LogicalPlan> {
        check::query(query).map_err(|fault| self.placed(fault.0, fault.1))?;
        let mut planned = self.plan_checked(query, parameters);
        let mut changed = query.clone();
        // Each name is that of a table at most once.
        for _ in 0..WHOLE_ROWS_MAX {
            let Err(error) = &planned else { break };
            let Some(name) = whole_row::missing_column(error) else {
                break;
            };
            let columns = |probe: &ast::Query| {
                let plan = self.plan_checked(probe, parameters)?;
                Ok(columns_of(&plan).into_iter().map(|(name, _)| name).collect())
            };
            match whole_row::with_rows(&changed, name, &columns) {
                Ok(Some(query)) => changed = query,
                _ => break,
            }
            planned = self.plan_checked(&changed, parameters);
        }
        planned
    }

    fn plan_checked(&self, query: &ast::Query, parameters: &ParameterTypes) -> Result<LogicalPlan> {
        let mut rewritten = query.clone();
        label::label_beside_wildcard(&mut rewritten.body);
        desugar::query(&mut rewritten);
        let mut context = PlannerContext::new().with_prepare_param_data_types(parameters.fields());
        SqlToRel::new(self)
            .sql_statement_to_plan_with_context(ast::Statement::Query(Box::new(rewritten)), &mut context)
            .map_err(|error| self.located(error, query))
    }

    /// Coerces types, replaces casts, and learns the parameters' types.
    fn finish(&self, plan: LogicalPlan, parameters: &mut ParameterTypes) -> DataFusionResult<LogicalPlan> {
        let plan = self.replace_subqueries(plan)?;
        let plan = analyse::analyse(plan, &self.config, &self.settings.time_zone)?;
        let plan = object_name::show(plan, self.system)?;
        parameters.learn(&plan).map_err(external)?;
        Ok(plan)
    }

    /// Plans an expression over a schema.
    fn expression(&self, expr: &ast::Expr, schema: &DFSchema, context: &mut PlannerContext) -> Result<Expr> {
        let mut rewritten = expr.clone();
        desugar::expression(&mut rewritten);
        SqlToRel::new(self)
            .sql_to_expr(rewritten, schema, context)
            .map_err(|error| self.located(error, expr))
    }

    /// A DataFusion error in PostgreSQL's words, at the name that it is about.
    fn located<T: ast::Visit>(&self, error: DataFusionError, tree: &T) -> Error {
        let (error, location) = with_location(error);
        let error = locate::with_unknown_types(error, tree);
        if let Some(symbol) = part::operator(&error) {
            let after = location.or_else(|| locate::place(&error, tree));
            let place = after.and_then(|after| self.place_of_operator(symbol, after));
            return self.placed(error, place);
        }
        let location = locate::place(&error, tree)
            .or_else(|| check::literal(&error, tree))
            .or(location);
        self.placed(error, location)
    }

    /// Where an operator stands that comes after a place.
    fn place_of_operator(&self, symbol: &str, after: Location) -> Option<Location> {
        let text = self.source?.whole();
        let words: &[&str] = match symbol {
            "<>" => &["<>", "!="],
            "=" => &["=", "in"],
            ">=" => &[">=", "between"],
            "~~" => &["~~", "like"],
            "~~*" => &["~~*", "ilike"],
            "!~~" | "!~~*" => &[symbol, "not"],
            _ => std::slice::from_ref(&symbol),
        };
        let places = words.iter().filter_map(|word| parser::place_of(text, word, after));
        places.min_by_key(|place| (place.line, place.column))
    }

    /// The error with the position of a place in the statement.
    fn placed(&self, error: Error, location: Option<sqlparser::tokenizer::Location>) -> Error {
        // Inside a view, places are in another text.
        if error.position().is_some() || !self.views.borrow().is_empty() {
            return error;
        }
        let Some(source) = self.source else {
            return error;
        };
        match location.and_then(|location| source.position(location)) {
            Some(position) => error.with_position(position),
            None => error,
        }
    }

    /// The relation that a name means, or `42P01`.
    pub fn find_relation(&self, schema: Option<&str>, name: &str) -> Result<&'a Arc<Relation>> {
        let found = match schema {
            Some(schema) => self.catalog.find(schema, name),
            None => self.catalog.resolve(&self.path.borrow(), name),
        };
        found
            .filter(|relation| !matches!(relation.kind, RelationKind::Sink(_) | RelationKind::Index { .. }))
            .ok_or_else(|| {
                let shown = match schema {
                    Some(schema) => format!("{schema}.{name}"),
                    None => name.to_owned(),
                };
                Error::semantic("42P01", format!("relation \"{shown}\" does not exist"))
            })
    }

    /// A view's query in place of its name.
    fn expand_view(&self, relation: &Arc<Relation>, query: &str) -> Result<LogicalPlan> {
        if self.views.borrow().len() >= VIEW_DEPTH_MAX {
            return Err(Error::limit("54001", "stack depth limit exceeded")
                .with_hint(format!("Views may stand on views {VIEW_DEPTH_MAX} deep.")));
        }
        let parsed = parser::parse_query(query)?;
        self.views.borrow_mut().push(relation.name.clone());
        let outer_path = self.path.replace(relation.search_path.clone());
        let planned = self.plan_query(&parsed.query, &ParameterTypes::default());
        self.path.replace(outer_path);
        self.views.borrow_mut().pop();
        let plan = planned?;
        // The view's own column names, in case they were given beside the query.
        let renamed = plan
            .schema()
            .columns()
            .into_iter()
            .zip(&relation.columns)
            .map(|(column, own)| Expr::Column(column).alias(&own.name))
            .collect::<Vec<_>>();
        LogicalPlanBuilder::from(plan)
            .project(renamed)
            .and_then(LogicalPlanBuilder::build)
            .map_err(crate::sql::error::from_datafusion)
    }

    fn source_of(&self, relation: &Arc<Relation>) -> Result<Arc<dyn TableSource>> {
        match &relation.kind {
            RelationKind::View { query } => {
                let plan = self.expand_view(relation, query)?;
                let schema = Arc::new(plan.schema().as_arrow().clone());
                Ok(Arc::new(ViewSource { plan, schema }))
            }
            _ => Ok(Arc::new(RelationSource::new(relation.clone()))),
        }
    }
}

/// A plan of one row: the values of constant expressions, cast to these types.
pub fn constant_plan(binder: &Binder<'_>, expressions: &[ast::Expr], types: &[Type]) -> Result<LogicalPlan> {
    let empty = DFSchema::empty();
    let mut exprs = Vec::with_capacity(expressions.len());
    for (index, expression) in expressions.iter().enumerate() {
        let expr = binder.expression(expression, &empty, &mut PlannerContext::new())?;
        let expr = match types.get(index) {
            Some(kind) => binder.assigned(expr, &empty, kind, &format!("${}", index + 1))?,
            None => expr,
        };
        exprs.push(expr.alias(format!("${}", index + 1)));
    }
    let plan = LogicalPlanBuilder::empty(true)
        .project(exprs)
        .and_then(LogicalPlanBuilder::build)
        .map_err(crate::sql::error::from_datafusion)?;
    binder
        .finish(plan, &mut ParameterTypes::default())
        .map_err(crate::sql::error::from_datafusion)
}

/// A plan with the values of its parameters put in: one row, a column per parameter.
pub fn with_parameter_values(plan: LogicalPlan, values: &arrow::record_batch::RecordBatch) -> Result<LogicalPlan> {
    let mut literals = Vec::with_capacity(values.num_columns());
    for (column, field) in values.columns().iter().zip(values.schema().fields()) {
        literals.push(function::cast::literal(column, &Type::of_field(field))?);
    }
    analyse::replace_parameters(plan, &literals)
}

/// A schema of columns, qualified if there is a name.
pub(crate) fn schema_of(columns: &[(String, Type)], qualifier: Option<&str>) -> Result<DFSchema> {
    let fields = columns
        .iter()
        .map(|(name, kind)| {
            let field = Arc::new(kind.field(name, Nullability::Nullable));
            (qualifier.map(TableReference::bare), field)
        })
        .collect();
    DFSchema::new_with_metadata(fields, Default::default()).map_err(crate::sql::error::from_datafusion)
}

impl ContextProvider for Binder<'_> {
    fn get_table_source(&self, name: TableReference) -> DataFusionResult<Arc<dyn TableSource>> {
        let table = name.table();
        if let Some(schema) = name.schema() {
            if let Some(source) = self.system.relation(schema, table) {
                return Ok(source);
            }
        } else {
            // The catalog of the system comes first, unless the path says otherwise.
            let path = self.path.borrow().clone();
            let explicit = path.iter().any(|schema| schema == "pg_catalog");
            let system = std::iter::once("pg_catalog".to_owned()).filter(|_| !explicit);
            for schema in system.chain(path) {
                if let Some(relation) = self.catalog.find(&schema, table)
                    && !matches!(relation.kind, RelationKind::Sink(_) | RelationKind::Index { .. })
                {
                    return self.source_of(relation).map_err(external);
                }
                if let Some(source) = self.system.relation(&schema, table) {
                    return Ok(source);
                }
            }
        }
        let relation = self.find_relation(name.schema(), table).map_err(external)?;
        self.source_of(relation).map_err(external)
    }

    fn get_table_function_source(&self, name: &str, arguments: Vec<Expr>) -> DataFusionResult<Arc<dyn TableSource>> {
        let name = name.trim_matches('"');
        let arguments = arguments
            .into_iter()
            .map(|argument| analyse::expression(argument, &DFSchema::empty(), &self.settings.time_zone))
            .collect::<Result<Vec<_>>>()
            .map_err(external)?;
        match self.system.function(name, &arguments) {
            Some(source) => source.map_err(external),
            None => {
                let types: Vec<String> = arguments
                    .iter()
                    .map(|argument| {
                        expression::type_of(argument, &DFSchema::empty())
                            .map_or_else(|_| String::new(), |kind| kind.to_string())
                    })
                    .collect();
                Err(external(function::missing(name, &types)))
            }
        }
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expr_planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(self.types.clone())
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let own = subquery::marker(name).or_else(|| self.system.scalar_function(name));
        own.or_else(|| function::scalar(name, &self.session))
    }

    fn get_higher_order_meta(&self, _: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        function::aggregate(name)
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        function::window(name)
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.config
    }

    fn udf_names(&self) -> Vec<String> {
        vec!["abs".to_owned()]
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        vec!["count".to_owned()]
    }

    fn udwf_names(&self) -> Vec<String> {
        vec!["rank".to_owned()]
    }
}

/// Names of types, with what Arrow does not tell of them in the field's metadata.
#[derive(Debug)]
struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> DataFusionResult<Option<FieldRef>> {
        let kind = type_of(sql_type).map_err(external)?;
        // A field with a name says that its metadata, even if empty, is the type's.
        Ok(Some(Arc::new(kind.field("cast", Nullability::Nullable))))
    }
}
