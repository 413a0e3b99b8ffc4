//! Asking for a name.

use std::{sync::Arc, time::Duration};

use super::{
    client::Client,
    desk::{Desk, Seat, Sits, State},
    error, layout,
    layout::{Queue, Stand},
    record::Record,
    session::{Answered, Fault, Session},
    wire::{Body, Code, Kind, Request, Stat},
};
use crate::{
    Block, Error, ErrorKind, LostReason, Mode, Name,
    clock::Moment,
    store::{Answer, Ask, Evidence, Grant, IfBusy, Reply, capacity_error, timing},
};

/// A place is kept on a session that lasts as long as the lease would, up to this; of a longer lease, on a short one, and
/// the lease moves to a long one when it is renewed for the first time. So a waiter that died unseen costs seconds, and
/// usual leases cost no move.
const MOVE_ABOVE: Duration = Duration::from_secs(60);

/// A node may go between two requests that need it: so often in a row nobody is that unlucky.
const ATTEMPTS: usize = 16;

/// How long a lease lasts that was waited for, until its first renewal.
fn first_ttl(ttl: Duration) -> Duration {
    if ttl > MOVE_ABOVE { timing::handed_ttl(ttl) } else { ttl }
}

impl Client {
    pub(super) async fn ask(&self, ask: &Ask) -> Answer {
        let desk = self.desks.open(&ask.name, &ask.token);
        let mut sits = desk.sits.lock().await;
        let answer = self.ask_at(&desk, &mut sits, ask).await;
        let is_there = !matches!(*sits, Sits::Nowhere);
        self.settle(&desk, sits);
        answer.map_err(|error| in_doubt(error, is_there))
    }

    async fn ask_at(&self, desk: &Desk, sits: &mut Sits, ask: &Ask) -> Answer {
        self.freshen(desk, sits).await?;
        let now = self.now();
        match sits {
            Sits::At(seat) if seat.holds() => {
                let is_enough = self.is_enough(&seat.session, ask.ttl);
                let ttl = if is_enough { ask.ttl } else { first_ttl(ask.ttl) };
                match self.confirm(desk, seat).await? {
                    Ok(()) => {
                        seat.keep(now, ttl);
                        Ok(Reply::Granted(self.grant(seat, ttl)))
                    }
                    // It blocks the name until its time is over.
                    Err(LostReason::Broken) => Ok(Reply::Gone(LostReason::Broken)),
                    Err(reason) => {
                        *sits = Sits::Nowhere;
                        Ok(Reply::Gone(reason))
                    }
                }
            }
            Sits::At(seat) => {
                seat.end = now + timing::place_ttl(ask.ttl);
                self.look_again(desk, sits, ask).await
            }
            Sits::Nowhere | Sits::Unsure { .. } if ask.if_busy == IfBusy::Tell => {
                let session = self.session(ask.ttl).await?;
                let queue = self.line_of(&session, &desk.name).await?;
                match queue.refuses(ask.mode) {
                    None => self.enter(desk, sits, ask, session).await,
                    Some(stand) => self.refuse(&session, &desk.name, &queue, stand).await,
                }
            }
            Sits::Nowhere | Sits::Unsure { .. } => {
                let session = self.session(first_ttl(ask.ttl)).await?;
                self.enter(desk, sits, ask, session).await
            }
        }
    }

    /// Forgets what has ended, and finds out what became of what was left in doubt.
    pub(super) async fn freshen(&self, desk: &Desk, sits: &mut Sits) -> Result<(), Error> {
        let is_over = match sits {
            Sits::Nowhere => false,
            Sits::Unsure { session, .. } => session.is_over(),
            Sits::At(seat) => seat.session.is_over(),
        };
        if is_over {
            *sits = Sits::Nowhere;
        }
        if let Sits::Unsure { session, .. } = sits {
            let session = session.clone();
            *sits = match self.find_own(desk, &session).await? {
                Some(seat) => Sits::At(Box::new(seat)),
                None => Sits::Nowhere,
            };
        }
        // Rule R5: what has ended is not revived.
        if let Sits::At(seat) = sits
            && self.now() >= seat.end
        {
            self.remove(desk, sits, true).await?;
        }
        Ok(())
    }

    /// The node of this token, if there is one that a session of ours owns.
    async fn find_own(&self, desk: &Desk, session: &Arc<Session>) -> Result<Option<Seat>, Error> {
        let queue = self.line_of(session, &desk.name).await?;
        let Some(found) = queue.find(&desk.token) else { return Ok(None) };
        let path = format!("{}/{}", self.folder(&desk.name), found.node);
        match session.ask(Request::Get { path, watch: false }).await {
            Ok(Body::Data { data, stat }) => {
                let (Some(record), Some(session)) = (Record::read(&data), self.owner(stat.owner))
                else {
                    return Ok(None);
                };
                let ttl = record.ttl();
                let state = if record.slot.is_some() { State::Holds } else { State::Waits(None) };
                Ok(Some(Seat {
                    session,
                    node: found.node.clone(),
                    version: stat.version,
                    fence: record.fence_or(self.fences.of(stat.czxid)),
                    record,
                    mode: found.mode,
                    end: self.now() + timing::place_ttl(ttl),
                    ttl,
                    state,
                }))
            }
            Ok(_) | Err(Fault::Refused(Code::NoNode)) => Ok(None),
            Err(fault) => Err(self.failed(fault, false)),
        }
    }

    /// Takes a place in the line, and the name if nobody is before.
    async fn enter(
        &self,
        desk: &Desk,
        sits: &mut Sits,
        ask: &Ask,
        session: Arc<Session>,
    ) -> Answer {
        let record = Record::of(ask);
        for _ in 0..ATTEMPTS {
            let now = self.now();
            let [created, children] = self.create(&desk.name, ask, &record, &session).await;
            let (path, stat) = match created {
                Ok(Body::Created { path, stat }) => (path, stat),
                Err(Fault::Refused(Code::NoNode)) => continue,
                Err(Fault::Cut) => {
                    let until = now + timing::place_ttl(ask.ttl);
                    *sits = Sits::Unsure { session, until };
                    return Err(self.failed(Fault::Cut, true));
                }
                Err(fault) => return Err(self.failed(fault, true)),
                Ok(_) => return Err(error::unexpected(&self.at())),
            };
            self.note_known(&desk.name, true);
            let seat = self.seated(ask, &session, &path, stat, record, now);
            *sits = Sits::At(Box::new(seat));
            let Ok(queue) = self.queue_in(Some(children)) else {
                return Err(self.failed(Fault::Cut, true));
            };
            return self.placed(desk, sits, ask, queue).await;
        }
        Err(self.failed(Fault::Refused(Code::NoNode), true))
    }

    /// Creates a node in the line and reads the line, in one flight.
    async fn create(
        &self,
        name: &Name,
        ask: &Ask,
        record: &Record,
        session: &Session,
    ) -> [Answered; 2] {
        let folder = self.folder(name);
        let mut flight = Vec::with_capacity(3);
        if !self.is_known(name) {
            flight.push(self.make_folder(name));
        }
        flight.push(Request::Create {
            path: format!("{folder}/{}", layout::stem(&ask.token, ask.mode)),
            data: record.to_data(),
            acl: self.ground.config.acl(),
            kind: Kind::EphemeralSequential,
        });
        flight.push(Request::Children { path: folder, watch: false });
        let mut answers = session.fly(flight).await;
        let (children, created) = (answers.pop(), answers.pop());
        if let Some(Err(Fault::Refused(Code::NoNode))) = created {
            self.note_known(name, false);
        }
        // Why the name's node could not be made is why the other one was not.
        let made = answers.pop();
        let created = match (created, made) {
            (Some(Err(Fault::Refused(Code::NoNode))), Some(Err(Fault::Refused(code))))
                if code != Code::NodeExists =>
            {
                Err(Fault::Refused(code))
            }
            (created, _) => created.unwrap_or(Err(Fault::Cut)),
        };
        [created, children.unwrap_or(Err(Fault::Cut))]
    }

    fn seated(
        &self,
        ask: &Ask,
        session: &Arc<Session>,
        path: &str,
        stat: Stat,
        record: Record,
        now: Moment,
    ) -> Seat {
        Seat {
            session: session.clone(),
            node: path.rsplit('/').next().unwrap_or_default().to_owned(),
            version: stat.version,
            record,
            mode: ask.mode,
            fence: self.fences.of(stat.czxid),
            end: now + timing::place_ttl(ask.ttl),
            ttl: ask.ttl,
            state: State::Waits(None),
        }
    }

    /// Goes by how a new place stands.
    async fn placed(&self, desk: &Desk, sits: &mut Sits, ask: &Ask, queue: Queue) -> Answer {
        let Sits::At(seat) = sits else { return Ok(Reply::Gone(LostReason::NotOurs)) };
        let stand = queue.stand(&seat.node);
        match stand {
            Stand::Waits(_) if ask.if_busy == IfBusy::Tell => {
                let session = seat.session.clone();
                self.remove(desk, sits, false).await?;
                self.refuse(&session, &desk.name, &queue, stand).await
            }
            _ => self.follow(desk, sits, ask, queue).await,
        }
    }

    /// Why a name is not given.
    async fn refuse(&self, session: &Session, name: &Name, queue: &Queue, stand: Stand) -> Answer {
        match stand {
            Stand::OtherCapacity(capacity) => Err(capacity_error(name, capacity)),
            Stand::Waits(blocked) => {
                let standing = self.standing(session, name, &blocked, queue.waiters()).await;
                Ok(Reply::Busy(standing))
            }
            Stand::Holds | Stand::Missing => Ok(Reply::Busy(Default::default())),
        }
    }

    /// Carries out what the line says about a place.
    async fn follow(&self, desk: &Desk, sits: &mut Sits, ask: &Ask, queue: Queue) -> Answer {
        let (is_moved, ttl) = (first_ttl(ask.ttl) < ask.ttl, ask.ttl);
        match self.advance(desk, sits, Some(queue)).await? {
            super::wait::Turn::Holds => {
                let Sits::At(seat) = sits else { return Ok(Reply::Gone(LostReason::NotOurs)) };
                let short = is_moved && !self.is_enough(&seat.session, ttl);
                let ttl = if short { first_ttl(ttl) } else { ttl };
                seat.keep(self.now(), ttl);
                Ok(Reply::Granted(self.grant(seat, ttl)))
            }
            super::wait::Turn::Waits(place) => Ok(Reply::Queued(*place)),
            super::wait::Turn::Gone => Ok(Reply::Gone(LostReason::NotOurs)),
            super::wait::Turn::OtherCapacity(capacity) => {
                self.remove(desk, sits, false).await?;
                Err(capacity_error(&desk.name, capacity))
            }
        }
    }

    /// Asks again about a place.
    async fn look_again(&self, desk: &Desk, sits: &mut Sits, ask: &Ask) -> Answer {
        let Sits::At(seat) = sits else { return Ok(Reply::Gone(LostReason::NotOurs)) };
        if ask.if_busy == IfBusy::Queue
            && let Some(place) = self.unchanged(desk, seat).await?
        {
            return Ok(Reply::Queued(*place));
        }
        let queue = self.line_of(&seat.session.clone(), &desk.name).await?;
        if ask.if_busy == IfBusy::Tell {
            return self.placed(desk, sits, ask, queue).await;
        }
        self.follow(desk, sits, ask, queue).await
    }

    /// A lease as the engine is told of it.
    pub(super) fn grant(&self, seat: &Seat, ttl: Duration) -> Grant {
        Grant {
            block: Block { first: seat.fence, len: 1 },
            slot: match seat.mode {
                Mode::Permit { .. } => seat.record.slot,
                Mode::Exclusive | Mode::Shared => None,
            },
            ttl,
            evidence: Evidence::Sent(seat.session.counts_from(ttl)),
            waiters: 0,
        }
    }
}

/// Where something may be left of a token, an ask that failed is no ask that did nothing: its token asks again, or leaves.
pub(super) fn in_doubt(error: Error, is_there: bool) -> Error {
    if !is_there || error.kind() != ErrorKind::Unavailable {
        return error;
    }
    let doubt = Error::new(ErrorKind::Indeterminate, error.message());
    match error.hint_text() {
        Some(hint) => doubt.hint(hint),
        None => doubt,
    }
}

/// How long a lease that was waited for lasts: what its record says, as for one that asked.
pub(super) fn pushed_ttl(ttl: Duration) -> Duration {
    first_ttl(ttl)
}
