//! Requests of many flights in a few messages. Pure.
//!
//! The server's work is by the message. So what gathers while others are under way goes out as one `sync`, one
//! transaction of all that is created and deleted, and one request for all that is read. A transaction is all or nothing:
//! where one part of it is refused, nothing of it was done, and each of its flights is sent by itself.
//!
//! Nodes of one transaction share its number, of which fences are made: so no two of them are in one line. Which number
//! that is, the answer says of a node that is *changed* only. Hence the witness: a node of the session's own, without
//! data, that is written along.

use std::collections::HashMap;

use super::{
    session::{Answered, Fault, Flight},
    wire::{Acl, Body, Code, Kind, Part, Read, Request, Stat},
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

/// What came of a round.
#[derive(Debug, Default)]
pub(super) struct Landed {
    /// To be sent each by itself: nothing of these was done.
    pub(super) again: Vec<Flight>,
    /// What this says of the witness, if anything.
    pub(super) has_witness: Option<Option<bool>>,
    /// The server does not read several at once.
    pub(super) knows_no_reads: bool,
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

    /// Tells each flight what the answers, in the order of the messages, are to it.
    pub(super) fn land(self, answers: Vec<Answered>) -> Landed {
        let (writes_together, reads_together) = (self.writes_together(), self.reads_together());
        let has_sync = self.all().any(|request| matches!(request, Request::Sync));
        let containers = self.all().filter(|request| is_container(request)).count();
        let mut answers = answers.into_iter();
        let mut landed = Landed::default();
        if self.makes_witness {
            landed.has_witness = match answers.next() {
                Some(Ok(_) | Err(Fault::Refused(Code::NodeExists))) => Some(Some(true)),
                // It will not be otherwise next time; what is refused to it is not refused to locks.
                Some(Err(Fault::Refused(_))) => Some(None),
                Some(Err(Fault::Cut | Fault::NotSent | Fault::Over)) | None => None,
            };
        }
        let mut made = answers.by_ref().take(containers).collect::<Vec<_>>().into_iter();
        let sync = if has_sync { answers.next() } else { None };
        let mut writes = if writes_together {
            Writes::Together(Outcome::of(answers.next(), self.session))
        } else {
            let count = self.all().filter(|request| is_write(request)).count();
            Writes::Apart(answers.by_ref().take(count).collect::<Vec<_>>().into_iter())
        };
        let mut reads =
            if reads_together { Reads::of(answers.next()) } else { Reads::Apart(answers) };
        landed.knows_no_reads = matches!(reads, Reads::Failed(Fault::Refused(Code::Unimplemented)));
        if let Writes::Together(Outcome::Refused(Code::NoNode)) = writes
            && landed.has_witness.is_none()
        {
            // It may be the one that has gone.
            landed.has_witness = Some(Some(false));
        }
        for flight in self.members {
            let is_refused = matches!(writes, Writes::Together(Outcome::Refused(_)));
            let again = is_refused && flight.requests.iter().any(is_write);
            let told: Vec<Answered> = flight
                .requests
                .iter()
                .map(|request| match request {
                    Request::Sync => sync.clone().unwrap_or(Err(Fault::Cut)),
                    request if is_container(request) => made.next().unwrap_or(Err(Fault::Cut)),
                    request if is_write(request) => writes.next(request),
                    _ => reads.next(),
                })
                .collect();
            if again {
                landed.again.push(flight);
            } else {
                // Whoever asked may have gone.
                let _ = flight.tell.send(told);
            }
        }
        landed
    }
}

/// What became of what was written.
enum Writes {
    Together(Outcome),
    Apart(std::vec::IntoIter<Answered>),
}

enum Outcome {
    Done {
        created: std::vec::IntoIter<String>,
        stat: Stat,
    },
    /// Nothing of it was done.
    Refused(Code),
    Failed(Fault),
}

impl Outcome {
    fn of(answer: Option<Answered>, session: i64) -> Self {
        match answer {
            Some(Ok(Body::Transaction { created, set })) if set.is_some() || created.is_empty() => {
                let set = set.unwrap_or_default();
                let stat = Stat {
                    czxid: set.mzxid,
                    mzxid: set.mzxid,
                    ctime_ms: set.mtime_ms,
                    mtime_ms: set.mtime_ms,
                    version: 0,
                    owner: session,
                };
                Self::Done { created: created.into_iter(), stat }
            }
            Some(Err(Fault::Refused(code))) if code.changes_nothing() => Self::Refused(code),
            Some(Err(fault)) => Self::Failed(fault),
            Some(Ok(_)) | None => Self::Failed(Fault::Cut),
        }
    }
}

impl Writes {
    fn next(&mut self, request: &Request) -> Answered {
        match self {
            Self::Apart(answers) => answers.next().unwrap_or(Err(Fault::Cut)),
            Self::Together(Outcome::Failed(fault)) => Err(*fault),
            Self::Together(Outcome::Refused(code)) => Err(Fault::Refused(*code)),
            Self::Together(Outcome::Done { created, stat }) => match request {
                Request::Create { .. } => {
                    let path = created.next().ok_or(Fault::Cut)?;
                    Ok(Body::Created { path, stat: *stat })
                }
                _ => Ok(Body::Done),
            },
        }
    }
}

/// What was read.
enum Reads {
    Together(std::vec::IntoIter<Result<Body, Code>>),
    Failed(Fault),
    Apart(std::vec::IntoIter<Answered>),
}

impl Reads {
    fn of(answer: Option<Answered>) -> Self {
        match answer {
            Some(Ok(Body::Reads(answers))) => Self::Together(answers.into_iter()),
            Some(Err(fault)) => Self::Failed(fault),
            Some(Ok(_)) | None => Self::Failed(Fault::Cut),
        }
    }

    fn next(&mut self) -> Answered {
        match self {
            Self::Together(answers) => {
                answers.next().unwrap_or(Ok(Body::Done)).map_err(Fault::Refused)
            }
            Self::Failed(fault) => Err(*fault),
            Self::Apart(answers) => answers.next().unwrap_or(Err(Fault::Cut)),
        }
    }
}
