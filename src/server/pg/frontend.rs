//! What clients say: the messages of protocol 3, read strictly.
//!
//! A message is cut from the stream by its length first and read from that piece alone, so that a malformed one can
//! neither be misread as another nor make anything panic; what does not fit exactly is a protocol violation (`08P01`).

use crate::error::{Error, Result};
use bytes::{Buf, Bytes};
use std::collections::BTreeMap;

/// The first packet of a connection.
#[derive(Debug, PartialEq)]
pub(super) enum Opening {
    /// A wish for TLS.
    Ssl,
    /// A wish for GSSAPI encryption.
    Gss,
    /// A wish that another connection's statement be cancelled.
    Cancel {
        /// The connection.
        process_id: i32,
        /// What proves the right to do so.
        secret: i32,
    },
    /// The start of a session.
    Startup {
        /// The minor version of protocol 3.
        minor: u16,
        /// What the client sets.
        parameters: BTreeMap<String, String>,
    },
}

/// A message of a session.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// `Q`: statements as text.
    Query(String),
    /// `P`: a statement to prepare.
    Parse {
        /// Its name; empty for the unnamed one.
        name: String,
        /// The statement.
        text: String,
        /// The OIDs of its parameters, 0 where they are to be found out.
        kinds: Vec<u32>,
    },
    /// `B`: values for a prepared statement.
    Bind(Bind),
    /// `D`: what is it like?
    Describe(Target),
    /// `E`: run.
    Execute {
        /// The portal.
        portal: String,
        /// The most rows; 0 for all.
        rows_max: usize,
    },
    /// `C`: forget.
    Close(Target),
    /// `H`: send what there is.
    Flush,
    /// `S`: the end of a pipeline.
    Sync,
    /// `X`: goodbye.
    Terminate,
    /// `d`: a piece of COPY's data.
    CopyData(Bytes),
    /// `c`: the end of COPY's data.
    CopyDone,
    /// `f`: COPY's data cannot go on.
    CopyFail(String),
    /// `p`: a password or a step of SASL.
    Password(Bytes),
    /// `F`: the function call of old, which nobody makes.
    FunctionCall,
}

/// A `Bind`.
#[derive(Debug, PartialEq)]
pub(super) struct Bind {
    /// The portal to make; empty for the unnamed one.
    pub(super) portal: String,
    /// The prepared statement.
    pub(super) statement: String,
    /// The formats of the parameters: none, one for all, or one each.
    pub(super) parameter_formats: Vec<i16>,
    /// The values; `None` is NULL.
    pub(super) parameters: Vec<Option<Bytes>>,
    /// The formats of the result's columns, likewise.
    pub(super) result_formats: Vec<i16>,
}

/// What `Describe` and `Close` are about.
#[derive(Debug, PartialEq)]
pub(super) enum Target {
    /// A prepared statement.
    Statement(String),
    /// A portal.
    Portal(String),
}

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;

impl Opening {
    /// Reads a first packet, its length taken off.
    pub(super) fn decode(packet: Bytes) -> Result<Self> {
        let mut body = Body(packet);
        let code = body.i32()?;
        match code {
            SSL_REQUEST => return Ok(Self::Ssl),
            GSS_REQUEST => return Ok(Self::Gss),
            CANCEL_REQUEST => {
                return Ok(Self::Cancel {
                    process_id: body.i32()?,
                    secret: body.i32()?,
                });
            }
            _ => {}
        }
        let (major, minor) = (code >> 16, code as u16);
        if major != 3 {
            return Err(Error::unsupported(format!(
                "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"
            )));
        }
        let mut parameters = BTreeMap::new();
        loop {
            let name = body.string()?;
            if name.is_empty() {
                break;
            }
            let value = body.string()?;
            parameters.insert(name, value);
        }
        Ok(Self::Startup { minor, parameters })
    }
}

impl Message {
    /// Reads a message of a kind, its length taken off.
    pub(super) fn decode(kind: u8, body: Bytes) -> Result<Self> {
        let mut body = Body(body);
        let message = match kind {
            b'Q' => Self::Query(body.string()?),
            b'P' => Self::Parse {
                name: body.string()?,
                text: body.string()?,
                kinds: body.list(|body| body.u32())?,
            },
            b'B' => Self::Bind(Bind {
                portal: body.string()?,
                statement: body.string()?,
                parameter_formats: body.list(|body| body.i16())?,
                parameters: body.list(Body::value)?,
                result_formats: body.list(|body| body.i16())?,
            }),
            b'D' => Self::Describe(body.target()?),
            b'C' => Self::Close(body.target()?),
            b'E' => Self::Execute {
                portal: body.string()?,
                // Zero and below mean all, as in PostgreSQL.
                rows_max: usize::try_from(body.i32()?).unwrap_or(0),
            },
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'X' => return Ok(Self::Terminate),
            b'd' => return Ok(Self::CopyData(body.0)),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(body.string()?),
            b'p' => return Ok(Self::Password(body.0)),
            b'F' => return Ok(Self::FunctionCall),
            other => {
                return Err(violation(format!("invalid frontend message type {other}")));
            }
        };
        if body.0.has_remaining() {
            return Err(violation("invalid message format"));
        }
        Ok(message)
    }
}

/// Whether a byte begins a message that a session can have; anything else means that the stream is out of step.
pub(super) fn is_message_kind(kind: u8) -> bool {
    b"QPBDCEHSXdcfpF".contains(&kind)
}

/// A breach of the protocol.
pub(super) fn violation(message: impl Into<String>) -> Error {
    Error::semantic("08P01", message)
}

/// The rest of a message.
struct Body(Bytes);

impl Body {
    fn need(&self, bytes: usize) -> Result<()> {
        if self.0.remaining() < bytes {
            return Err(violation("insufficient data left in message"));
        }
        Ok(())
    }

    fn i16(&mut self) -> Result<i16> {
        self.need(2)?;
        Ok(self.0.get_i16())
    }

    fn i32(&mut self) -> Result<i32> {
        self.need(4)?;
        Ok(self.0.get_i32())
    }

    fn u32(&mut self) -> Result<u32> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    fn string(&mut self) -> Result<String> {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .ok_or_else(|| violation("invalid string in message"))?;
        let bytes = self.0.split_to(end);
        self.0.advance(1);
        Ok(crate::types::text::utf8(&bytes)?.to_owned())
    }

    /// A count and so many items.
    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.need(2)?;
        let count = usize::from(self.0.get_u16());
        // Every item takes two bytes at least, so that a wrong count cannot ask for much memory.
        self.need(count * 2)?;
        (0..count).map(|_| item(self)).collect()
    }

    fn value(&mut self) -> Result<Option<Bytes>> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| violation("invalid length of a parameter's value"))?;
                self.need(length)?;
                Ok(Some(self.0.split_to(length)))
            }
        }
    }

    fn target(&mut self) -> Result<Target> {
        self.need(1)?;
        let kind = self.0.get_u8();
        let name = self.string()?;
        match kind {
            b'S' => Ok(Target::Statement(name)),
            b'P' => Ok(Target::Portal(name)),
            other => Err(violation(format!("invalid DESCRIBE or CLOSE message subtype {other}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_is_read() {
        let mut body = b"p\0s\0".to_vec();
        body.extend([0, 1, 0, 1]);
        body.extend([0, 2, 0, 0, 0, 1, b'x', 0xff, 0xff, 0xff, 0xff]);
        body.extend([0, 0]);
        let message = Message::decode(b'B', Bytes::from(body)).unwrap();
        assert_eq!(
            message,
            Message::Bind(Bind {
                portal: "p".to_owned(),
                statement: "s".to_owned(),
                parameter_formats: vec![1],
                parameters: vec![Some(Bytes::from_static(b"x")), None],
                result_formats: vec![],
            })
        );
    }

    #[test]
    fn no_cut_of_any_message_panics() {
        for (kind, body) in [
            (b'Q', &b"select 1\0"[..]),
            (b'P', b"n\0t\0\0\x01\0\0\0\x17"),
            (b'B', b"p\0s\0\0\x01\0\x01\0\x01\0\0\0\x01x\0\0"),
            (b'D', b"Sx\0"),
            (b'E', b"p\0\0\0\0\x05"),
            (b'C', b"Px\0"),
            (b'f', b"no\0"),
        ] {
            assert!(Message::decode(kind, Bytes::from(body.to_vec())).is_ok());
            for length in 0..body.len() {
                let cut = Bytes::from(body[..length].to_vec());
                let error = Message::decode(kind, cut).unwrap_err();
                assert_eq!(error.code(), "08P01", "{} of {}", length, char::from(kind));
            }
            let mut longer = body.to_vec();
            longer.push(0);
            assert!(Message::decode(kind, Bytes::from(longer)).is_err());
        }
        let error = Message::decode(b'Q', Bytes::from_static(b"\xff\0")).unwrap_err();
        assert_eq!(error.code(), "22021");
    }

    #[test]
    fn openings_are_told_apart() {
        let packet = |code: i32, rest: &[u8]| {
            let mut bytes = code.to_be_bytes().to_vec();
            bytes.extend(rest);
            Opening::decode(Bytes::from(bytes))
        };
        assert_eq!(packet(SSL_REQUEST, b"").unwrap(), Opening::Ssl);
        assert_eq!(packet(GSS_REQUEST, b"").unwrap(), Opening::Gss);
        assert_eq!(
            packet(CANCEL_REQUEST, &[0, 0, 0, 7, 0, 0, 0, 9]).unwrap(),
            Opening::Cancel {
                process_id: 7,
                secret: 9
            }
        );
        let Opening::Startup { minor, parameters } = packet(3 << 16, b"user\0me\0database\0d\0\0").unwrap() else {
            panic!("a start-up packet starts up");
        };
        assert_eq!((minor, parameters["user"].as_str()), (0, "me"));
        assert_eq!(packet(2 << 16, b"").unwrap_err().code(), "0A000");
        assert_eq!(packet(3 << 16, b"user").unwrap_err().code(), "08P01");
    }
}
