//! What ends a command before it did what was asked: a message, a hint, an exit code.

use std::error::Error as _;

use crate::exit::Exit;

/// The tool's one error type, ready to be printed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// A failure; the message is lower case without a full stop.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// The command line or the configuration cannot be used.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something the tool needs from the system failed.
    pub(crate) fn system(what: &str, error: &dyn std::error::Error) -> Self {
        Self::new(Exit::Other, format!("{what}: {error}"))
    }

    /// Adds what the reader can do about it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<leaseward::Error> for Failure {
    fn from(error: leaseward::Error) -> Self {
        let mut message = error.message().to_owned();
        if let Some(cause) = error.source().map(ToString::to_string)
            && !message.contains(&cause)
        {
            message = format!("{message}: {cause}");
        }
        Self {
            exit: Exit::from(error.kind()),
            message,
            hint: error.hint_text().map(ToOwned::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use leaseward::{Error, ErrorKind};

    use super::*;

    #[test]
    fn keeps_message_cause_and_hint() {
        let error = Error::new(ErrorKind::Unavailable, "cannot open `x`")
            .caused_by("disk on fire")
            .hint("buy a new one");
        let failure = Failure::from(error);
        assert_eq!(failure.exit, Exit::Unavailable);
        assert_eq!(failure.message, "cannot open `x`: disk on fire");
        assert_eq!(failure.hint.as_deref(), Some("buy a new one"));
    }
}
