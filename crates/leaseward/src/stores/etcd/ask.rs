//! Asking: for one name with a place in its queue, or for one or several at once, all or none.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::{
    client::Client,
    error,
    leases::ClassLease,
    proto::{RequestOp, Response, ResponseOp, TxnRequest, TxnResponse},
    queue::{self, Place, Stand, Until},
    record::Record,
    requests::{first_of, is_absent, last_of, nested, none_begins, oldest_first, put, range},
    scale,
    table::State,
    watch::Order,
};
use crate::{
    Fence, LostReason, Mode,
    clock::Moment,
    store::{
        self, Answer, Ask, Evidence, Grant, IfBusy, Reply, Standing, capacity_error,
        timing::place_ttl,
    },
};

/// What an ask has of one name.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) key: Vec<u8>,
    pub(super) room: Vec<u8>,
}

/// An ask under way.
pub(super) struct Asking {
    pub(super) parts: SmallVec<[Part; 1]>,
    pub(super) lease: Arc<ClassLease>,
    pub(super) record: Record,
    pub(super) if_busy: IfBusy,
}

impl Asking {
    pub(super) fn txn(&self) -> TxnRequest {
        match self.if_busy {
            // Nearly always nobody is there, and then nothing has to be read.
            IfBusy::Queue => TxnRequest {
                compare: vec![none_begins(&self.parts[0].room)],
                success: vec![self.put(&self.parts[0])],
                failure: vec![nested(self.joins(&self.parts[0]))],
            },
            IfBusy::Tell => TxnRequest {
                compare: self.parts.iter().map(|part| none_begins(&part.room)).collect(),
                success: self.parts.iter().map(|part| self.put(part)).collect(),
                failure: self.parts.iter().map(|part| range(oldest_first(&part.room))).collect(),
            },
        }
    }

    /// Takes a place, unless there is one; then looks at the queue.
    pub(super) fn joins(&self, part: &Part) -> TxnRequest {
        let look = range(oldest_first(&part.room));
        let looks = match self.record.mode() {
            // The last of all waits for whoever is just before it, and wants to know who is the first.
            Mode::Exclusive => {
                vec![range(first_of(&part.room, 1)), range(last_of(&part.room, 2))]
            }
            Mode::Shared | Mode::Permit { .. } => vec![look.clone()],
        };
        TxnRequest {
            compare: vec![is_absent(&part.key)],
            success: std::iter::once(self.put(part)).chain(looks).collect(),
            failure: vec![look],
        }
    }

    fn put(&self, part: &Part) -> RequestOp {
        put(&part.key, self.record.write(), self.lease.id)
    }
}

/// From where fences are counted, and the revision of the answer.
pub(super) type At = (i64, i64);

impl Client {
    /// Whether a token has its place already: then a look at it is all that asking again takes.
    pub(super) fn has_place(&self, ask: &Ask) -> bool {
        let now = self.clock.now();
        let table = self.table.lock();
        let key = table.key_of(&ask.names[0], &ask.token);
        ask.if_busy == IfBusy::Queue
            && key.and_then(|key| table.get(key)).is_some_and(|entry| {
                matches!(entry.state, State::Queued { .. })
                    && entry.expires > now
                    && !entry.lease.is_dead()
            })
    }

    /// Looks at places that their owners ask for again, all together, and keeps them.
    pub(super) async fn keep_places(&self, asks: &[(usize, &Ask)], answers: &mut [Option<Answer>]) {
        let keys: Vec<_> = {
            let table = self.table.lock();
            let key = |ask: &Ask| table.key_of(&ask.names[0], &ask.token).cloned();
            // Of one that has gone meanwhile nothing is known.
            asks.iter().map(|(_, ask)| key(ask).unwrap_or_default()).collect()
        };
        let now = self.clock.now();
        for ((_, ask), key) in asks.iter().zip(&keys) {
            let mut table = self.table.lock();
            if let Some(entry) = table.get_mut(key) {
                entry.block = entry.block.max(ask.block);
            }
            table.lengthen(key, now + place_ttl(ask.ttl));
        }
        let looked = match keys.is_empty() {
            true => Ok(()),
            false => self.look_again(&keys, None).await,
        };
        for ((place, ask), key) in asks.iter().zip(&keys) {
            answers[*place] = Some(match &looked {
                Ok(()) => self.as_known(ask, key, now),
                Err(error) => Err(error.duplicate()),
            });
        }
    }

    /// What is known of a token that has just been looked at.
    fn as_known(&self, ask: &Ask, key: &[u8], now: Moment) -> Answer {
        let mut table = self.table.lock();
        let Some(entry) = table.get(key).filter(|entry| entry.is_of(&ask.token)) else {
            return Ok(Reply::Gone(LostReason::NotOurs));
        };
        match &entry.state {
            State::Queued { last_fence, standing } => {
                let (last_fence, standing) = (*last_fence, standing.clone());
                Ok(Reply::Queued(store::Place { last_fence, standing }))
            }
            State::Held { fence } => {
                let from = entry.lease.counts_from_confirmed(entry.agreed, now, ask.ttl);
                let grant = Grant {
                    blocks: smallvec![scale::block(*fence, entry.block)],
                    slot: entry.slot,
                    ttl: ask.ttl,
                    evidence: Evidence::Sent(from),
                    waiters: 0,
                };
                table.lengthen(key, from + ask.ttl);
                Ok(Reply::Granted(grant))
            }
            State::Ended(reason) => Ok(Reply::Gone(*reason)),
            State::Asked => Err(error::unexpected()),
        }
    }

    /// Reads what etcd said to an ask.
    pub(super) async fn asked(
        &self,
        asking: &Asking,
        ask: &Ask,
        mut part: TxnResponse,
        at: At,
        now: Moment,
    ) -> Answer {
        if part.succeeded {
            // All were free, and all keys were made at this revision.
            return self.grant(asking, ask, at.0, |_| at.1, now, 0).await;
        }
        if asking.if_busy == IfBusy::Queue {
            part = part.responses.pop().map(ResponseOp::txn).ok_or_else(error::unexpected)?;
        }
        let succeeded = part.succeeded;
        let ranges: Vec<_> = part
            .responses
            .into_iter()
            .filter_map(|part| match part.response {
                Some(Response::Range(range)) => Some(range),
                _ => None,
            })
            .collect();
        match asking.if_busy {
            IfBusy::Queue if ranges.is_empty() => Err(error::unexpected()),
            IfBusy::Queue => {
                let count = ranges[0].count;
                let places = queue::read(ranges.into_iter().flat_map(|range| range.kvs).collect());
                // Of a place just made all others are before it, also those that were not read.
                let before =
                    succeeded.then(|| usize::try_from(count.saturating_sub(1)).unwrap_or(0));
                self.placed(asking, ask, &places, before, at, now).await
            }
            IfBusy::Tell => {
                let rooms: Vec<_> =
                    ranges.into_iter().map(|range| queue::read(range.kvs)).collect();
                self.tried(asking, ask, &rooms, at, now).await
            }
        }
    }

    async fn placed(
        &self,
        asking: &Asking,
        ask: &Ask,
        places: &[Place],
        before: Option<usize>,
        at: At,
        now: Moment,
    ) -> Answer {
        let part = &asking.parts[0];
        let own = places.iter().find(|place| place.key == part.key);
        if let Some(answer) = self.unusable(asking, ask, own, places).await {
            return answer;
        }
        let create = own.map_or(0, |own| own.create);
        let behind = places.iter().filter(|place| place.create > create).count();
        match queue::stand(places, &part.key) {
            Stand::Missing => Err(error::unexpected()),
            Stand::Holds => {
                let waiters = u32::try_from(behind).unwrap_or(u32::MAX);
                self.grant(asking, ask, at.0, |_| create, now, waiters).await
            }
            Stand::Waits { until, ahead } => {
                let holding = queue::holders(places);
                let ahead = before.map_or(ahead, |before| before.saturating_sub(holding));
                let newest = holding.checked_sub(1).and_then(|last| places.get(last));
                let place = store::Place {
                    last_fence: newest.map_or(Fence::ZERO, |last| scale::fence(at.0, last.create)),
                    standing: standing(places, ahead),
                };
                Ok(match self.wait(part, ask, create, &place, until, at.1, now) {
                    Some(ended) => Reply::Gone(ended),
                    None => Reply::Queued(place),
                })
            }
        }
    }

    /// Enters a place in a queue, and has what is in its way watched; or says why it has ended meanwhile.
    #[allow(clippy::too_many_arguments)] // all of one place
    fn wait(
        &self,
        part: &Part,
        ask: &Ask,
        create: i64,
        place: &store::Place,
        until: Until,
        revision: i64,
        now: Moment,
    ) -> Option<LostReason> {
        let mut table = self.table.lock();
        // It went with its lease.
        let Some(entry) = table.get_mut(&part.key) else { return Some(LostReason::SessionEnded) };
        match entry.state {
            State::Ended(reason) => return Some(reason),
            State::Held { .. } => return None,
            State::Asked | State::Queued { .. } => {}
        }
        entry.create = create;
        entry.state =
            State::Queued { last_fence: place.last_fence, standing: place.standing.clone() };
        table.lengthen(&part.key, now + place_ttl(ask.ttl));
        drop(table);
        let (own, room) = (part.key.clone(), part.room.clone());
        self.order(Order::Watch { own, room, until, from: revision + 1 });
        None
    }

    /// Why our own key is not what it should be, if it is not.
    pub(super) async fn unusable(
        &self,
        asking: &Asking,
        ask: &Ask,
        own: Option<&Place>,
        places: &[Place],
    ) -> Option<Answer> {
        let own = own?;
        if !own.is_of(&ask.token) {
            // Somebody has put something of theirs under a key of ours. The next ask takes another.
            for part in &asking.parts {
                self.table.lock().remove(&part.key);
            }
            return Some(Err(error::unexpected()));
        }
        if own.record.as_ref().is_some_and(|record| record.broken) {
            return Some(Ok(Reply::Gone(LostReason::Broken)));
        }
        let before: Vec<_> =
            places.iter().filter(|place| place.create < own.create).cloned().collect();
        if let Some(capacity) = queue::other_capacity(&before, ask.mode) {
            self.undo(asking).await;
            return Some(Err(capacity_error(&ask.names[0], capacity)));
        }
        // Left from a lease that we gave up: nobody keeps it alive.
        if own.lease != asking.lease.id {
            self.undo(asking).await;
            return Some(Ok(Reply::Gone(LostReason::SessionEnded)));
        }
        None
    }

    /// It is ours, each name with the fences of its create revision.
    pub(super) async fn grant(
        &self,
        asking: &Asking,
        ask: &Ask,
        base: i64,
        created: impl Fn(usize) -> i64,
        now: Moment,
        waiters: u32,
    ) -> Answer {
        let mut slots: SmallVec<[Option<u32>; 1]> = smallvec![None; asking.parts.len()];
        if let Mode::Permit { capacity } = ask.mode {
            for (which, part) in asking.parts.iter().enumerate() {
                slots[which] = self.claim_slot(&ask.names[which], &part.key, capacity).await?;
            }
        }
        let from = asking.lease.counts_from(now, ask.ttl);
        let mut blocks = SmallVec::new();
        let mut table = self.table.lock();
        for (which, part) in asking.parts.iter().enumerate() {
            let fence = scale::fence(base, created(which));
            // It went with its lease.
            let Some(entry) = table.get_mut(&part.key) else {
                return Ok(Reply::Gone(LostReason::SessionEnded));
            };
            blocks.push(scale::block(fence, entry.block));
            if let State::Ended(reason) = entry.state {
                return Ok(Reply::Gone(reason));
            }
            entry.create = created(which);
            entry.slot = slots[which];
            entry.state = State::Held { fence };
            table.lengthen(&part.key, from + ask.ttl);
        }
        drop(table);
        let evidence = asking.lease.evidence(now, ask.ttl);
        // Of several names it is not said which permits they are.
        let slot = if slots.len() == 1 { slots[0] } else { None };
        Ok(Reply::Granted(Grant { blocks, slot, ttl: ask.ttl, evidence, waiters }))
    }
}

/// Who is in the way of somebody.
pub(super) fn standing(places: &[Place], ahead: usize) -> Standing {
    Standing {
        holder: places.first().map(Place::holder),
        free_in: None,
        ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
    }
}
