//! Standing in the line: whose turn it is, what is watched, who is told.

use std::sync::Arc;

use super::{
    ask::pushed_ttl,
    client::Client,
    desk::{Desk, Seat, Sits, State},
    layout::{self, Blocked, Queue, Stand, Watch},
    record::Record,
    session::{Fault, Session},
    wire::{Body, Code, EventKind, Kind, Part, Request},
};
use crate::{
    Error, Fence, Holder, LostReason, Mode, Name,
    store::{Place, Push, Standing},
};

/// Somebody else may leave, come in or take a slot between our look and our request; each time, it is looked at again.
const ATTEMPTS: usize = 32;

/// Whose turn it is.
pub(super) enum Turn {
    Holds,
    Waits(Box<Place>),
    /// The node has gone.
    Gone,
    OtherCapacity(u32),
}

impl Client {
    /// Goes as far as the line allows: takes the name, or watches what is in the way. `queue` is the line as it was just
    /// read.
    pub(super) async fn advance(
        &self,
        desk: &Desk,
        sits: &mut Sits,
        mut queue: Option<Queue>,
    ) -> Result<Turn, Error> {
        for _ in 0..ATTEMPTS {
            let Sits::At(seat) = sits else { return Ok(Turn::Gone) };
            let session = seat.session.clone();
            let line = match queue.take() {
                Some(line) => line,
                None => self.line_of(&session, &desk.name).await?,
            };
            match line.stand(&seat.node) {
                Stand::Missing => {
                    *sits = Sits::Nowhere;
                    return Ok(Turn::Gone);
                }
                Stand::OtherCapacity(capacity) => return Ok(Turn::OtherCapacity(capacity)),
                Stand::Holds => {
                    if self.take(desk, seat, &line).await? {
                        return Ok(Turn::Holds);
                    }
                }
                Stand::Waits(blocked) => {
                    if let Some(turn) = self.watch(desk, seat, blocked, &mut queue).await? {
                        return Ok(turn);
                    }
                }
            }
        }
        Err(self.failed(Fault::Refused(Code::BadVersion), true))
    }

    /// It is our turn: a permit needs a slot yet. `false` if the line has changed.
    async fn take(&self, desk: &Desk, seat: &mut Seat, line: &Queue) -> Result<bool, Error> {
        if let Mode::Permit { capacity } = seat.mode
            && seat.record.slot.is_none()
            && !self.take_slot(desk, seat, line, capacity).await?
        {
            return Ok(false);
        }
        seat.state = State::Holds;
        Ok(true)
    }

    /// Takes the smallest free slot, and notes it in the node: whoever waits behind is woken by that.
    async fn take_slot(
        &self,
        desk: &Desk,
        seat: &mut Seat,
        line: &Queue,
        capacity: u32,
    ) -> Result<bool, Error> {
        let folder = self.folder(&desk.name);
        let mut tried = Vec::new();
        while let Some(slot) = line.free_slot(capacity, &tried) {
            let record = Record { slot: Some(slot), ..seat.record.clone() };
            let parts = vec![
                Part::Create {
                    path: format!("{folder}/{}", layout::slot_node(slot)),
                    data: seat.node.clone().into_bytes(),
                    acl: self.ground.config.acl(),
                    kind: Kind::Ephemeral,
                },
                Part::Set {
                    path: format!("{folder}/{}", seat.node),
                    data: record.to_data(),
                    version: Some(seat.version),
                },
            ];
            match seat.session.ask(Request::Multi(parts)).await {
                Ok(_) => {
                    (seat.record, seat.version) = (record, seat.version.wrapping_add(1));
                    return Ok(true);
                }
                Err(Fault::Refused(Code::NodeExists)) => tried.push(slot),
                // An operator broke it, or it has gone.
                Err(Fault::Refused(Code::BadVersion | Code::NoNode)) => return Ok(false),
                Err(fault) => return Err(self.failed(fault, true)),
            }
        }
        Ok(false)
    }

    /// Watches what is in the way. `None` if it has changed meanwhile.
    async fn watch(
        &self,
        desk: &Desk,
        seat: &mut Seat,
        blocked: Blocked,
        queue: &mut Option<Queue>,
    ) -> Result<Option<Turn>, Error> {
        let folder = self.folder(&desk.name);
        let (path, request) = match &blocked.watch {
            Watch::Node { node, .. } => {
                let path = format!("{folder}/{node}");
                (path.clone(), Request::Get { path, watch: true })
            }
            Watch::Any => (folder.clone(), Request::Children { path: folder.clone(), watch: true }),
        };
        // Before it is set, so that what it tells finds somebody.
        self.desks.watch(seat.session.id, &path, desk);
        let is_holder =
            matches!(&blocked.watch, Watch::Node { node, .. } if *node == blocked.holder);
        let mut flight = vec![request];
        if !is_holder {
            let path = format!("{folder}/{}", blocked.holder);
            flight.push(Request::Get { path, watch: false });
        }
        let mut answers = seat.session.fly(flight).await.into_iter();
        let (watched, holder) = (answers.next(), answers.next());
        let seen = match watched {
            Some(Ok(Body::Data { data, .. })) => Some(data),
            Some(Ok(Body::Children(children))) => {
                let line = Queue::read(&children);
                if line.stand(&seat.node) != Stand::Waits(blocked.clone()) {
                    *queue = Some(line);
                    return Ok(None);
                }
                None
            }
            Some(Err(Fault::Refused(Code::NoNode))) => {
                self.desks.unwatch(seat.session.id, &path, desk);
                return Ok(None);
            }
            Some(Err(fault)) => {
                self.desks.unwatch(seat.session.id, &path, desk);
                return Err(self.failed(fault, false));
            }
            Some(Ok(
                Body::Done
                | Body::Created { .. }
                | Body::Acl { .. }
                | Body::Transaction { .. }
                | Body::Reads(_),
            ))
            | None => None,
        };
        let data = match holder {
            Some(Ok(Body::Data { data, .. })) => Some(data),
            Some(_) => None,
            None => seen,
        };
        let standing = standing(&blocked, data.as_deref(), blocked.ahead);
        seat.state = State::Waits(Some((blocked.watch, standing.clone())));
        Ok(Some(Turn::Waits(place(standing))))
    }

    /// Looks whether all is as it was when a place was last looked at: without reading the whole line. `None` if not.
    pub(super) async fn unchanged(
        &self,
        desk: &Desk,
        seat: &Seat,
    ) -> Result<Option<Box<Place>>, Error> {
        let State::Waits(Some((Watch::Node { node, .. }, standing))) = &seat.state else {
            return Ok(None);
        };
        let folder = self.folder(&desk.name);
        let path = format!("{folder}/{node}");
        self.desks.watch(seat.session.id, &path, desk);
        let own = Request::Get { path: format!("{folder}/{}", seat.node), watch: false };
        let answers = seat.session.fly(vec![own, Request::Get { path, watch: true }]).await;
        if let Some(Err(fault @ (Fault::Cut | Fault::NotSent))) = answers.last() {
            return Err(self.failed(*fault, false));
        }
        Ok(answers.iter().all(Result::is_ok).then(|| place(standing.clone())))
    }

    /// How things stand for somebody who does not wait.
    pub(super) async fn standing(
        &self,
        session: &Session,
        name: &Name,
        blocked: &Blocked,
        ahead: u32,
    ) -> Standing {
        let path = format!("{}/{}", self.folder(name), blocked.holder);
        match session.ask(Request::Get { path, watch: false }).await {
            Ok(Body::Data { data, .. }) => standing(blocked, Some(&data), ahead),
            // It has just gone.
            _ => standing(blocked, None, ahead),
        }
    }

    /// Something changed about what a place waits for; `None` if that is not known.
    pub(super) async fn woken(self: Arc<Self>, desk: Arc<Desk>, kind: Option<EventKind>) {
        let mut sits = desk.sits.lock().await;
        let push = self.turn_of(&desk, &mut sits, kind).await;
        self.settle(&desk, sits);
        if let Some(push) = push {
            self.push(push);
        }
    }

    async fn turn_of(&self, desk: &Desk, sits: &mut Sits, kind: Option<EventKind>) -> Option<Push> {
        let Sits::At(seat) = sits else { return None };
        let State::Waits(watched) = seat.state.clone() else { return None };
        if seat.session.is_over() || self.now() >= seat.end {
            return None;
        }
        let turn = match watched {
            // The last one in the way: nobody can have come in between.
            Some((Watch::Node { node, is_last: true }, _)) if kind == Some(EventKind::Deleted) => {
                match self.has_gone(desk, seat, &node).await.ok()? {
                    Some(Ok(())) => {
                        seat.state = State::Holds;
                        Turn::Holds
                    }
                    Some(Err(_)) => {
                        *sits = Sits::Nowhere;
                        Turn::Gone
                    }
                    None => return None,
                }
            }
            _ => self.advance(desk, sits, None).await.ok()?,
        };
        match (turn, sits) {
            (Turn::Holds, Sits::At(seat)) => {
                let ttl = pushed_ttl(seat.record.ttl());
                seat.keep(self.now(), ttl);
                let grant = self.grant(seat, ttl);
                let (name, token) = (desk.name.clone(), desk.token.clone());
                Some(Push::Granted { name, token, grant })
            }
            // Its next ask is told why.
            (Turn::Gone | Turn::OtherCapacity(_), _) => {
                Some(Push::Woken { name: desk.name.clone() })
            }
            _ => None,
        }
    }

    /// Whether the one in the way has gone, and our own node is still there. `None` if it has not: a lease that moves to
    /// another session is a node that goes and comes back at once; it is watched again.
    async fn has_gone(
        &self,
        desk: &Desk,
        seat: &mut Seat,
        node: &str,
    ) -> Result<Option<Result<(), LostReason>>, Error> {
        let path = format!("{}/{node}", self.folder(&desk.name));
        self.desks.watch(seat.session.id, &path, desk);
        let again = Request::Get { path: path.clone(), watch: true };
        let mut answers = seat.session.fly(self.confirming(desk, seat, Some(again))).await;
        match answers.pop() {
            Some(Err(Fault::Refused(Code::NoNode))) => {
                self.desks.unwatch(seat.session.id, &path, desk);
                self.confirmed(seat, answers).map(Some)
            }
            Some(Ok(_)) => Ok(None),
            Some(Err(fault)) => Err(self.failed(fault, false)),
            None => Err(super::error::unexpected(&self.at())),
        }
    }

    fn confirming(&self, desk: &Desk, seat: &Seat, more: Option<Request>) -> Vec<Request> {
        let path = format!("{}/{}", self.folder(&desk.name), seat.node);
        let own = [Request::Sync, Request::Get { path, watch: false }];
        own.into_iter().chain(more).collect()
    }

    /// Whether a node is still there and ours, as the leader knows it.
    pub(super) async fn confirm(
        &self,
        desk: &Desk,
        seat: &mut Seat,
    ) -> Result<Result<(), LostReason>, Error> {
        let answers = seat.session.fly(self.confirming(desk, seat, None)).await;
        self.confirmed(seat, answers)
    }

    fn confirmed(
        &self,
        seat: &mut Seat,
        answers: Vec<super::session::Answered>,
    ) -> Result<Result<(), LostReason>, Error> {
        let mut answers = answers.into_iter();
        if let Some(Err(fault)) = answers.next() {
            return Err(self.failed(fault, false));
        }
        Ok(match answers.next() {
            Some(Ok(Body::Data { stat, .. })) if stat.owner != seat.session.id => {
                Err(LostReason::NotOurs)
            }
            Some(Ok(Body::Data { data, stat })) => {
                seat.version = stat.version;
                match Record::read(&data) {
                    Some(record) if record.broken => Err(LostReason::Broken),
                    Some(record) => {
                        seat.record = record;
                        Ok(())
                    }
                    None => Err(LostReason::NotOurs),
                }
            }
            Some(Err(Fault::Refused(Code::NoNode))) => Err(LostReason::NotOurs),
            Some(Err(fault)) => return Err(self.failed(fault, false)),
            Some(Ok(_)) | None => return Err(super::error::unexpected(&self.at())),
        })
    }
}

/// Grants are counted from what the session has proved, so no fence has to be told.
fn place(standing: Standing) -> Box<Place> {
    Box::new(Place { last_fence: Fence::ZERO, standing })
}

fn standing(blocked: &Blocked, data: Option<&[u8]>, ahead: u32) -> Standing {
    let holder = data.map(|data| match Record::read(data) {
        Some(record) => {
            let left = record.ttl();
            Holder::new(record.who, blocked.holder_mode, Some(left))
        }
        None => Holder::new(foreign(&blocked.holder, data), blocked.holder_mode, None),
    });
    // Whoever is in the way is watched: there is no time at which asking again would be of use.
    Standing { holder, free_in: None, ahead }
}

/// What is known of a holder that is not one of ours: what it says about itself, or what its node is called.
pub(super) fn foreign(node: &str, data: &[u8]) -> Arc<str> {
    match std::str::from_utf8(data) {
        Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => Arc::from(text),
        _ => Arc::from(node),
    }
}
