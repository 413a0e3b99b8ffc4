//! What etcd and the way to it say when something goes wrong, and what it means here.

use std::{error, io};

use tonic::{Code, Status};

use crate::{Error, ErrorKind};

/// Whether what was asked changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Read,
    Write,
}

/// What a refusal means for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The member knows no leader: nothing was done, and another member may know one.
    NoLeader,
    /// The leader went while it was at it.
    LeaderChanged,
    /// The cluster did not agree in time.
    TimedOut,
    /// The member is stopping.
    Stopped,
    /// More is asked of the member than it takes at once.
    TooManyRequests,
    NoSpace,
    TooLarge,
    TooManyOperations,
    NoLease,
    Compacted,
    /// User or password.
    Password,
    /// It wants to know who asks.
    NoUser,
    /// The proof of who we are is too old.
    OldToken,
    /// It does not care who asks.
    NoAuth,
    NoPermission,
    Corrupt,
    NotEtcd,
    /// Never sent.
    Unreached,
    /// The connection broke, or the call was given up.
    Broken,
    Other,
}

impl Class {
    /// By what the server says, then by the code alone.
    pub(super) fn of(status: &Status) -> Self {
        let said = status.message();
        let says = |text: &str| said.contains(text);
        match status.code() {
            Code::Unavailable if says("no leader") => Self::NoLeader,
            Code::Unavailable if says("leader changed") => Self::LeaderChanged,
            Code::Unavailable if says("timed out") => Self::TimedOut,
            Code::Unavailable if says("server stopped") => Self::Stopped,
            Code::Unavailable | Code::Unknown if is_refused(status) => Self::Unreached,
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Aborted => {
                Self::Broken
            }
            Code::ResourceExhausted if says("space exceeded") => Self::NoSpace,
            Code::ResourceExhausted if says("too many requests") => Self::TooManyRequests,
            Code::ResourceExhausted => Self::TooLarge,
            Code::NotFound if says("lease") => Self::NoLease,
            Code::OutOfRange if says("compacted") => Self::Compacted,
            Code::InvalidArgument if says("too large") => Self::TooLarge,
            Code::InvalidArgument if says("too many operations") => Self::TooManyOperations,
            Code::InvalidArgument if says("authentication failed") => Self::Password,
            Code::InvalidArgument if says("user name is empty") => Self::NoUser,
            Code::InvalidArgument if says("auth store is old") => Self::OldToken,
            Code::Unauthenticated => Self::OldToken,
            Code::FailedPrecondition if says("not enabled") => Self::NoAuth,
            Code::PermissionDenied => Self::NoPermission,
            Code::DataLoss => Self::Corrupt,
            Code::Unimplemented => Self::NotEtcd,
            // A connection that ends in the middle of a call; the server itself does not use this code.
            Code::Unknown | Code::Internal if !says("etcdserver") => Self::Broken,
            Code::Ok
            | Code::Unknown
            | Code::Internal
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::OutOfRange => Self::Other,
        }
    }

    /// Whether another member should be asked.
    pub(super) fn leaves_member(self) -> bool {
        matches!(self, Self::NoLeader | Self::Stopped | Self::Unreached | Self::Broken)
    }

    /// Whether asking again the same way is of no use, though nothing was done.
    pub(super) fn is_for_the_caller(self) -> bool {
        matches!(self, Self::NoLease | Self::Compacted)
    }

    fn kind(self, asked: Asked) -> ErrorKind {
        match self {
            Self::NoLeader | Self::TooManyRequests | Self::Unreached => ErrorKind::Unavailable,
            // Nothing was done with an old token or lease; the next one has a new one.
            Self::OldToken | Self::NoLease | Self::Compacted => ErrorKind::Unavailable,
            Self::LeaderChanged | Self::TimedOut | Self::Stopped | Self::Broken => match asked {
                Asked::Read => ErrorKind::Unavailable,
                Asked::Write => ErrorKind::Indeterminate,
            },
            Self::NoSpace | Self::TooLarge | Self::TooManyOperations | Self::Corrupt => {
                ErrorKind::Refused
            }
            Self::Password | Self::NoUser | Self::NoAuth | Self::NoPermission => ErrorKind::Refused,
            Self::NotEtcd | Self::Other => ErrorKind::Refused,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::NoLeader => "this member of etcd knows no leader",
            Self::LeaderChanged => "the leader of etcd changed",
            Self::TimedOut => "etcd did not agree in time",
            Self::Stopped => "this member of etcd is stopping",
            Self::TooManyRequests => "etcd takes no more requests for now",
            Self::NoSpace => "etcd is full",
            Self::TooLarge => "etcd found a message too large",
            Self::TooManyOperations => "etcd found a transaction too large",
            Self::NoLease => "etcd has ended the lease of this process",
            Self::Compacted => "etcd has forgotten that revision",
            Self::Password => "etcd does not let this user in",
            Self::NoUser => "etcd wants to know who asks",
            Self::OldToken => "etcd no longer knows who this is",
            Self::NoAuth => "etcd does not ask for passwords",
            Self::NoPermission => "this user may not do that in etcd",
            Self::Corrupt => "etcd has lost data",
            Self::NotEtcd => "this is no etcd of version 3",
            Self::Unreached => "etcd was not reached",
            Self::Broken => "the connection to etcd broke",
            Self::Other => "etcd said something unexpected",
        }
    }

    fn hint(self) -> Option<&'static str> {
        match self {
            Self::NoLeader => Some("is a majority of its members up? another one is being asked"),
            Self::LeaderChanged | Self::Stopped => Some("this passes within seconds"),
            Self::TimedOut => Some("is its disk slow, or a majority of its members away?"),
            Self::TooManyRequests => Some("it cannot keep up; asking again later is safe"),
            Self::NoSpace => Some(
                "compact and defragment it, then `etcdctl alarm disarm`; `--quota-backend-bytes` is its limit",
            ),
            Self::TooLarge => Some("`--max-request-bytes` of the server is its limit"),
            Self::TooManyOperations => Some("`--max-txn-ops` of the server must be 128 or more"),
            Self::Password => Some("is the password right? `etcdctl user get NAME`"),
            Self::NoUser => {
                Some("write user and password into the URL: `etcd://user:password@host`")
            }
            Self::NoAuth => Some("leave user and password out of the URL"),
            Self::NoPermission => Some(
                "its role needs read and write on all keys with the prefix: docs/stores/etcd.md says how",
            ),
            Self::Corrupt => Some("see its alarms: `etcdctl alarm list`"),
            Self::NotEtcd => Some("is this its address? version 3.4 or newer is needed"),
            Self::Unreached => Some("is it running, and is this its address?"),
            Self::Broken => Some("it is being connected again"),
            Self::NoLease | Self::OldToken | Self::Compacted => Some("asking again is safe"),
            Self::Other => None,
        }
    }
}

/// Whether nobody took the call: no connection could be made.
fn is_refused(status: &Status) -> bool {
    let mut cause = error::Error::source(status);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.kind() == io::ErrorKind::ConnectionRefused;
        }
        cause = error.source();
    }
    false
}

/// The error of a call.
pub(super) fn translate(status: &Status, asked: Asked, at: &str) -> Error {
    let class = Class::of(status);
    let said = status.message();
    let message = if said.is_empty() {
        format!("{}: {at}", class.what())
    } else {
        format!("{}: {at} says `{said}`", class.what())
    };
    let translated = Error::new(class.kind(asked), message);
    match class.hint() {
        Some(hint) => translated.hint(hint),
        None => translated,
    }
}

/// No answer in time.
pub(super) fn timed_out(asked: Asked, at: &str) -> Error {
    let message = format!("{at} did not answer in time");
    match asked {
        Asked::Read => Error::new(ErrorKind::Unavailable, message)
            .hint("`timeout` in the URL says how long is waited"),
        Asked::Write => Error::new(ErrorKind::Indeterminate, message)
            .hint("it may or may not have happened; `timeout` in the URL says how long is waited"),
    }
}

/// No connection.
pub(super) fn unreached(at: &str, error: &dyn error::Error) -> Error {
    let text = causes(error);
    if text.contains("certificate") || text.contains("Certificate") || text.contains("tls") {
        return Error::new(ErrorKind::Refused, format!("no safe connection to {at}: {text}")).hint(
            "`ca=FILE` names the authority that signed its certificate; the host in the URL must be the one in it",
        );
    }
    Error::new(ErrorKind::Unavailable, format!("{at} was not reached"))
        .ask_for_address(
            "is it running, and is this its address? one that speaks TLS is `etcds://`",
        )
        .caused_by(text)
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::ShutDown, "this store is closed")
}

/// The server answered something that no request of ours asks for.
pub(super) fn unexpected() -> Error {
    Error::new(ErrorKind::Indeterminate, "etcd answered something unexpected")
        .hint("is there a proxy in between that changes answers?")
}

fn causes(error: &dyn error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: Code, said: &str, asked: Asked) -> ErrorKind {
        translate(&Status::new(code, said), asked, "h:1").kind()
    }

    #[test]
    fn what_the_server_says_means_something() {
        use ErrorKind::{Indeterminate, Refused, Unavailable};
        for (code, said, expected) in [
            (Code::Unavailable, "etcdserver: no leader", Unavailable),
            (Code::Unavailable, "etcdserver: leader changed", Indeterminate),
            (Code::Unavailable, "etcdserver: request timed out", Indeterminate),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                Indeterminate,
            ),
            (Code::Unavailable, "etcdserver: server stopped", Indeterminate),
            (Code::Unavailable, "transport error", Indeterminate),
            (Code::Unknown, "h2 protocol error", Indeterminate),
            (Code::Cancelled, "operation was canceled", Indeterminate),
            (Code::DeadlineExceeded, "context deadline exceeded", Indeterminate),
            (Code::ResourceExhausted, "etcdserver: too many requests", Unavailable),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Refused),
            (Code::NotFound, "etcdserver: requested lease not found", Unavailable),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                Unavailable,
            ),
            (Code::InvalidArgument, "etcdserver: request is too large", Refused),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request", Refused),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Refused,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", Refused),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Unavailable),
            (Code::PermissionDenied, "etcdserver: permission denied", Refused),
            (Code::Unimplemented, "unknown service", Refused),
            (Code::DataLoss, "etcdserver: corrupt cluster", Refused),
        ] {
            assert_eq!(kind(code, said, Asked::Write), expected, "{code:?} {said}");
        }
        assert_eq!(kind(Code::Unavailable, "transport error", Asked::Read), Unavailable);
    }
}
