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
    drive::{Drive, NewSeat},
    flight::Flight,
    lane::{Seat, Target, Which},
};
use crate::{
    clock::{BoxFuture, Moment},
    store::{Answer, Operation},
};

/// What came of sending an operation the short way.
pub(super) enum Direct {
    /// The store has answered.
    Answered {
        sent: Moment,
        answer: Answer,
        /// When the answer was there.
        now: Moment,
    },
    /// The store needs longer: follow it, or the answer is lost.
    UnderWay(UnderWay),
    /// The lane is in use: the operation has to join the next batch.
    Not(Operation),
}

/// An operation that was sent and not answered yet.
pub(super) struct UnderWay {
    seat: Seat,
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
        if let Some(answer) = self.answer_now(&operation, sent) {
            // It took less than reading the clock does.
            return Direct::Answered { sent, answer, now: sent };
        }
        if self.wants_gathering() {
            return Direct::Not(operation);
        }
        let Some(seat) = NewSeat::claim(self, which) else { return Direct::Not(operation) };
        // The store's timers are those of the engine's runtime: the caller's may end before.
        let _here = self.runtime.enter();
        let mut answers = self.store.submit(vec![operation]);
        // Whoever follows it polls again with a waker of its own.
        match answers.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Direct::UnderWay(UnderWay { seat: seat.keep(), answers, sent }),
            Poll::Ready(mut answers) => {
                drop(seat);
                let answer = answers.pop().expect("BUG: a store answers every operation");
                self.note_health(answer.as_ref().err());
                Direct::Answered { sent, answer, now: self.clock.now() }
            }
        }
    }

    /// The answer of a store that has it at once. It gains nothing by batches: no lane is needed, and nothing waits in
    /// one that this could overtake for long.
    pub(super) fn answer_now(&self, operation: &Operation, now: Moment) -> Option<Answer> {
        let answer = self.store.answer_now(operation, now)?;
        self.note_health(answer.as_ref().err());
        Some(answer)
    }

    pub(super) fn follow_up(
        self: &Arc<Self>,
        which: Which,
        under_way: UnderWay,
        target: Target,
    ) -> Drive {
        let UnderWay { seat, answers, sent } = under_way;
        let flight = Flight::of_one(self, which, answers, target, sent);
        Drive::of_flight(self.clone(), which, seat, flight)
    }
}
