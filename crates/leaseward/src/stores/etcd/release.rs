//! Giving back a lease or a place in a queue.

use super::{
    client::Client,
    proto::{TxnRequest, TxnResponse},
    queue::Place,
    requests::{delete, is_there, one, range},
    table::State,
    watch::Order,
};
use crate::{
    LostReason, Name,
    store::{Answer, Release, Reply},
};

/// A release under way.
pub(super) struct Releasing {
    name: Name,
    key: Vec<u8>,
    slot_key: Option<Vec<u8>>,
    /// It had ended before, though etcd was not told yet.
    is_late: bool,
}

impl Releasing {
    /// Compares the token, which is the key, and nothing else.
    pub(super) fn txn(&self) -> TxnRequest {
        let slot = self.slot_key.iter().map(|key| delete(key));
        TxnRequest {
            compare: vec![is_there(&self.key)],
            success: [range(one(&self.key)), delete(&self.key)].into_iter().chain(slot).collect(),
            failure: Vec::new(),
        }
    }
}

impl Client {
    pub(super) fn begin_release(&self, release: &Release) -> Releasing {
        let key = self.keys.place(&release.name, &release.token);
        let now = self.clock.now();
        let table = self.table.lock();
        let entry = table.get(&key);
        let is_late = entry.is_some_and(|entry| match entry.state {
            State::Ended(_) => true,
            State::Held { .. } => entry.expires <= now,
            State::Asked | State::Queued { .. } => false,
        });
        let slot = entry.and_then(|entry| entry.slot);
        let slot_key = slot.map(|slot| self.keys.slot(&release.name, slot));
        Releasing { name: release.name.clone(), key, slot_key, is_late }
    }

    pub(super) async fn released(&self, releasing: Releasing, part: TxnResponse) -> Answer {
        self.table.lock().remove(&releasing.key);
        self.order(Order::Forget(releasing.key));
        if !part.succeeded {
            return Ok(Reply::NotYours(LostReason::NotOurs));
        }
        let mut found = part.responses.into_iter().next().map(|first| first.range().kvs);
        let place = found.as_mut().and_then(Vec::pop).map(Place::read);
        // Taken by another process, whose slot is not known here.
        let slot = place.and_then(|place| place.record?.slot);
        if let (Some(slot), None) = (slot, &releasing.slot_key) {
            let success = vec![delete(&self.keys.slot(&releasing.name, slot))];
            let _ = self.write(TxnRequest { success, ..TxnRequest::default() }).await;
        }
        Ok(match releasing.is_late {
            true => Reply::NotYours(LostReason::Expired),
            false => Reply::Released,
        })
    }
}
