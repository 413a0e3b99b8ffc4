//! Keeping leases: the keep-alive of etcd's lease is the renewal, and a look at the keys says whether they are still ours.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    client::Client,
    conn::TXN,
    error::{self, Asked},
    keeper::LATE_AGAIN,
    keys::seat,
    leases::ClassLease,
    proto::{RangeResponse, TxnRequest, TxnResponse},
    queue::Place,
    requests::{count, is_unchanged, nested, one, put, range},
    table::{Entry, Released, State},
};
use crate::{
    Error, Fence, LostReason, Mode, Name, Token,
    clock::Moment,
    store::{Answer, Operation, Renew, Renewal, Reply},
};

/// Renewals that are looked at together: two ranges each, and etcd takes 128 operations.
const TOGETHER: usize = 60;

/// Attempts to take over a key that others change meanwhile.
const ATTEMPTS: u32 = 5;

/// A renewal under way.
struct Renewing<'a> {
    place: usize,
    renew: &'a Renew,
    key: Vec<u8>,
    lease: Arc<ClassLease>,
}

impl Client {
    /// The renewals of a round.
    pub(super) async fn renewals(
        self: &Arc<Self>,
        batch: &[Operation],
        round: &[usize],
        answers: &mut [Option<Answer>],
    ) {
        let mut ours = Vec::new();
        for place in round {
            let Operation::Renew(renew) = &batch[*place] else { continue };
            let key = match self.key_of(renew).await {
                Ok(Some(key)) => key,
                Ok(None) => {
                    answers[*place] = Some(Ok(Reply::NotYours(LostReason::NotOurs)));
                    continue;
                }
                Err(error) => {
                    answers[*place] = Some(Err(error));
                    continue;
                }
            };
            match self.renewable(&key, renew.ttl) {
                Renewable::Ours(lease) => ours.push(Renewing { place: *place, renew, key, lease }),
                Renewable::Not(reason) => answers[*place] = Some(Ok(Reply::NotYours(reason))),
                Renewable::Elsewhere => answers[*place] = Some(self.take_over(renew, &key).await),
            }
        }
        self.confirm(&mut ours, answers).await;
        for together in ours.chunks(TOGETHER) {
            self.renew_together(together, answers).await;
        }
    }

    /// The key of a token, also of one that another process asked for.
    async fn key_of(&self, renew: &Renew) -> Result<Option<Vec<u8>>, Error> {
        let ours = self.table.lock().key_of(&renew.name, &renew.token).cloned();
        match ours {
            Some(key) => Ok(Some(key)),
            None => Ok(self.find(&renew.name, &renew.token).await?.map(|place| place.key)),
        }
    }

    fn renewable(&self, key: &[u8], ttl: Duration) -> Renewable {
        let now = self.clock.now();
        let mut table = self.table.lock();
        let Some(entry) = table.get(key) else { return Renewable::Elsewhere };
        match entry.state {
            State::Ended(reason) => {
                table.ends_at(key, now);
                drop(table);
                self.look_by(now);
                Renewable::Not(reason)
            }
            State::Held { .. } if entry.expires <= now => Renewable::Not(LostReason::Expired),
            State::Held { .. } if entry.lease.carries(ttl) => Renewable::Ours(entry.lease.clone()),
            State::Held { .. } => Renewable::Elsewhere,
            State::Asked | State::Queued { .. } => Renewable::Not(LostReason::NotOurs),
        }
    }

    /// Has the leases confirmed that carry them, each once.
    async fn confirm(&self, ours: &mut Vec<Renewing<'_>>, answers: &mut [Option<Answer>]) {
        let leases: HashMap<i64, Arc<ClassLease>> =
            ours.iter().map(|renewing| (renewing.lease.id, renewing.lease.clone())).collect();
        let mut outcomes: HashMap<i64, Result<bool, Error>> = HashMap::new();
        for (id, lease) in leases {
            outcomes.insert(id, self.leases.refresh(&self.link, &*self.clock, &lease).await);
        }
        ours.retain(|renewing| {
            let answer = match &outcomes[&renewing.lease.id] {
                Ok(true) => return true,
                Ok(false) => Ok(Reply::NotYours(LostReason::SessionEnded)),
                Err(error) => Err(error.duplicate()),
            };
            answers[renewing.place] = Some(answer);
            false
        });
    }

    async fn renew_together(&self, ours: &[Renewing<'_>], answers: &mut [Option<Answer>]) {
        let looks = ours.iter().flat_map(|renewing| {
            let room = self.keys.room(&renewing.renew.name);
            [range(one(&renewing.key)), range(count(&room))]
        });
        let txn = TxnRequest { success: looks.collect(), ..TxnRequest::default() };
        let now = self.clock.now();
        let answer = match self.link.call::<_, TxnResponse>(TXN, Asked::Read, txn).await {
            Ok(answer) => answer,
            Err(failed) => {
                for renewing in ours {
                    answers[renewing.place] = Some(Err(failed.error.duplicate()));
                }
                return;
            }
        };
        let mut seen = answer.responses.into_iter().map(|part| part.range());
        for renewing in ours {
            let answer = match (seen.next(), seen.next()) {
                (Some(own), Some(room)) => self.renewed(renewing, own, &room, now).await,
                _ => Err(error::unexpected()),
            };
            answers[renewing.place] = Some(answer);
        }
    }

    async fn renewed(
        &self,
        renewing: &Renewing<'_>,
        mut own: RangeResponse,
        room: &RangeResponse,
        now: Moment,
    ) -> Answer {
        let Renewing { renew, key, lease, .. } = renewing;
        let own = own.kvs.pop().map(Place::read).filter(|own| own.is_of(&renew.token));
        let Some(place) = own else {
            self.forget(renew, key);
            return Ok(Reply::NotYours(LostReason::NotOurs));
        };
        if place.record.as_ref().is_none_or(|record| record.broken) {
            return Ok(Reply::NotYours(LostReason::Broken));
        }
        if place.lease != lease.id {
            // Another process has taken it over as well; both mean to keep it.
            return self.take_over(renew, key).await;
        }
        let from = lease.counts_from(now, renew.ttl);
        let mut table = self.table.lock();
        let Some(entry) = table.get(key).filter(|entry| entry.is_of(&renew.token)) else {
            return Ok(Reply::NotYours(LostReason::NotOurs));
        };
        if let State::Ended(reason) = entry.state {
            return Ok(Reply::NotYours(reason));
        }
        // Of readers and permits others than waiters stand there too; only cohorts want to know.
        let others = match entry.mode {
            Mode::Exclusive => room.count.saturating_sub(1),
            Mode::Shared | Mode::Permit { .. } => 0,
        };
        table.lengthen(key, from + renew.ttl);
        Ok(renewal(renew.ttl, lease, now, u32::try_from(others).unwrap_or(u32::MAX)))
    }

    /// Renews what another lease carries: one of another process, or one of ours that is too short.
    async fn take_over(&self, renew: &Renew, key: &[u8]) -> Answer {
        let lease = self.leases.for_ttl(&self.link, &*self.clock, renew.ttl).await?;
        for _ in 0..ATTEMPTS {
            if !self.leases.refresh(&self.link, &*self.clock, &lease).await? {
                return Err(error::unexpected());
            }
            let look = TxnRequest { success: vec![range(one(key))], ..TxnRequest::default() };
            let answer: TxnResponse = self.link.call(TXN, Asked::Read, look).await?;
            let found = answer.responses.into_iter().next().and_then(|look| look.range().kvs.pop());
            let found = found.map(Place::read).filter(|place| place.is_of(&renew.token));
            let Some(place) = found else {
                self.forget(renew, key);
                return Ok(Reply::NotYours(LostReason::NotOurs));
            };
            let Some(record) = place.record.clone().filter(|record| !record.broken) else {
                return Ok(Reply::NotYours(LostReason::Broken));
            };
            let mut record = record;
            record.ttl_ms = u64::try_from(renew.ttl.as_millis()).unwrap_or(u64::MAX);
            let slot = record.slot.map(|slot| self.keys.slot(&renew.name, slot));
            let slot = slot.map(|slot| put(&slot, seat(key).to_vec(), lease.id));
            let txn = TxnRequest {
                compare: vec![is_unchanged(key, place.changed)],
                success: [put(key, record.write(), lease.id)].into_iter().chain(slot).collect(),
                failure: Vec::new(),
            };
            let now = self.clock.now();
            if self
                .write(TxnRequest { success: vec![nested(txn)], ..TxnRequest::default() })
                .await?
                .responses
                .into_iter()
                .any(|part| part.txn().succeeded)
            {
                self.adopt(&renew.name, &renew.token, key, &place, &lease, renew.ttl, now);
                return Ok(renewal(renew.ttl, &lease, now, 0));
            }
        }
        Err(error::unexpected())
    }

    /// Its key is not there, or somebody else's.
    fn forget(&self, renew: &Renew, key: &[u8]) {
        let again = self.clock.now() + LATE_AGAIN;
        let mut table = self.table.lock();
        let create = table.get(key).map_or(0, |entry| entry.create);
        let left = table.released(key.to_vec(), &renew.token, create, false, again);
        drop(table);
        if left == Released::MayArrive {
            self.look_by(again);
        }
    }

    /// Enters a lease that is carried by ours from now on.
    #[allow(clippy::too_many_arguments)] // all of one lease
    fn adopt(
        &self,
        name: &Name,
        token: &Token,
        key: &[u8],
        place: &Place,
        lease: &Arc<ClassLease>,
        ttl: Duration,
        now: Moment,
    ) {
        let mut table = self.table.lock();
        if table.get(key).is_some_and(|entry| !entry.is_of(token)) {
            // Released meanwhile, and the key is another's.
            return;
        }
        let before = table.remove(key);
        let fence = match before.as_ref().map(|entry| &entry.state) {
            Some(State::Held { fence }) => *fence,
            // Whoever attached it has its fence from its handle.
            _ => Fence::ZERO,
        };
        let until = lease.counts_from(now, ttl) + ttl;
        let under_way = before.as_ref().map_or(0, |entry| entry.under_way);
        let is_doubtful = before.as_ref().is_some_and(|entry| entry.is_doubtful);
        let expires = before.map_or(until, |entry| entry.expires.max(until));
        let entry = Entry {
            name: name.clone(),
            token: token.clone(),
            mode: place.mode(),
            ttl,
            expires,
            lease: lease.clone(),
            agreed: lease.confirmed(),
            create: place.create,
            block: 1,
            slot: place.record.as_ref().and_then(|record| record.slot),
            is_plain: false,
            under_way,
            is_doubtful,
            late_until: None,
            state: State::Held { fence },
        };
        table.insert(key.to_vec(), entry);
        drop(table);
        self.look_by(expires);
    }
}

enum Renewable {
    Ours(Arc<ClassLease>),
    Not(LostReason),
    /// Carried by another lease than the one it needs.
    Elsewhere,
}

fn renewal(ttl: Duration, lease: &ClassLease, now: Moment, waiters: u32) -> Reply {
    Reply::Renewed(Renewal { ttl, evidence: lease.evidence(now, ttl), waiters })
}
