//! What the server and the driver say when something goes wrong, and what it means here.

use std::{error, io};

use tokio_postgres::error::SqlState;

use crate::{Error, ErrorKind};

/// When an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// While connecting: nothing was asked yet.
    Connecting,
    /// After a statement was sent.
    Asked,
}

/// What an SQLSTATE means for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The connection is over, and nobody says whether the statement was carried out.
    Connection,
    /// The server is starting up, shutting down, or recovering: nothing was done.
    NotReady,
    /// The server ends this connection, perhaps after a commit.
    Ended,
    TooManyConnections,
    /// Memory, disk, or the table of locks.
    Resources,
    Password,
    NoDatabase,
    NoSchema,
    NoPermission,
    ReadOnly,
    /// Another transaction was in the way: the same again may succeed.
    Conflict,
    /// A row was locked for too long.
    Locked,
    /// Cancelled by somebody, or by the server's own time limit.
    Cancelled,
    /// The machine below the server.
    System,
    /// The statement itself: the schema is not what it should be.
    Statement,
    /// Damage, or a fault inside the server.
    Internal,
    Other,
}

impl Class {
    /// By the codes that stand for something of their own, then by their first two characters.
    pub(super) fn of(state: &SqlState) -> Self {
        match state.code() {
            "57P01" | "57P02" | "57P04" | "57P05" | "25P03" => Self::Ended,
            "57P03" => Self::NotReady,
            "57014" => Self::Cancelled,
            "53300" | "53400" => Self::TooManyConnections,
            "42501" => Self::NoPermission,
            "42P01" | "42883" | "42P10" | "42704" => Self::NoSchema,
            "25006" => Self::ReadOnly,
            "55P03" => Self::Locked,
            "55P02" | "55000" | "55006" => Self::Conflict,
            code => match code.get(..2).unwrap_or_default() {
                "08" => Self::Connection,
                "28" => Self::Password,
                "3D" => Self::NoDatabase,
                "3F" => Self::NoSchema,
                "40" => Self::Conflict,
                "53" => Self::Resources,
                "57" => Self::Ended,
                "58" => Self::System,
                "0A" | "20" | "21" | "22" | "23" | "24" | "25" | "26" | "2B" | "2D" | "34"
                | "38" | "39" | "3B" | "42" | "44" | "54" | "55" | "P0" => Self::Statement,
                "F0" | "HV" | "XX" | "72" => Self::Internal,
                _ => Self::Other,
            },
        }
    }

    /// Whether a connection that says so is of no further use.
    pub(super) fn ends_connection(self) -> bool {
        matches!(self, Self::Connection | Self::NotReady | Self::Ended | Self::ReadOnly)
    }

    fn kind(self, stage: Stage) -> ErrorKind {
        match self {
            // Nothing was asked of it while connecting; a statement may have been committed before its connection ended.
            Self::Connection | Self::Ended if stage == Stage::Asked => ErrorKind::Indeterminate,
            Self::Connection | Self::Ended | Self::NotReady => ErrorKind::Unavailable,
            Self::TooManyConnections | Self::Resources | Self::System => ErrorKind::Unavailable,
            Self::Conflict | Self::Locked | Self::Cancelled => ErrorKind::Unavailable,
            Self::ReadOnly if stage == Stage::Asked => ErrorKind::Unavailable,
            // A statement that failed changed nothing, but the next one will fail too.
            Self::Password | Self::NoDatabase | Self::NoSchema | Self::NoPermission => {
                ErrorKind::Refused
            }
            Self::ReadOnly | Self::Statement | Self::Internal | Self::Other => ErrorKind::Refused,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Connection => "the connection to PostgreSQL broke",
            Self::NotReady => "PostgreSQL is not ready",
            Self::Ended => "PostgreSQL ended the connection",
            Self::TooManyConnections => "PostgreSQL takes no more connections",
            Self::Resources => "PostgreSQL has run out of something",
            Self::Password => "PostgreSQL does not let this user in",
            Self::NoDatabase => "PostgreSQL has no such database",
            Self::NoSchema => "the tables for leases are not there",
            Self::NoPermission => "this user may not do that in PostgreSQL",
            Self::ReadOnly => "this PostgreSQL takes no writes",
            Self::Conflict => "another transaction was in the way",
            Self::Locked => "another transaction has had the row for too long",
            Self::Cancelled => "the statement was cancelled",
            Self::System => "the machine of PostgreSQL is in trouble",
            Self::Statement => "PostgreSQL refused a statement",
            Self::Internal => "PostgreSQL has an error of its own",
            Self::Other => "PostgreSQL said something unexpected",
        }
    }

    fn hint(self) -> Option<&'static str> {
        match self {
            Self::Connection | Self::Ended => Some("it is being connected again"),
            Self::NotReady => Some("it is starting, stopping or recovering; this passes"),
            Self::TooManyConnections => Some(
                "raise `max_connections`, put PgBouncer in between, or have fewer clients; each needs one connection, \
                 one more while it waits, and `lanes` under load",
            ),
            Self::Resources => Some(
                "is its disk full? if it says `out of shared memory`, raise `max_locks_per_transaction`",
            ),
            Self::Password => Some("is the password right, and does `pg_hba.conf` let it in?"),
            Self::NoDatabase => Some("make it with `createdb`, or name another one in the URL"),
            Self::NoSchema => {
                Some("make them with `leaseward migrate --store URL`, as a user who may")
            }
            Self::NoPermission => Some(
                "a user who may makes the tables with `leaseward migrate --store URL`, and grants the rights that \
                 docs/stores/postgres.md lists",
            ),
            Self::ReadOnly => {
                Some("is it a standby? name the primary, or all servers: `postgres://h1,h2/db`")
            }
            Self::Conflict => Some("asking again is safe"),
            Self::Locked => Some("`leaseward doctor` says which transaction it is"),
            Self::Cancelled => Some("is `statement_timeout` below a second for this user?"),
            Self::System | Self::Internal => Some("its own log says more"),
            Self::Statement => Some(
                "was the schema changed by hand? `leaseward migrate` makes it anew where it is missing",
            ),
            Self::Other => None,
        }
    }
}

/// What the server answered, if it did.
pub(super) fn class_of(error: &tokio_postgres::Error) -> Option<Class> {
    error.as_db_error().map(|said| Class::of(said.code()))
}

/// The error of a statement or of an attempt to connect.
pub(super) fn translate(error: &tokio_postgres::Error, stage: Stage, at: &str) -> Error {
    if let Some(said) = error.as_db_error() {
        let class = Class::of(said.code());
        let message = format!("{}: {}", class.what(), said.message());
        let translated = Error::new(class.kind(stage), message);
        return match class.hint() {
            Some(hint) => translated.hint(hint),
            None => translated,
        };
    }
    match stage {
        Stage::Asked => broke(at).caused_by(error.to_string()),
        Stage::Connecting => not_let_in(error, at),
    }
}

/// Why there is no connection. Nothing was asked.
#[derive(Debug)]
pub(super) enum Unconnected {
    /// The host has no address.
    Unknown,
    Unreached(io::Error),
    /// It does not answer.
    Silent,
    /// What the server, or the driver, says.
    Refused(tokio_postgres::Error),
    /// It takes no writes, and others were named that might.
    ReadOnly,
}

impl Unconnected {
    /// Whether a greeting without settings may be let in where one with them was not. A pooler says that it does not know
    /// them, with a code of its choice, or just hangs up; a server has other reasons, and says which.
    pub(super) fn may_be_of_the_greeting(&self) -> bool {
        let Self::Refused(error) = self else { return false };
        match class_of(error) {
            None => error.is_closed(),
            Some(
                Class::NotReady
                | Class::Ended
                | Class::TooManyConnections
                | Class::Resources
                | Class::Password
                | Class::NoDatabase
                | Class::ReadOnly
                | Class::System,
            ) => false,
            Some(
                Class::Connection
                | Class::NoSchema
                | Class::NoPermission
                | Class::Conflict
                | Class::Locked
                | Class::Cancelled
                | Class::Statement
                | Class::Internal
                | Class::Other,
            ) => true,
        }
    }

    pub(super) fn translate(self, at: &str) -> Error {
        match self {
            Self::Unknown => unreached(io::ErrorKind::NotFound, "no such host".to_owned(), at),
            Self::Unreached(error) => unreached(error.kind(), error.to_string(), at),
            Self::Silent => Error::new(ErrorKind::Unavailable, format!("{at} does not answer"))
                .hint("is it overloaded or stopped?"),
            Self::Refused(error) => translate(&error, Stage::Connecting, at),
            Self::ReadOnly => Error::new(ErrorKind::Refused, format!("none of {at} takes writes"))
                .hint(Class::ReadOnly.hint().unwrap_or_default()),
        }
    }
}

/// No answer: nobody knows.
pub(super) fn broke(at: &str) -> Error {
    let message = format!("the connection to {at} broke before the answer came");
    Error::new(ErrorKind::Indeterminate, message).hint("it may or may not have happened")
}

/// No answer in time.
pub(super) fn timed_out(at: &str) -> Error {
    Error::new(ErrorKind::Indeterminate, format!("{at} did not answer in time"))
        .hint("it may or may not have happened; `timeout` in the URL says how long is waited")
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::ShutDown, "this store is closed")
}

/// The driver's own errors while connecting: nothing was asked.
fn not_let_in(error: &tokio_postgres::Error, at: &str) -> Error {
    let text = causes(error);
    let of_io = io_kind(error);
    if of_io.is_none() && text.contains("password") {
        return Error::new(ErrorKind::Refused, format!("{at} asks for a password"))
            .hint("write it into the URL: `postgres://user:password@host/database`");
    }
    if text.contains("certificate") || text.contains("TLS") || text.contains("tls") {
        return Error::new(ErrorKind::Refused, format!("no safe connection to {at}: {text}"))
            .hint("`ca=FILE` names the authority that signed its certificate; the host in the URL must be the one in it");
    }
    unreached(of_io.unwrap_or(io::ErrorKind::Other), text, at)
}

fn unreached(kind: io::ErrorKind, text: String, at: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{at} was not reached"))
        .ask_for_address(match kind {
            io::ErrorKind::ConnectionRefused => "is it running, and is this its address?",
            _ => "is this its address? a server that takes only TLS needs `sslmode=verify-full`",
        })
        .caused_by(text)
}

fn io_kind(error: &tokio_postgres::Error) -> Option<io::ErrorKind> {
    let mut cause: Option<&dyn error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        cause = error.source();
    }
    None
}

fn causes(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error::Error::source(error);
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

    #[test]
    fn every_class_of_the_manual_means_something() {
        for code in [
            "08006", "0A000", "21000", "22001", "23505", "24000", "25001", "25006", "26000",
            "28P01", "28000", "2BP01", "2D000", "34000", "38000", "39000", "3B001", "3D000",
            "3F000", "40001", "40P01", "42501", "42P01", "42883", "42601", "44000", "53000",
            "53100", "53300", "54000", "55006", "55P03", "57014", "57P01", "57P03", "58030",
            "72000", "F0000", "HV000", "P0001", "XX001",
        ] {
            assert_ne!(Class::of(&SqlState::from_code(code)), Class::Other, "{code}");
        }
    }

    #[test]
    fn only_a_broken_connection_leaves_it_open_what_happened() {
        for (code, kind) in [
            ("08006", ErrorKind::Indeterminate),
            ("57P01", ErrorKind::Indeterminate),
            ("57P03", ErrorKind::Unavailable),
            ("40001", ErrorKind::Unavailable),
            ("53300", ErrorKind::Unavailable),
            ("28P01", ErrorKind::Refused),
            ("42501", ErrorKind::Refused),
        ] {
            assert_eq!(Class::of(&SqlState::from_code(code)).kind(Stage::Asked), kind, "{code}");
        }
        assert_eq!(Class::Ended.kind(Stage::Connecting), ErrorKind::Unavailable);
    }
}
