//! What is asked of the server.

use std::sync::Arc;

use super::{XID_AUTH, jute::Writer};

/// Who may do what with a node, as the server wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Acl {
    /// Everybody everything.
    Open,
    /// Whoever created it everything, others nothing.
    Creator,
}

/// How a node is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Kind {
    Persistent,
    /// Removed by the server once its last child has gone.
    Container,
    /// Ends with the session.
    Ephemeral,
    /// The same, with a number that grows appended to its name.
    EphemeralSequential,
}

/// One request.
#[derive(Clone, Debug)]
pub(in super::super) enum Request {
    Create {
        path: String,
        data: Vec<u8>,
        acl: Acl,
        kind: Kind,
    },
    Delete {
        path: String,
        version: Option<i32>,
    },
    Get {
        path: String,
        watch: bool,
    },
    Set {
        path: String,
        data: Vec<u8>,
        version: Option<i32>,
    },
    Children {
        path: String,
        watch: bool,
    },
    /// Through the leader and back: what was committed before is seen after it.
    Sync,
    GetAcl {
        path: String,
    },
    /// All of these or none.
    Multi(Vec<Part>),
    /// All of these, each with an answer of its own. Since 3.6.
    Reads(Vec<Read>),
    Close,
}

/// What can be read together with others. No watches: the server forgets to set them.
#[derive(Clone, Debug)]
pub(in super::super) enum Read {
    Get { path: String },
    Children { path: String },
}

/// What a transaction is made of.
#[derive(Clone, Debug)]
pub(in super::super) enum Part {
    Create { path: String, data: Vec<u8>, acl: Acl, kind: Kind },
    Delete { path: String, version: Option<i32> },
    Set { path: String, data: Vec<u8>, version: Option<i32> },
}

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const GET: i32 = 4;
const SET: i32 = 5;
const GET_ACL: i32 = 6;
const CHILDREN_ALONE: i32 = 8;
const SYNC: i32 = 9;
const CHILDREN: i32 = 12;
const MULTI: i32 = 14;
const CREATE2: i32 = 15;
const CREATE_CONTAINER: i32 = 19;
const MULTI_READ: i32 = 22;
const AUTH: i32 = 100;
const CLOSE: i32 = -11;

const PERM_ALL: i32 = 31;

impl Request {
    /// Whether the leader had a part in the answer, so that it shows that the session lived there.
    pub(in super::super) fn is_led(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::Delete { .. }
            | Self::Set { .. }
            | Self::Sync
            | Self::Multi(_) => true,
            Self::Get { .. }
            | Self::Children { .. }
            | Self::GetAcl { .. }
            | Self::Reads(_)
            | Self::Close => false,
        }
    }

    pub(in super::super) fn sets_watch(&self) -> bool {
        matches!(self, Self::Get { watch: true, .. } | Self::Children { watch: true, .. })
    }

    pub(in super::super) fn encode(&self, xid: i32) -> Vec<u8> {
        let mut to = Writer::new();
        to.int(xid);
        match self {
            Self::Create { path, data, acl, kind } => {
                to.int(if *kind == Kind::Container { CREATE_CONTAINER } else { CREATE2 });
                create(&mut to, path, data, *acl, *kind);
            }
            Self::Delete { path, version } => {
                to.int(DELETE);
                to.text(path);
                to.int(version.unwrap_or(-1));
            }
            Self::Get { path, watch } => {
                to.int(GET);
                to.text(path);
                to.bool(*watch);
            }
            Self::Set { path, data, version } => {
                to.int(SET);
                set(&mut to, path, data, *version);
            }
            Self::Children { path, watch } => {
                to.int(CHILDREN);
                to.text(path);
                to.bool(*watch);
            }
            Self::Sync => {
                to.int(SYNC);
                to.text("/");
            }
            Self::GetAcl { path } => {
                to.int(GET_ACL);
                to.text(path);
            }
            Self::Multi(parts) => {
                to.int(MULTI);
                for part in parts {
                    part.encode(&mut to);
                }
                multi_header(&mut to, -1, true);
            }
            Self::Reads(reads) => {
                to.int(MULTI_READ);
                for read in reads {
                    read.encode(&mut to);
                }
                multi_header(&mut to, -1, true);
            }
            Self::Close => to.int(CLOSE),
        }
        to.done()
    }
}

impl Part {
    fn encode(&self, to: &mut Writer) {
        match self {
            Self::Create { path, data, acl, kind } => {
                multi_header(to, CREATE2, false);
                create(to, path, data, *acl, *kind);
            }
            Self::Delete { path, version } => {
                multi_header(to, DELETE, false);
                to.text(path);
                to.int(version.unwrap_or(-1));
            }
            Self::Set { path, data, version } => {
                multi_header(to, SET, false);
                set(to, path, data, *version);
            }
        }
    }
}

impl Read {
    fn encode(&self, to: &mut Writer) {
        let (operation, path) = match self {
            Self::Get { path } => (GET, path),
            Self::Children { path } => (CHILDREN_ALONE, path),
        };
        multi_header(to, operation, false);
        to.text(path);
        to.bool(false);
    }
}

fn multi_header(to: &mut Writer, operation: i32, is_last: bool) {
    to.int(operation);
    to.bool(is_last);
    to.int(-1);
}

fn create(to: &mut Writer, path: &str, data: &[u8], acl: Acl, kind: Kind) {
    to.text(path);
    to.bytes(data);
    to.len(1);
    to.int(PERM_ALL);
    let (scheme, id) = match acl {
        Acl::Open => ("world", "anyone"),
        Acl::Creator => ("auth", ""),
    };
    to.text(scheme);
    to.text(id);
    to.int(match kind {
        Kind::Persistent => 0,
        Kind::Ephemeral => 1,
        Kind::EphemeralSequential => 3,
        Kind::Container => 4,
    });
}

fn set(to: &mut Writer, path: &str, data: &[u8], version: Option<i32>) {
    to.text(path);
    to.bytes(data);
    to.int(version.unwrap_or(-1));
}

/// Begins a session, or goes on with one.
pub(in super::super) fn connect(
    last_zxid: i64,
    timeout_ms: i32,
    session: i64,
    password: &[u8],
) -> Vec<u8> {
    let mut to = Writer::new();
    to.int(0);
    to.long(last_zxid);
    to.int(timeout_ms);
    to.long(session);
    to.bytes(password);
    // A server that has lost the others must not answer: it knows of no lock taken since.
    to.bool(false);
    to.done()
}

/// Says who we are, as `user:password`.
pub(in super::super) fn auth(login: &Arc<str>) -> Vec<u8> {
    let mut to = Writer::new();
    to.int(XID_AUTH);
    to.int(AUTH);
    to.int(0);
    to.text("digest");
    to.text(login);
    to.done()
}

/// The operations a transaction's answer is made of.
pub(super) const IN_MULTI: [i32; 4] = [CREATE, CREATE2, DELETE, SET];

/// Those that the answer to reads is made of.
pub(super) const IN_READS: [i32; 2] = [GET, CHILDREN_ALONE];
