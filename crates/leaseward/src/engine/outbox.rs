//! What has yet to be sent to the store.
//!
//! A hundred thousand leases may be due for renewal at one moment, or be asked for: taking a batch costs the same however
//! many there are, and a renewal takes a word until it is sent.

use std::{collections::VecDeque, sync::Arc};

use super::{
    bid::Bid,
    lane::{Job, Target},
};

/// How many operations an empty outbox keeps room for.
const ROOM_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Outbox {
    jobs: VecDeque<Job>,
    /// Leases whose renewal is due. Behind all else, but never all of a batch is something else: a lease that is not renewed
    /// is lost.
    due: VecDeque<Arc<Bid>>,
    /// Room for the next batch: that of one that was answered.
    room: Vec<Job>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.due.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len() + self.due.len()
    }

    pub(super) fn push(&mut self, jobs: impl IntoIterator<Item = Job>) {
        self.jobs.extend(jobs);
    }

    pub(super) fn push_due(&mut self, bids: impl IntoIterator<Item = Arc<Bid>>) {
        self.due.extend(bids);
    }

    /// The first of them, at most so many.
    pub(super) fn take(&mut self, most: usize) -> Vec<Job> {
        let mut batch = std::mem::take(&mut self.room);
        let first = most - self.due.len().min(most.div_ceil(2));
        batch.extend(self.jobs.drain(..first.min(self.jobs.len())));
        let renewals = (most - batch.len()).min(self.due.len());
        batch.extend(self.due.drain(..renewals).map(Job::renewal));
        if self.jobs.is_empty() && self.jobs.capacity() > ROOM_MAX {
            self.jobs = VecDeque::new();
        }
        if self.due.is_empty() && self.due.capacity() > ROOM_MAX {
            self.due = VecDeque::new();
        }
        batch
    }

    /// The room of a batch that was answered, if it is larger than what there is. Gives back the smaller one.
    #[must_use]
    pub(super) fn reuse(&mut self, room: Vec<Job>) -> Vec<Job> {
        debug_assert!(room.is_empty(), "BUG: what was sent is sent again");
        if room.capacity() > self.room.capacity() {
            return std::mem::replace(&mut self.room, room);
        }
        room
    }

    /// What takes nothing and has somebody waiting for its answer: releases.
    pub(super) fn take_told_releases(&mut self) -> VecDeque<Job> {
        let is_told = |job: &Job| matches!(job.target, Target::Tell(_, None));
        let (told, others) = std::mem::take(&mut self.jobs).into_iter().partition(is_told);
        self.jobs = others;
        told
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        Mode, Token,
        clock::Moment,
        engine::{
            bid::{BidState, Spec},
            lane::tests::{forget, release},
        },
        lease::PackedMode,
        store::{IfBusy, Operation},
    };

    fn bid(name: &str) -> Arc<Bid> {
        let name = crate::Name::new(name).expect("a name");
        let mode = PackedMode::from(Mode::Exclusive);
        let spec =
            Spec { mode, if_busy: IfBusy::Queue, ttl_ms: 1_000, renew_ms: 300, extras: None };
        let state = BidState::asking(true, Moment::from_nanos(1));
        Arc::new(Bid::new(name, Token::new(7, Arc::from("h:1")), spec, state))
    }

    fn names(batch: &[Job]) -> Vec<String> {
        batch.iter().map(|job| job.operation.name().to_string()).collect()
    }

    #[test]
    fn batches_come_in_order_and_half_of_each_is_for_renewals() {
        let mut outbox = Outbox::default();
        outbox.push_due(["x", "y", "z"].map(bid));
        outbox.push(["a", "b", "c", "d"].map(|name| release(name, forget)));
        assert_eq!(outbox.len(), 7);
        let first = outbox.take(2);
        assert_eq!(names(&first), ["a", "x"]);
        assert!(matches!(first[1].operation, Operation::Renew(_)));
        assert_eq!(names(&outbox.take(4)), ["b", "c", "y", "z"]);
        assert_eq!(names(&outbox.take(4)), ["d"]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn room_for_many_is_given_back() {
        let mut outbox = Outbox::default();
        outbox.push_due((0..10 * ROOM_MAX).map(|_| bid("x")));
        outbox.push((0..10 * ROOM_MAX).map(|_| release("y", forget)));
        while !outbox.is_empty() {
            let mut batch = outbox.take(256);
            batch.clear();
            drop(outbox.reuse(batch));
        }
        assert_eq!((outbox.jobs.capacity(), outbox.due.capacity()), (0, 0));
        assert!(outbox.room.capacity() >= 256);
    }

    #[test]
    fn only_releases_that_somebody_waits_for_are_taken_out() {
        let mut outbox = Outbox::default();
        let told = |_: &_| Target::Tell(oneshot::channel().0, None);
        outbox.push([release("a", forget), release("b", told), release("c", forget)]);
        let taken: Vec<_> = outbox.take_told_releases().into();
        assert_eq!(names(&taken), ["b"]);
        assert_eq!(names(&outbox.take(8)), ["a", "c"]);
    }
}
