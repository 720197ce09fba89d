//! The dialect: PostgreSQL's, with generated columns as we spell them and table versions.
//!
//! sqlparser asks a dialect what it may accept. Ours says whatever PostgreSQL's says (sqlparser compares identities,
//! so [`Dialect::dialect`] answers for PostgreSQL too), except for the few lines below.

use sqlparser::ast::{ColumnOption, Expr, GeneratedAs};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::any::TypeId;

/// Headwater's SQL.
#[derive(Debug, Default)]
pub(crate) struct HeadwaterDialect {
    postgres: PostgreSqlDialect,
}

/// Answers that are PostgreSQL's.
macro_rules! as_postgres {
    ($($name:ident),* $(,)?) => {
        $(fn $name(&self) -> bool {
            self.postgres.$name()
        })*
    };
}

impl Dialect for HeadwaterDialect {
    fn dialect(&self) -> TypeId {
        self.postgres.dialect()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        self.postgres.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        self.postgres.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        self.postgres.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        self.postgres.is_identifier_part(ch)
    }

    fn is_reserved_for_identifier(&self, kw: Keyword) -> bool {
        self.postgres.is_reserved_for_identifier(kw)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        self.postgres.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        self.postgres.get_next_precedence(parser)
    }

    fn prec_value(&self, prec: Precedence) -> u8 {
        self.postgres.prec_value(prec)
    }

    as_postgres!(
        supports_unicode_string_literal,
        supports_filter_during_aggregation,
        supports_group_by_expr,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_listen_notify,
        supports_factorial_operator,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_empty_projections,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_numeric_literal_underscores,
        supports_array_typedef_with_brackets,
        supports_set_names,
        supports_notnull_operator,
        supports_interval_options,
        supports_insert_table_alias,
        supports_select_wildcard_with_alias,
        supports_comma_separated_trim,
        supports_geometric_types,
    );

    /// Named arguments are identifiers: to try an expression first is exponential in the nesting of calls.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    /// `t FOR SYSTEM_TIME AS OF now()`.
    fn supports_table_versioning(&self) -> bool {
        true
    }

    /// `column type AS (expr)`: a generated column without the ceremony.
    fn parse_column_option(
        &self,
        parser: &mut Parser,
    ) -> Result<Option<Result<Option<ColumnOption>, ParserError>>, ParserError> {
        if !parser.parse_keyword_with_tokens(Keyword::AS, &[Token::LParen]) {
            return Ok(None);
        }
        let expression: Expr = parser.parse_expr()?;
        parser.expect_token(&Token::RParen)?;
        Ok(Some(Ok(Some(ColumnOption::Generated {
            generated_as: GeneratedAs::Always,
            sequence_options: None,
            generation_expr: Some(expression),
            generation_expr_mode: None,
            generated_keyword: false,
        }))))
    }
}
