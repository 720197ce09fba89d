//! A client that sends and reads single messages of the protocol, for what drivers do not let one do.

use crate::harness::Result;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A connection.
pub(crate) struct Raw {
    stream: TcpStream,
    /// The transaction status of the last ReadyForQuery: `I`, `T` or `E`.
    pub(crate) status: u8,
    /// The last command tag, or the SQLSTATE of the last error.
    pub(crate) outcome: String,
}

impl Raw {
    /// Connects and waits until the server is ready.
    pub(crate) fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut raw = Self {
            stream,
            status: b'I',
            outcome: String::new(),
        };
        let body = b"\0\x03\0\0user\0tester\0database\0headwater\0\0";
        raw.stream.write_all(&length_of(body)?)?;
        raw.stream.write_all(body)?;
        raw.until_ready()?;
        Ok(raw)
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, tag: u8, body: &[u8]) -> Result {
        let message = [&[tag], length_of(body)?.as_slice(), body].concat();
        Ok(self.stream.write_all(&message)?)
    }

    /// Sends a simple query.
    pub(crate) fn query(&mut self, sql: &str) -> Result {
        self.send(b'Q', &[sql.as_bytes(), b"\0"].concat())
    }

    /// Sends Parse, without types of parameters.
    pub(crate) fn parse(&mut self, statement: &str, sql: &str) -> Result {
        self.send(b'P', &[statement.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat())
    }

    /// Sends Bind, without parameters, for results as text.
    pub(crate) fn bind(&mut self, portal: &str, statement: &str) -> Result {
        self.send(
            b'B',
            &[portal.as_bytes(), b"\0", statement.as_bytes(), b"\0\0\0\0\0\0\0"].concat(),
        )
    }

    /// Sends Execute for at most so many rows; 0 is all.
    pub(crate) fn execute(&mut self, portal: &str, rows: i32) -> Result {
        self.send(
            b'E',
            &[portal.as_bytes(), b"\0", rows.to_be_bytes().as_slice()].concat(),
        )
    }

    /// Sends Sync.
    pub(crate) fn sync(&mut self) -> Result {
        self.send(b'S', &[])
    }

    /// Reads a message: its tag and its body.
    pub(crate) fn message(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; usize::try_from(length)?.saturating_sub(4)];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    /// Reads up to ReadyForQuery: the tags of the messages before it, and the bodies of the rows. Notices and reports
    /// of settings are left out.
    pub(crate) fn until_ready(&mut self) -> Result<(String, Vec<Vec<u8>>)> {
        let (mut tags, mut rows) = (String::new(), Vec::new());
        loop {
            let (tag, body) = self.message()?;
            match tag {
                b'Z' => {
                    self.status = body.first().copied().unwrap_or_default();
                    return Ok((tags, rows));
                }
                b'N' | b'S' | b'R' | b'K' => continue,
                b'C' => self.outcome = String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned(),
                b'E' => self.outcome = field(&body, b'C'),
                b'D' => rows.push(body),
                _ => {}
            }
            tags.push(char::from(tag));
        }
    }
}

/// The length of a message, as its head states it.
fn length_of(body: &[u8]) -> Result<[u8; 4]> {
    Ok(u32::try_from(body.len() + 4)?.to_be_bytes())
}

/// A field of an ErrorResponse.
fn field(body: &[u8], name: u8) -> String {
    let mut fields = body.split(|byte| *byte == 0);
    let found = fields.find(|field| field.first() == Some(&name)).unwrap_or_default();
    String::from_utf8_lossy(found.get(1..).unwrap_or_default()).into_owned()
}
