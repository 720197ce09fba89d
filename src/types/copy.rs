//! COPY's formats: the options of `WITH (...)`, and the writer of rows as text, CSV and binary.
//!
//! The reader, which goes the other way, is [`reader`].

pub mod reader;

pub use reader::CopyReader;

use super::Type;
use super::binary::BinaryWriter;
use super::settings::Settings;
use super::text::TextWriter;
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use bytes::{BufMut, BytesMut};

/// How binary data begins.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// How rows are laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// Fields between tabs, with backslash escapes.
    #[default]
    Text,
    /// Comma-separated values.
    Csv,
    /// PostgreSQL's binary values.
    Binary,
}

/// What the first line is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Header {
    /// A row.
    #[default]
    None,
    /// The names of the columns; written, and skipped when read.
    Names,
    /// The names of the columns, which must be those of the table.
    Match,
}

/// The columns that an option names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Chosen {
    /// None of them.
    #[default]
    None,
    /// All of them: `*`.
    All,
    /// Those of these names.
    Named(Vec<String>),
}

impl Chosen {
    fn contains(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Named(names) => names.iter().any(|chosen| chosen == name),
        }
    }
}

/// The options of a COPY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyFormat {
    /// How rows are laid out.
    pub form: Form,
    /// What stands between fields.
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
    /// What the first line is.
    pub header: Header,
    /// CSV: what encloses a field.
    pub quote: u8,
    /// CSV: what precedes a quote within quotes.
    pub escape: u8,
    /// CSV output: fields that are always quoted.
    pub force_quote: Chosen,
    /// CSV input: fields in which the null string is a value.
    pub force_not_null: Chosen,
    /// CSV input: fields in which the quoted null string is NULL too.
    pub force_null: Chosen,
}

impl Default for CopyFormat {
    fn default() -> Self {
        Self::of(Form::Text)
    }
}

/// The value of an option of `WITH (...)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionValue {
    /// Nothing after the name.
    Absent,
    /// A word, number or string.
    Word(String),
    /// `*`
    Star,
    /// A list of columns.
    Columns(Vec<String>),
}

impl CopyFormat {
    /// The defaults of a layout.
    pub fn of(form: Form) -> Self {
        let csv = form == Form::Csv;
        Self {
            form,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { "" } else { "\\N" }.to_owned(),
            header: Header::None,
            quote: b'"',
            escape: b'"',
            force_quote: Chosen::None,
            force_not_null: Chosen::None,
            force_null: Chosen::None,
        }
    }

    /// The format that options ask for, checked as PostgreSQL checks them. Options that are not about the format
    /// (`batch_rows`) are the caller's to take out before.
    pub fn of_options(options: &[(String, OptionValue)]) -> Result<Self> {
        let find = |name: &str| {
            let mut found = options.iter().filter(|(option, _)| option == name);
            let first = found.next().map(|(_, value)| value);
            match found.next() {
                Some(_) => Err(Error::syntax("conflicting or redundant options")),
                None => Ok(first),
            }
        };
        let form = match find("format")? {
            None => Form::Text,
            Some(value) => match word("format", value)?.as_str() {
                "text" => Form::Text,
                "csv" => Form::Csv,
                "binary" => Form::Binary,
                other => {
                    return Err(Error::semantic(
                        "22023",
                        format!("COPY format \"{other}\" not recognized"),
                    ));
                }
            },
        };
        let mut format = Self::of(form);
        for (name, value) in options {
            find(name)?;
            format.set(name, value)?;
        }
        if find("escape")?.is_none() {
            format.escape = format.quote;
        }
        format.check()?;
        Ok(format)
    }

    fn set(&mut self, name: &str, value: &OptionValue) -> Result<()> {
        let csv_only = |option: &str| match self.form {
            Form::Csv => Ok(()),
            _ => Err(Error::unsupported(format!("COPY {option} available only in CSV mode"))),
        };
        let text_only = |option: &str| match self.form {
            Form::Binary => Err(Error::syntax(format!("cannot specify {option} in BINARY mode"))),
            _ => Ok(()),
        };
        match name {
            "format" => {}
            "delimiter" => {
                text_only("DELIMITER")?;
                self.delimiter = one_byte("delimiter", &word(name, value)?)?;
            }
            "null" => {
                text_only("NULL")?;
                self.null = word(name, value)?;
                if self.null.contains(['\n', '\r']) {
                    return Err(Error::semantic(
                        "22023",
                        "COPY null representation cannot use newline or carriage return",
                    ));
                }
            }
            "header" => {
                self.header = header(value)?;
                if self.header != Header::None && self.form == Form::Binary {
                    return Err(Error::unsupported("cannot specify HEADER in BINARY mode"));
                }
            }
            "quote" => {
                csv_only("quote")?;
                self.quote = one_byte("quote", &word(name, value)?)?;
            }
            "escape" => {
                csv_only("escape")?;
                self.escape = one_byte("escape", &word(name, value)?)?;
            }
            "force_quote" => {
                csv_only("force quote")?;
                self.force_quote = chosen(name, value)?;
            }
            "force_not_null" => {
                csv_only("force not null")?;
                self.force_not_null = chosen(name, value)?;
            }
            "force_null" => {
                csv_only("force null")?;
                self.force_null = chosen(name, value)?;
            }
            "encoding" => {
                let encoding = word(name, value)?;
                if !["utf8", "utf-8"].contains(&encoding.to_ascii_lowercase().as_str()) {
                    return Err(Error::unsupported(format!("encoding \"{encoding}\" is not supported"))
                        .with_hint("Headwater reads and writes UTF8."));
                }
            }
            other => {
                return Err(Error::syntax(format!("option \"{other}\" not recognized")));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.form == Form::Binary {
            return Ok(());
        }
        let refused: &[u8] = if self.form == Form::Text {
            b"\\.abcdefghijklmnopqrstuvwxyz0123456789"
        } else {
            b""
        };
        if refused.contains(&self.delimiter) {
            return Err(Error::semantic(
                "22023",
                format!("COPY delimiter cannot be \"{}\"", char::from(self.delimiter)),
            ));
        }
        if matches!(self.delimiter, b'\n' | b'\r') {
            return Err(Error::semantic(
                "22023",
                "COPY delimiter cannot be newline or carriage return",
            ));
        }
        if self.form == Form::Csv && self.delimiter == self.quote {
            return Err(Error::semantic("22023", "COPY delimiter and quote must be different"));
        }
        if self.null.as_bytes().contains(&self.delimiter) {
            return Err(Error::semantic(
                "22023",
                "COPY delimiter character must not appear in the NULL specification",
            ));
        }
        if self.form == Form::Csv && self.null.as_bytes().contains(&self.quote) {
            return Err(Error::semantic(
                "22023",
                "CSV quote character must not appear in the NULL specification",
            ));
        }
        Ok(())
    }
}

fn word(name: &str, value: &OptionValue) -> Result<String> {
    match value {
        OptionValue::Word(word) => Ok(word.clone()),
        OptionValue::Absent => Err(Error::syntax(format!("{name} requires a parameter"))),
        _ => Err(Error::syntax(format!("{name} requires a string value"))),
    }
}

fn one_byte(name: &str, value: &str) -> Result<u8> {
    match value.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(Error::unsupported(format!(
            "COPY {name} must be a single one-byte character"
        ))),
    }
}

fn header(value: &OptionValue) -> Result<Header> {
    let word = match value {
        OptionValue::Absent => return Ok(Header::Names),
        OptionValue::Word(word) => word.to_ascii_lowercase(),
        _ => String::new(),
    };
    match word.as_str() {
        "true" | "on" | "1" => Ok(Header::Names),
        "false" | "off" | "0" => Ok(Header::None),
        "match" => Ok(Header::Match),
        _ => Err(Error::syntax("header requires a Boolean value or \"match\"")),
    }
}

fn chosen(name: &str, value: &OptionValue) -> Result<Chosen> {
    match value {
        OptionValue::Star => Ok(Chosen::All),
        OptionValue::Columns(names) => Ok(Chosen::Named(names.clone())),
        OptionValue::Word(name) => Ok(Chosen::Named(vec![name.clone()])),
        OptionValue::Absent => Err(Error::semantic(
            "22023",
            format!("argument to option \"{name}\" must be a list of column names"),
        )),
    }
}

/// Writes rows in a COPY's format.
#[derive(Debug)]
pub struct CopyWriter {
    columns: Vec<(String, Type)>,
    format: CopyFormat,
    settings: Settings,
    forced: Vec<bool>,
}

/// Writes the rows of one batch.
#[derive(Debug)]
pub struct CopyRows<'a> {
    writer: &'a CopyWriter,
    cells: Vec<Cell>,
    scratch: BytesMut,
}

#[derive(Debug)]
enum Cell {
    Text(TextWriter),
    Binary(BinaryWriter),
}

impl CopyWriter {
    /// A writer of rows with these columns.
    pub fn new(columns: Vec<(String, Type)>, format: CopyFormat, settings: Settings) -> Self {
        let forced = columns
            .iter()
            .map(|(name, _)| format.force_quote.contains(name))
            .collect();
        Self {
            columns,
            format,
            settings,
            forced,
        }
    }

    /// Writes what comes before the rows: the line of names, or the binary form's signature.
    pub fn start(&self, out: &mut BytesMut) {
        if self.format.form == Form::Binary {
            out.put_slice(SIGNATURE);
            out.put_i32(0);
            out.put_i32(0);
        } else if self.format.header != Header::None {
            for (index, (name, _)) in self.columns.iter().enumerate() {
                if index > 0 {
                    out.put_u8(self.format.delimiter);
                }
                self.put_field(name.as_bytes(), index, out);
            }
            out.put_u8(b'\n');
        }
    }

    /// The rows of a batch, whose columns are this writer's.
    pub fn rows(&self, batch: &RecordBatch) -> Result<CopyRows<'_>> {
        let cells = self.columns.iter().zip(batch.columns());
        let cells = cells.map(|((_, kind), array)| {
            Ok(match self.format.form {
                Form::Binary => Cell::Binary(BinaryWriter::for_column(kind, array)?),
                _ => Cell::Text(TextWriter::for_column(kind, array, &self.settings)?),
            })
        });
        Ok(CopyRows {
            writer: self,
            cells: cells.collect::<Result<_>>()?,
            scratch: BytesMut::new(),
        })
    }

    /// Writes what comes after the rows: the binary form's trailer.
    pub fn end(&self, out: &mut BytesMut) {
        if self.format.form == Form::Binary {
            out.put_i16(-1);
        }
    }

    fn put_field(&self, text: &[u8], column: usize, out: &mut BytesMut) {
        match self.format.form {
            Form::Csv => self.put_csv(text, column, out),
            _ => self.put_escaped(text, out),
        }
    }

    fn put_csv(&self, text: &[u8], column: usize, out: &mut BytesMut) {
        let CopyFormat {
            delimiter,
            quote,
            escape,
            ..
        } = self.format;
        let quoted = self.forced.get(column).copied().unwrap_or(false)
            || text == self.format.null.as_bytes()
            || (self.columns.len() == 1 && text == b"\\.")
            || text
                .iter()
                .any(|byte| *byte == delimiter || *byte == quote || matches!(byte, b'\n' | b'\r'));
        if !quoted {
            out.put_slice(text);
            return;
        }
        out.put_u8(quote);
        for byte in text {
            if *byte == quote || *byte == escape {
                out.put_u8(escape);
            }
            out.put_u8(*byte);
        }
        out.put_u8(quote);
    }

    fn put_escaped(&self, text: &[u8], out: &mut BytesMut) {
        let mut from = 0;
        for (at, byte) in text.iter().enumerate() {
            let escaped = match byte {
                b'\\' => b'\\',
                8 => b'b',
                12 => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                11 => b'v',
                other if *other == self.format.delimiter => *other,
                _ => continue,
            };
            out.put_slice(&text[from..at]);
            out.put_slice(&[b'\\', escaped]);
            from = at + 1;
        }
        out.put_slice(&text[from..]);
    }
}

impl CopyRows<'_> {
    /// Appends one row, its line end included.
    pub fn write(&mut self, row: usize, out: &mut BytesMut) -> Result<()> {
        let writer = self.writer;
        if writer.format.form == Form::Binary {
            return self.write_binary(row, out);
        }
        for (index, cell) in self.cells.iter().enumerate() {
            if index > 0 {
                out.put_u8(writer.format.delimiter);
            }
            let Cell::Text(cell) = cell else { continue };
            if cell.is_null(row) {
                out.put_slice(writer.format.null.as_bytes());
                continue;
            }
            self.scratch.clear();
            cell.write(row, &mut self.scratch);
            writer.put_field(&self.scratch, index, out);
        }
        out.put_u8(b'\n');
        Ok(())
    }

    fn write_binary(&mut self, row: usize, out: &mut BytesMut) -> Result<()> {
        out.put_i16(self.cells.len() as i16);
        for cell in &self.cells {
            let Cell::Binary(cell) = cell else { continue };
            if cell.is_null(row) {
                out.put_i32(-1);
                continue;
            }
            let start = out.len();
            out.put_i32(0);
            cell.write(row, out)?;
            let length = (out.len() - start - 4) as i32;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &[(&str, &str)]) -> Result<CopyFormat> {
        let list: Vec<(String, OptionValue)> = list
            .iter()
            .map(|(name, value)| ((*name).to_owned(), OptionValue::Word((*value).to_owned())))
            .collect();
        CopyFormat::of_options(&list)
    }

    #[test]
    fn options_are_checked_as_postgresql_checks_them() {
        let csv = options(&[("format", "csv"), ("quote", "'"), ("header", "true")]).unwrap();
        assert_eq!((csv.quote, csv.escape, csv.header), (b'\'', b'\'', Header::Names));
        for (list, code) in [
            (&[("format", "xml")][..], "22023"),
            (&[("delimiter", "ab")], "0A000"),
            (&[("quote", "'")], "0A000"),
            (&[("delimiter", "a")], "22023"),
            (&[("format", "csv"), ("delimiter", "\"")], "22023"),
            (&[("format", "binary"), ("delimiter", ",")], "42601"),
            (&[("nonsense", "1")], "42601"),
            (&[("null", "a"), ("null", "b")], "42601"),
            (&[("null", "a,b"), ("delimiter", ",")], "22023"),
        ] {
            assert_eq!(options(list).unwrap_err().code(), code, "{list:?}");
        }
    }

    fn written(format: CopyFormat, values: &[Option<&str>]) -> String {
        let kind = Type::Text;
        let mut builder = super::super::ColumnBuilder::new(&kind);
        for value in values {
            builder.push_text(*value).unwrap();
        }
        let array = builder.finish();
        let column = || ("a".to_owned(), Type::Text);
        let batch = RecordBatch::try_from_iter([("a", array.clone()), ("b", array)]).unwrap();
        let writer = CopyWriter::new(vec![column(), column()], format, Settings::default());
        let mut out = BytesMut::new();
        writer.start(&mut out);
        let mut rows = writer.rows(&batch).unwrap();
        for row in 0..values.len() {
            rows.write(row, &mut out).unwrap();
        }
        writer.end(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn rows_are_written_as_text_and_csv() {
        assert_eq!(
            written(CopyFormat::default(), &[Some("a\tb\\\n"), None, Some("")]),
            "a\\tb\\\\\\n\ta\\tb\\\\\\n\n\\N\t\\N\n\t\n"
        );
        let csv = CopyFormat {
            header: Header::Names,
            ..CopyFormat::of(Form::Csv)
        };
        assert_eq!(
            written(csv, &[Some("x,\"y\""), None, Some("")]),
            "a,a\n\"x,\"\"y\"\"\",\"x,\"\"y\"\"\"\n,\n\"\",\"\"\n"
        );
    }
}
