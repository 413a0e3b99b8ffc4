//! One node of the quorum: its connection, its clock, its right to vote.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use redis::Value;

use super::{
    amnesia::{self, Life, Right},
    config::Config,
    votes::Reply,
    wire::{By, Call},
};
use crate::{
    Error, ErrorKind,
    clock::Clock,
    stores::redis::{
        config::Address,
        error::{self, Reaction},
        node::{Link, Node},
        probe::Persistence,
    },
};

/// Nothing is known of its clock yet.
const UNKNOWN: i64 = i64::MIN;

/// One node.
pub(super) struct Member {
    pub(super) address: Address,
    pub(super) node: Arc<Node>,
    clock: Arc<dyn Clock>,
    max_ttl: Duration,
    /// By how much its clock is ahead of ours, in microseconds.
    ahead_us: AtomicI64,
    /// What was given or taken back while it was away. It may have kept it, and would keep others out until the TTL ends:
    /// so it is told with the next connection, before anything else is (rule R16): an attempt that is taken back later
    /// than its token is granted anew would take that.
    owed: Mutex<VecDeque<Arc<Call>>>,
    /// Whether there is anything of that.
    owes: AtomicBool,
    /// Held while it is told.
    pub(super) paying: tokio::sync::Mutex<()>,
}

/// How many calls are kept for a node: whatever is forgotten ends with its TTL.
const OWED_MAX: usize = 256;

/// Why a node does not vote.
#[derive(Debug)]
pub(super) enum Absence {
    /// It cannot be reached, or did not answer.
    Lost(Error),
    /// It did not answer within so long.
    Late(Duration),
    /// It may have lost its memory, and does not vote for so long yet.
    Waits(Duration),
    /// It is the same server as another node, which votes.
    Twin(Address),
}

impl Absence {
    /// The reason, to be read behind the node's address, which is not said again.
    pub(super) fn at(&self, address: &Address) -> String {
        match self {
            Self::Lost(error) => error
                .message()
                .replace(&format!(" to redis at {address}"), "")
                .replace("connection to redis", "connection")
                .replace(&format!("redis at {address} "), ""),
            Self::Late(after) => format!("no answer within {} ms", after.as_millis()),
            Self::Waits(left) => {
                let seconds = left.as_millis().div_ceil(1000);
                format!("may have lost its memory and does not vote for {seconds} s yet")
            }
            Self::Twin(other) => format!("is the same server as {other}, and has no second vote"),
        }
    }
}

/// A connection that may be used for votes.
#[derive(Clone, Debug)]
pub(super) struct Voter {
    pub(super) link: Arc<Link>,
    pub(super) floor_us: u64,
}

impl Member {
    pub(super) fn new(
        address: Address,
        node: Arc<Node>,
        clock: Arc<dyn Clock>,
        max_ttl: Duration,
    ) -> Self {
        let (ahead_us, owed) = (AtomicI64::new(UNKNOWN), Mutex::default());
        let (owes, paying) = (AtomicBool::new(false), tokio::sync::Mutex::default());
        Self { address, node, clock, max_ttl, ahead_us, owed, owes, paying }
    }

    /// The connection, if this node may vote now.
    pub(super) fn voter(&self, config: &Config) -> Result<Voter, Absence> {
        let link = self.node.link().map_err(Absence::Lost)?;
        match self.right(&link, config) {
            Right::Votes { floor_us } => Ok(Voter { link, floor_us }),
            Right::Waits(left) => Err(Absence::Waits(left)),
        }
    }

    fn right(&self, link: &Link, config: &Config) -> Right {
        let run = &link.run;
        let ago = run.seen.elapsed();
        // One that does not tell its clock is taken at ours.
        let our_us = || self.clock.wall_us().saturating_sub(micros(ago));
        let life = Life {
            keeps_all: link.probe.persistence == Persistence::Always,
            uptime: run.uptime,
            clock_us: run.clock_us.unwrap_or_else(our_us),
            ago,
        };
        amnesia::right(&life, config.amnesia, config.max_ttl, config.skew)
    }

    /// Keeps what a call that was not sent gives or takes back for the next connection.
    pub(super) fn owe(&self, call: &Arc<Call>) {
        self.keep(call.giving_back());
    }

    fn keep(&self, call: Option<Arc<Call>>) {
        // What it had when it was lost has run out after the longest TTL.
        let Some(call) = call.filter(|_| self.node.was_there_within(self.max_ttl)) else { return };
        let mut owed = self.owed.lock();
        if owed.len() == OWED_MAX {
            owed.pop_front();
        }
        owed.push_back(call);
        self.owes.store(true, Ordering::SeqCst);
    }

    /// Whether something was kept, and there is a connection now.
    pub(super) fn can_pay(&self) -> bool {
        self.owes.load(Ordering::SeqCst) && self.node.link().is_ok()
    }

    /// What was kept.
    pub(super) fn owed(&self) -> VecDeque<Arc<Call>> {
        std::mem::take(&mut self.owed.lock())
    }

    /// It has been told.
    pub(super) fn paid(&self) {
        let owed = self.owed.lock();
        self.owes.store(!owed.is_empty(), Ordering::SeqCst);
    }

    /// Takes what it said of its clock just now.
    pub(super) fn hear_clock(&self, clock_us: u64) {
        let ahead = i128::from(clock_us) - i128::from(self.clock.wall_us());
        self.ahead_us.store(i64::try_from(ahead).unwrap_or(0), Ordering::Relaxed);
    }

    /// By how much its clock is ahead of ours, if it has said so.
    pub(super) fn ahead_us(&self) -> Option<i64> {
        let ahead = self.ahead_us.load(Ordering::Relaxed);
        if ahead != UNKNOWN {
            return Some(ahead);
        }
        let link = self.node.link().ok()?;
        let then_us = link.probe.clock_us?;
        let ahead = i128::from(then_us) + i128::from(micros(link.probe.asked.elapsed()))
            - i128::from(self.clock.wall_us());
        i64::try_from(ahead).ok()
    }

    /// Sends a call and waits for its answer. Sent at the first poll, so that calls reach the node in the order in which
    /// they are first polled.
    pub(super) async fn call(
        self: Arc<Self>,
        link: Arc<Link>,
        command: Arc<redis::Cmd>,
        call: Arc<Call>,
        floor_us: u64,
    ) -> Result<Reply, Error> {
        let mut outcome = link.command(&command).await;
        if let Err(failure) = &outcome
            && error::code_of(failure).map(error::Code::reaction) == Some(Reaction::SendScript)
        {
            outcome = link.command(&call.command(By::Text, floor_us)).await;
        }
        self.answer(Some(&link), outcome, &call)
    }

    /// What came of a call over a connection, if that is still there.
    pub(super) fn answer(
        &self,
        link: Option<&Link>,
        outcome: Result<Value, redis::RedisError>,
        call: &Arc<Call>,
    ) -> Result<Reply, Error> {
        let reply = self.read(link, outcome);
        if reply.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate) {
            // Releases only: their tokens are dead. By now the token of an attempt may have asked again, and have it.
            self.keep(call.releasing());
        }
        reply
    }

    fn read(
        &self,
        link: Option<&Link>,
        outcome: Result<Value, redis::RedisError>,
    ) -> Result<Reply, Error> {
        let broken = |why: &Error| {
            if let Some(link) = link {
                self.node.broken(link, why.duplicate());
            }
        };
        let reply = match outcome {
            // What is no answer to this may be one to something else: the connection is out of step.
            Ok(value) => Reply::new(value).inspect_err(broken)?,
            Err(failure) => {
                let why = error::of_call(&failure, &self.address.to_string());
                match error::code_of(&failure).map(error::Code::reaction) {
                    // No answer at all, or one that says that this is not the node it was.
                    Some(Reaction::Reconnect) | None => broken(&why),
                    Some(_) => {}
                }
                return Err(why);
            }
        };
        if let Some(clock_us) = reply.clock_us {
            self.hear_clock(clock_us);
        }
        Ok(reply)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
