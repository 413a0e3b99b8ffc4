//! What a store shows to people: holders, waiters, happenings, findings.

use std::{sync::Arc, time::Duration};

use serde::Serialize;

use crate::{Fence, Mode, Name, Value};

/// Which names to look at.
#[derive(Clone, Debug)]
pub enum Query {
    /// One name.
    Name(Name),
    /// Names that begin with this, at most so many, those after a name first.
    Prefix {
        /// What they begin with; empty for all.
        prefix: String,
        /// Only names sorted after this one: the last of the page before.
        after: Option<Name>,
        /// The most to return.
        limit: usize,
    },
}

impl Query {
    /// Everything, up to a number of names no person reads through.
    pub fn all() -> Self {
        Self::Prefix { prefix: String::new(), after: None, limit: 100_000 }
    }
}

/// A name that is held or waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct LockView {
    /// The name.
    pub name: Name,
    /// Who holds it, oldest first.
    pub holders: Vec<HeldView>,
    /// Who waits for it, next first.
    pub waiters: Vec<WaiterView>,
}

/// One lease.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldView {
    /// `host:pid`.
    pub who: Arc<str>,
    /// The first characters of the token.
    pub token_prefix: String,
    /// How it is held.
    pub mode: Mode,
    /// Its newest fence known to the store: the first of its block.
    pub fence: Fence,
    /// Which permit it is.
    pub slot: Option<u32>,
    /// How long each renewal lasts.
    pub ttl: Duration,
    /// How long it lasts yet without renewal; `None` if no expiry is known: it has none, or ends with a session
    /// that its holder keeps alive.
    pub remaining: Option<Duration>,
    /// How long it has been held under this token.
    pub held: Duration,
    /// What travels with it.
    pub value: Option<Value>,
    /// Renewals are refused: an operator broke it, or its holder released it within its minimum hold.
    pub ending: bool,
}

/// One place in a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct WaiterView {
    /// `host:pid`.
    pub who: Arc<str>,
    /// The first characters of the token.
    pub token_prefix: String,
    /// How it would be held.
    pub mode: Mode,
    /// How long it has waited.
    pub waited: Duration,
}

/// An order to end leases against their holders' will.
#[derive(Clone, Debug)]
pub struct Break {
    /// On which name.
    pub name: Name,
    /// Free the name at once, instead of refusing renewals until the leases run out.
    pub now: bool,
}

/// What a break did.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    /// The leases that were broken, as they stood.
    pub holders: Vec<HeldView>,
}

/// Something that happened in the store, by whomever.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Observation {
    /// Microseconds since the epoch, by the observer's or the store's clock.
    pub at_us: u64,
    /// To which name.
    #[serde(serialize_with = "name_as_text")]
    pub name: Name,
    /// What.
    pub what: Observed,
    /// Whose doing: `host:pid`.
    pub who: Arc<str>,
    /// The fence, where the happening has one.
    pub fence: Option<Fence>,
    /// Found by comparing snapshots: short holds between two snapshots are not seen, times are those of the snapshot.
    pub derived: bool,
}

/// Kinds of happenings.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    /// A lease was given to somebody who asked for it.
    Granted,
    /// A lease was given to a waiter.
    HandedOver,
    /// A lease was given back.
    Released,
    /// A lease ran out.
    Expired,
    /// A lease was broken.
    Broken,
    /// Somebody began to wait.
    Queued,
    /// Somebody stopped waiting without the lease.
    Left,
}

fn name_as_text<S: serde::Serializer>(name: &Name, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(name)
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Note,
    /// Costs speed or comfort.
    Warning,
    /// Can break a promise.
    Danger,
}

/// What a check of the store found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// What that means.
    pub meaning: String,
    /// What to do about it.
    pub advice: String,
}
