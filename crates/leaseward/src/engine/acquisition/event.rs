//! What a token hears.

use super::{Caller, CallerId};
use crate::{
    LostReason,
    clock::Moment,
    store::{Answer, Grant},
};

/// Something that happened to a token.
pub(crate) enum Event<C: Caller> {
    /// A caller joins those that wait for its lease.
    Joined(C),
    /// A caller stops waiting.
    Left(CallerId),
    /// The store answered its ask, or its release.
    Answered { sent: Moment, answer: Answer },
    /// The ask or release was taken out of the lane before it was sent.
    Withdrawn,
    /// The store answered a renewal.
    Renewed { sent: Moment, answer: Answer },
    /// The store pushed a grant.
    Pushed(Grant),
    /// The store says that something changed about the name.
    LookAgain,
    /// The moment of the last [`Action::WakeAt`] has come.
    Due,
    /// Its holder gives the lease back; what became of it is told to the releaser, if there is one.
    Released(Option<C::Releaser>),
    /// Its holder gives the lease back without having put it to use: no minimum hold keeps the name taken.
    Unused,
    /// Its holder hands the lease over to another process by a handle.
    Detached,
    /// The store says that the lease, or the session that carries it, is over.
    Lost(LostReason),
    /// The client shuts down.
    Closing,
}
