//! Giving back a lease or a place in a queue.

use super::{
    client::Client,
    conn::TXN,
    error::Asked,
    keeper::LATE_AGAIN,
    proto::{TxnRequest, TxnResponse},
    queue::Place,
    requests::{delete, is_made_at, is_there, oldest_first, one, range},
    table::{Released, State},
    watch::Order,
};
use crate::{
    Error, LostReason, Mode, Name, Token,
    store::{Answer, Release, Reply},
};

/// A release under way.
pub(super) struct Releasing {
    name: Name,
    token: Token,
    key: Vec<u8>,
    /// Zero if nobody has heard.
    create: i64,
    slot_key: Option<Vec<u8>>,
    /// Others may have given it a slot.
    reads: bool,
    /// It had ended before, though etcd was not told yet.
    is_late: bool,
}

impl Releasing {
    /// Compares whose the key is, and nothing else.
    pub(super) fn txn(&self) -> TxnRequest {
        let compare = match self.create {
            // A key whose ask was not answered is nobody else's, before or after.
            0 => is_there(&self.key),
            create => is_made_at(&self.key, create),
        };
        let read = self.reads.then(|| range(one(&self.key)));
        let slot = self.slot_key.iter().map(|key| delete(key));
        let success = read.into_iter().chain([delete(&self.key)]).chain(slot).collect();
        TxnRequest { compare: vec![compare], success, failure: Vec::new() }
    }
}

impl Client {
    /// Prepares a release, or answers it at once.
    pub(super) async fn begin_release(&self, release: &Release) -> Result<Releasing, Answer> {
        if let Some(ours) = self.releasing(release) {
            return Ok(ours);
        }
        let found = self.find(&release.name, &release.token).await.map_err(Err)?;
        let place = found.ok_or(Ok(Reply::NotYours(LostReason::NotOurs)))?;
        let slot = place.record.and_then(|record| record.slot);
        Ok(Releasing {
            name: release.name.clone(),
            token: release.token.clone(),
            key: place.key,
            create: place.create,
            slot_key: slot.map(|slot| self.keys.slot(&release.name, slot)),
            reads: false,
            is_late: false,
        })
    }

    /// The release of what this process has.
    fn releasing(&self, release: &Release) -> Option<Releasing> {
        let now = self.clock.now();
        let table = self.table.lock();
        let key = table.key_of(&release.name, &release.token)?;
        let entry = table.get(key)?;
        Some(Releasing {
            name: release.name.clone(),
            token: release.token.clone(),
            key: key.clone(),
            create: entry.create,
            slot_key: entry.slot.map(|slot| self.keys.slot(&release.name, slot)),
            reads: matches!(entry.mode, Mode::Permit { .. }),
            is_late: match entry.state {
                State::Ended(_) => true,
                State::Held { .. } => entry.expires <= now,
                State::Asked | State::Queued { .. } => false,
            },
        })
    }

    /// The place of a token of another process.
    pub(super) async fn find(&self, name: &Name, token: &Token) -> Result<Option<Place>, Error> {
        let look = range(oldest_first(&self.keys.room(name)));
        let look = TxnRequest { success: vec![look], ..TxnRequest::default() };
        let answer: TxnResponse = self.link.call(TXN, Asked::Read, look).await?;
        let seen = answer.responses.into_iter().next().map(|look| look.range().kvs);
        let mut places = seen.unwrap_or_default().into_iter().map(Place::read);
        Ok(places.find(|place| place.is_of(token)))
    }

    pub(super) async fn released(&self, releasing: &Releasing, part: TxnResponse) -> Answer {
        let is_deleted = part.succeeded && releasing.create > 0;
        let again = self.clock.now() + LATE_AGAIN;
        let left = {
            let mut table = self.table.lock();
            let key = releasing.key.clone();
            let left = table.released(key, &releasing.token, releasing.create, is_deleted, again);
            if left != Released::Before {
                // Before anybody can have the key after it.
                self.order(Order::Forget(releasing.key.clone()));
            }
            left
        };
        if left == Released::MayArrive {
            self.look_by(again);
        }
        if !part.succeeded {
            return Ok(Reply::NotYours(LostReason::NotOurs));
        }
        let first = part.responses.into_iter().next().filter(|_| releasing.reads);
        let place = first.and_then(|first| first.range().kvs.pop()).map(Place::read);
        // Given by another, so it was not known here.
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
