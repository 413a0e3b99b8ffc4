//! What is held and who waits; and breaking it.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::{
    client::Client,
    conn::{LEASE_TIME_TO_LIVE, RANGE, TXN},
    error::{self, Asked},
    keys::{Keys, seat},
    proto::{
        KeyValue, LeaseRequest, LeaseResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
    },
    queue::{self, Place},
    requests::{change, delete, end_of, is_unchanged, nested, oldest_first, range},
    scale,
};
use crate::{
    Error, ErrorKind, Name,
    store::{Break, Broken, HeldView, LockView, Query, WaiterView},
};

/// Keys read at once: far below what etcd puts into one message.
const PAGE: i64 = 2_000;

/// Attempts to break what its holder changes meanwhile.
const ATTEMPTS: u32 = 5;

impl Client {
    pub(super) async fn inspect(&self, query: &Query) -> Result<Vec<LockView>, Error> {
        let (beginning, after, limit) = match query {
            Query::Name(name) => (self.keys.room(name), None, usize::MAX),
            Query::Prefix { prefix, after, limit } => {
                (self.keys.beginning(prefix), after.as_ref(), *limit)
            }
        };
        let mut rooms: BTreeMap<Name, Vec<KeyValue>> = BTreeMap::new();
        for kv in self.read_all(&beginning).await? {
            let Some(name) = self.keys.name_of(&kv.key) else { continue };
            if after.is_none_or(|after| name > *after) {
                rooms.entry(name).or_default().push(kv);
            }
        }
        let rooms: Vec<_> =
            rooms.into_iter().take(limit).map(|(name, kvs)| (name, queue::read(kvs))).collect();
        let left = self.times_left(rooms.iter().map(|(_, places)| places.as_slice())).await?;
        let base = self.scale.settle(&self.link, &self.keys, &*self.clock).await?;
        let now_us = self.clock.wall_us();
        Ok(rooms
            .into_iter()
            .map(|(name, places)| view(name, &places, &left, base, now_us))
            .collect())
    }

    /// All keys that begin so, as of one revision.
    async fn read_all(&self, beginning: &[u8]) -> Result<Vec<KeyValue>, Error> {
        // No key is empty: to etcd the first of all is a zero byte.
        let first = if beginning.is_empty() { &[0] } else { beginning };
        let (mut key, mut revision) = (first.to_vec(), 0);
        let mut all = Vec::new();
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: end_of(beginning),
                limit: PAGE,
                revision,
                ..RangeRequest::default()
            };
            let page: RangeResponse = self.link.call(RANGE, Asked::Read, request).await?;
            if revision == 0 {
                revision = page.header.as_ref().map_or(0, |header| header.revision);
            }
            let Some(last) = page.kvs.last() else { return Ok(all) };
            key = [&last.key[..], &[0]].concat();
            let more = page.more;
            all.extend(page.kvs);
            if !more {
                return Ok(all);
            }
        }
    }

    /// How long the leases of our holders last yet. That of another program lasts as long as its session: it keeps it
    /// alive, and a message about a busy name does not know its rest either.
    async fn times_left(
        &self,
        rooms: impl Iterator<Item = &[Place]>,
    ) -> Result<HashMap<i64, Duration>, Error> {
        let mut left = HashMap::new();
        for places in rooms {
            for place in &places[..queue::holders(places)] {
                if place.record.is_none() || place.lease == 0 || left.contains_key(&place.lease) {
                    continue;
                }
                let request = LeaseRequest { id: place.lease };
                let answer = self.link.call(LEASE_TIME_TO_LIVE, Asked::Read, request).await;
                let answer: LeaseResponse = answer?;
                let seconds = u64::try_from(answer.ttl).unwrap_or(0);
                left.insert(place.lease, Duration::from_secs(seconds));
            }
        }
        Ok(left)
    }

    pub(super) async fn break_lease(&self, order: &Break) -> Result<Broken, Error> {
        for _ in 0..ATTEMPTS {
            let seen = self.inspect(&Query::Name(order.name.clone())).await?.pop();
            let Some(seen) = seen else { return Ok(Broken { holders: Vec::new() }) };
            let room = self.keys.room(&order.name);
            let look =
                TxnRequest { success: vec![range(oldest_first(&room))], ..TxnRequest::default() };
            let answer: TxnResponse = self.link.call(TXN, Asked::Read, look).await?;
            let kvs = answer.responses.into_iter().next().map(|part| part.range().kvs);
            let places = queue::read(kvs.unwrap_or_default());
            let holding = &places[..queue::holders(&places)];
            let mut steps = Vec::new();
            for place in holding {
                steps.extend(ending(&self.keys, order, place)?);
            }
            let txn = TxnRequest {
                compare: holding.iter().map(|held| is_unchanged(&held.key, held.changed)).collect(),
                success: steps,
                failure: Vec::new(),
            };
            let answer = self
                .write(TxnRequest { success: vec![nested(txn)], ..TxnRequest::default() })
                .await?;
            if answer.responses.into_iter().any(|part| part.txn().succeeded) {
                return Ok(Broken { holders: seen.holders });
            }
        }
        Err(error::unexpected())
    }
}

/// What ends one lease as ordered.
fn ending(
    keys: &Keys,
    order: &Break,
    place: &Place,
) -> Result<Vec<super::proto::RequestOp>, Error> {
    if order.now {
        let slot = place.record.as_ref().and_then(|record| record.slot);
        let slot = slot.map(|slot| delete(&keys.slot(&order.name, slot)));
        return Ok([delete(&place.key)].into_iter().chain(slot).collect());
    }
    let Some(mut record) = place.record.clone() else {
        let message = format!("`{}` is held by {}", order.name, place.who());
        return Err(Error::new(ErrorKind::Unsupported, message)
            .hint("it reads no messages of ours; `--now` deletes its key"));
    };
    record.broken = true;
    Ok(vec![change(&place.key, record.write())])
}

fn view(
    name: Name,
    places: &[Place],
    left: &HashMap<i64, Duration>,
    base: i64,
    now_us: u64,
) -> LockView {
    let (holding, waiting) = places.split_at(queue::holders(places));
    let since = |place: &Place| {
        let since = place.record.as_ref().map_or(now_us, |record| record.since_us);
        Duration::from_micros(now_us.saturating_sub(since))
    };
    let held = |place: &Place| {
        let record = place.record.as_ref();
        let ttl = record.map_or(Duration::ZERO, |record| record.ttl());
        HeldView {
            who: place.who(),
            token_prefix: token_prefix(place),
            mode: place.mode(),
            fence: scale::fence(base, place.create),
            slot: record.and_then(|record| record.slot),
            ttl,
            // Its class may be longer than it.
            remaining: record.and_then(|_| left.get(&place.lease)).map(|lasts| ttl.min(*lasts)),
            held: since(place),
            value: record.and_then(super::record::Record::value),
            ending: record.is_some_and(|record| record.broken),
        }
    };
    let waits = |place: &Place| WaiterView {
        who: place.who(),
        token_prefix: token_prefix(place),
        mode: place.mode(),
        waited: since(place),
    };
    LockView {
        name,
        holders: holding.iter().map(held).collect(),
        waiters: waiting.iter().map(waits).collect(),
    }
}

/// The beginning of a token; of another program's key the end, which is its lease.
fn token_prefix(place: &Place) -> String {
    match &place.record {
        Some(record) => record.token_prefix(),
        None => String::from_utf8_lossy(seat(&place.key)).chars().take(8).collect(),
    }
}
