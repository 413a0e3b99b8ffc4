//! Asking for several names at once: all or none.

use std::{sync::Arc, time::Duration};

use super::{
    ask::in_doubt,
    client::Client,
    desk::{Desk, Seat, Sits, State},
    layout::{self, Queue, Stand},
    record::Record,
    session::{Fault, Session},
    wait::Turn,
    wire::{Body, Code, Kind, Part, Request},
};
use crate::{
    Error, Fence, LostReason,
    clock::Moment,
    store::{Answer, Ask, Reply, timing},
};

/// A node may go between two requests that need it.
const ATTEMPTS: usize = 16;

type Sitting<'a> = tokio::sync::MutexGuard<'a, Sits>;

impl Client {
    pub(super) async fn ask_for_all(&self, ask: &Ask) -> Answer {
        let desks: Vec<Arc<Desk>> =
            ask.names.iter().map(|name| self.desks.open(name, &ask.token)).collect();
        let mut sits = Vec::with_capacity(desks.len());
        // Names are sorted, so nobody waits for desks in another order.
        for desk in &desks {
            sits.push(desk.sits.lock().await);
        }
        let answer = self.all_at(&desks, &mut sits, ask).await;
        let is_there = sits.iter().any(|sits| !matches!(**sits, Sits::Nowhere));
        for (desk, sits) in desks.iter().zip(sits) {
            self.settle(desk, sits);
        }
        answer.map_err(|error| in_doubt(error, is_there))
    }

    async fn all_at(&self, desks: &[Arc<Desk>], sits: &mut [Sitting<'_>], ask: &Ask) -> Answer {
        for (desk, sits) in desks.iter().zip(sits.iter_mut()) {
            self.freshen(desk, sits).await?;
        }
        let held = sits.iter().filter(|sits| matches!(&***sits, Sits::At(_))).count();
        if held == sits.len() {
            return self.all_again(desks, sits, ask).await;
        }
        if held > 0 {
            // Part of an attempt that failed half way.
            self.undo(desks, sits).await?;
        }
        let session = self.session(ask.ttl).await?;
        if let Some(refusal) = self.look_at_all(&session, ask).await? {
            return refusal;
        }
        for _ in 0..ATTEMPTS {
            if let Some(answer) = self.enter_all(desks, sits, ask, &session).await? {
                return answer;
            }
        }
        Err(self.failed(Fault::Refused(Code::NoNode), true))
    }

    /// Why they are not to be had, if they are not.
    async fn look_at_all(
        &self,
        session: &Arc<Session>,
        ask: &Ask,
    ) -> Result<Option<Answer>, Error> {
        let looks = ask.names.iter().map(|name| self.folder(name));
        let looks = looks.map(|path| Request::Children { path, watch: false });
        let answers = session.fly([Request::Sync].into_iter().chain(looks).collect()).await;
        for (name, answer) in ask.names.iter().zip(answers.into_iter().skip(1)) {
            let queue = self.queue_in(Some(answer))?;
            match queue.refuses(ask.mode) {
                None => {}
                Some(Stand::Waits(blocked)) => {
                    let ahead = queue.waiters();
                    let standing = self.standing(session, name, &blocked, ahead).await;
                    return Ok(Some(Ok(Reply::Busy(standing))));
                }
                Some(Stand::OtherCapacity(_) | Stand::Holds | Stand::Missing) => {
                    return Ok(Some(Ok(Reply::Busy(Default::default()))));
                }
            }
        }
        Ok(None)
    }

    /// Takes a place under each name in one transaction. `None` if a name's node went meanwhile.
    async fn enter_all(
        &self,
        desks: &[Arc<Desk>],
        sits: &mut [Sitting<'_>],
        ask: &Ask,
        session: &Arc<Session>,
    ) -> Result<Option<Answer>, Error> {
        let (now, record) = (self.now(), Record::of(ask));
        let unknown = ask.names.iter().filter(|name| !self.is_known(name));
        let mut flight: Vec<Request> = unknown.map(|name| self.make_folder(name)).collect();
        let parts = ask.names.iter().map(|name| Part::Create {
            path: format!("{}/{}", self.folder(name), layout::stem(&ask.token, ask.mode)),
            data: record.to_data(),
            acl: self.ground.config.acl(),
            kind: Kind::EphemeralSequential,
        });
        let (made, looks) = (flight.len(), ask.names.len());
        flight.push(Request::Multi(parts.collect()));
        let children = ask.names.iter().map(|name| self.folder(name));
        flight.extend(children.map(|path| Request::Children { path, watch: false }));
        let mut answers = session.fly(flight).await.into_iter().skip(made);
        let created = match answers.next() {
            Some(Ok(Body::Transaction { created, .. })) => created,
            Some(Err(Fault::Refused(Code::NoNode))) => {
                ask.names.iter().for_each(|name| self.note_known(name, false));
                return Ok(None);
            }
            Some(Err(Fault::Cut)) => {
                let until = now + timing::place_ttl(ask.ttl);
                for sits in sits.iter_mut() {
                    **sits = Sits::Unsure { session: session.clone(), until };
                }
                return Err(self.failed(Fault::Cut, true));
            }
            Some(Err(fault)) => return Err(self.failed(fault, true)),
            Some(Ok(_)) | None => return Err(super::error::unexpected(&self.at())),
        };
        for ((sits, path), name) in sits.iter_mut().zip(&created).zip(&ask.names) {
            self.note_known(name, true);
            **sits = Sits::At(Box::new(Seat {
                session: session.clone(),
                node: path.rsplit('/').next().unwrap_or_default().to_owned(),
                version: 0,
                record: record.clone(),
                mode: ask.mode,
                fence: Fence::ZERO,
                end: now + timing::place_ttl(ask.ttl),
                ttl: ask.ttl,
                state: State::Waits(None),
            }));
        }
        let queues: Result<Vec<Queue>, Error> =
            answers.take(looks).map(|answer| self.queue_in(Some(answer))).collect();
        let queues = queues.map_err(|_| self.failed(Fault::Cut, true))?;
        let answer = self.take_all(desks, sits, queues).await?;
        if answer.is_some() {
            return Ok(answer);
        }
        self.number(sits, session, &created, ask.ttl).await?;
        Ok(Some(self.granted_all(sits, ask, now)))
    }

    /// A transaction's answer does not say which transaction it was: the nodes do.
    async fn number(
        &self,
        sits: &mut [Sitting<'_>],
        session: &Arc<Session>,
        created: &[String],
        ttl: Duration,
    ) -> Result<(), Error> {
        let gets = created.iter().map(|path| Request::Get { path: path.clone(), watch: false });
        let answers = session.fly(gets.collect()).await;
        for (sits, answer) in sits.iter_mut().zip(answers) {
            match (&mut **sits, answer) {
                (Sits::At(seat), Ok(Body::Data { stat, .. })) => {
                    (seat.fence, seat.version) = (self.fences.of(stat.czxid), stat.version);
                }
                // It is there, but its answer was lost: whoever asks again finds it.
                (_, Err(fault)) => {
                    let until = self.now() + timing::place_ttl(ttl);
                    **sits = Sits::Unsure { session: session.clone(), until };
                    return Err(self.failed(fault, true));
                }
                (_, Ok(_)) => return Err(super::error::unexpected(&self.at())),
            }
        }
        Ok(())
    }

    /// Takes all if all can be had, else leaves all and says why.
    async fn take_all(
        &self,
        desks: &[Arc<Desk>],
        sits: &mut [Sitting<'_>],
        queues: Vec<Queue>,
    ) -> Result<Option<Answer>, Error> {
        for ((desk, sits), queue) in desks.iter().zip(sits.iter_mut()).zip(queues) {
            let holds = match &**sits {
                Sits::At(seat) => queue.stand(&seat.node) == Stand::Holds,
                Sits::Nowhere | Sits::Unsure { .. } => false,
            };
            if !holds || !matches!(self.advance(desk, sits, Some(queue)).await?, Turn::Holds) {
                break;
            }
        }
        let all = sits.iter().all(|sits| matches!(&**sits, Sits::At(seat) if seat.holds()));
        if !all {
            self.undo(desks, sits).await?;
            return Ok(Some(Ok(Reply::Busy(Default::default()))));
        }
        Ok(None)
    }

    fn granted_all(&self, sits: &mut [Sitting<'_>], ask: &Ask, now: Moment) -> Answer {
        let mut whole: Option<crate::store::Grant> = None;
        for sits in sits {
            let Sits::At(seat) = &mut **sits else { continue };
            seat.keep(now, ask.ttl);
            let grant = self.grant(seat, ask.ttl);
            match &mut whole {
                // Of several names it is not said which permits they are.
                None => whole = Some(crate::store::Grant { slot: None, ..grant }),
                Some(whole) => whole.blocks.extend(grant.blocks),
            }
        }
        Ok(whole.map_or(Reply::Gone(LostReason::NotOurs), Reply::Granted))
    }

    /// The token has them all already.
    async fn all_again(&self, desks: &[Arc<Desk>], sits: &mut [Sitting<'_>], ask: &Ask) -> Answer {
        let now = self.now();
        let mut is_whole = true;
        for (desk, sits) in desks.iter().zip(sits.iter_mut()) {
            let lost = match &mut **sits {
                Sits::At(seat) if seat.holds() => self.confirm(desk, seat).await?.err(),
                Sits::At(_) => {
                    let turn = self.advance(desk, sits, None).await?;
                    (!matches!(turn, Turn::Holds)).then_some(LostReason::NotOurs)
                }
                Sits::Nowhere | Sits::Unsure { .. } => Some(LostReason::NotOurs),
            };
            is_whole &= lost.is_none();
        }
        if !is_whole {
            self.undo(desks, sits).await?;
            return Ok(Reply::Busy(Default::default()));
        }
        self.granted_all(sits, ask, now)
    }

    /// Leaves all lines.
    async fn undo(&self, desks: &[Arc<Desk>], sits: &mut [Sitting<'_>]) -> Result<(), Error> {
        for (desk, sits) in desks.iter().zip(sits.iter_mut()) {
            self.remove(desk, sits, false).await?;
        }
        Ok(())
    }
}
