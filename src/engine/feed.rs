//! Who is told of each epoch's changes, and what is kept of them for those who come back.
//!
//! A subscriber gets every epoch after the one it began with through a bounded queue; the engine never waits for it.
//! The changes of the latest epochs are kept, up to [`CHANGE_LOG_BYTES_MAX`], so that one who was away can go on after
//! the last epoch that it saw. They are kept in memory: after a restart a subscriber begins with a snapshot again.

use super::published::Stored;
use crate::catalog::RelationId;
use crate::config::CHANGE_LOG_BYTES_MAX;
use crate::dataflow::Changes;
use crate::delta::Delta;
use crate::error::{Error, Result};
use crate::time::Epoch;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// A relation's change in one epoch.
#[derive(Debug, Clone)]
pub struct EpochChange {
    /// The epoch.
    pub epoch: Epoch,
    /// The change.
    pub delta: Delta,
}

/// Somebody who wants to see a relation's changes.
#[derive(Debug)]
pub struct Subscription {
    /// Which relation.
    pub relation: RelationId,
    /// The session that asks.
    pub session: i32,
    /// Start after this epoch, which may be past.
    pub after: Option<Epoch>,
    /// Where the changes go; an epoch without changes is told too.
    pub sender: mpsc::Sender<EpochChange>,
}

/// A subscription, as `headwater.subscriptions` shows it.
#[derive(Debug, Clone)]
pub struct SubscriptionReport {
    /// Which relation.
    pub relation: RelationId,
    /// Whose it is.
    pub session: i32,
    /// The epoch that it began after.
    pub since: Epoch,
}

struct Subscriber {
    session: i32,
    since: Epoch,
    sender: mpsc::Sender<EpochChange>,
}

/// The subscribers, and the changes of the latest epochs.
pub struct Feeds {
    subscribers: HashMap<RelationId, Vec<Subscriber>>,
    kept: VecDeque<(Epoch, Changes, usize)>,
    kept_bytes: usize,
    /// The changes of all epochs after this one are kept.
    after: Epoch,
    /// The relations that came to life while changes were kept, and the epoch as of which each began.
    born: HashMap<RelationId, Epoch>,
}

impl Feeds {
    /// Nobody listens yet; changes are kept from `epoch` on.
    pub fn new(epoch: Epoch) -> Self {
        Self {
            subscribers: HashMap::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            after: epoch,
            born: HashMap::new(),
        }
    }

    /// Notes that a relation has its first rows as of an epoch.
    pub fn begin(&mut self, relation: RelationId, epoch: Epoch) {
        self.born.insert(relation, epoch);
    }

    /// Adds a subscriber and returns the past changes that it asks for.
    pub fn subscribe(&mut self, subscription: Subscription, current: Epoch) -> Result<Vec<EpochChange>> {
        let Subscription {
            relation,
            session,
            after,
            sender,
        } = subscription;
        let past = match after {
            Some(after) => self.changes_after(relation, after, current)?,
            None => Vec::new(),
        };
        self.subscribers.entry(relation).or_default().push(Subscriber {
            session,
            since: after.unwrap_or(current),
            sender,
        });
        Ok(past)
    }

    fn changes_after(&self, relation: RelationId, after: Epoch, current: Epoch) -> Result<Vec<EpochChange>> {
        if after > current {
            let text = format!("epoch {} has not been yet", after.0);
            return Err(Error::semantic("55000", text)
                .with_detail(format!("The current epoch is {}.", current.0))
                .with_hint("Subscribe without AS OF EPOCH."));
        }
        let from = self
            .born
            .get(&relation)
            .map_or(self.after, |born| self.after.max(*born));
        if after < from {
            let text = format!("the changes after epoch {} are no longer kept", after.0);
            return Err(Error::semantic("55000", text)
                .with_detail(format!("Changes are kept after epoch {}.", from.0))
                .with_hint("Subscribe with a snapshot instead."));
        }
        let kept = self.kept.iter().filter(|(epoch, ..)| *epoch > after);
        Ok(kept
            .map(|(epoch, changes, _)| EpochChange {
                epoch: *epoch,
                delta: changes.get(&relation).cloned().unwrap_or_default(),
            })
            .collect())
    }

    /// Tells an epoch's changes. Who cannot keep up is cut off.
    pub fn tell(&mut self, epoch: Epoch, changes: Changes, relations: &HashMap<RelationId, Arc<Stored>>) {
        self.subscribers.retain(|relation, subscribers| {
            let delta = match changes.get(relation) {
                Some(delta) => consolidated(relations, *relation, delta),
                None => Delta::new(),
            };
            subscribers.retain(|subscriber| {
                let change = EpochChange {
                    epoch,
                    delta: delta.clone(),
                };
                let sent = subscriber.sender.try_send(change);
                !matches!(sent, Err(TrySendError::Closed(_) | TrySendError::Full(_)))
            });
            !subscribers.is_empty()
        });
        self.keep(epoch, changes);
    }

    fn keep(&mut self, epoch: Epoch, changes: Changes) {
        let bytes = changes.values().map(Delta::bytes).sum();
        self.kept_bytes += bytes;
        self.kept.push_back((epoch, changes, bytes));
        while self.kept_bytes > CHANGE_LOG_BYTES_MAX
            && let Some((epoch, _, bytes)) = self.kept.pop_front()
        {
            self.kept_bytes -= bytes;
            self.after = epoch;
        }
    }

    /// Forgets relations that are gone; their subscribers' streams end.
    pub fn retain(&mut self, exists: impl Fn(RelationId) -> bool) {
        self.subscribers.retain(|relation, _| exists(*relation));
        self.born.retain(|relation, _| exists(*relation));
    }

    /// Who is subscribed.
    pub fn reports(&self) -> Vec<SubscriptionReport> {
        let all = self.subscribers.iter().flat_map(|(relation, subscribers)| {
            subscribers.iter().map(|subscriber| SubscriptionReport {
                relation: *relation,
                session: subscriber.session,
                since: subscriber.since,
            })
        });
        all.collect()
    }
}

fn consolidated(relations: &HashMap<RelationId, Arc<Stored>>, relation: RelationId, delta: &Delta) -> Delta {
    let rows = relations.get(&relation).and_then(|stored| stored.rows.as_ref());
    rows.and_then(|rows| delta.consolidate(&rows.schema).ok())
        .unwrap_or_else(|| delta.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: RelationId = RelationId(7);

    fn subscription(after: Option<u64>) -> (Subscription, mpsc::Receiver<EpochChange>) {
        let (sender, receiver) = mpsc::channel(1);
        let subscription = Subscription {
            relation: VIEW,
            session: 1,
            after: after.map(Epoch),
            sender,
        };
        (subscription, receiver)
    }

    #[test]
    fn who_comes_back_gets_what_it_missed_once() -> Result<()> {
        let mut feeds = Feeds::new(Epoch(10));
        for epoch in 11..=13 {
            feeds.tell(Epoch(epoch), Changes::new(), &HashMap::new());
        }
        let (request, _receiver) = subscription(Some(11));
        let past: Vec<u64> = feeds
            .subscribe(request, Epoch(13))?
            .iter()
            .map(|change| change.epoch.0)
            .collect();
        assert_eq!(past, vec![12, 13]);
        Ok(())
    }

    #[test]
    fn what_is_not_kept_and_what_has_not_been_is_refused() {
        let mut feeds = Feeds::new(Epoch(10));
        feeds.tell(Epoch(11), Changes::new(), &HashMap::new());
        feeds.begin(VIEW, Epoch(11));
        for after in [9, 10, 12] {
            let (request, _receiver) = subscription(Some(after));
            let refused = feeds.subscribe(request, Epoch(11)).expect_err("it cannot be had");
            assert_eq!(refused.code(), "55000", "after epoch {after}");
        }
    }

    #[test]
    fn who_does_not_keep_up_is_cut_off() -> Result<()> {
        let mut feeds = Feeds::new(Epoch(1));
        let (request, mut receiver) = subscription(None);
        feeds.subscribe(request, Epoch(1))?;
        feeds.tell(Epoch(2), Changes::new(), &HashMap::new());
        feeds.tell(Epoch(3), Changes::new(), &HashMap::new());
        assert!(feeds.reports().is_empty());
        assert_eq!(receiver.try_recv().map(|change| change.epoch.0).ok(), Some(2));
        assert!(receiver.try_recv().is_err());
        Ok(())
    }
}
