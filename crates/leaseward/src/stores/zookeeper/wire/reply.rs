//! What the server answers.

use super::{
    code::Code,
    jute::{Malformed, Reader},
    request::{IN_MULTI, Request},
};

/// What stands before each answer.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Header {
    pub(in super::super) xid: i32,
    pub(in super::super) zxid: i64,
    pub(in super::super) code: Option<Code>,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Stat {
    /// The transaction that created it.
    pub(in super::super) czxid: i64,
    /// When that was, in milliseconds since the epoch, by the leader's clock.
    pub(in super::super) ctime_ms: i64,
    pub(in super::super) version: i32,
    /// The session it ends with; zero for none.
    pub(in super::super) owner: i64,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Body {
    /// It was done.
    Done,
    Created {
        path: String,
        stat: Stat,
    },
    Data {
        data: Vec<u8>,
        stat: Stat,
    },
    Children(Vec<String>),
    /// Whether anybody may change it.
    Acl {
        is_open: bool,
    },
    /// All of it was done; what was created, in its order. What the server says of those nodes is empty.
    Transaction(Vec<String>),
}

/// The answer to the first message of a connection.
#[derive(Clone, Debug)]
pub(in super::super) struct Connected {
    pub(in super::super) timeout_ms: i32,
    /// Zero: the session asked for is over.
    pub(in super::super) session: i64,
    pub(in super::super) password: Vec<u8>,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Event {
    pub(in super::super) kind: EventKind,
    pub(in super::super) path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum EventKind {
    Deleted,
    Changed,
}

pub(in super::super) fn header(from: &mut Reader<'_>) -> Result<Header, Malformed> {
    Ok(Header { xid: from.int()?, zxid: from.long()?, code: Code::of(from.int()?) })
}

pub(in super::super) fn connected(from: &mut Reader<'_>) -> Result<Connected, Malformed> {
    from.int()?;
    let timeout_ms = from.int()?;
    Ok(Connected { timeout_ms, session: from.long()?, password: from.bytes()?.to_vec() })
}

/// `None` for what is told about the connection, which we know from the connection itself.
pub(in super::super) fn event(from: &mut Reader<'_>) -> Result<Option<Event>, Malformed> {
    let kind = from.int()?;
    from.int()?;
    let path = from.text()?;
    Ok(match kind {
        2 => Some(Event { kind: EventKind::Deleted, path }),
        1 | 3 | 4 => Some(Event { kind: EventKind::Changed, path }),
        _ => None,
    })
}

impl Body {
    /// What follows the header of a request's answer that is no refusal.
    pub(in super::super) fn read(
        request: &Request,
        from: &mut Reader<'_>,
    ) -> Result<Result<Self, Code>, Malformed> {
        Ok(Ok(match request {
            Request::Create { .. } => Self::Created { path: from.text()?, stat: stat(from)? },
            Request::Get { .. } => Self::Data { data: from.bytes()?.to_vec(), stat: stat(from)? },
            Request::Children { .. } => {
                let count = from.count()?;
                Self::Children((0..count).map(|_| from.text()).collect::<Result<_, _>>()?)
            }
            Request::GetAcl { .. } => Self::Acl { is_open: is_open(from)? },
            Request::Multi(_) => return transaction(from),
            Request::Delete { .. } | Request::Set { .. } | Request::Sync | Request::Close => {
                Self::Done
            }
        }))
    }
}

fn stat(from: &mut Reader<'_>) -> Result<Stat, Malformed> {
    let czxid = from.long()?;
    from.long()?;
    let ctime_ms = from.long()?;
    from.long()?;
    let version = from.int()?;
    from.take(8)?;
    let owner = from.long()?;
    from.take(16)?;
    Ok(Stat { czxid, ctime_ms, version, owner })
}

fn is_open(from: &mut Reader<'_>) -> Result<bool, Malformed> {
    // Reading alone does no harm.
    const READ: i32 = 1;
    let mut open = false;
    for _ in 0..from.count()? {
        let rights = from.int()?;
        let (scheme, who) = (from.text()?, from.text()?);
        open |= scheme == "world" && who == "anyone" && rights & !READ != 0;
    }
    Ok(open)
}

fn transaction(from: &mut Reader<'_>) -> Result<Result<Body, Code>, Malformed> {
    let [create, create2, delete, set] = IN_MULTI;
    let (mut created, mut refused) = (Vec::new(), None);
    loop {
        let (operation, is_last) = (from.int()?, from.bool()?);
        from.int()?;
        if is_last {
            break;
        }
        if operation == create {
            created.push(from.text()?);
        } else if operation == create2 {
            created.push(from.text()?);
            stat(from)?;
        } else if operation == set {
            stat(from)?;
        } else if operation == -1 {
            // Those before the one that failed, and those after it, are told of as inconsistent.
            let code = Code::of(from.int()?);
            if !matches!(code, None | Some(Code::RuntimeInconsistency)) {
                refused = refused.or(code);
            }
        } else if operation != delete {
            return Err(Malformed);
        }
    }
    Ok(match refused {
        None => Ok(Body::Transaction(created)),
        Some(code) => Err(code),
    })
}
