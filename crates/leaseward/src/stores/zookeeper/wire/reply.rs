//! What the server answers.

use super::{
    code::Code,
    jute::{Malformed, Reader},
    request::{IN_MULTI, IN_READS, Request},
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
    /// The one that last changed its data.
    pub(in super::super) mzxid: i64,
    /// When those were, in milliseconds since the epoch, by the leader's clock.
    pub(in super::super) ctime_ms: i64,
    pub(in super::super) mtime_ms: i64,
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
    /// All of it was done.
    Transaction {
        /// What was created, in its order: of these nodes the server says nothing else.
        created: Vec<String>,
        /// The last node whose data was set.
        set: Option<Stat>,
    },
    /// Each has its own answer.
    Reads(Vec<Result<Body, Code>>),
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
            Request::Children { .. } => children(from)?,
            Request::GetAcl { .. } => Self::Acl { is_open: is_open(from)? },
            Request::Multi(_) => return transaction(from),
            Request::Reads(_) => Self::Reads(reads(from)?),
            Request::Delete { .. } | Request::Set { .. } | Request::Sync | Request::Close => {
                Self::Done
            }
        }))
    }
}

fn stat(from: &mut Reader<'_>) -> Result<Stat, Malformed> {
    let (czxid, mzxid) = (from.long()?, from.long()?);
    let (ctime_ms, mtime_ms) = (from.long()?, from.long()?);
    let version = from.int()?;
    from.take(8)?;
    let owner = from.long()?;
    from.take(16)?;
    Ok(Stat { czxid, mzxid, ctime_ms, mtime_ms, version, owner })
}

fn children(from: &mut Reader<'_>) -> Result<Body, Malformed> {
    let count = from.count()?;
    Ok(Body::Children((0..count).map(|_| from.text()).collect::<Result<_, _>>()?))
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
    let (mut created, mut last_set, mut refused) = (Vec::new(), None, None);
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
            last_set = Some(stat(from)?);
        } else if operation == -1 {
            // Those before the one that failed, and those after it, are told of as inconsistent.
            refused = match Code::of(from.int()?) {
                None | Some(Code::RuntimeInconsistency) => {
                    refused.or(Some(Code::RuntimeInconsistency))
                }
                code => refused.filter(|code| *code != Code::RuntimeInconsistency).or(code),
            };
        } else if operation != delete {
            return Err(Malformed);
        }
    }
    Ok(match refused {
        None => Ok(Body::Transaction { created, set: last_set }),
        Some(code) => Err(code),
    })
}

fn reads(from: &mut Reader<'_>) -> Result<Vec<Result<Body, Code>>, Malformed> {
    let [get, children_alone] = IN_READS;
    let mut answers = Vec::new();
    loop {
        let (operation, is_last) = (from.int()?, from.bool()?);
        from.int()?;
        if is_last {
            return Ok(answers);
        }
        answers.push(if operation == get {
            Ok(Body::Data { data: from.bytes()?.to_vec(), stat: stat(from)? })
        } else if operation == children_alone {
            Ok(children(from)?)
        } else if operation == -1 {
            Err(Code::of(from.int()?).ok_or(Malformed)?)
        } else {
            return Err(Malformed);
        });
    }
}
