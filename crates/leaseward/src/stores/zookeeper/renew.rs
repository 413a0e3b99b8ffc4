//! Keeping a lease, moving it to a longer session, and taking over one that another process had.

use std::{sync::Arc, time::Duration};

use super::{
    client::Client,
    desk::{Desk, Seat, Sits, State},
    layout::{self, Stand},
    record::Record,
    session::{Fault, Session},
    wire::{Body, Code, Kind, Part, Request, Stat},
};
use crate::{
    Error, LostReason, Mode,
    store::{Answer, Evidence, Renew, Renewal, Reply},
};

impl Client {
    pub(super) async fn renew(&self, renew: &Renew) -> Answer {
        let desk = self.desks.open(&renew.name, &renew.token);
        let mut sits = desk.sits.lock().await;
        let answer = self.renew_at(&desk, &mut sits, renew.ttl).await;
        self.settle(&desk, sits);
        answer
    }

    async fn renew_at(&self, desk: &Desk, sits: &mut Sits, ttl: Duration) -> Answer {
        let lost = match sits {
            Sits::At(seat) if seat.session.is_over() => Some(LostReason::SessionEnded),
            Sits::At(seat) if self.now() >= seat.end => Some(LostReason::Expired),
            _ => None,
        };
        self.freshen(desk, sits).await?;
        if let Some(reason) = lost {
            return Ok(Reply::NotYours(reason));
        }
        if matches!(&*sits, Sits::At(seat) if matches!(seat.state, State::Waits(None))) {
            // Found again after a lost answer: how it stands is not known yet.
            self.advance(desk, sits, None).await?;
        }
        match sits {
            Sits::At(seat) if seat.holds() => {
                let now = self.now();
                match self.confirm(desk, seat).await? {
                    Err(LostReason::Broken) => return Ok(Reply::NotYours(LostReason::Broken)),
                    Err(reason) => {
                        *sits = Sits::Nowhere;
                        return Ok(Reply::NotYours(reason));
                    }
                    Ok(()) if self.is_enough(&seat.session, ttl) => {
                        seat.keep(now, ttl);
                        if seat.record.ends_ms.is_some() {
                            self.note_end(desk, seat, None).await;
                        }
                        return Ok(renewed(seat, ttl));
                    }
                    Ok(()) => {}
                }
            }
            Sits::At(_) => return Ok(Reply::NotYours(LostReason::NotOurs)),
            Sits::Nowhere | Sits::Unsure { .. } => {}
        }
        self.move_here(desk, sits, ttl).await
    }

    /// Puts a node of the same name in the place of a token's, owned by a session that lasts long enough: from a shorter
    /// one of ours, or from another process's. In one transaction, so its place in the line is never free.
    async fn move_here(&self, desk: &Desk, sits: &mut Sits, ttl: Duration) -> Answer {
        let session = self.session(ttl).await?;
        let queue = self.line_of(&session, &desk.name).await?;
        let found = queue.find(&desk.token).cloned();
        let Some(found) = found.filter(|found| queue.stand(&found.node) == Stand::Holds) else {
            *sits = Sits::Nowhere;
            return Ok(Reply::NotYours(LostReason::NotOurs));
        };
        let path = format!("{}/{}", self.folder(&desk.name), found.node);
        let (mut record, stat) = match session.ask(Request::Get { path, watch: false }).await {
            Ok(Body::Data { data, stat }) => match Record::read(&data) {
                Some(record) if record.broken => return Ok(Reply::NotYours(LostReason::Broken)),
                Some(record) => (record, stat),
                None => return Ok(Reply::NotYours(LostReason::NotOurs)),
            },
            Err(Fault::Refused(Code::NoNode)) => {
                *sits = Sits::Nowhere;
                return Ok(Reply::NotYours(LostReason::NotOurs));
            }
            Err(fault) => return Err(self.failed(fault, false)),
            Ok(_) => return Err(super::error::unexpected(&self.at())),
        };
        let fence = record.fence_or(self.fences.of(stat.czxid));
        record.fence = Some(fence.get());
        record.since_ms = record.since_ms.or(Some(stat.ctime_ms));
        record.set_ttl(ttl);
        record.ends_ms = None;
        let now = self.now();
        let (parts, version) = self.moving(desk, &found.node, &record, stat);
        match session.ask(Request::Multi(parts)).await {
            Ok(_) => {
                let (node, mode, end) = (found.node, found.mode, now + ttl);
                let state = State::Holds;
                let seat = Seat { session, node, version, record, mode, fence, end, ttl, state };
                let answer = renewed(&seat, ttl);
                *sits = Sits::At(Box::new(seat));
                Ok(answer)
            }
            // Released, broken or moved at the same time.
            Err(Fault::Refused(Code::NoNode | Code::BadVersion | Code::NodeExists)) => {
                Err(self.failed(Fault::Refused(Code::BadVersion), true))
            }
            Err(Fault::Cut) => {
                // Either session may have it now; whichever has, its token finds it.
                *sits = Sits::Unsure { session, until: now + ttl };
                Err(self.failed(Fault::Cut, true))
            }
            Err(fault) => Err(self.failed(fault, true)),
        }
    }

    /// Says in a node when its lease ends, or that it is kept again. What comes of it is of no matter: it is only shown.
    pub(super) async fn note_end(&self, desk: &Desk, seat: &mut Seat, ends_ms: Option<u64>) {
        let record = Record { ends_ms, ..seat.record.clone() };
        let path = format!("{}/{}", self.folder(&desk.name), seat.node);
        let (data, version) = (record.to_data(), Some(seat.version));
        if seat.session.ask(Request::Set { path, data, version }).await.is_ok() {
            seat.version = seat.version.wrapping_add(1);
        }
        seat.record = record;
    }

    /// What moves a node, and its version afterwards: another one than before, by which the old owner, if it ends the lease
    /// at this very moment, is told that it is no longer its own.
    fn moving(&self, desk: &Desk, node: &str, record: &Record, stat: Stat) -> (Vec<Part>, i32) {
        let folder = self.folder(&desk.name);
        let (path, acl) = (format!("{folder}/{node}"), self.ground.config.acl());
        let create = |path: String, data| Part::Create { path, data, acl, kind: Kind::Ephemeral };
        let mut parts = vec![
            Part::Delete { path: path.clone(), version: Some(stat.version) },
            create(path.clone(), record.to_data()),
        ];
        let version = stat.version.saturating_add(1);
        for _ in 0..version {
            parts.push(Part::Set { path: path.clone(), data: record.to_data(), version: None });
        }
        if let Some(slot) = record.slot {
            let slot = format!("{folder}/{}", layout::slot_node(slot));
            parts.push(Part::Delete { path: slot.clone(), version: None });
            parts.push(create(slot, node.as_bytes().to_vec()));
        }
        (parts, version)
    }
}

fn renewed(seat: &Seat, ttl: Duration) -> Reply {
    let evidence = Evidence::Sent(seat.session.counts_from(ttl));
    Reply::Renewed(Renewal { ttl, evidence, waiters: 0 })
}

/// What a slot's node is called, of a permit that has one.
pub(super) fn slot_path(folder: &str, mode: Mode, record: &Record) -> Option<String> {
    match mode {
        Mode::Permit { .. } => {
            record.slot.map(|slot| format!("{folder}/{}", layout::slot_node(slot)))
        }
        Mode::Exclusive | Mode::Shared => None,
    }
}

impl Client {
    /// Deletes a node and its slot; whether there was one.
    pub(super) async fn delete(
        &self,
        session: &Arc<Session>,
        folder: &str,
        node: &str,
        version: Option<i32>,
        slot: Option<String>,
    ) -> Result<bool, Fault> {
        let path = format!("{folder}/{node}");
        let request = match slot {
            None => Request::Delete { path, version },
            Some(slot) => Request::Multi(vec![
                Part::Delete { path, version },
                Part::Delete { path: slot, version: None },
            ]),
        };
        match session.ask(request).await {
            Ok(_) => Ok(true),
            Err(Fault::Refused(Code::NoNode)) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Leaves the line. `has_ended`: it ran out, so what was taken over meanwhile is left alone.
    pub(super) async fn remove(
        &self,
        desk: &Desk,
        sits: &mut Sits,
        has_ended: bool,
    ) -> Result<bool, Error> {
        let Sits::At(seat) = sits else { return Ok(false) };
        let (session, folder) = (seat.session.clone(), self.folder(&desk.name));
        if let State::Waits(Some((layout::Watch::Node { node, .. }, _))) = &seat.state {
            self.desks.unwatch(session.id, &format!("{folder}/{node}"), desk);
        }
        let slot = slot_path(&folder, seat.mode, &seat.record);
        let version = has_ended.then_some(seat.version);
        match self.delete(&session, &folder, &seat.node, version, slot).await {
            Ok(was_there) => {
                *sits = Sits::Nowhere;
                Ok(was_there)
            }
            Err(Fault::Over) => {
                *sits = Sits::Nowhere;
                Ok(false)
            }
            // Broken by an operator, or another's now.
            Err(Fault::Refused(Code::BadVersion)) => {
                let confirmed = self.confirm(desk, seat).await?;
                if confirmed == Err(LostReason::NotOurs) {
                    *sits = Sits::Nowhere;
                    return Ok(false);
                }
                Err(self.failed(Fault::Refused(Code::BadVersion), true))
            }
            Err(fault) => {
                let until = self.now();
                if fault == Fault::Cut {
                    *sits = Sits::Unsure { session, until };
                }
                Err(self.failed(fault, true))
            }
        }
    }
}
