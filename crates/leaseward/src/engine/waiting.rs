//! A caller inside, from its first ask until it is told what came of it.
//!
//! Asking is not waiting: an ask that goes out in a batch with others is answered a round trip later, and most are granted
//! then. A caller waits once the store has said that the name is not free, or from the beginning if it stands behind somebody
//! of this process. Only then is it counted, and noted among those who may be in a deadlock.

use std::sync::Arc;

use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{
    Engine,
    bid::{Outcome, Told},
    drive::Drive,
};
use crate::{Error, ErrorKind, Name, guard::OwnerId};

/// A caller inside. Dropped before it was told, it leaves.
///
/// Borrows what everybody shares: counting references to that costs more than anything else here, where tasks of two
/// processors take turns.
pub(super) struct Waiting<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) name: &'a Name,
    pub(super) id: u64,
    pub(super) owner: Option<OwnerId>,
    pub(super) trace_id: Option<Arc<str>>,
    pub(super) told: oneshot::Receiver<Told>,
    /// It stands behind somebody of this process.
    pub(super) is_behind: bool,
    pub(super) is_done: bool,
    pub(super) had_to_wait: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // If the lease was given in this very moment, the guard in the channel is dropped and releases it.
            self.engine.abandon(self.name, self.id);
        }
    }
}

impl Waiting<'_> {
    pub(super) async fn wait(&mut self, drive: Option<Drive>) -> Result<Outcome, Error> {
        if let Some(drive) = drive {
            drive.await;
        }
        if let Some(outcome) = self.first_heard().await? {
            return Ok(outcome);
        }
        self.had_to_wait = true;
        self.engine.events.waiting(self.name, self.trace_id.as_ref());
        let _in_graph = self.engine.begin_wait(self.owner.as_ref(), self.name, self.id)?;
        loop {
            let told = (&mut self.told).await.map_err(|_| gone())?;
            if let Some(outcome) = self.heard(told) {
                return Ok(outcome);
            }
        }
    }

    /// What its first ask came to; `None` if it has to wait.
    async fn first_heard(&mut self) -> Result<Option<Outcome>, Error> {
        let told = if self.is_behind {
            match self.told.try_recv() {
                Ok(told) => told,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Closed) => return Err(gone()),
            }
        } else {
            (&mut self.told).await.map_err(|_| gone())?
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
