//! A look at places in queues: who has come first is granted, who has not watches what is in the way now.

use super::{
    ask::standing,
    client::Client,
    conn::TXN,
    error::{self, Asked},
    proto::{RangeResponse, TxnRequest, TxnResponse},
    queue::{self, Place, Stand, Until},
    requests::{just_before, oldest_first, one, range},
    scale::{self, Sight},
    table::{Entry, State},
    watch::Order,
};
use crate::{
    Error, Fence, LostReason, Mode,
    clock::Moment,
    store::{Grant, Push, Standing, timing::handed_ttl},
};

/// How a place was found.
struct Found {
    stand: Stand,
    /// Who stands behind it.
    behind: usize,
    standing: Option<Standing>,
}

impl Client {
    /// Looks at places in queues. What cannot be looked at now is an error; nothing was changed then.
    pub(super) async fn look_again(&self, keys: &[Vec<u8>]) -> Result<(), Error> {
        let waiting: Vec<(Vec<u8>, Entry)> = {
            let table = self.table.lock();
            let entries =
                keys.iter().filter_map(|key| Some((key.clone(), table.get(key)?.clone())));
            entries.filter(|(_, entry)| matches!(entry.state, State::Queued { .. })).collect()
        };
        if waiting.is_empty() {
            return Ok(());
        }
        let looks = waiting.iter().flat_map(|(key, entry)| {
            let room = self.keys.room(&entry.name);
            match entry.mode {
                // Whoever is just before it is all there is to know.
                Mode::Exclusive => [range(one(key)), range(just_before(&room, entry.create))],
                Mode::Shared | Mode::Permit { .. } => [range(one(key)), range(oldest_first(&room))],
            }
        });
        let scale = range(one(&self.keys.scale()));
        let success = std::iter::once(scale).chain(looks).collect();
        let (now, known_before) = (self.clock.now(), self.scale.revision());
        let txn = TxnRequest { success, ..TxnRequest::default() };
        let answer: TxnResponse = self.link.call(TXN, Asked::Read, txn).await?;
        let (cluster, revision) = (answer.cluster(), answer.revision());
        let mut parts = answer.responses.into_iter().map(|part| part.range());
        let found = parts.next().and_then(|mut first| first.kvs.pop());
        let sight = Sight { found, cluster, revision, known_before };
        let base = self.scale.base(&self.link, &self.keys, &*self.clock, sight).await?;
        for (key, entry) in waiting {
            let (Some(own), Some(room)) = (parts.next(), parts.next()) else {
                return Err(error::unexpected());
            };
            let found = judge(&key, &entry, &own, room);
            self.follow(key, &entry, found, base, revision, now).await?;
        }
        Ok(())
    }

    async fn follow(
        &self,
        key: Vec<u8>,
        entry: &Entry,
        found: Found,
        base: i64,
        revision: i64,
        now: Moment,
    ) -> Result<(), Error> {
        match found.stand {
            // Its lease is gone, or somebody deleted it: whatever went before it, this is no grant.
            Stand::Missing => {
                let reason = match entry.lease.is_dead() {
                    true => LostReason::SessionEnded,
                    false => LostReason::NotOurs,
                };
                if let Some(entry) = self.table.lock().get_mut(&key) {
                    entry.state = State::Ended(reason);
                }
                self.push(Push::Woken { name: entry.name.clone() });
            }
            Stand::Holds => {
                let slot = match entry.mode {
                    Mode::Permit { capacity } => {
                        self.claim_slot(&entry.name, &key, capacity).await?
                    }
                    Mode::Exclusive | Mode::Shared => None,
                };
                let fence = scale::fence(base, entry.create);
                self.granted(&key, entry, fence, slot, found.behind, now);
            }
            Stand::Waits { until, .. } => {
                let mut table = self.table.lock();
                let Some(entry) = table.get_mut(&key) else { return Ok(()) };
                if let (State::Queued { standing, .. }, Some(found)) =
                    (&mut entry.state, found.standing)
                {
                    *standing = found;
                }
                let room = self.keys.room(&entry.name);
                drop(table);
                self.order(Order::Watch { own: key, room, until, from: revision + 1 });
            }
        }
        Ok(())
    }

    /// Enters a lease that came to a waiter, and tells it.
    fn granted(
        &self,
        key: &[u8],
        entry: &Entry,
        fence: Fence,
        slot: Option<u32>,
        behind: usize,
        now: Moment,
    ) {
        // Until its first renewal: a waiter that is gone unseen costs no more than this.
        let ttl = handed_ttl(entry.ttl);
        let from = entry.lease.counts_from(now, ttl);
        {
            let mut table = self.table.lock();
            let Some(entry) = table.get_mut(key) else { return };
            if !matches!(entry.state, State::Queued { .. }) {
                return;
            }
            entry.state = State::Held { fence };
            entry.slot = slot;
            table.ends_at(key, from + ttl);
        }
        self.look_by(from + ttl);
        let grant = Grant {
            blocks: smallvec::smallvec![scale::block(fence, entry.block)],
            slot,
            ttl,
            evidence: entry.lease.evidence(now, ttl),
            waiters: u32::try_from(behind).unwrap_or(u32::MAX),
        };
        let (name, token) = (entry.name.clone(), entry.token.clone());
        self.push(Push::Granted { name, token, grant });
    }
}

fn judge(key: &[u8], entry: &Entry, own: &RangeResponse, room: RangeResponse) -> Found {
    // Another key of the same name is another place.
    if own.kvs.first().is_none_or(|own| own.create_revision != entry.create) {
        return Found { stand: Stand::Missing, behind: 0, standing: None };
    }
    match entry.mode {
        Mode::Exclusive => {
            let all = usize::try_from(room.count).unwrap_or(usize::MAX);
            let stand = match room.kvs.into_iter().next() {
                None => Stand::Holds,
                Some(before) => Stand::Waits { until: Until::Gone(before.key), ahead: 0 },
            };
            Found { stand, behind: all.saturating_sub(1), standing: None }
        }
        Mode::Shared | Mode::Permit { .. } => {
            let places: Vec<Place> = queue::read(room.kvs);
            let behind = places.iter().filter(|place| place.create > entry.create).count();
            let stand = queue::stand(&places, key);
            let ahead = match &stand {
                Stand::Waits { ahead, .. } => *ahead,
                Stand::Holds | Stand::Missing => 0,
            };
            Found { stand, behind, standing: Some(standing(&places, ahead)) }
        }
    }
}
