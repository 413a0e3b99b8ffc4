//! What Redis' errors mean to a caller.

mod connecting;

use redis::RedisError;

pub(in crate::stores) use self::connecting::{Peer, of_connecting, of_database, of_hello};
use crate::{Error, ErrorKind};

/// Every code a server answers a batch with, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) enum Code {
    Loading,
    Busy,
    MasterDown,
    ClusterDown,
    TryAgain,
    ReadOnly,
    MisConf,
    NoReplicas,
    OutOfMemory,
    NoAuth,
    WrongPass,
    NoPerm,
    NoScript,
    Moved,
    Ask,
    CrossSlot,
    WrongType,
    /// Anything else: a plain `ERR`, or a code of a server we do not know.
    Other,
}

/// What the store does about a code before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) enum Reaction {
    /// Nothing: the answer is the error.
    Tell,
    /// This is not the node it was: connect again, and look whether it is a primary.
    Reconnect,
    /// Send the script's text.
    SendScript,
    /// Send it to the node the error names.
    Redirect,
    /// Ask again in a moment: it is about to be possible.
    AskAgain,
    /// The answer is the error; and find out who has this node's slots now.
    LookElsewhere,
}

impl Code {
    pub(in crate::stores) fn of(code: &str) -> Self {
        match code {
            "LOADING" => Self::Loading,
            "BUSY" => Self::Busy,
            "MASTERDOWN" => Self::MasterDown,
            "CLUSTERDOWN" => Self::ClusterDown,
            "TRYAGAIN" => Self::TryAgain,
            "READONLY" => Self::ReadOnly,
            "MISCONF" => Self::MisConf,
            "NOREPLICAS" => Self::NoReplicas,
            "OOM" => Self::OutOfMemory,
            "NOAUTH" => Self::NoAuth,
            "WRONGPASS" => Self::WrongPass,
            "NOPERM" => Self::NoPerm,
            "NOSCRIPT" => Self::NoScript,
            "MOVED" => Self::Moved,
            "ASK" => Self::Ask,
            "CROSSSLOT" => Self::CrossSlot,
            "WRONGTYPE" => Self::WrongType,
            _ => Self::Other,
        }
    }

    pub(in crate::stores) fn reaction(self) -> Reaction {
        match self {
            Self::ReadOnly | Self::MasterDown | Self::NoAuth => Reaction::Reconnect,
            Self::NoScript => Reaction::SendScript,
            Self::Moved | Self::Ask => Reaction::Redirect,
            Self::TryAgain => Reaction::AskAgain,
            Self::ClusterDown => Reaction::LookElsewhere,
            Self::Loading
            | Self::Busy
            | Self::MisConf
            | Self::NoReplicas
            | Self::OutOfMemory
            | Self::WrongPass
            | Self::NoPerm
            | Self::CrossSlot
            | Self::WrongType
            | Self::Other => Reaction::Tell,
        }
    }

    /// Kind, message and hint. None of these codes comes after something was changed.
    fn meaning(self) -> (ErrorKind, &'static str, &'static str) {
        use ErrorKind::{Refused, Unavailable, Unsupported};
        match self {
            Self::Loading => {
                (Unavailable, "redis is loading its data", "it answers once that is done")
            }
            Self::Busy => (
                Unavailable,
                "redis is busy with somebody's long script",
                "`SCRIPT KILL` ends it, if it has written nothing yet",
            ),
            Self::MasterDown => (
                Unavailable,
                "this redis is a replica that has lost its primary",
                "connect to the primary, or through Sentinel: `redis+sentinel://…`",
            ),
            Self::ClusterDown => (
                Unavailable,
                "the redis cluster is down: some slots have no primary",
                "`redis-cli --cluster check` shows which",
            ),
            Self::TryAgain => (Unavailable, "a slot of the redis cluster is just being moved", ""),
            Self::ReadOnly => (
                Unavailable,
                "this redis is a replica and takes no writes",
                "connect to the primary, or through Sentinel: `redis+sentinel://…`",
            ),
            Self::MisConf => (
                Unavailable,
                "redis refuses writes because it cannot save to its disk",
                "is the disk full? its log says more",
            ),
            Self::NoReplicas => (
                Unavailable,
                "redis refuses writes because too few replicas are connected",
                "see `min-replicas-to-write` and `leaseward doctor`",
            ),
            Self::OutOfMemory => (
                Unavailable,
                "redis has no memory left for a lease",
                "raise `maxmemory`, or free memory; leases want `maxmemory-policy noeviction`",
            ),
            Self::NoAuth => (
                Refused,
                "redis asks for a password",
                "put it into the URL: `redis://user:password@host`",
            ),
            Self::WrongPass => (
                Refused,
                "redis refused user and password",
                "check them in the URL; special characters are percent-encoded there",
            ),
            Self::NoPerm => (
                Refused,
                "redis does not permit this user what leases need",
                "docs/stores/redis.md has the ACL line; `leaseward doctor` names what is missing",
            ),
            Self::CrossSlot => (
                Unsupported,
                "on a redis cluster, names that are taken together must share a slot",
                "give them a common tag in braces, such as `{order:1}:stock` and `{order:1}:bill`",
            ),
            Self::WrongType => (
                Refused,
                "a side key of this lock holds something else",
                "does another program use keys that begin with `leaseward:`?",
            ),
            Self::NoScript | Self::Moved | Self::Ask => {
                (Unavailable, "redis sent us elsewhere too often", "it is being changed just now")
            }
            Self::Other => (Refused, "redis refused", ""),
        }
    }
}

fn build(code: Code, detail: &str) -> Error {
    let (kind, message, hint) = code.meaning();
    let message = match (code, detail) {
        (Code::Other, detail) if !detail.is_empty() => format!("{message}: {detail}"),
        _ => message.to_owned(),
    };
    let error = Error::new(kind, message);
    if hint.is_empty() { error } else { error.hint(hint) }
}

const FORBIDDEN_INSIDE: &str = "The user executing the script ";

/// What a refusal inside a script says, without the place in the script that Redis 6.2 puts before it: `@user_script: 12: `,
/// or `@user_script:12: `, and then the code with the dash of the protocol, or none.
fn without_place(text: &str) -> &str {
    let mut rest = text;
    while let Some((line, said)) =
        rest.strip_prefix("@user_script:").and_then(|rest| rest.trim_start().split_once(": "))
    {
        if !line.bytes().all(|b| b.is_ascii_digit()) {
            break;
        }
        rest = said;
    }
    rest.trim_start_matches('-')
}

/// The error of one operation of a batch, by its text that begins with a code, and what is to be done about it.
pub(in crate::stores) fn of_operation(text: &str) -> (Error, Reaction) {
    let said = without_place(text);
    let (code, detail) = said.split_once(' ').unwrap_or((said, ""));
    // Redis before 7.2 has no code of its own for what is forbidden inside a script.
    let is_forbidden = [said, detail].iter().any(|text| text.starts_with(FORBIDDEN_INSIDE));
    let code = if is_forbidden { Code::NoPerm } else { Code::of(code.trim_end()) };
    let error = match code {
        // It failed somewhere in the middle; what came before it stands.
        Code::Other => Error::new(
            ErrorKind::Indeterminate,
            format!("an operation failed inside redis: {}", first_line(text)),
        ),
        code => build(code, detail),
    };
    (error, code.reaction())
}

/// The code that answers a whole call, if it is the server that answers.
pub(in crate::stores) fn code_of(error: &RedisError) -> Option<Code> {
    error.code().map(Code::of)
}

/// The error of a call. `sent` says whether it may have reached the server.
pub(in crate::stores) fn of_call(error: &RedisError, at: &str) -> Error {
    if let Some(code) = code_of(error) {
        return build(code, first_line(error.detail().unwrap_or_default()));
    }
    if error.is_connection_refusal() {
        let message = format!("the connection to redis at {at} has ended");
        return Error::new(ErrorKind::Unavailable, message).hint("nothing was sent");
    }
    let message = if error.is_timeout() {
        format!("redis at {at} did not answer in time")
    } else {
        format!("the connection to redis at {at} broke before the answer came")
    };
    Error::new(ErrorKind::Indeterminate, message)
        .hint("it may or may not have happened")
        .caused_by(io_text(error))
}

/// Whether a server does not let us in, or not do what leases need: no retry mends that.
pub(in crate::stores) fn refuses_login(error: &Error) -> bool {
    // An error does not keep its code; its message is the code's own.
    let refusals = [Code::NoAuth, Code::WrongPass, Code::NoPerm];
    error.kind() == ErrorKind::Refused
        && refusals.iter().any(|code| error.message() == code.meaning().1)
}

/// The cause as text: the driver's own error may repeat arguments of a command.
fn io_text(error: &RedisError) -> String {
    first_line(&error.to_string()).to_owned()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operations_error_is_read_from_its_text() {
        let (oom, _) = of_operation("OOM command not allowed when used memory > 'maxmemory'.");
        assert_eq!(oom.kind(), ErrorKind::Unavailable);
        let (odd, _) = of_operation("user_script:12: attempt to index a nil value");
        assert_eq!(odd.kind(), ErrorKind::Indeterminate);
        let inside = "ERR The user executing the script can't run this command or subcommand";
        assert_eq!(of_operation(inside).0.kind(), ErrorKind::Refused);
        let (_, reaction) = of_operation("READONLY You can't write against a read only replica.");
        assert_eq!(reaction, Reaction::Reconnect);
    }

    #[test]
    fn who_is_not_let_in_is_told_from_who_is_refused_something() {
        for (code, is_final) in
            [("NOAUTH", true), ("WRONGPASS", true), ("NOPERM", true), ("WRONGTYPE", false)]
        {
            assert_eq!(refuses_login(&build(Code::of(code), "")), is_final, "{code}");
        }
        assert!(!refuses_login(&build(Code::Other, "ERR unknown")));
    }

    #[test]
    fn the_place_in_the_script_is_no_code() {
        use ErrorKind::{Indeterminate, Refused, Unavailable};
        for (text, kind, reaction) in [
            (
                "@user_script: 12: -READONLY You can't write against a read only replica.\r\n",
                Unavailable,
                Reaction::Reconnect,
            ),
            (
                "@user_script:1: @user_script: 1: -READONLY You can't write against a read only",
                Unavailable,
                Reaction::Reconnect,
            ),
            (
                "@user_script:12: -OOM command not allowed when used memory > 'maxmemory'.",
                Unavailable,
                Reaction::Tell,
            ),
            (
                "@user_script: 7: -MISCONF Redis is configured to save RDB snapshots",
                Unavailable,
                Reaction::Tell,
            ),
            (
                "@user_script: 7: The user executing the script can't access at least one of the keys",
                Refused,
                Reaction::Tell,
            ),
            ("@user_script: 7: -NOPERM this user has no permissions", Refused, Reaction::Tell),
            ("@user_script:12: attempt to index a nil value", Indeterminate, Reaction::Tell),
            ("@user_script: nonsense: -OOM", Indeterminate, Reaction::Tell),
            ("@user_script:", Indeterminate, Reaction::Tell),
        ] {
            let (error, does) = of_operation(text);
            assert_eq!((error.kind(), does), (kind, reaction), "{text}: {error}");
        }
    }

    #[test]
    fn every_code_has_its_kind_and_its_reaction() {
        use ErrorKind::{Indeterminate, Refused, Unavailable, Unsupported};
        use Reaction::{AskAgain, LookElsewhere, Reconnect, Redirect, SendScript, Tell};
        for (text, kind, reaction) in [
            ("LOADING", Unavailable, Tell),
            ("BUSY", Unavailable, Tell),
            ("MASTERDOWN", Unavailable, Reconnect),
            ("CLUSTERDOWN", Unavailable, LookElsewhere),
            ("TRYAGAIN", Unavailable, AskAgain),
            ("READONLY", Unavailable, Reconnect),
            ("MISCONF", Unavailable, Tell),
            ("NOREPLICAS", Unavailable, Tell),
            ("OOM", Unavailable, Tell),
            ("NOAUTH", Refused, Reconnect),
            ("WRONGPASS", Refused, Tell),
            ("NOPERM", Refused, Tell),
            ("NOSCRIPT", Unavailable, SendScript),
            ("MOVED", Unavailable, Redirect),
            ("ASK", Unavailable, Redirect),
            ("CROSSSLOT", Unsupported, Tell),
            ("WRONGTYPE", Refused, Tell),
            ("ERR", Refused, Tell),
            ("NEWLYMADE", Refused, Tell),
        ] {
            let code = Code::of(text);
            assert_eq!((build(code, "").kind(), code.reaction()), (kind, reaction), "{text}");
            // Inside of a batch, what is not known may have left something behind.
            let kind = if code == Code::Other { Indeterminate } else { kind };
            let (error, told) = of_operation(&format!("{text} and why"));
            assert_eq!((error.kind(), told), (kind, reaction), "{text} of an operation");
        }
    }
}
