//! Callers of this process: as the token knows them that they wait for, and as they wait.
//!
//! Asking is not waiting: an ask that goes out in a batch with others is answered a round trip later, and most are granted
//! then. A caller waits once the store has said that the name is not free, or from the beginning if it stands behind
//! another caller of this process. Only then is it counted, and noted among those that may be in a deadlock.

use std::sync::Arc;

use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{
    Engine,
    acquisition::{Caller, CallerId, Event},
    events::Origin,
    names::Tell,
    spec::Spec,
};
use crate::{Error, ErrorKind, Guard, Name, OwnerId, Release, store::Standing};

/// The end of a wait.
pub(crate) enum Outcome {
    Granted(Guard),
    Busy(Standing),
    Failed(Error),
}

/// News on the way to a caller.
pub(super) enum Told {
    Outcome(Outcome),
    /// The name is not free: it has to wait. What becomes of that is told here.
    Waits(oneshot::Receiver<Told>),
}

/// The holder of a lease. Small: a hundred thousand of them may be kept.
#[derive(Clone)]
pub(super) struct Holder {
    pub(super) owner: Option<OwnerId>,
    /// What the events of its lease are told with.
    pub(super) origin: Option<Arc<Origin>>,
}

/// A caller, as its token knows it.
pub(super) struct Waiter {
    id: CallerId,
    spec: Spec,
    holder: Option<Holder>,
    tell: oneshot::Sender<Told>,
    /// Whether it knows that it has to wait.
    pub(super) knows_it_waits: bool,
}

/// A caller that is to be told that it has to wait.
pub(super) struct Pending {
    tell: oneshot::Sender<Told>,
    waits: oneshot::Receiver<Told>,
}

impl Caller for Waiter {
    type Holder = Holder;
    type Pending = Pending;
    type Releaser = oneshot::Sender<Result<Release, Error>>;

    fn id(&self) -> CallerId {
        self.id
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn holder(&mut self) -> Option<Holder> {
        self.holder.take()
    }

    fn begins_to_wait(&mut self) -> Option<Pending> {
        if std::mem::replace(&mut self.knows_it_waits, true) {
            return None;
        }
        let (tell, waits) = oneshot::channel();
        Some(Pending { tell: std::mem::replace(&mut self.tell, tell), waits })
    }
}

/// A caller inside. Dropped before it was told, it leaves.
pub(super) struct Waiting<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) name: &'a Name,
    pub(super) hash: u64,
    pub(super) id: CallerId,
    pub(super) owner: Option<OwnerId>,
    pub(super) trace_id: Option<Arc<str>>,
    told: oneshot::Receiver<Told>,
    /// It stands behind another caller of this process.
    pub(super) is_behind: bool,
    is_done: bool,
    pub(super) had_to_wait: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // A lease that is given in this very moment comes with a guard, which is dropped in the channel and releases it.
            self.engine.leave(self.name, self.hash, self.id);
        }
    }
}

impl Engine {
    /// A caller as its token knows it, and as it waits.
    pub(super) fn caller<'a>(
        self: &'a Arc<Self>,
        (hash, name): (u64, &'a Name),
        spec: &Spec,
        owner: Option<OwnerId>,
    ) -> (Waiter, Waiting<'a>) {
        let (tell, told) = oneshot::channel();
        let id = self.new_id();
        let origin = self.events.origin(spec.trace_id());
        let holder = Some(Holder { owner: owner.clone(), origin });
        let waiting = Waiting {
            engine: self,
            name,
            hash,
            id,
            owner,
            trace_id: spec.trace_id().cloned(),
            told,
            is_behind: false,
            is_done: false,
            had_to_wait: false,
        };
        (Waiter { id, spec: spec.clone(), holder, tell, knows_it_waits: false }, waiting)
    }

    /// A caller stops waiting.
    fn leave(self: &Arc<Self>, name: &Name, hash: u64, id: CallerId) {
        self.visit(hash, |visit| {
            let found = visit.names.on(hash, name).iter().find(|entry| entry.has_caller(id));
            if let Some(cell) = found.map(|entry| entry.cell.clone()) {
                visit.on(&cell, Event::Left(id));
            }
        });
    }

    pub(super) fn tell(self: &Arc<Self>, tell: Tell<Waiter>) {
        // Whatever a caller that has gone does not take is dropped here: a guard then gives its lease back.
        match tell {
            Tell::Granted(waiter, cell, fence) => {
                let guard = Guard::new(self.clone(), cell, fence);
                let _ = waiter.tell.send(Told::Outcome(Outcome::Granted(guard)));
            }
            Tell::Busy(waiter, standing) => {
                let _ = waiter.tell.send(Told::Outcome(Outcome::Busy(standing)));
            }
            Tell::Failed(waiter, error) => {
                let _ = waiter.tell.send(Told::Outcome(Outcome::Failed(error)));
            }
            Tell::NotFree(pending) => {
                let _ = pending.tell.send(Told::Waits(pending.waits));
            }
            Tell::Released(releaser, outcome) => {
                let _ = releaser.send(outcome);
            }
            Tell::Over(listeners) => listeners.notify_waiters(),
            Tell::LetGo(waiter) => drop(waiter),
            Tell::Forgotten(entry) => drop(entry),
        }
    }
}

impl Waiting<'_> {
    /// It never came in: there is nothing to leave.
    pub(super) fn is_over(&mut self) {
        self.is_done = true;
    }

    pub(super) async fn wait(&mut self) -> Result<Outcome, Error> {
        if let Some(outcome) = self.first_heard().await? {
            return Ok(outcome);
        }
        self.had_to_wait = true;
        self.engine.events.waiting(self.name, self.trace_id.as_ref());
        let _in_graph =
            self.engine.begin_wait(self.owner.as_ref(), (self.hash, self.name), self.id)?;
        loop {
            let told = (&mut self.told).await.map_err(|_| gone())?;
            if let Some(outcome) = self.heard(told) {
                return Ok(outcome);
            }
        }
    }

    /// What its first ask came to; `None` if it has to wait.
    async fn first_heard(&mut self) -> Result<Option<Outcome>, Error> {
        let told = match self.told.try_recv() {
            Ok(told) => told,
            Err(TryRecvError::Empty) if self.is_behind => return Ok(None),
            Err(TryRecvError::Empty) => (&mut self.told).await.map_err(|_| gone())?,
            Err(TryRecvError::Closed) => return Err(gone()),
        };
        Ok(self.heard(told))
    }

    fn heard(&mut self, told: Told) -> Option<Outcome> {
        match told {
            Told::Outcome(outcome) => {
                self.is_done = true;
                Some(outcome)
            }
            Told::Waits(told) => {
                self.told = told;
                None
            }
        }
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::ShutDown, "the runtime that serves this lock has shut down")
}
