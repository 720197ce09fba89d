//! Which rows of its partition a row sees.

use super::{Bound, Exclusion, Frame, FrameUnit};
use crate::error::{Error, Result};
use std::ops::Range;

impl Frame {
    /// Refuses bounds that do not go with the unit.
    pub(super) fn check(&self) -> Result<()> {
        let fits = |bound: Bound| match bound {
            Bound::Preceding(_) | Bound::Following(_) => self.unit != FrameUnit::Range,
            Bound::Value(_) => self.unit == FrameUnit::Range,
            _ => true,
        };
        if fits(self.start) && fits(self.end) {
            Ok(())
        } else {
            Err(no_such_frame())
        }
    }
}

/// The rows of a partition in their order, and which of them are peers.
pub(super) struct Peers {
    /// The first row of each peer group.
    starts: Vec<usize>,
    /// The peer group of each row.
    groups: Vec<usize>,
}

impl Peers {
    /// From the encodings of the rows' order columns.
    pub(super) fn of(orders: &[&[u8]]) -> Self {
        let mut peers = Self {
            starts: Vec::new(),
            groups: Vec::with_capacity(orders.len()),
        };
        for (row, order) in orders.iter().enumerate() {
            if row == 0 || orders[row - 1] != *order {
                peers.starts.push(row);
            }
            peers.groups.push(peers.starts.len() - 1);
        }
        peers
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.groups.len()
    }

    /// The peer group of a row, from 0.
    pub(super) fn group(&self, row: usize) -> usize {
        self.groups[row]
    }

    /// The peers of a row.
    pub(super) fn peers(&self, row: usize) -> Range<usize> {
        self.start(self.groups[row])..self.start(self.groups[row] + 1)
    }

    /// The first row of a group; the number of rows for one that is beyond the last.
    fn start(&self, group: usize) -> usize {
        self.starts.get(group).copied().unwrap_or(self.rows())
    }
}

/// The edge values of a frame's bounds, encoded like the order columns.
pub(super) struct Edges<'a> {
    /// The encodings of the rows' order columns.
    pub(super) orders: &'a [&'a [u8]],
    /// Of the start, for each row.
    pub(super) start: Option<Vec<Vec<u8>>>,
    /// Of the end, for each row.
    pub(super) end: Option<Vec<Vec<u8>>>,
}

/// The frame of a row, before anything is left out of it.
pub(super) fn range(frame: &Frame, peers: &Peers, edges: &Edges<'_>, row: usize) -> Result<Range<usize>> {
    let rows = peers.rows();
    let own = peers.peers(row);
    let group = peers.group(row);
    let far = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let start = match (frame.unit, frame.start) {
        (_, Bound::UnboundedPreceding) => 0,
        (_, Bound::UnboundedFollowing) => rows,
        (FrameUnit::Rows, Bound::CurrentRow) => row,
        (FrameUnit::Rows, Bound::Preceding(count)) => row.saturating_sub(far(count)),
        (FrameUnit::Rows, Bound::Following(count)) => row.saturating_add(far(count)).min(rows),
        (_, Bound::CurrentRow) => own.start,
        (FrameUnit::Groups, Bound::Preceding(count)) => peers.start(group.saturating_sub(far(count))),
        (FrameUnit::Groups, Bound::Following(count)) => peers.start(group.saturating_add(far(count))),
        (FrameUnit::Range, Bound::Value(_)) => match &edges.start {
            Some(values) => edges.orders.partition_point(|order| *order < values[row].as_slice()),
            None => return Err(no_such_frame()),
        },
        _ => return Err(no_such_frame()),
    };
    let end = match (frame.unit, frame.end) {
        (_, Bound::UnboundedPreceding) => 0,
        (_, Bound::UnboundedFollowing) => rows,
        (FrameUnit::Rows, Bound::CurrentRow) => row + 1,
        (FrameUnit::Rows, Bound::Preceding(count)) => (row + 1).saturating_sub(far(count)),
        (FrameUnit::Rows, Bound::Following(count)) => (row + 1).saturating_add(far(count)).min(rows),
        (_, Bound::CurrentRow) => own.end,
        (FrameUnit::Groups, Bound::Preceding(count)) => {
            (group + 1).checked_sub(far(count)).map_or(0, |next| peers.start(next))
        }
        (FrameUnit::Groups, Bound::Following(count)) => peers.start((group + 1).saturating_add(far(count))),
        (FrameUnit::Range, Bound::Value(_)) => match &edges.end {
            Some(values) => edges.orders.partition_point(|order| *order <= values[row].as_slice()),
            None => return Err(no_such_frame()),
        },
        _ => return Err(no_such_frame()),
    };
    Ok(start..end.max(start))
}

/// What is left out of a frame of a row: up to two ranges, in order, inside the frame.
pub(super) fn excluded(frame: &Frame, peers: &Peers, whole: &Range<usize>, row: usize) -> [Range<usize>; 2] {
    let clip = |range: Range<usize>| {
        let start = range.start.clamp(whole.start, whole.end);
        start..range.end.clamp(start, whole.end)
    };
    let own = peers.peers(row);
    match frame.exclusion {
        Exclusion::NoOthers => [0..0, 0..0],
        Exclusion::CurrentRow => [clip(row..row + 1), 0..0],
        Exclusion::Group => [clip(own), 0..0],
        Exclusion::Ties => [clip(own.start..row), clip(row + 1..own.end)],
    }
}

fn no_such_frame() -> Error {
    Error::unsupported("this window frame is not supported in a maintained view")
}
