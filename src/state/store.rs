//! RocksDB, and nothing of it outside this file.
//!
//! One database holds everything. An epoch is one [`Commit`]: an atomic write through the write-ahead log, synced
//! when somebody waits for it. Readers hold [`Snapshot`]s. Values that count (the weights of view rows) are written
//! by *adding*, through a merge operator: no read is needed to change a weight, and a weight of 0 is dropped in
//! compaction and skipped by readers.
//!
//! The handle lives as long as the process: a snapshot borrows the database, and an owned snapshot without `unsafe`
//! needs a database that is never dropped. A clean stop syncs the log; the lock goes with the process.

use super::TableId;
use crate::error::{Error, Result};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRawIterator, Env, MergeOperands, Options, ReadOptions,
    SnapshotWithThreadMode, WriteBatch, WriteOptions, compaction_filter::Decision,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The version of everything that is written: keys, rows, states, catalog.
const FORMAT: &str = "headwater 2";

/// The bytes of RocksDB's write buffer at most. After a full disk RocksDB waits until there is room for one.
const WRITE_BUFFER_BYTES_MAX: usize = 64 << 20;

/// The file in the data directory that names the format.
const FORMAT_FILE: &str = "FORMAT";

/// The database.
#[derive(Clone)]
pub struct Store {
    db: &'static DB,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
    syncs: AtomicU64,
    bytes_written: AtomicU64,
}

/// How long a write must last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power cut once the call returns.
    Synced,
    /// It survives the process; the next synced write carries it to the disk.
    Buffered,
}

/// The changes of one epoch: all of them or none.
#[derive(Default)]
pub struct Commit {
    batch: WriteBatch,
}

/// The database as of one epoch.
pub struct Snapshot {
    inner: SnapshotWithThreadMode<'static, DB>,
    db: &'static DB,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.db.path()).finish()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("sequence", &self.inner.sequence_number())
            .finish()
    }
}

impl Store {
    /// Opens the database in a directory, making both when they do not exist.
    ///
    /// `cache_bytes` bounds RocksDB's own block cache and write buffers.
    pub fn open(directory: &Path, cache_bytes: usize) -> Result<Self> {
        std::fs::create_dir_all(directory).map_err(|error| {
            Error::io(format!(
                "could not create the data directory \"{}\": {error}",
                directory.display()
            ))
        })?;
        check_format(directory)?;
        let path = directory.join("store");
        let db = DB::open(&options(cache_bytes), &path).map_err(|error| open_error(directory, &error))?;
        Ok(Self::of(db))
    }

    /// A database in memory, which ends with the process.
    pub fn memory() -> Result<Self> {
        let mut options = options(64 << 20);
        let env = Env::mem_env().map_err(|error| Error::internal(error.to_string()))?;
        options.set_env(&env);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("/memory-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let db = DB::open(&options, name).map_err(store_error)?;
        Ok(Self::of(db))
    }

    fn of(db: DB) -> Self {
        Self {
            db: Box::leak(Box::new(db)),
            counters: Arc::default(),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db.get(key).map_err(store_error)
    }

    /// The values of many keys, in their order.
    pub fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        self.db
            .multi_get(keys)
            .into_iter()
            .map(|value| value.map_err(store_error))
            .collect()
    }

    /// The entries of a half-open range, in key order, as they are now.
    pub fn scan(&self, from: &[u8], to: &[u8]) -> Scan {
        Scan::new(self.db.raw_iterator_opt(bounded(to)), from)
    }

    /// Applies an epoch's changes.
    pub fn commit(&self, commit: Commit, durability: Durability) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(durability == Durability::Synced);
        let bytes = commit.batch.size_in_bytes() as u64;
        self.db.write_opt(commit.batch, &options).map_err(store_error)?;
        self.counters.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        if durability == Durability::Synced {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Carries everything that was written to the disk.
    pub fn sync(&self) -> Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.db.flush_wal(true).map_err(store_error)
    }

    /// The database as it is now, for readers.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            inner: self.db.snapshot(),
            db: self.db,
        }
    }

    /// How often the log was synced since the start.
    pub fn syncs(&self) -> u64 {
        self.counters.syncs.load(Ordering::Relaxed)
    }

    /// The bytes given to the log since the start.
    pub fn bytes_written(&self) -> u64 {
        self.counters.bytes_written.load(Ordering::Relaxed)
    }

    /// About how many bytes a table takes on the disk.
    pub fn table_bytes(&self, table: TableId) -> u64 {
        let (from, to) = table.range();
        let range = rocksdb::Range::new(&from, &to);
        self.db.get_approximate_sizes(&[range]).first().copied().unwrap_or(0)
    }

    /// Reads every block of every file and checks its checksum.
    pub fn verify(&self) -> Result<()> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek_to_first();
        while iterator.valid() {
            iterator.next();
        }
        iterator.status().map_err(store_error)
    }
}

impl Commit {
    /// No change yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(key, value);
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &[u8]) {
        self.batch.delete(key);
    }

    /// Adds to the count of a key; an absent key counts 0.
    pub fn add(&mut self, key: &[u8], amount: i64) {
        self.batch.merge(key, amount.to_le_bytes());
    }

    /// Removes a half-open range.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8]) {
        self.batch.delete_range(from, to);
    }

    /// The bytes that the commit takes in the log.
    pub fn bytes(&self) -> usize {
        self.batch.size_in_bytes()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }
}

impl Snapshot {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(key).map_err(store_error)
    }

    /// The entries of a half-open range, in key order.
    pub fn scan(&self, from: &[u8], to: &[u8]) -> Scan {
        let mut read = bounded(to);
        read.set_snapshot(&self.inner);
        Scan::new(self.db.raw_iterator_opt(read), from)
    }
}

/// The entries of a range, one at a time.
pub struct Scan {
    iterator: DBRawIterator<'static>,
    started: Started,
}

#[derive(PartialEq, Eq)]
enum Started {
    No,
    Yes,
}

impl Scan {
    fn new(mut iterator: DBRawIterator<'static>, from: &[u8]) -> Self {
        iterator.seek(from);
        Self {
            iterator,
            started: Started::No,
        }
    }

    /// Moves to the next entry and shows it; `None` at the end.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.started == Started::Yes {
            self.iterator.next();
        }
        self.started = Started::Yes;
        if self.iterator.valid() {
            return Ok(self.iterator.item());
        }
        self.iterator.status().map_err(store_error)?;
        Ok(None)
    }
}

/// The count that a value holds.
pub(super) fn count_of(value: &[u8]) -> i64 {
    value.try_into().map_or(0, |bytes: [u8; 8]| i64::from_le_bytes(bytes))
}

fn bounded(to: &[u8]) -> ReadOptions {
    let mut read = ReadOptions::default();
    read.set_iterate_upper_bound(to.to_vec());
    read.set_total_order_seek(true);
    read
}

fn options(cache_bytes: usize) -> Options {
    let mut table = BlockBasedOptions::default();
    let cache = Cache::new_lru_cache(cache_bytes);
    table.set_block_cache(&cache);
    table.set_block_size(16 << 10);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_format_version(5);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size((cache_bytes / 4).clamp(4 << 20, WRITE_BUFFER_BYTES_MAX));
    options.set_max_write_buffer_number(4);
    options.set_min_write_buffer_number_to_merge(1);
    options.set_max_background_jobs(2);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_compression_per_level(&[
        DBCompressionType::None,
        DBCompressionType::None,
        DBCompressionType::Lz4,
        DBCompressionType::Lz4,
        DBCompressionType::Lz4,
        DBCompressionType::Lz4,
        DBCompressionType::Zstd,
    ]);
    options.set_bytes_per_sync(1 << 20);
    options.set_wal_bytes_per_sync(1 << 20);
    options.set_max_total_wal_size(512 << 20);
    options.set_keep_log_file_num(4);
    options.set_paranoid_checks(true);
    options.set_wal_recovery_mode(rocksdb::DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_merge_operator_associative("count", merge_counts);
    options.set_compaction_filter("no zero counts", drop_zero_counts);
    options
}

/// Adds up counts.
fn merge_counts(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let start = existing.map_or(0, count_of);
    let sum = operands.iter().fold(start, |sum, next| sum + count_of(next));
    Some(sum.to_le_bytes().to_vec())
}

/// A count of exactly 0 says nothing; the values of other tables are never eight zero bytes (states begin with a
/// non-zero byte).
fn drop_zero_counts(_level: u32, _key: &[u8], value: &[u8]) -> Decision {
    if value == [0; 8] {
        Decision::Remove
    } else {
        Decision::Keep
    }
}

/// What [`Store::check`] has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// The number of entries.
    pub entries: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
}

impl Store {
    /// Reads everything in a data directory that no server uses, without writing to it, and verifies the format and
    /// the checksum of each block.
    pub fn check(directory: &Path) -> Result<Checked> {
        let path = directory.join("store");
        if !path.exists() {
            return Err(Error::external(
                "58P01",
                format!("the directory \"{}\" holds no store", directory.display()),
            ));
        }
        check_format(directory)?;
        let db = DB::open_for_read_only(&options(CHECK_CACHE_BYTES), &path, false)
            .map_err(|error| open_error(directory, &error))?;
        let mut reading = rocksdb::ReadOptions::default();
        reading.set_verify_checksums(true);
        reading.fill_cache(false);
        let mut checked = Checked::default();
        for entry in db.iterator_opt(rocksdb::IteratorMode::Start, reading) {
            let (key, value) = entry.map_err(store_error)?;
            checked.entries += 1;
            checked.bytes += (key.len() + value.len()) as u64;
        }
        Ok(checked)
    }
}

/// The cache with which a store is checked, which reads everything once.
const CHECK_CACHE_BYTES: usize = 8 << 20;

/// Writes the format file of a new directory; refuses one of another format.
fn check_format(directory: &Path) -> Result<()> {
    let file = directory.join(FORMAT_FILE);
    let io = |error: std::io::Error| Error::io(format!("{}: {error}", file.display()));
    match std::fs::read_to_string(&file) {
        Ok(text) if text.trim() == FORMAT => Ok(()),
        Ok(text) => Err(Error::external(
            "58P01",
            format!(
                "the data directory \"{}\" has the format \"{}\", but this server reads \"{FORMAT}\"",
                directory.display(),
                text.trim()
            ),
        )
        .with_hint("Start the version of Headwater that wrote it, or choose another --data-dir.")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if directory.join("store").exists() {
                return Err(Error::corrupt(format!(
                    "the data directory \"{}\" holds a store but no {FORMAT_FILE} file",
                    directory.display()
                )));
            }
            let mut text = FORMAT.to_owned();
            text.push('\n');
            std::fs::write(&file, text).map_err(io)?;
            std::fs::File::open(&file).and_then(|file| file.sync_all()).map_err(io)
        }
        Err(error) => Err(io(error)),
    }
}

fn open_error(directory: &Path, error: &rocksdb::Error) -> Error {
    let text = error.to_string();
    if text.contains("lock") || text.contains("LOCK") {
        return Error::external(
            "55006",
            format!(
                "the data directory \"{}\" is in use by another server",
                directory.display()
            ),
        )
        .with_hint("Stop the other server, or choose another --data-dir.");
    }
    store_error(error.clone())
}

fn store_error(error: rocksdb::Error) -> Error {
    let text = format!("the store failed: {}", error.as_ref());
    match error.kind() {
        rocksdb::ErrorKind::Corruption => Error::corrupt(text)
            .with_hint("Restore the data directory from a copy; `headwater check` names the damaged files."),
        _ => {
            let error = Error::io(text);
            if error.code() == "53100" {
                return error.with_hint(format!(
                    "Free space on the disk of the data directory: writing goes on a few seconds after there are {} MiB.",
                    WRITE_BUFFER_BYTES_MAX >> 20
                ));
            }
            error
        }
    }
}
