//! Knowing when a followed file has grown.
//!
//! The kernel says so (inotify and its relatives, through `notify`): the source is woken, not polled. Because some
//! file systems say nothing (network mounts), and because a file can be replaced, it is looked at now and then anyway.

use super::super::Waker;
use notify::{RecursiveMode, Watcher};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a followed file is looked at although nothing was heard of it.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The same where the kernel cannot say when a file changes.
const UNWATCHED_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// What the watcher's thread and the source share.
struct Bell {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Hears of changes of one file.
pub(super) struct Watch {
    path: String,
    bell: Arc<Bell>,
    idle_until: Option<Instant>,
    identity: Option<u64>,
    /// Dropping it ends the watching.
    watcher: Option<notify::RecommendedWatcher>,
}

impl Watch {
    /// Starts to watch.
    pub(super) fn new(path: &str) -> Self {
        let bell = Arc::new(Bell {
            rung: AtomicBool::new(true),
            waker: Mutex::new(None),
        });
        let rung = bell.clone();
        let watcher = notify::recommended_watcher(move |_event: notify::Result<notify::Event>| {
            rung.rung.store(true, Ordering::Release);
            if let Some(waker) = rung.waker.lock().clone() {
                waker();
            }
        });
        let watcher = watcher.ok().and_then(|mut watcher| {
            watcher.watch(Path::new(path), RecursiveMode::NonRecursive).ok()?;
            Some(watcher)
        });
        Self {
            path: path.to_owned(),
            bell,
            idle_until: None,
            identity: identity(path),
            watcher,
        }
    }

    /// Says what to ring.
    pub(super) fn wake_by(&mut self, waker: Waker) {
        *self.bell.waker.lock() = Some(waker.clone());
        // A change that came before there was a waker must not be lost.
        if self.bell.rung.load(Ordering::Acquire) {
            waker();
        }
    }

    /// Whether nothing was heard since the end was found: then, until when. Otherwise the bell is taken for heard.
    pub(super) fn still_idle(&self, now: Instant) -> Option<Instant> {
        let rung = self.bell.rung.swap(false, Ordering::AcqRel);
        self.idle_until.filter(|until| !rung && now < *until)
    }

    /// Checks at the end of what was read that the file is the same one, and not shorter than `read` bytes.
    pub(super) fn check(&mut self, read: u64) -> Result<(), &'static str> {
        let Ok(metadata) = std::fs::metadata(&self.path) else {
            return Err("was removed");
        };
        if metadata.len() < read {
            return Err("became shorter");
        }
        if identity(&self.path) != self.identity {
            return Err("was replaced");
        }
        let interval = if self.watcher.is_some() {
            CHECK_INTERVAL
        } else {
            UNWATCHED_CHECK_INTERVAL
        };
        self.idle_until = Some(Instant::now() + interval);
        Ok(())
    }

    /// When to look again even if nothing is heard.
    pub(super) fn next_check(&self) -> Instant {
        self.idle_until.unwrap_or_else(Instant::now)
    }
}

/// What tells a file from another one of the same name.
#[cfg(unix)]
fn identity(path: &str) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|metadata| metadata.ino())
}

#[cfg(not(unix))]
fn identity(path: &str) -> Option<u64> {
    std::fs::metadata(path).ok().map(|_| 0)
}
