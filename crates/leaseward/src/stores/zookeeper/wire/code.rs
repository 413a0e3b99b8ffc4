//! What the server answers when it refuses.

/// The server's codes, those that a request of ours can be answered with by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Code {
    SystemError,
    RuntimeInconsistency,
    DataInconsistency,
    ConnectionLoss,
    MarshallingError,
    Unimplemented,
    OperationTimeout,
    BadArguments,
    NewConfigNoQuorum,
    ReconfigInProgress,
    ApiError,
    NoNode,
    NoAuth,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NotEmpty,
    SessionExpired,
    InvalidCallback,
    InvalidAcl,
    AuthFailed,
    SessionMoved,
    NotReadOnly,
    EphemeralOnLocalSession,
    NoWatcher,
    RequestTimeout,
    ReconfigDisabled,
    SessionClosedRequireSaslAuth,
    QuotaExceeded,
    Throttled,
    Other(i32),
}

impl Code {
    /// `None` for success.
    pub(in super::super) fn of(number: i32) -> Option<Self> {
        Some(match number {
            0 => return None,
            -1 => Self::SystemError,
            -2 => Self::RuntimeInconsistency,
            -3 => Self::DataInconsistency,
            -4 => Self::ConnectionLoss,
            -5 => Self::MarshallingError,
            -6 => Self::Unimplemented,
            -7 => Self::OperationTimeout,
            -8 => Self::BadArguments,
            -13 => Self::NewConfigNoQuorum,
            -14 => Self::ReconfigInProgress,
            -100 => Self::ApiError,
            -101 => Self::NoNode,
            -102 => Self::NoAuth,
            -103 => Self::BadVersion,
            -108 => Self::NoChildrenForEphemerals,
            -110 => Self::NodeExists,
            -111 => Self::NotEmpty,
            -112 => Self::SessionExpired,
            -113 => Self::InvalidCallback,
            -114 => Self::InvalidAcl,
            -115 => Self::AuthFailed,
            -118 => Self::SessionMoved,
            -119 => Self::NotReadOnly,
            -120 => Self::EphemeralOnLocalSession,
            -121 => Self::NoWatcher,
            -122 => Self::RequestTimeout,
            -123 => Self::ReconfigDisabled,
            -124 => Self::SessionClosedRequireSaslAuth,
            -125 => Self::QuotaExceeded,
            -127 => Self::Throttled,
            other => Self::Other(other),
        })
    }

    /// Whether what was refused with it surely was not done.
    pub(in super::super) fn changes_nothing(self) -> bool {
        match self {
            Self::Unimplemented
            | Self::BadArguments
            | Self::MarshallingError
            | Self::NewConfigNoQuorum
            | Self::ReconfigInProgress
            | Self::ReconfigDisabled
            | Self::ApiError
            | Self::NoNode
            | Self::NoAuth
            | Self::BadVersion
            | Self::NoChildrenForEphemerals
            | Self::NodeExists
            | Self::NotEmpty
            | Self::SessionExpired
            | Self::InvalidCallback
            | Self::InvalidAcl
            | Self::AuthFailed
            | Self::SessionMoved
            | Self::NotReadOnly
            | Self::EphemeralOnLocalSession
            | Self::NoWatcher
            | Self::SessionClosedRequireSaslAuth
            | Self::QuotaExceeded
            | Self::Throttled => true,
            Self::SystemError
            | Self::RuntimeInconsistency
            | Self::DataInconsistency
            | Self::ConnectionLoss
            | Self::OperationTimeout
            | Self::RequestTimeout
            | Self::Other(_) => false,
        }
    }
}
