//! The part of ZooKeeper's protocol that locks need: sixteen messages, encoded by hand.
//!
//! A message is a length and a record of big-endian numbers, strings and buffers with their lengths. Requests of one
//! connection are carried out and answered in their order, so any number of them may be under way.

mod code;
mod jute;
mod reply;
mod request;

pub(super) use self::{
    code::Code,
    jute::{Malformed, Reader},
    reply::{Body, Connected, Event, EventKind, Stat, connected, event, header},
    request::{Acl, Kind, Part, Read, Request, auth, connect},
};

/// The longest answer that is believed: the server's own limit is a megabyte, a list of many children may be longer.
pub(super) const FRAME_MAX: usize = 64 * 1024 * 1024;

/// The numbers of requests that are not answered in turn.
pub(super) const XID_EVENT: i32 = -1;
pub(super) const XID_AUTH: i32 = -4;
