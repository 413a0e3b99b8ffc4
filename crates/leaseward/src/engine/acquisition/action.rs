//! What a token wants done.

use std::{collections::VecDeque, time::Duration};

use super::Caller;
use crate::{Error, Fence, LostReason, Release, clock::Moment, store::Standing};

/// An effect of an event. *Send*, *Withdraw*, *WakeAt* and *Report* are carried out in the order of the events
/// of the token; callers may be told in any order.
#[derive(Debug)]
pub(crate) enum Action<C: Caller> {
    /// Sends an operation to the store. Its answer comes back as an event.
    Send(Send),
    /// Takes the unanswered ask or release out of the lane, if it has not been sent: [`Event::Withdrawn`] follows then.
    Withdraw,
    /// Tells a caller what came of its wait.
    Tell(C, Outcome),
    /// Drops a caller that stopped waiting, once no lock is held: its span is code of the user's.
    LetGo(C),
    /// Tells the releaser what became of the lease.
    TellReleaser(C::Releaser, Result<Release, Error>),
    /// Tells all callers that the name is not free and they have to wait, if they do not know it yet.
    NotFree,
    /// The lease lasts until this moment.
    Extend(Moment),
    /// The lease is over for its holder, for this reason.
    End(LostReason),
    /// Asks with a new token for the callers that are left, in their order.
    Succeed { callers: VecDeque<C>, in_line: bool },
    /// Wants [`Event::Due`] at this moment, instead of the one wanted before.
    WakeAt(Moment),
    /// Reports to logs, metrics and sinks.
    Report(Report),
    /// Takes the token out of the table.
    Forget,
}

/// An operation of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    /// Asks, and reserves so many fences.
    Ask {
        block: u32,
    },
    Renew,
    /// Gives back the lease or the place; the name stays taken for `rest`.
    Release {
        rest: Duration,
    },
}

/// The end of a caller's wait.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It holds the lease, with this fence.
    Granted(Fence),
    Busy(Standing),
    Failed(Error),
}

/// An event for logs, metrics and sinks, beside what callers are told.
#[derive(Debug)]
pub(crate) enum Report {
    Renewed,
    /// The first of several failures in a row, or one more.
    RenewalFailed {
        error: Error,
        is_first: bool,
    },
    /// An ask was repeated because its answer did not come.
    Retried,
    /// The renewals fail and the lease ends this soon.
    Danger(Duration),
    /// The lease was lost after its holder had had it this long.
    Lost {
        reason: LostReason,
        fence: Fence,
        held: Duration,
    },
}
