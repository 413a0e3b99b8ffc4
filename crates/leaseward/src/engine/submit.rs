//! One operation whose bare answer somebody waits for.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    Engine,
    answers::may_have_got,
    direct::Direct,
    lane::{Job, Target, Which},
    leave::Asks,
};
use crate::{
    clock::Moment,
    store::{Answer, Ask, Operation},
};

/// Where the answer arrives. If nobody takes it out, what it grants is given back.
struct Told {
    told: oneshot::Receiver<(Moment, Answer)>,
    undo: Option<(Arc<Engine>, Box<Ask>)>,
}

impl Told {
    async fn answer(&mut self) -> Option<(Moment, Answer)> {
        (&mut self.told).await.ok()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // Closed first: an answer that comes after this finds nobody, and is undone where it comes from.
        self.told.close();
        if let (Some((engine, ask)), Ok((_, unheard))) = (&self.undo, self.told.try_recv())
            && may_have_got(&unheard)
        {
            engine.give_back(ask);
        }
    }
}

impl Engine {
    /// Sends one operation and waits for its bare answer; `None` if the engine has gone.
    ///
    /// Cancelled, the operation is still carried out, and what an ask was granted is given back.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        which: Which,
        mut operation: Operation,
        followed_by: Asks,
        now: Moment,
    ) -> Option<(Moment, Answer)> {
        let undo = match &operation {
            Operation::Ask(ask) => Some(Box::new(ask.clone())),
            Operation::Renew(_) | Operation::Release(_) => None,
        };
        if followed_by.is_empty() {
            match self.send_direct(which, operation, now) {
                Direct::Answered { sent, answer, .. } => return Some((sent, answer)),
                Direct::UnderWay(under_way) => {
                    let (target, mut told) = self.teller(undo);
                    self.follow_up(which, under_way, target).await;
                    return told.answer().await;
                }
                Direct::Not(back) => operation = back,
            }
        }
        let (target, mut told) = self.teller(undo);
        let first = Job { operation, target };
        if let Some(drive) = self.send(which, std::iter::once(first).chain(followed_by)) {
            drive.await;
        }
        told.answer().await
    }

    fn teller(self: &Arc<Self>, undo: Option<Box<Ask>>) -> (Target, Told) {
        let (tell, told) = oneshot::channel();
        (Target::Tell(tell, undo.clone()), Told { told, undo: undo.map(|ask| (self.clone(), ask)) })
    }
}
