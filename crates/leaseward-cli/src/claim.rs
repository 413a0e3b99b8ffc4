//! How a name is asked for: the options that `run`, `acquire` and `elect` share, and what they mean.

use std::time::Duration;

use clap::Args;
use leaseward::{CAPACITY_MAX, Lock, Locks, Name};

use crate::{failure::Failure, session::Session, units};

/// Options about the lease.
#[derive(Args, Debug)]
pub(crate) struct ClaimArgs {
    /// How long the lease lasts without renewal, 100ms to 24h [default: `LEASEWARD_TTL`, `ttl` of the configuration, 30s]
    ///
    /// It is renewed at a third of this while the work runs. It is also how long a crashed machine blocks the name.
    #[arg(long, value_name = "DURATION", value_parser = units::ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,

    /// Give up after this long and exit with 75 [default: `LEASEWARD_WAIT`, without limit]
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = units::duration,
        allow_hyphen_values = true,
        conflicts_with = "no_wait"
    )]
    wait: Option<Duration>,

    /// Do not wait at all: exit with 75 if somebody else holds the name
    #[arg(long)]
    no_wait: bool,

    /// Share the name with other readers; excludes and is excluded by exclusive holders
    #[arg(long, conflicts_with = "permits")]
    shared: bool,

    /// Take one of CAPACITY permits; all users of the name give the same number
    #[arg(long, value_name = "CAPACITY", value_parser = clap::value_parser!(u32).range(1..=i64::from(CAPACITY_MAX)))]
    permits: Option<u32>,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Forever,
    AtMost(Duration),
    None,
}

/// How to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Exclusive,
    Shared,
    Permit(u32),
}

/// What is meant: which names, how, for how long.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) names: Vec<Name>,
    pub(crate) kind: Kind,
    pub(crate) ttl: Duration,
    pub(crate) patience: Patience,
    pub(crate) min_hold: Option<Duration>,
}

impl ClaimArgs {
    /// Checks the names and puts options and settings together.
    pub(crate) fn claim(&self, names: &[String], session: &Session) -> Result<Claim, Failure> {
        let names = checked(names)?;
        let kind = match (self.shared, self.permits) {
            (true, _) => Kind::Shared,
            (false, Some(capacity)) => Kind::Permit(capacity),
            (false, None) => Kind::Exclusive,
        };
        if matches!(kind, Kind::Permit(_)) && names.len() > 1 {
            return Err(Failure::usage("`--permits` takes a single name")
                .hint("run one `leaseward run --permits` inside the other"));
        }
        let patience = match (self.no_wait, self.wait) {
            (true, _) => Patience::None,
            (false, Some(limit)) => Patience::AtMost(limit),
            (false, None) => session.settings.wait.map_or(Patience::Forever, Patience::AtMost),
        };
        let ttl = self.ttl.unwrap_or(session.settings.ttl);
        Ok(Claim { names, kind, ttl, patience, min_hold: None })
    }
}

/// Checks names; the same one twice is a slip that would wait for itself for ever.
pub(crate) fn checked(names: &[String]) -> Result<Vec<Name>, Failure> {
    let mut checked: Vec<Name> = Vec::with_capacity(names.len());
    for name in names {
        let name = Name::new(name)?;
        if checked.contains(&name) {
            return Err(Failure::usage(format!("`{name}` is named twice"))
                .hint("name each lock once; they are taken together"));
        }
        checked.push(name);
    }
    Ok(checked)
}

impl Claim {
    /// The request for a single name, without the wait.
    pub(crate) fn lock(&self, name: &Name, locks: &Locks) -> Lock {
        let lock = match self.kind {
            Kind::Exclusive => locks.lock(name.as_str()),
            Kind::Shared => locks.lock(name.as_str()).shared(),
            Kind::Permit(capacity) => locks.semaphore(name.as_str(), capacity),
        };
        let lock = lock.ttl(self.ttl);
        match self.min_hold {
            Some(min_hold) => lock.min_hold(min_hold),
            None => lock,
        }
    }

    /// The names as a sentence has them.
    pub(crate) fn shown(&self) -> String {
        self.names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}
