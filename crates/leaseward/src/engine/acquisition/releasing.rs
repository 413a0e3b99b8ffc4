//! Giving back: the token is dead from here on (R6), and the store is told until it has answered or cannot be told.

use std::time::Duration;

use super::{Acquisition, Action, At, Caller, Phase, Send, Unanswered, evidence};
use crate::{
    Error, ErrorKind, Release,
    clock::Moment,
    store::{Answer, Reply, timing},
};

/// A releaser is told after this long that nothing is known. A lease is released until it has ended all the same.
const RELEASE_MAX: Duration = Duration::from_secs(10);
/// Between tries of a release that got no answer.
const AGAIN: Duration = Duration::from_millis(20);
/// At most this long.
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// A lease, a place, or an ask in doubt on its way back to the store.
#[derive(Debug)]
pub(super) struct Releasing<R> {
    releaser: Option<R>,
    /// Until when the name stays taken for its holder's minimum: the release carries what is left of it.
    rest_until: Moment,
    /// The end of the lease; `NEVER` before one was held.
    deadline: Moment,
    /// When the releaser is told, whatever the store has said.
    tell_by: Moment,
    /// When to give up: what the token has in the store has then ended by itself.
    until: Moment,
    /// Whether the store may have an ask of this token.
    was_sent: bool,
    /// Whether a release may have been carried out without an answer.
    is_in_doubt: bool,
    /// When it is tried again.
    next: Moment,
    /// Why the last try failed.
    trouble: Option<Error>,
}

impl<R> Releasing<R> {
    pub(super) fn nothing_was_sent(&self) -> bool {
        !self.was_sent || !evidence::is_released_if_sent()
    }
}

impl<C: Caller> Acquisition<C> {
    /// Gives back whatever the token has: a lease, a place, or what an unanswered ask may yet get. Callers that are left
    /// wait on with a new token.
    pub(super) fn give_back(
        &mut self,
        releaser: Option<C::Releaser>,
        rest: Duration,
        at: &mut At<'_, C>,
    ) {
        let in_line = self.in_line();
        let (deadline, was_sent) = match &self.phase {
            Phase::Asking(asking) => (Moment::NEVER, asking.was_sent),
            Phase::Held(held) => (held.deadline(), true),
            _ => (Moment::NEVER, true),
        };
        let lasts = match &self.phase {
            Phase::Held(held) => held.deadline().since(at.now),
            _ => timing::place_ttl(at.spec.ttl()),
        };
        if !evidence::dies_at_release() && self.is_held() && self.unanswered.is_none() {
            self.unanswered = Some(Unanswered::Release);
            at.act(Action::Send(Send::Release { rest }));
            return self.succeed(in_line, at);
        }
        self.phase = Phase::Releasing(Releasing {
            releaser,
            rest_until: at.now + rest,
            deadline,
            tell_by: at.now + RELEASE_MAX,
            until: at.now + RELEASE_MAX.max(lasts),
            was_sent,
            is_in_doubt: false,
            next: Moment::NEVER,
            trouble: None,
        });
        self.failures = 0;
        match self.unanswered {
            // A release never overtakes the ask that it is to undo.
            Some(_) if evidence::waits_for_its_ask() => {
                at.act(Action::Withdraw);
                self.wake_for_release(Moment::NEVER, at);
            }
            _ => self.send_release(at),
        }
        self.succeed(in_line, at);
    }

    pub(super) fn send_release(&mut self, at: &mut At<'_, C>) {
        let Phase::Releasing(releasing) = &self.phase else { return };
        let rest = releasing.rest_until.since(at.now);
        self.unanswered = Some(Unanswered::Release);
        at.act(Action::Send(Send::Release { rest }));
        self.wake_for_release(Moment::NEVER, at);
    }

    /// Wakes for the next try, or before it to tell the releaser, or to give up.
    fn wake_for_release(&self, next: Moment, at: &mut At<'_, C>) {
        let Phase::Releasing(releasing) = &self.phase else { return };
        let tell_by = if releasing.releaser.is_some() { releasing.tell_by } else { Moment::NEVER };
        at.act(Action::WakeAt(next.min(tell_by).min(releasing.until)));
    }

    /// The ask that the release waited for was answered.
    pub(super) fn release_after(&mut self, answer: &Answer, at: &mut At<'_, C>) {
        let Phase::Releasing(releasing) = &mut self.phase else { return };
        let has_nothing = match answer {
            Ok(Reply::Busy(_)) => true,
            Ok(_) => false,
            Err(error) => error.kind() != ErrorKind::Indeterminate && !releasing.was_sent,
        };
        releasing.was_sent = true;
        if has_nothing && releasing.deadline == Moment::NEVER {
            return self.finish(Ok(Release::Released), at);
        }
        self.send_release(at);
    }

    pub(super) fn release_answered(&mut self, answer: Answer, at: &mut At<'_, C>) {
        let Phase::Releasing(releasing) = &mut self.phase else { return };
        let error = match answer {
            Ok(Reply::Released) => return self.finish(Ok(Release::Released), at),
            // An earlier try may have done it: before the deadline nothing else can have ended the lease (R8).
            Ok(_) if releasing.is_in_doubt => {
                let is_certain = at.now < releasing.deadline;
                return self
                    .finish(if is_certain { Ok(Release::Released) } else { Err(doubt()) }, at);
            }
            Ok(_) => return self.finish(Ok(Release::AlreadyExpired), at),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Indeterminate => releasing.is_in_doubt = true,
            ErrorKind::Unavailable => {}
            _ => return self.finish(Err(error), at),
        }
        let pause = at.jitter(AGAIN, AGAIN_MAX, self.failures);
        self.failures = self.failures.saturating_add(1);
        releasing.next = at.now + pause;
        releasing.trouble = Some(error);
        let next = releasing.next;
        self.wake_for_release(next, at);
    }

    /// Time to try again, to tell the releaser, or to give up: a release never hangs, whatever the store does.
    pub(super) fn release_due(&mut self, at: &mut At<'_, C>) {
        let Phase::Releasing(releasing) = &mut self.phase else { return };
        if releasing.tell_by <= at.now
            && let Some(releaser) = releasing.releaser.take()
        {
            let trouble = releasing.trouble.take().filter(|_| !releasing.is_in_doubt);
            at.act(Action::TellReleaser(releaser, Err(trouble.unwrap_or_else(doubt))));
        }
        let next = releasing.next;
        // An ask that is still unanswered may yet be granted: its release waits for it, however long that takes.
        let waits_for_ask = matches!(self.unanswered, Some(Unanswered::Ask(_)));
        if releasing.until <= at.now && !waits_for_ask {
            return self.end(at);
        }
        match self.unanswered {
            None if next <= at.now => self.send_release(at),
            None => self.wake_for_release(next, at),
            Some(Unanswered::Ask(_)) if releasing.until <= at.now => {
                at.act(Action::WakeAt(Moment::NEVER))
            }
            Some(_) => self.wake_for_release(Moment::NEVER, at),
        }
    }

    fn finish(&mut self, outcome: Result<Release, Error>, at: &mut At<'_, C>) {
        if let Phase::Releasing(releasing) = &mut self.phase
            && let Some(releaser) = releasing.releaser.take()
        {
            at.act(Action::TellReleaser(releaser, outcome));
        }
        self.end(at);
    }
}

fn doubt() -> Error {
    Error::new(ErrorKind::Indeterminate, "the store did not say whether the lease was released")
        .hint("it ends by itself when its TTL is over")
}
