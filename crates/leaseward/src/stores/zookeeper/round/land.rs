//! What the answers to a round are to each of its flights. Pure.

use super::{
    super::{
        session::{Answered, Fault, Flight},
        wire::{Body, Code, Request, Stat},
    },
    Round, is_container, is_write,
};

/// What came of a round.
#[derive(Debug, Default)]
pub(in super::super) struct Landed {
    /// To be sent each by itself: nothing of these was done.
    pub(in super::super) again: Vec<Flight>,
    /// What this says of the witness, if anything.
    pub(in super::super) has_witness: Option<Option<bool>>,
    /// The server does not read several at once.
    pub(in super::super) knows_no_reads: bool,
}

impl Round {
    /// Tells each flight what the answers, in the order of the messages, are to it.
    pub(in super::super) fn land(self, answers: Vec<Answered>) -> Landed {
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
            Self::Together(answers) => answers.next().ok_or(Fault::Cut)?.map_err(Fault::Refused),
            Self::Failed(fault) => Err(*fault),
            Self::Apart(answers) => answers.next().unwrap_or(Err(Fault::Cut)),
        }
    }
}
