//! Requests under way, and who is told of their answers.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::{
    round::Round,
    session::{Answered, Fault, Flight, Session},
    wire::Request,
};
use crate::clock::Moment;

/// What was sent together.
pub(super) struct Running {
    /// Those without an answer yet.
    pub(super) requests: VecDeque<Request>,
    pub(super) answers: Vec<Answered>,
    pub(super) whose: Whose,
    pub(super) sent: Moment,
}

/// Who is told.
pub(super) enum Whose {
    Nobodys,
    One(oneshot::Sender<Vec<Answered>>),
    Many(Box<Round>),
}

impl Whose {
    pub(super) fn flights(&self) -> usize {
        match self {
            Self::Nobodys => 0,
            Self::One(_) => 1,
            Self::Many(round) => round.len(),
        }
    }
}

impl Running {
    pub(super) fn new(requests: Vec<Request>, whose: Whose, sent: Moment) -> Self {
        let answers = Vec::with_capacity(requests.len());
        Self { requests: requests.into(), answers, whose, sent }
    }

    /// There will be no more answers.
    pub(super) fn fail(&mut self, fault: Fault) {
        self.answers.extend(self.requests.drain(..).map(|_| Err(fault)));
    }

    /// Tells whoever is to be told; what has to be sent by itself after all.
    pub(super) fn tell(self, session: &Session) -> Vec<Flight> {
        match self.whose {
            Whose::Nobodys => Vec::new(),
            Whose::One(tell) => {
                // Whoever asked may have gone.
                let _ = tell.send(self.answers);
                Vec::new()
            }
            Whose::Many(round) => {
                let landed = round.land(self.answers);
                session.learn(&landed);
                landed.again
            }
        }
    }
}
