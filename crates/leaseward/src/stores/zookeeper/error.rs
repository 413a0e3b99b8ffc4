//! What the server's refusals mean to whoever asked for a lock.

use super::{session::Fault, wire::Code};
use crate::{Error, ErrorKind};

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::ShutDown, "this client was closed")
}

/// The servers say something that is not their protocol.
pub(super) fn unexpected(at: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("{at} does not speak ZooKeeper's protocol"))
        .hint("is it a ZooKeeper server, and is this its port for clients?")
}

pub(super) fn unreachable(at: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{at} was not reached: {why}"))
        .hint("is the server running, and can this machine reach it?")
}

pub(super) fn login_refused(at: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("{at} refuses this login"))
        .hint("check user and password in the store's URL; only digest logins are known here")
}

/// What became of a request without an answer that was wanted.
pub(super) fn of_fault(fault: Fault, is_write: bool, at: &str) -> Error {
    match fault {
        Fault::Refused(code) => of_code(code, at),
        Fault::NotSent => Error::new(ErrorKind::Unavailable, format!("{at} is not reached"))
            .hint("is a majority of the servers running? an election takes a few seconds"),
        Fault::Cut if is_write => {
            Error::new(ErrorKind::Indeterminate, format!("the connection to {at} was lost"))
                .hint("it may have been carried out: ask again with the same token")
        }
        Fault::Cut => {
            Error::new(ErrorKind::Unavailable, format!("the connection to {at} was lost"))
                .hint("is a majority of the servers running? an election takes a few seconds")
        }
        // Whatever was asked, nothing of it outlives the session.
        Fault::Over => Error::new(ErrorKind::Unavailable, format!("the session with {at} ended"))
            .hint("the next attempt begins a new one"),
    }
}

/// One line for each code: never a catch-all for those that have a name.
fn of_code(code: Code, at: &str) -> Error {
    let (kind, what, hint) = match code {
        Code::NoAuth => (
            ErrorKind::Refused,
            "this user may not do that",
            "check the access list of the lock's nodes (`getAcl`), and the login in the store's URL",
        ),
        Code::AuthFailed | Code::SessionClosedRequireSaslAuth => (
            ErrorKind::Refused,
            "the login is refused",
            "only digest logins are known here; a server that demands SASL cannot be used",
        ),
        Code::InvalidAcl => (
            ErrorKind::Refused,
            "the access list is refused",
            "a login in the store's URL is what nodes for its creator alone need",
        ),
        Code::QuotaExceeded => (
            ErrorKind::Refused,
            "the quota of the node is used up",
            "see `listquota`; raise it with `setquota`, or keep locks under another node",
        ),
        Code::Unimplemented => (
            ErrorKind::Unsupported,
            "the server does not know a request",
            "ZooKeeper 3.5 or newer is needed, for nodes that go when they are empty",
        ),
        Code::EphemeralOnLocalSession => (
            ErrorKind::Unsupported,
            "local sessions own no locks",
            "set `localSessionsUpgradingEnabled=true`, or `localSessionsEnabled=false`",
        ),
        Code::NoChildrenForEphemerals => (
            ErrorKind::InvalidInput,
            "the node that locks are to be under is one that ends with a session",
            "choose another node in the store's URL",
        ),
        Code::NotReadOnly => (
            ErrorKind::Unavailable,
            "the server has lost the others and only reads",
            "wait until a majority of the servers is together again",
        ),
        Code::Throttled => (
            ErrorKind::Unavailable,
            "the server throttles requests",
            "ask less often, or raise `zookeeper.request_throttle_max_requests`",
        ),
        Code::SessionExpired => {
            (ErrorKind::Unavailable, "the session ended", "the next attempt begins a new one")
        }
        Code::SessionMoved
        | Code::ConnectionLoss
        | Code::OperationTimeout
        | Code::RequestTimeout => (
            ErrorKind::Indeterminate,
            "the server did not say what became of it",
            "ask again with the same token",
        ),
        Code::NoNode | Code::NodeExists | Code::NotEmpty | Code::BadVersion => (
            ErrorKind::Indeterminate,
            "somebody else changes the lock's nodes at the same time",
            "ask again; does something beside locks write under this node?",
        ),
        Code::BadArguments | Code::InvalidCallback | Code::MarshallingError | Code::ApiError => (
            ErrorKind::Refused,
            "the request is refused as malformed",
            "is `jute.maxbuffer` of the server below its default?",
        ),
        Code::SystemError | Code::RuntimeInconsistency | Code::DataInconsistency => {
            (ErrorKind::Indeterminate, "the server failed inside", "see its log")
        }
        Code::NewConfigNoQuorum
        | Code::ReconfigInProgress
        | Code::ReconfigDisabled
        | Code::NoWatcher => {
            (ErrorKind::Refused, "the server answers what was not asked", "see its log")
        }
        Code::Other(_) => {
            (ErrorKind::Indeterminate, "the server answers with a code unknown here", "see its log")
        }
    };
    Error::new(kind, format!("{at}: {what}")).hint(hint).caused_by(format!("{code:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_happened_is_in_doubt() {
        let kind = |fault, is_write| of_fault(fault, is_write, "x").kind();
        assert_eq!(kind(Fault::Cut, true), ErrorKind::Indeterminate);
        assert_eq!(kind(Fault::Cut, false), ErrorKind::Unavailable);
        assert_eq!(kind(Fault::NotSent, true), ErrorKind::Unavailable);
        assert_eq!(kind(Fault::Refused(Code::NoAuth), true), ErrorKind::Refused);
        assert_eq!(kind(Fault::Refused(Code::QuotaExceeded), true), ErrorKind::Refused);
    }
}
