//! What SQLite's codes mean to a caller.

use std::path::Path;

use rusqlite::{Error as SqlError, ErrorCode};

use crate::{Error, ErrorKind};

/// How far a transaction was when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing is committed: it was rolled back, or never began.
    Before,
    /// The commit itself failed.
    Commit,
}

/// Whether another connection is in the way, so that trying again helps.
pub(super) fn is_busy(error: &SqlError) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

/// Says what a failure means for the caller.
pub(super) fn translate(error: SqlError, stage: Stage, path: &Path) -> Error {
    let file = path.display();
    let Some(code) = error.sqlite_error_code() else {
        // Not SQLite itself: a row that does not hold what we wrote, or a binding that cannot fail.
        return Error::new(ErrorKind::Refused, format!("`{file}` holds something unexpected"))
            .hint("was it changed by another program? move it away; it is made anew")
            .caused_by(error);
    };
    let (kind, what, hint) = meaning(code);
    let kind = if stage == Stage::Commit && is_unknown_after_commit(code) {
        ErrorKind::Indeterminate
    } else {
        kind
    };
    let translated = Error::new(kind, format!("{what}: `{file}`")).caused_by(error);
    if hint.is_empty() { translated } else { translated.hint(hint) }
}

/// After these the log may hold the whole commit though SQLite reports a failure. A full disk is not among them: the
/// frame that makes a commit valid is the last one written, and it was not.
fn is_unknown_after_commit(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::ConstraintViolation
    )
}

fn meaning(code: ErrorCode) -> (ErrorKind, &'static str, &'static str) {
    use ErrorKind::{Refused, Unavailable};
    match code {
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed => (
            Unavailable,
            "the store's file is busy",
            "another program keeps it locked; is one stopped, or working on it with a database tool?",
        ),
        ErrorCode::DiskFull => (
            Unavailable,
            "the disk is full",
            "make room: leases can be neither taken nor renewed until then",
        ),
        ErrorCode::SystemIoFailure => {
            (Unavailable, "the disk failed", "see the system's log for errors of this disk")
        }
        ErrorCode::OutOfMemory => (Unavailable, "no memory left for the store's file", ""),
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => {
            (Unavailable, "the operation was interrupted", "")
        }
        ErrorCode::ReadOnly => (
            Refused,
            "the store's file or its folder is read-only",
            "the user needs write permission on both; SQLite keeps two more files beside it",
        ),
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            (Refused, "no permission for the store's file", "check its owner and mode")
        }
        ErrorCode::CannotOpen => (
            Refused,
            "the store's file cannot be opened",
            "check owner and mode of the file, of its folder and of the files ending in -wal and -shm, and the limit of open files",
        ),
        ErrorCode::DatabaseCorrupt => (
            Refused,
            "the store's file is damaged",
            "move it away with its -wal and -shm; it is made anew",
        ),
        ErrorCode::NotADatabase => {
            (Refused, "this is not a database", "name another file; this one is left as it is")
        }
        ErrorCode::SchemaChanged | ErrorCode::Unknown => (
            Refused,
            "the tables in the store's file are not ours",
            "name another file, or move this one away; it is made anew",
        ),
        ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch => {
            (Refused, "the store's file contradicts itself", "was it changed by another program?")
        }
        ErrorCode::NoLargeFileSupport | ErrorCode::TooBig => {
            (Refused, "the store's file is too large for this system", "")
        }
        ErrorCode::InternalMalfunction
        | ErrorCode::NotFound
        | ErrorCode::ApiMisuse
        | ErrorCode::ParameterOutOfRange => {
            (Refused, "SQLite was used wrongly", "please report this")
        }
        // `ErrorCode` may grow; what is not known here needs a person, and the cause is attached.
        _ => (Refused, "SQLite failed in a way this version does not know", "please report this"),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn kind(code: i32, stage: Stage) -> ErrorKind {
        let error = SqlError::SqliteFailure(ffi::Error::new(code), None);
        translate(error, stage, Path::new("/x.db")).kind()
    }

    #[test]
    fn only_a_failed_commit_leaves_doubt() {
        assert_eq!(kind(ffi::SQLITE_IOERR, Stage::Before), ErrorKind::Unavailable);
        assert_eq!(kind(ffi::SQLITE_IOERR_FSYNC, Stage::Commit), ErrorKind::Indeterminate);
        assert_eq!(kind(ffi::SQLITE_BUSY, Stage::Commit), ErrorKind::Unavailable);
        assert_eq!(kind(ffi::SQLITE_FULL, Stage::Commit), ErrorKind::Unavailable);
    }

    #[test]
    fn what_needs_a_person_is_refused() {
        for code in
            [ffi::SQLITE_READONLY, ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_PERM]
        {
            assert_eq!(kind(code, Stage::Before), ErrorKind::Refused);
        }
    }
}
