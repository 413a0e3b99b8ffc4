//! Exit codes: what a script can decide by.
//!
//! The numbers are those of flock(1), the shell and `sysexits.h`, so that nothing has to be learnt twice.

use std::process::ExitCode;

use leaseward::ErrorKind;

/// How the tool ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: it did what was asked.
    Done,
    /// The child's own code.
    Child(u8),
    /// 128 + n: the child, or the tool itself while it held nothing, was ended by signal n.
    Signal(u8),
    /// 75 (`EX_TEMPFAIL`), or what `--busy-code` says: somebody else holds the name.
    Busy(u8),
    /// 76: the lease was lost and the child was ended.
    Lost,
    /// 69 (`EX_UNAVAILABLE`): the store was not reached, or refused.
    Unavailable,
    /// 2: the command line, the configuration or a name cannot be used; nothing was changed.
    Usage,
    /// 1: anything else.
    Other,
}

/// The code for *busy or timed out* where `--busy-code` does not say otherwise.
pub(crate) const BUSY: u8 = 75;
/// The code for *the lease was lost*.
pub(crate) const LOST: u8 = 76;
/// The command exists but cannot be run, as a shell says it.
pub(crate) const CANNOT_RUN: u8 = 126;
/// The command does not exist, as a shell says it.
pub(crate) const NOT_FOUND: u8 = 127;

impl Exit {
    /// The number a script sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Child(code) | Self::Busy(code) => code,
            Self::Signal(number) => number.saturating_add(128),
            Self::Lost => LOST,
            Self::Unavailable => 69,
            Self::Usage => 2,
            Self::Other => 1,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidInput | ErrorKind::Unsupported => Self::Usage,
            ErrorKind::Timeout => Self::Busy(BUSY),
            ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Refused => {
                Self::Unavailable
            }
            ErrorKind::Lost => Self::Lost,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_ones() {
        let table = [
            (Exit::Done, 0),
            (Exit::Child(7), 7),
            (Exit::Signal(15), 143),
            (Exit::Busy(BUSY), 75),
            (Exit::Lost, 76),
            (Exit::Unavailable, 69),
            (Exit::Usage, 2),
            (Exit::Other, 1),
        ];
        for (exit, code) in table {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }

    #[test]
    fn every_failure_has_its_code() {
        assert_eq!(Exit::from(ErrorKind::InvalidInput), Exit::Usage);
        assert_eq!(Exit::from(ErrorKind::Timeout).code(), 75);
        assert_eq!(Exit::from(ErrorKind::Lost).code(), 76);
        assert_eq!(Exit::from(ErrorKind::Unavailable).code(), 69);
        assert_eq!(Exit::from(ErrorKind::Deadlock).code(), 1);
    }
}
