//! A look at places in queues: who has come first is granted, who has not watches what is in the way now.

use super::{
    ask::standing,
    client::Client,
    conn::TXN,
    error::{self, Asked},
    proto::{RangeRequest, RangeResponse, TxnRequest, TxnResponse},
    queue::{self, Place, Stand, Until},
    requests::{just_before, local, oldest_first, one, range},
    scale::{self, Sight},
    table::{Entry, State},
    watch::Order,
};
use crate::{
    Error, Fence, LostReason, Mode,
    clock::Moment,
    store::{Evidence, Grant, Push, Standing, timing::handed_ttl},
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
    ///
    /// If it is known at which revision something went, a member that has come that far is asked by itself, without the
    /// others: what went does not come back, and who is first at one revision is first at all later ones.
    pub(super) async fn look_again(
        &self,
        keys: &[Vec<u8>],
        since: Option<i64>,
    ) -> Result<(), Error> {
        let waiting: Vec<(Vec<u8>, Entry)> = {
            let table = self.table.lock();
            let entries =
                keys.iter().filter_map(|key| Some((key.clone(), table.get(key)?.clone())));
            entries.filter(|(_, entry)| matches!(entry.state, State::Queued { .. })).collect()
        };
        if waiting.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let needed = waiting.iter().map(|(_, entry)| entry.create).max().max(since).unwrap_or(0);
        // What had been confirmed before the cluster agrees to a look.
        let mut agreed: Vec<_> = waiting.iter().map(|(_, entry)| entry.agreed).collect();
        let mut known_before = 0;
        let mut seen = None;
        if since.is_some() {
            let answer: TxnResponse =
                self.link.call(TXN, Asked::Read, self.looks(&waiting, local)).await?;
            seen = Some(answer).filter(|answer| answer.revision() >= needed);
        }
        let answer = match seen {
            Some(answer) => answer,
            None => {
                known_before = self.scale.revision();
                agreed = waiting.iter().map(|(_, entry)| entry.lease.confirmed()).collect();
                let looks = self.looks(&waiting, std::convert::identity);
                self.link.call(TXN, Asked::Read, looks).await?
            }
        };
        let (cluster, revision) = (answer.cluster(), answer.revision());
        let mut parts = answer.responses.into_iter().map(|part| part.range());
        let found = parts.next().and_then(|mut first| first.kvs.pop());
        let sight = Sight { found, cluster, revision, known_before };
        let base = self.scale.base(&self.link, &self.keys, &*self.clock, sight).await?;
        for ((key, mut entry), agreed) in waiting.into_iter().zip(agreed) {
            entry.agreed = agreed;
            let (Some(own), Some(room)) = (parts.next(), parts.next()) else {
                return Err(error::unexpected());
            };
            let found = judge(&key, &entry, &own, room);
            self.follow(key, &entry, found, base, revision, now).await?;
        }
        Ok(())
    }

    /// Who is in the way of each, and from where fences are counted.
    fn looks(
        &self,
        waiting: &[(Vec<u8>, Entry)],
        how: fn(RangeRequest) -> RangeRequest,
    ) -> TxnRequest {
        let looks = waiting.iter().flat_map(|(key, entry)| {
            let room = self.keys.room(&entry.name);
            match entry.mode {
                // Whoever is just before it is all there is to know.
                Mode::Exclusive => [one(key), just_before(&room, entry.create)],
                Mode::Shared | Mode::Permit { .. } => [one(key), oldest_first(&room)],
            }
        });
        let all = std::iter::once(one(&self.keys.scale())).chain(looks);
        let success = all.map(|look| range(how(look))).collect();
        TxnRequest { success, ..TxnRequest::default() }
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
                let mut table = self.table.lock();
                if let Some(entry) = table.get_mut(&key).filter(|now| now.is_of(&entry.token)) {
                    entry.state = State::Ended(reason);
                }
                drop(table);
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
                let agreed = entry.agreed;
                let now = table.get_mut(&key).filter(|now| now.is_of(&entry.token));
                let Some(entry) = now else { return Ok(()) };
                entry.agreed = agreed;
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
        let from = entry.lease.counts_from_confirmed(entry.agreed, now, ttl);
        {
            let mut table = self.table.lock();
            let agreed = entry.agreed;
            let now = table.get_mut(key).filter(|now| now.is_of(&entry.token));
            let Some(entry) = now else { return };
            if !matches!(entry.state, State::Queued { .. }) {
                return;
            }
            entry.agreed = agreed;
            entry.state = State::Held { fence };
            entry.slot = slot;
            table.ends_at(key, from + ttl);
        }
        self.look_by(from + ttl);
        let grant = Grant {
            block: scale::block(fence, entry.block),
            slot,
            ttl,
            evidence: Evidence::Sent(from),
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
