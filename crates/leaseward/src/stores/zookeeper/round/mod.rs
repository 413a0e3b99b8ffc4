//! Requests of many flights in a few messages. Pure.
//!
//! The server's work is by the message. So what gathers while others are under way goes out as one `sync`, one
//! transaction of all that is created and deleted, and one request for all that is read. A transaction is all or nothing:
//! where one part of it is refused, nothing of it was done, and each of its flights is sent by itself.
//!
//! Nodes of one transaction share its number, of which fences are made: so no two of them are in one line. Which number
//! that is, the answer says of a node that is *changed* only. Hence the witness: a node of the session's own, without
//! data, that is written along.

mod land;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

pub(super) use self::land::Landed;
use super::{
    session::Flight,
    wire::{Acl, Kind, Part, Read, Request},
};

/// What a round has at most: far below the megabyte that a server takes, also of one that was told to take less.
const MEMBERS_MAX: usize = 128;
const BYTES_MAX: usize = 64 * 1024;

/// What a part needs beside its path and data, generously.
const PART_BYTES: usize = 80;

/// What may be put together, and the session's own node.
#[derive(Clone, Debug)]
pub(super) struct Means {
    pub(super) session: i64,
    pub(super) witness: String,
    pub(super) acl: Acl,
    /// Whether the witness is there; `None`: it may not be made.
    pub(super) has_witness: Option<bool>,
    /// Whether the server reads several at once.
    pub(super) reads: bool,
}

/// Flights that go together.
#[derive(Debug)]
pub(super) struct Round {
    members: Vec<Flight>,
    bytes: usize,
    session: i64,
    /// What stands before the rest: the witness is made.
    makes_witness: bool,
    reads_together: bool,
}

/// What is to be sent, in this order.
#[derive(Debug, Default)]
pub(super) struct Departure {
    pub(super) rounds: Vec<Round>,
    pub(super) alone: Vec<Flight>,
}

/// Puts flights together as far as they can be.
pub(super) fn gather(flights: Vec<Flight>, means: &Means) -> Departure {
    let (plain, alone): (Vec<Flight>, Vec<Flight>) =
        flights.into_iter().partition(|flight| is_plain(&flight.requests, means));
    let mut rounds: Vec<Round> = Vec::new();
    let mut first_open = 0;
    // In which round the next node of a line can be.
    let mut next_of_line: HashMap<String, usize> = HashMap::new();
    for flight in plain {
        let bytes: usize = flight.requests.iter().map(size).sum();
        let line = flight.requests.iter().find_map(line_of);
        let mut at = line.and_then(|line| next_of_line.get(line)).copied().unwrap_or(0);
        at = at.max(first_open);
        while rounds.get(at).is_some_and(|round| !round.has_room(bytes)) {
            first_open = if at == first_open { at + 1 } else { first_open };
            at += 1;
        }
        if let Some(line) = line {
            next_of_line.insert(line.to_owned(), at + 1);
        }
        if at >= rounds.len() {
            rounds.push(Round::new(means));
        }
        rounds[at].bytes += bytes;
        rounds[at].members.push(flight);
    }
    let first = rounds.iter_mut().find(|round| round.needs_witness());
    if let (Some(first), Some(false)) = (first, means.has_witness) {
        first.makes_witness = true;
    }
    Departure { rounds, alone }
}

/// Whether its requests are of kinds that go together, in the order in which a round has them.
fn is_plain(requests: &[Request], means: &Means) -> bool {
    let mut last = 0;
    requests.iter().all(|request| {
        let stage = match request {
            Request::Create { kind: Kind::Container, .. } => 1,
            Request::Sync => 2,
            Request::Create { kind: Kind::EphemeralSequential, .. }
                if means.has_witness.is_some() =>
            {
                3
            }
            Request::Delete { .. } => 3,
            Request::Get { watch: false, .. } | Request::Children { watch: false, .. } => 4,
            Request::Create { .. }
            | Request::Get { .. }
            | Request::Set { .. }
            | Request::Children { .. }
            | Request::GetAcl { .. }
            | Request::Multi(_)
            | Request::Reads(_)
            | Request::Close => return false,
        };
        // One write a flight; of the others as many as there are.
        let is_next = stage > last || (stage == last && stage == 4);
        last = stage;
        is_next
    })
}

/// The line that a request puts a node into.
fn line_of(request: &Request) -> Option<&str> {
    match request {
        Request::Create { path, kind: Kind::EphemeralSequential, .. } => {
            path.rsplit_once('/').map(|(line, _)| line)
        }
        _ => None,
    }
}

fn size(request: &Request) -> usize {
    PART_BYTES
        + match request {
            Request::Create { path, data, .. } => path.len() + data.len(),
            Request::Delete { path, .. }
            | Request::Get { path, .. }
            | Request::Children { path, .. } => path.len(),
            _ => 0,
        }
}

fn part(request: &Request) -> Option<Part> {
    match request {
        Request::Create { path, data, acl, kind: kind @ Kind::EphemeralSequential } => {
            let (path, data) = (path.clone(), data.clone());
            Some(Part::Create { path, data, acl: *acl, kind: *kind })
        }
        Request::Delete { path, version } => {
            Some(Part::Delete { path: path.clone(), version: *version })
        }
        _ => None,
    }
}

fn read(request: &Request) -> Option<Read> {
    match request {
        Request::Get { path, .. } => Some(Read::Get { path: path.clone() }),
        Request::Children { path, .. } => Some(Read::Children { path: path.clone() }),
        _ => None,
    }
}

fn is_write(request: &Request) -> bool {
    matches!(
        request,
        Request::Delete { .. } | Request::Create { kind: Kind::EphemeralSequential, .. }
    )
}

fn is_read(request: &Request) -> bool {
    matches!(request, Request::Get { .. } | Request::Children { .. })
}

fn is_container(request: &Request) -> bool {
    matches!(request, Request::Create { kind: Kind::Container, .. })
}

impl Round {
    fn new(means: &Means) -> Self {
        Self {
            members: Vec::new(),
            bytes: 0,
            session: means.session,
            makes_witness: false,
            reads_together: means.reads,
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.members.len() < MEMBERS_MAX && self.bytes + bytes <= BYTES_MAX
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    fn all(&self) -> impl Iterator<Item = &Request> {
        self.members.iter().flat_map(|flight| &flight.requests)
    }

    /// Whether it creates something in a transaction.
    fn needs_witness(&self) -> bool {
        self.writes_together() && self.all().any(|request| line_of(request).is_some())
    }

    fn writes_together(&self) -> bool {
        self.all().filter(|request| is_write(request)).nth(1).is_some()
    }

    fn reads_together(&self) -> bool {
        self.reads_together && self.all().filter(|request| is_read(request)).nth(1).is_some()
    }

    /// Its messages.
    pub(super) fn requests(&self, means: &Means) -> Vec<Request> {
        let mut requests = Vec::new();
        if self.makes_witness {
            let (path, acl) = (means.witness.clone(), means.acl);
            requests.push(Request::Create { path, data: Vec::new(), acl, kind: Kind::Ephemeral });
        }
        requests.extend(self.all().filter(|request| is_container(request)).cloned());
        if self.all().any(|request| matches!(request, Request::Sync)) {
            requests.push(Request::Sync);
        }
        if self.writes_together() {
            let witness = self.needs_witness().then(|| Part::Set {
                path: means.witness.clone(),
                data: Vec::new(),
                version: None,
            });
            requests.push(Request::Multi(
                witness.into_iter().chain(self.all().filter_map(part)).collect(),
            ));
        } else {
            requests.extend(self.all().filter(|request| is_write(request)).cloned());
        }
        if self.reads_together() {
            requests.push(Request::Reads(self.all().filter_map(read).collect()));
        } else {
            requests.extend(self.all().filter(|request| is_read(request)).cloned());
        }
        requests
    }
}
