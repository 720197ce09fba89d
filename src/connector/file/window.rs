//! A window on the decompressed bytes of a file, moved forward record by record.
//!
//! ```text
//!            taken            start               end
//!   ......|TAIL_BYTES_MAX bytes|bytes not taken yet|     <- buffer
//! ```
//!
//! The last few taken bytes stay in the buffer: their hash, stored with a position, is how a reopened file is known
//! to be the same. The hash of the raw file's first bytes is the other half of that.

use super::{Compression, changed_error, open_file, read_error};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// How much is read from the file at once.
const READ_BYTES: usize = 256 << 10;

/// How many bytes before a position are hashed into it.
const TAIL_BYTES_MAX: usize = 64;

/// How many bytes at the start of the file are hashed.
const HEAD_BYTES_MAX: usize = 4096;

/// A hash over some bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    bytes: usize,
    hash: u64,
}

impl Fingerprint {
    fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.len(),
            hash: xxh3_64(bytes),
        }
    }
}

/// The raw file, counting what is read of it.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

enum Stream {
    Plain(Counted),
    Gzip(Box<flate2::bufread::MultiGzDecoder<BufReader<Counted>>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<Counted>>>),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// Whether a fill brought bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// It did.
    Grew,
    /// The file has no more.
    End,
}

/// The bytes of a file from some offset on.
pub(super) struct Window {
    path: String,
    stream: Stream,
    raw_read: Arc<AtomicU64>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    failure: Option<Error>,
}

impl Window {
    /// A window at the start of a file.
    pub(super) fn open(path: &str, compression: Compression) -> Result<Self> {
        let raw_read = Arc::new(AtomicU64::new(0));
        let raw = Counted {
            file: open_file(path)?,
            read: raw_read.clone(),
        };
        let stream = match compression {
            Compression::None => Stream::Plain(raw),
            Compression::Gzip => {
                let raw = BufReader::with_capacity(READ_BYTES, raw);
                Stream::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(raw)))
            }
            Compression::Zstd => {
                let raw = BufReader::with_capacity(READ_BYTES, raw);
                let decoder = zstd::Decoder::with_buffer(raw).map_err(|error| read_error(path, &error))?;
                Stream::Zstd(Box::new(decoder))
            }
        };
        Ok(Self {
            path: path.to_owned(),
            stream,
            raw_read,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            failure: None,
        })
    }

    /// The bytes that are there and not taken.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// How many decompressed bytes were taken.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes of the raw file were read.
    pub(super) fn raw_read(&self) -> u64 {
        self.raw_read.load(Ordering::Relaxed)
    }

    /// Takes bytes that are there.
    pub(super) fn take(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
        debug_assert!(self.start <= self.end, "only bytes that are there can be taken");
    }

    /// Reads more bytes behind those that are there: as many again, so that a long record is looked at few times.
    pub(super) fn fill(&mut self) -> Result<Fill> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        let wanted = (self.end - self.start).max(READ_BYTES);
        if self.end + wanted > self.buffer.len() {
            self.make_room(wanted);
        }
        let before = self.end;
        while self.end - before < wanted {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What came before the damage is still good; the error is the answer to the next call.
                    self.failure = Some(read_error(&self.path, &error));
                    break;
                }
            }
        }
        match &self.failure {
            _ if self.end > before => Ok(Fill::Grew),
            Some(error) => Err(error.clone()),
            None => Ok(Fill::End),
        }
    }

    /// Moves what is there to the front, and makes the buffer longer where that is not enough.
    fn make_room(&mut self, wanted: usize) {
        let kept = self.start.saturating_sub(TAIL_BYTES_MAX);
        self.buffer.copy_within(kept..self.end, 0);
        self.start -= kept;
        self.end -= kept;
        let needed = (self.end + wanted).max(2 * READ_BYTES);
        if needed > self.buffer.len() {
            self.buffer.resize(needed, 0);
        } else if self.buffer.len() > 8 * needed {
            // Outgrown by one long record: give the memory back.
            self.buffer.truncate(needed);
            self.buffer.shrink_to_fit();
        }
    }

    /// The hash of the bytes just taken.
    pub(super) fn tail(&self) -> Fingerprint {
        Fingerprint::of(&self.buffer[self.start.saturating_sub(TAIL_BYTES_MAX)..self.start])
    }

    /// Moves forward to `offset`, whose tail must be `tail`.
    pub(super) fn skip_to(&mut self, offset: u64, tail: Fingerprint) -> Result<()> {
        let before = offset.saturating_sub(tail.bytes as u64);
        if before > self.offset {
            self.jump(before)?;
        }
        while self.offset < offset {
            if self.start == self.end && self.fill()? == Fill::End {
                return Err(changed_error(&self.path, "became shorter"));
            }
            let there = (self.end - self.start) as u64;
            self.take(there.min(offset - self.offset) as usize);
        }
        let taken = &self.buffer[..self.start];
        let is_same = taken.len() >= tail.bytes && Fingerprint::of(&taken[taken.len() - tail.bytes..]) == tail;
        if is_same {
            Ok(())
        } else {
            Err(changed_error(&self.path, "was replaced"))
        }
    }

    /// Goes to a later offset without keeping anything: by seeking in a plain file, by decompressing in others.
    fn jump(&mut self, to: u64) -> Result<()> {
        if let Stream::Plain(raw) = &mut self.stream {
            let length = raw
                .file
                .metadata()
                .map_err(|error| read_error(&self.path, &error))?
                .len();
            if length < to {
                return Err(changed_error(&self.path, "became shorter"));
            }
            raw.file
                .seek(SeekFrom::Start(to))
                .map_err(|error| read_error(&self.path, &error))?;
            raw.read.store(to, Ordering::Relaxed);
            (self.start, self.end, self.offset) = (0, 0, to);
            return Ok(());
        }
        while self.offset < to {
            if self.start == self.end && self.fill()? == Fill::End {
                return Err(changed_error(&self.path, "became shorter"));
            }
            let there = (self.end - self.start) as u64;
            self.take(there.min(to - self.offset) as usize);
        }
        Ok(())
    }
}

/// The hash of a file's first bytes; of as many as `like` has, to compare with it.
pub(super) fn head(path: &str, like: Option<Fingerprint>) -> Result<Fingerprint> {
    let bytes_max = like.map_or(HEAD_BYTES_MAX, |like| like.bytes);
    let mut bytes = Vec::with_capacity(bytes_max);
    open_file(path)?
        .take(bytes_max as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| read_error(path, &error))?;
    let head = Fingerprint::of(&bytes);
    match like {
        Some(like) if head.bytes < like.bytes => Err(changed_error(path, "became shorter")),
        Some(like) if head != like => Err(changed_error(path, "was replaced")),
        _ => Ok(head),
    }
}

/// The hash of a file's last bytes: in Parquet, of the end of the directory of all that it holds.
pub(super) fn foot(path: &str, file: &File) -> Result<Fingerprint> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = file.try_clone()?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(HEAD_BYTES_MAX as u64)))?;
        let mut bytes = Vec::with_capacity(HEAD_BYTES_MAX);
        file.take(HEAD_BYTES_MAX as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    Ok(Fingerprint::of(&read().map_err(|error| read_error(path, &error))?))
}
