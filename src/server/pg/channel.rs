//! The two directions of a connection, with their bounds.
//!
//! [`Incoming`] cuts messages from the stream and, while a statement runs, watches for the client's disappearance.
//! [`Outgoing`] collects answers and sends them when there are [`SEND_BUFFER_BYTES`] of them or the client waits: a
//! client that does not read holds up its own statement, and nothing piles up.

use super::frontend::{Message, is_message_kind, violation};
use crate::config::{MESSAGE_BYTES_MAX, READ_AHEAD_BYTES_MAX, SEND_BUFFER_BYTES, STARTUP_MESSAGE_BYTES_MAX};
use crate::error::Error;
use bytes::{Buf, Bytes, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};

/// The bytes of a send buffer that are kept for the next answers.
const KEPT_BUFFER_BYTES: usize = 4 * SEND_BUFFER_BYTES;

/// A stream to a client: TCP, with or without TLS.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Why a connection cannot go on.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client is gone.
    Gone,
    /// The client is to be told why, and let go.
    Fatal(Error),
}

impl From<std::io::Error> for Broken {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

/// What comes from the client.
pub(super) struct Incoming {
    half: ReadHalf<Box<dyn Wire>>,
    buffer: BytesMut,
    ended: bool,
    message_bytes_max: usize,
}

/// What goes to the client.
pub(super) struct Outgoing {
    half: WriteHalf<Box<dyn Wire>>,
    /// Encoded messages that wait. Hot paths append to it themselves.
    pub(super) buffer: BytesMut,
}

/// Both directions of a stream.
pub(super) fn split(stream: Box<dyn Wire>) -> (Incoming, Outgoing) {
    let (read, write) = tokio::io::split(stream);
    (
        Incoming {
            half: read,
            buffer: BytesMut::new(),
            ended: false,
            message_bytes_max: STARTUP_MESSAGE_BYTES_MAX,
        },
        Outgoing {
            half: write,
            buffer: BytesMut::new(),
        },
    )
}

impl Incoming {
    /// Lets messages be as long as a session's may be. Before, they are as short as a stranger's.
    pub(super) fn trust(&mut self) {
        self.message_bytes_max = MESSAGE_BYTES_MAX;
    }

    /// The next message. Cancelling the wait loses nothing.
    pub(super) async fn message(&mut self) -> Result<Message, Broken> {
        loop {
            if let Some((kind, body)) = self.cut()? {
                return Message::decode(kind, body).map_err(Broken::Fatal);
            }
            self.read_more().await?;
        }
    }

    /// The kind of the next message, which is left where it is.
    pub(super) async fn peek_kind(&mut self) -> Result<u8, Broken> {
        loop {
            if let Some(kind) = self.buffer.first() {
                return Ok(*kind);
            }
            self.read_more().await?;
        }
    }

    /// Returns when the client is gone. Reads ahead what it sends meanwhile, up to a bound.
    pub(super) async fn vanished(&mut self) {
        loop {
            if self.ended {
                return;
            }
            if self.buffer.len() >= READ_AHEAD_BYTES_MAX {
                // A full buffer hides the client's end; writing to it will tell.
                return std::future::pending().await;
            }
            if self.read_more().await.is_err() {
                return;
            }
        }
    }

    async fn read_more(&mut self) -> Result<(), Broken> {
        if self.ended {
            return Err(Broken::Gone);
        }
        self.buffer.reserve(8 << 10);
        match self.half.read_buf(&mut self.buffer).await {
            Ok(0) | Err(_) => {
                self.ended = true;
                Err(Broken::Gone)
            }
            Ok(_) => Ok(()),
        }
    }

    /// Cuts the message at the buffer's front, if it is whole.
    fn cut(&mut self) -> Result<Option<(u8, Bytes)>, Broken> {
        if self.buffer.len() < 5 {
            return Ok(None);
        }
        let kind = self.buffer[0];
        let length = (&self.buffer[1..5]).get_u32() as usize;
        if !is_message_kind(kind) {
            let problem = format!("invalid frontend message type {kind}");
            return Err(Broken::Fatal(violation(problem)));
        }
        if !(4..=self.message_bytes_max).contains(&length) {
            let problem = violation("invalid message length").with_detail(format!(
                "The limit is {} bytes (message_bytes_max).",
                self.message_bytes_max
            ));
            return Err(Broken::Fatal(problem));
        }
        if self.buffer.len() <= length {
            // Room is made as the message comes, not on its word.
            let missing = length + 1 - self.buffer.len();
            self.buffer.reserve(missing.min(READ_AHEAD_BYTES_MAX));
            return Ok(None);
        }
        let mut message = self.buffer.split_to(length + 1);
        message.advance(5);
        Ok(Some((kind, message.freeze())))
    }
}

impl Outgoing {
    /// Adds a message.
    pub(super) fn put(&mut self, message: &PgWireBackendMessage) {
        let before = self.buffer.len();
        if let Err(error) = message.encode(&mut self.buffer) {
            // A message beyond the protocol's own limits: nothing of it may be sent.
            tracing::error!(%error, "a message could not be encoded");
            self.buffer.truncate(before);
        }
    }

    /// Sends all that waits.
    pub(super) async fn flush(&mut self) -> Result<(), Broken> {
        self.half.write_all_buf(&mut self.buffer).await?;
        self.half.flush().await?;
        if self.buffer.capacity() > KEPT_BUFFER_BYTES {
            // One large row does not cost its memory for the rest of the connection.
            self.buffer = BytesMut::with_capacity(SEND_BUFFER_BYTES);
        }
        Ok(())
    }

    /// Sends what waits when it is much.
    pub(super) async fn flush_if_full(&mut self) -> Result<(), Broken> {
        if self.buffer.len() >= SEND_BUFFER_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends what waits and says that nothing follows.
    pub(super) async fn close(mut self) {
        if self.flush().await.is_ok() {
            // The client may be gone already; then there is nobody to tell.
            let _ = self.half.shutdown().await;
        }
    }
}
