//! The one error of Headwater: who must act on it, in PostgreSQL's words and codes.
//!
//! Every layer returns [`Error`]. It carries a SQLSTATE, a message in PostgreSQL's wording, and whatever helps the
//! user go on: a detail, a hint, the position in the statement's text. Errors that travel through DataFusion are
//! wrapped as `DataFusionError::External` and come back whole (see `sql::error`).

use std::fmt;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who must act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The statement's text cannot be read: the user must write it differently.
    Syntax,
    /// The statement is readable but wrong: unknown names, mismatched types, violated constraints, bad values.
    Semantic,
    /// The statement asks for something that Headwater does not have (yet).
    Unsupported,
    /// The statement lost against another one: trying again may work.
    Conflict,
    /// A limit was reached; its name is in the message.
    Limit,
    /// The statement was cancelled.
    Cancelled,
    /// Something outside (a file, a peer) did not do its part.
    External,
    /// The store holds what it must not hold.
    Corrupt,
    /// The operating system refused an operation on the store.
    Io,
    /// A broken invariant of ours.
    Internal,
}

/// An error: for whom, with which SQLSTATE, saying what.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Body>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Body {
    kind: Kind,
    code: &'static str,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    position: Option<usize>,
    context: Option<String>,
}

impl Error {
    /// An error of `kind` with the SQLSTATE `code`.
    pub fn new(kind: Kind, code: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Body {
            kind,
            code,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            context: None,
        }))
    }

    /// A statement that cannot be parsed (`42601`).
    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(Kind::Syntax, "42601", message)
    }

    /// A wrong statement or value, with its SQLSTATE.
    pub fn semantic(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Kind::Semantic, code, message)
    }

    /// Something that Headwater does not have (`0A000`).
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported, "0A000", message)
    }

    /// A lost race (`40001`).
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, "40001", message)
    }

    /// A limit that was reached, with its SQLSTATE (`53...` or `54...`).
    pub fn limit(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Kind::Limit, code, message)
    }

    /// A cancelled statement (`57014`).
    pub fn cancelled() -> Self {
        Self::new(Kind::Cancelled, "57014", "canceling statement due to user request")
    }

    /// A failure of something outside (`58000` and relatives).
    pub fn external(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Kind::External, code, message)
    }

    /// Damaged data (`XX001`).
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, "XX001", message)
    }

    /// A failed operation on the disk (`58030`, or `53100` when it is full).
    pub fn io(message: impl Into<String>) -> Self {
        let message = message.into();
        let code = if message.contains("No space left") {
            "53100"
        } else {
            "58030"
        };
        Self::new(Kind::Io, code, message)
    }

    /// A broken invariant (`XX000`).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, "XX000", message)
    }

    /// Adds the detail line.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds the hint line.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the position: the 1-based index of a character in the statement's text.
    #[must_use]
    pub fn with_position(mut self, position: usize) -> Self {
        self.0.position = Some(position);
        self
    }

    /// Adds where it happened, such as `COPY t, line 3, column a: "x"`.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<String>) -> Self {
        self.0.context = Some(context.into());
        self
    }

    /// Who must act.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The five characters of the SQLSTATE.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// The primary message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// More about what happened.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The 1-based index of the offending character in the statement's text.
    pub fn position(&self) -> Option<usize> {
        self.0.position
    }

    /// Where it happened.
    pub fn context(&self) -> Option<&str> {
        self.0.context.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Error {}

impl From<arrow::error::ArrowError> for Error {
    /// Arrow's computing errors are the ones a row can cause; anything else is ours.
    fn from(error: arrow::error::ArrowError) -> Self {
        use arrow::error::ArrowError;
        match error {
            ArrowError::DivideByZero => Self::semantic("22012", "division by zero"),
            ArrowError::ArithmeticOverflow(_) => Self::semantic("22003", "value out of range"),
            ArrowError::ExternalError(inner) => match inner.downcast::<Error>() {
                Ok(own) => *own,
                Err(other) => Self::internal(other.to_string()),
            },
            ArrowError::CastError(text) => Self::semantic("22P02", text),
            other => Self::internal(other.to_string()),
        }
    }
}
