//! Asking for a name, with a place in its queue or without.

use std::sync::Arc;

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

/// An ask under way.
pub(super) struct Asking {
    pub(super) key: Vec<u8>,
    /// What the keys of all who hold the name or wait for it begin with.
    pub(super) room: Vec<u8>,
    pub(super) lease: Arc<ClassLease>,
    pub(super) record: Record,
    pub(super) if_busy: IfBusy,
}

impl Asking {
    pub(super) fn txn(&self) -> TxnRequest {
        // Nearly always nobody is there, and then nothing has to be read.
        TxnRequest {
            compare: vec![none_begins(&self.room)],
            success: vec![self.put()],
            failure: vec![match self.if_busy {
                IfBusy::Queue => nested(self.joins()),
                IfBusy::Tell => range(oldest_first(&self.room)),
            }],
        }
    }

    /// Takes a place, unless there is one; then looks at the queue.
    pub(super) fn joins(&self) -> TxnRequest {
        let look = range(oldest_first(&self.room));
        let looks = match self.record.mode() {
            // The last of all waits for whoever is just before it, and wants to know who is the first.
            Mode::Exclusive => {
                vec![range(first_of(&self.room, 1)), range(last_of(&self.room, 2))]
            }
            Mode::Shared | Mode::Permit { .. } => vec![look.clone()],
        };
        TxnRequest {
            compare: vec![is_absent(&self.key)],
            success: std::iter::once(self.put()).chain(looks).collect(),
            failure: vec![look],
        }
    }

    fn put(&self) -> RequestOp {
        put(&self.key, self.record.write(), self.lease.id)
    }
}

/// From where fences are counted, and a revision.
pub(super) type At = (i64, i64);

impl Client {
    /// Whether a token has its place already: then a look at it is all that asking again takes.
    pub(super) fn has_place(&self, ask: &Ask) -> bool {
        let now = self.clock.now();
        let table = self.table.lock();
        let key = table.key_of(&ask.name, &ask.token);
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
            let key = |ask: &Ask| table.key_of(&ask.name, &ask.token).cloned();
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
                    block: scale::block(*fence, entry.block),
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
            // It was free, and the key was made at this revision.
            return self.grant(asking, ask, at, now, 0).await;
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
                let found = ranges.into_iter().flat_map(|range| range.kvs).collect();
                self.tried(asking, ask, &queue::read(found), at, now).await
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
        let own = places.iter().find(|place| place.key == asking.key);
        if let Some(answer) = self.unusable(asking, ask, own, places).await {
            return answer;
        }
        let create = own.map_or(0, |own| own.create);
        let behind = places.iter().filter(|place| place.create > create).count();
        match queue::stand(places, &asking.key) {
            Stand::Missing => Err(error::unexpected()),
            Stand::Holds => {
                let waiters = u32::try_from(behind).unwrap_or(u32::MAX);
                self.grant(asking, ask, (at.0, create), now, waiters).await
            }
            Stand::Waits { until, ahead } => {
                let holding = queue::holders(places);
                let ahead = before.map_or(ahead, |before| before.saturating_sub(holding));
                let newest = holding.checked_sub(1).and_then(|last| places.get(last));
                let place = store::Place {
                    last_fence: newest.map_or(Fence::ZERO, |last| scale::fence(at.0, last.create)),
                    standing: standing(places, ahead),
                };
                Ok(match self.wait(asking, ask, create, &place, until, at.1, now) {
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
        asking: &Asking,
        ask: &Ask,
        create: i64,
        place: &store::Place,
        until: Until,
        revision: i64,
        now: Moment,
    ) -> Option<LostReason> {
        let mut table = self.table.lock();
        // It went with its lease.
        let Some(entry) = table.get_mut(&asking.key) else { return Some(LostReason::SessionEnded) };
        match entry.state {
            State::Ended(reason) => return Some(reason),
            State::Held { .. } => return None,
            State::Asked | State::Queued { .. } => {}
        }
        entry.create = create;
        entry.state =
            State::Queued { last_fence: place.last_fence, standing: place.standing.clone() };
        table.lengthen(&asking.key, now + place_ttl(ask.ttl));
        drop(table);
        let (own, room) = (asking.key.clone(), asking.room.clone());
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
            self.table.lock().remove(&asking.key);
            return Some(Err(error::unexpected()));
        }
        if own.record.as_ref().is_some_and(|record| record.broken) {
            return Some(Ok(Reply::Gone(LostReason::Broken)));
        }
        let before: Vec<_> =
            places.iter().filter(|place| place.create < own.create).cloned().collect();
        if let Some(capacity) = queue::other_capacity(&before, ask.mode) {
            self.undo(asking).await;
            return Some(Err(capacity_error(&ask.name, capacity)));
        }
        // Left from a lease that we gave up: nobody keeps it alive.
        if own.lease != asking.lease.id {
            self.undo(asking).await;
            return Some(Ok(Reply::Gone(LostReason::SessionEnded)));
        }
        None
    }

    /// It is ours, with the fences of its create revision: the second of `at`, on the scale whose base is the first.
    pub(super) async fn grant(
        &self,
        asking: &Asking,
        ask: &Ask,
        at: At,
        now: Moment,
        waiters: u32,
    ) -> Answer {
        let slot = match ask.mode {
            Mode::Permit { capacity } => self.claim_slot(&ask.name, &asking.key, capacity).await?,
            Mode::Exclusive | Mode::Shared => None,
        };
        let from = asking.lease.counts_from(now, ask.ttl);
        let fence = scale::fence(at.0, at.1);
        let mut table = self.table.lock();
        // It went with its lease.
        let Some(entry) = table.get_mut(&asking.key) else {
            return Ok(Reply::Gone(LostReason::SessionEnded));
        };
        if let State::Ended(reason) = entry.state {
            return Ok(Reply::Gone(reason));
        }
        let block = scale::block(fence, entry.block);
        (entry.create, entry.slot, entry.state) = (at.1, slot, State::Held { fence });
        table.lengthen(&asking.key, from + ask.ttl);
        drop(table);
        let evidence = asking.lease.evidence(now, ask.ttl);
        Ok(Reply::Granted(Grant { block, slot, ttl: ask.ttl, evidence, waiters }))
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
