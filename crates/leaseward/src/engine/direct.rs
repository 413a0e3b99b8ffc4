//! The short way: one operation, an idle lane, and a store that may answer at once.
//!
//! Nothing is queued and nobody is woken; this is what makes an uncontended lock on an embedded store cheap. A store
//! that needs longer is followed as any other batch in flight.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{
    Engine,
    lane::{Drive, Flight, Target, Which},
};
use crate::{
    clock::{BoxFuture, Moment},
    store::{Answer, Operation},
};

/// What came of sending an operation the short way.
pub(super) enum Direct {
    /// The store has answered.
    Answered(Moment, Answer),
    /// The store needs longer: follow it, or the answer is lost.
    UnderWay(UnderWay),
    /// The lane is in use: the operation has to join the next batch.
    Not(Operation),
}

/// An operation that was sent and not answered yet.
pub(super) struct UnderWay {
    answers: BoxFuture<'static, Vec<Answer>>,
    sent: Moment,
}

impl Engine {
    /// Sends an operation if the lane is idle. `sent` is a moment not after now: deadlines count from it.
    pub(super) fn send_direct(
        self: &Arc<Self>,
        which: Which,
        operation: Operation,
        sent: Moment,
    ) -> Direct {
        if let Some(answer) = self.answer_now(&operation) {
            return Direct::Answered(sent, answer);
        }
        let lane = self.lane(which);
        if self.wants_gathering() || !lane.claim_idle_seat() {
            return Direct::Not(operation);
        }
        let mut answers = self.store.submit(vec![operation]);
        // Whoever follows it polls again with a waker of its own.
        match answers.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Direct::UnderWay(UnderWay { answers, sent }),
            Poll::Ready(mut answers) => {
                if lane.leave_seat() {
                    self.spawn_pump(which, None);
                }
                let answer = answers.pop().expect("BUG: a store answers every operation");
                self.note_health(answer.as_ref().err());
                Direct::Answered(sent, answer)
            }
        }
    }

    /// The answer of a store that has it at once. It gains nothing by batches: no lane is needed, and nothing waits in
    /// one that this could overtake for long.
    pub(super) fn answer_now(&self, operation: &Operation) -> Option<Answer> {
        let answer = self.store.answer_now(operation)?;
        self.note_health(answer.as_ref().err());
        Some(answer)
    }

    pub(super) fn follow_up(
        self: &Arc<Self>,
        which: Which,
        under_way: UnderWay,
        target: Target,
    ) -> Drive {
        let UnderWay { answers, sent } = under_way;
        Drive::of_flight(self.clone(), which, Flight::of_one(answers, target, sent))
    }
}
