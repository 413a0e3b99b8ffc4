//! What a claim becomes when it is granted: one lease, or several taken together.

use leaseward::{
    Attempt, Busy, Error, ErrorKind, Fence, Guard, Holder, Leader, Locks, LostReason, MultiAttempt,
    MultiGuard, MultiLock, Name, Release, clock::Moment,
};

use crate::{
    child::Tenure,
    claim::{Claim, Kind, Patience},
    exit::{BUSY, Exit},
    failure::Failure,
    nesting, outage,
    session::{Session, interrupted},
    units, waiting,
};

/// A hold on the names of a claim.
#[derive(Debug)]
pub(crate) enum Hold {
    One(Guard),
    Several(MultiGuard),
}

impl Hold {
    /// Each name with its fence.
    pub(crate) fn fences(&self) -> Vec<(Name, Fence)> {
        match self {
            Self::One(guard) => vec![(guard.name().clone(), guard.fence())],
            Self::Several(guard) => {
                guard.fences().map(|(name, fence)| (name.clone(), fence)).collect()
            }
        }
    }

    pub(crate) async fn release(self) -> Result<Release, Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Several(guard) => guard.release().await,
        }
    }
}

impl Tenure for Leader {
    fn deadline(&self) -> Moment {
        self.lease().deadline()
    }

    fn is_held(&self) -> bool {
        self.is_leader()
    }

    async fn lost(&self) -> LostReason {
        self.lost().await
    }
}

impl Tenure for Hold {
    fn deadline(&self) -> Moment {
        match self {
            Self::One(guard) => guard.deadline(),
            Self::Several(guard) => guard.deadline(),
        }
    }

    fn is_held(&self) -> bool {
        match self {
            Self::One(guard) => guard.is_held(),
            Self::Several(guard) => guard.is_held(),
        }
    }

    async fn lost(&self) -> LostReason {
        match self {
            Self::One(guard) => guard.lost().await,
            Self::Several(guard) => guard.lost().await.1,
        }
    }
}

/// Gets what a claim asks for, showing whom it waits for.
///
/// # Errors
/// With [`Exit::Busy`] if it was not to be had in time, with [`Exit::Signal`] if a signal ended the wait.
pub(crate) async fn obtain(claim: &Claim, session: &mut Session) -> Result<Hold, Failure> {
    let locks = session.locks.clone();
    let _announcing = outage::announce(&locks, session.printer);
    patiently(claim, session, asked(claim, &locks)).await
}

/// Waits for a request, showing whom it waits for, until it is answered or a signal ends the wait.
pub(crate) async fn patiently<T>(
    claim: &Claim,
    session: &mut Session,
    request: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let locks = session.locks.clone();
    let request = async {
        nesting::check(claim, &locks).await?;
        request.await
    };
    tokio::select! {
        answer = request => answer,
        // Dropped here, the request gives up its place in the queue; closing the session waits for that.
        signal = session.signals.ending() => Err(interrupted(signal)),
        never = waiting::shown(claim, &session.locks, session.printer) => match never {},
    }
}

async fn asked(claim: &Claim, locks: &Locks) -> Result<Hold, Failure> {
    match claim.names.as_slice() {
        [name] => asked_one(claim, name, locks).await,
        _ => asked_several(claim, locks).await,
    }
}

async fn asked_one(claim: &Claim, name: &Name, locks: &Locks) -> Result<Hold, Failure> {
    let lock = claim.lock(name, locks);
    let granted = match claim.patience {
        Patience::None => match lock.try_acquire().await? {
            Attempt::Granted(guard) => Ok(guard),
            Attempt::Busy(busy) => return Err(refused(claim, &busy)),
        },
        Patience::AtMost(limit) => lock.wait(limit).acquire().await,
        Patience::Forever => lock.acquire().await,
    };
    Ok(Hold::One(granted.map_err(|error| not_ours(claim, error))?))
}

async fn asked_several(claim: &Claim, locks: &Locks) -> Result<Hold, Failure> {
    let request: MultiLock = locks.all(claim.names.iter().map(Name::as_str)).ttl(claim.ttl);
    let request = if claim.kind == Kind::Shared { request.shared() } else { request };
    let request = match claim.min_hold {
        Some(min_hold) => request.min_hold(min_hold),
        None => request,
    };
    let granted = match claim.patience {
        Patience::None => match request.try_acquire().await? {
            MultiAttempt::Granted(guard) => Ok(guard),
            MultiAttempt::Busy(busy) => return Err(refused(claim, &busy)),
        },
        Patience::AtMost(limit) => request.wait(limit).acquire().await,
        Patience::Forever => request.acquire().await,
    };
    Ok(Hold::Several(granted.map_err(|error| not_ours(claim, error))?))
}

/// Busy, and nobody wanted to wait.
fn refused(claim: &Claim, busy: &Busy) -> Failure {
    let held = match &busy.holder {
        Some(holder) => format!("{} is held by {}", claim.shown(), shown(holder)),
        None => format!("{} is held by somebody else", claim.shown()),
    };
    Failure::new(Exit::Busy(BUSY), held)
        .hint("wait for it with `--wait 1m`, or see who holds what with `leaseward ls`")
}

fn shown(holder: &Holder) -> String {
    match holder.remaining {
        Some(left) => format!("{} for another {}", holder.who, units::shown(left)),
        None => format!("{}, no known expiry", holder.who),
    }
}

fn not_ours(claim: &Claim, error: Error) -> Failure {
    let timed_out = error.kind() == ErrorKind::Timeout;
    let failure = Failure::from(error);
    match (timed_out, claim.patience) {
        (true, Patience::AtMost(limit)) => Failure::new(
            failure.exit,
            // It says who was in the way, if that is known.
            format!(
                "{} was not ours within {}: {}",
                claim.shown(),
                units::shown(limit),
                failure.message
            ),
        )
        .hint("wait longer, or see who holds what with `leaseward ls`"),
        _ => failure,
    }
}
