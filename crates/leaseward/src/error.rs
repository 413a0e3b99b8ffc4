//! What nobody wanted to happen.
//!
//! Expected outcomes are values, not errors: busy is [`Attempt::Busy`](crate::Attempt), an expired lease at release is
//! [`Release::AlreadyExpired`](crate::Release).

use std::{error, fmt};

/// What sort of failure an [`Error`] is: decide by this, show the message.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A name, a duration, a URL or another argument cannot be used. Nothing was asked of the store.
    InvalidInput,
    /// The store cannot honour an option that was asked for.
    Unsupported,
    /// The lease was not ours within the time given to wait.
    Timeout,
    /// The store was not reached, or turned the request away; nothing changed. Asking again is safe.
    Unavailable,
    /// No answer in time: the store may or may not have changed.
    Indeterminate,
    /// The lease was ours and no longer is. Stop touching the protected resource.
    Lost,
    /// Waiting would never end: the owners involved wait for each other.
    Deadlock,
    /// Taking this name now could deadlock with an order of names seen before.
    LockOrder,
    /// The semaphore is in use with another capacity.
    Capacity,
    /// The store refuses us: permissions, a read-only or damaged file, a schema that is too new. Needs a person.
    Refused,
    /// This `Locks` was shut down.
    ShutDown,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidInput => "invalid input",
            Self::Unsupported => "unsupported",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Indeterminate => "indeterminate",
            Self::Lost => "lost",
            Self::Deadlock => "deadlock",
            Self::LockOrder => "lock order",
            Self::Capacity => "capacity",
            Self::Refused => "refused",
            Self::ShutDown => "shut down",
        })
    }
}

/// A failure: a [kind](ErrorKind), a message for people, perhaps a hint what to do, perhaps a cause.
///
/// One pointer wide. No message holds a token or a password.
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
    is_partial: bool,
    asks_for_address: bool,
}

impl Error {
    /// An error of a kind; the message is lower case without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            hint: None,
            source: None,
            is_partial: false,
            asks_for_address: false,
        }))
    }

    /// Adds what the reader can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds a hint that asks whether the address of a server is right.
    #[must_use]
    #[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
    pub(crate) fn ask_for_address(self, hint: &str) -> Self {
        let mut asking = self.hint(hint);
        asking.0.asks_for_address = true;
        asking
    }

    /// Takes that question back: the server was reached at that address before, until so long ago if that is known.
    #[must_use]
    #[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
    pub(crate) fn was_reached(self, ago: Option<std::time::Duration>) -> Self {
        if !self.0.asks_for_address {
            return self;
        }
        let when =
            ago.map_or("before".to_owned(), |ago| format!("until {:.1}s ago", ago.as_secs_f64()));
        self.hint(format!(
            "it was reached {when}: has it stopped, or is the network in between down?"
        ))
    }

    /// Adds the underlying failure.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Only part of the store fails: names elsewhere may well be served. However often it happens, the store goes on being
    /// asked.
    #[must_use]
    pub fn partial(mut self) -> Self {
        self.0.is_partial = true;
        self
    }

    /// Whether only part of the store fails.
    pub(crate) fn is_partial(&self) -> bool {
        self.0.is_partial
    }

    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What happened, without the hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What can be done about it, if there is something.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The same failure for a second caller who shared the request.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(Box::new(Inner {
            kind: self.0.kind,
            message: self.0.message.clone(),
            hint: self.0.hint.clone(),
            source: None,
            is_partial: self.0.is_partial,
            asks_for_address: self.0.asks_for_address,
        }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Error");
        shown.field("kind", &self.0.kind).field("message", &self.0.message);
        if let Some(hint) = &self.0.hint {
            shown.field("hint", hint);
        }
        if let Some(source) = &self.0.source {
            shown.field("source", source);
        }
        shown.finish()
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn error::Error + 'static))
    }
}
