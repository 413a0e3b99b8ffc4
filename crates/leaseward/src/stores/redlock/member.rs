//! One node of the quorum: its connection, its clock, its right to vote.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
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
    /// What it has not been told because the connection broke.
    owed: Mutex<Owed>,
}

/// What was given or taken back while a node was away. It may have kept it, and would keep others out until the TTL ends:
/// so it is told with the next connection.
#[derive(Debug, Default)]
struct Owed {
    calls: VecDeque<Arc<Call>>,
    /// When the last connection was lost. What it had then has run out after the longest TTL.
    lost: Option<Instant>,
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
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(error) => write!(f, "{error}"),
            Self::Late(after) => write!(f, "no answer within {} ms", after.as_millis()),
            Self::Waits(left) => {
                let seconds = left.as_millis().div_ceil(1000);
                write!(f, "may have lost its memory and does not vote for {seconds} s yet")
            }
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
        Self { address, node, clock, max_ttl, ahead_us, owed }
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
        let probe = &link.probe;
        let ago = probe.asked.elapsed();
        // One that does not tell its clock is taken at ours.
        let our_us = || self.clock.wall_us().saturating_sub(micros(ago));
        let life = Life {
            keeps_all: probe.persistence == Persistence::Always,
            uptime: probe.uptime,
            clock_us: probe.clock_us.unwrap_or_else(our_us),
            ago,
        };
        amnesia::right(&life, config.amnesia, config.max_ttl, config.skew)
    }

    /// The connection was lost.
    pub(super) fn lost(&self) {
        self.owed.lock().lost = Some(Instant::now());
    }

    /// Keeps what a call gives or takes back for the next connection.
    pub(super) fn owe(&self, call: &Arc<Call>) {
        let mut owed = self.owed.lock();
        if owed.lost.is_none_or(|lost| lost.elapsed() > self.max_ttl) {
            return;
        }
        let Some(call) = call.giving_back() else { return };
        if owed.calls.len() == OWED_MAX {
            owed.calls.pop_front();
        }
        owed.calls.push_back(call);
    }

    /// What was kept for a connection that is there now.
    pub(super) fn owed(&self) -> VecDeque<Arc<Call>> {
        std::mem::take(&mut self.owed.lock().calls)
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
        let reply = self.read(&link, outcome);
        if reply.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate) {
            self.owe(&call);
        }
        reply
    }

    fn read(&self, link: &Link, outcome: Result<Value, redis::RedisError>) -> Result<Reply, Error> {
        let reply = match outcome {
            Ok(value) => Reply::new(value)?,
            Err(failure) => {
                let why = error::of_call(&failure, &self.address.to_string());
                match error::code_of(&failure).map(error::Code::reaction) {
                    // No answer at all, or one that says that this is not the node it was.
                    Some(Reaction::Reconnect) | None => self.node.broken(link, why.duplicate()),
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
