//! etcd's leases that carry ours: one for each class of TTLs, shared by all tokens of this process.
//!
//! A class is the smallest step of a ladder that is no shorter than the TTL. What a token may believe is counted from the
//! sending of the last keep-alive that was answered: until then plus the class's time, etcd keeps the key.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::{
    conn::{LEASE_GRANT, LEASE_REVOKE},
    error::{self, Asked},
    link::Link,
    proto::{LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, LeaseResponse},
};
use crate::{
    Error, ErrorKind,
    clock::{Clock, Moment},
    store::Evidence,
};

/// The shortest: etcd raises anything below one and a half election timeouts, which is 1.5 s where nobody changed it.
pub(super) const SHORTEST: Duration = Duration::from_secs(2);

/// Keep-alives come this often in a class's time: three may be lost.
const PER_CLASS: u32 = 4;

/// One lease of etcd's.
#[derive(Debug)]
pub(super) struct ClassLease {
    pub(super) id: i64,
    pub(super) class: u64,
    time: Duration,
    /// When the last request that etcd confirmed was sent, in nanoseconds.
    confirmed: AtomicU64,
    /// When it was last wanted for something new.
    used: AtomicU64,
    is_dead: AtomicBool,
    /// Confirmed over the connection that there is now. A member that was cut off may go on confirming for a moment
    /// what the others no longer know (etcd issue 15247); but then it agrees to nothing else, and is left.
    is_sure: AtomicBool,
    heard: Notify,
}

impl ClassLease {
    pub(super) fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    /// Until then etcd keeps what it carries.
    pub(super) fn lasts_until(&self) -> Moment {
        self.confirmed() + self.time
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    /// `true` the first time.
    pub(super) fn die(&self) -> bool {
        let first = !self.is_dead.swap(true, Ordering::AcqRel);
        self.heard.notify_waiters();
        first
    }

    pub(super) fn confirm(&self, sent: Moment) {
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        self.is_sure.store(true, Ordering::Release);
        self.heard.notify_waiters();
    }

    /// The connection has changed.
    pub(super) fn doubt(&self) {
        self.is_sure.store(false, Ordering::Release);
    }

    /// Whether it was confirmed well enough to carry something new.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        now < self.due() && self.is_sure.load(Ordering::Acquire) && !self.is_dead()
    }

    /// When it is to be kept alive next.
    pub(super) fn due(&self) -> Moment {
        self.confirmed() + self.time / PER_CLASS
    }

    pub(super) fn unused_for(&self, now: Moment) -> Duration {
        now.since(Moment::from_nanos(self.used.load(Ordering::Relaxed)))
    }

    /// The moment from which a TTL may be counted, so that it ends no later than the key.
    pub(super) fn counts_from(&self, now: Moment, ttl: Duration) -> Moment {
        self.counts_from_confirmed(self.confirmed(), now, ttl)
    }

    /// The same, of an earlier confirmation.
    pub(super) fn counts_from_confirmed(
        &self,
        confirmed: Moment,
        now: Moment,
        ttl: Duration,
    ) -> Moment {
        now.min((confirmed + self.time).before(ttl))
    }

    pub(super) fn evidence(&self, now: Moment, ttl: Duration) -> Evidence {
        Evidence::Sent(self.counts_from(now, ttl))
    }

    /// Whether it can carry something of this TTL.
    pub(super) fn carries(&self, ttl: Duration) -> bool {
        !self.is_dead() && self.time >= ttl
    }

    /// Waits until something sent after a moment was confirmed; `false` if it is dead.
    async fn confirmed_after(&self, moment: Moment) -> bool {
        loop {
            let mut heard = std::pin::pin!(self.heard.notified());
            heard.as_mut().enable();
            if self.is_dead() || self.confirmed() >= moment {
                return !self.is_dead();
            }
            heard.await;
        }
    }
}

/// The step of the ladder for a TTL, in seconds.
fn class_of(ttl: Duration) -> u64 {
    let seconds = ttl.max(SHORTEST).as_millis().div_ceil(1_000);
    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
    // Whole seconds up to ten, then eighteen steps for each factor of ten: few leases, none much longer than it need be.
    let mut unit = 1;
    while seconds > 100 * unit {
        unit *= 10;
    }
    let step = if seconds > 10 { 5 * unit } else { 1 };
    seconds.div_ceil(step) * step
}

pub(super) struct Leases {
    classes: Mutex<BTreeMap<u64, Arc<ClassLease>>>,
    granting: tokio::sync::Mutex<()>,
    /// Has a lease kept alive now.
    keep: mpsc::UnboundedSender<Arc<ClassLease>>,
}

impl Leases {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Arc<ClassLease>>) {
        let (keep, orders) = mpsc::unbounded_channel();
        let this =
            Self { classes: Mutex::default(), granting: tokio::sync::Mutex::default(), keep };
        (this, orders)
    }

    pub(super) fn all(&self) -> Vec<Arc<ClassLease>> {
        self.classes.lock().values().cloned().collect()
    }

    fn find(&self, class: u64) -> Option<Arc<ClassLease>> {
        self.classes.lock().get(&class).cloned().filter(|lease| !lease.is_dead())
    }

    pub(super) fn forget(&self, lease: &Arc<ClassLease>) {
        let mut classes = self.classes.lock();
        if classes.get(&lease.class).is_some_and(|known| Arc::ptr_eq(known, lease)) {
            classes.remove(&lease.class);
        }
    }

    /// A lease that will carry something of this TTL, confirmed not long ago.
    pub(super) async fn for_ttl(
        &self,
        link: &Link,
        clock: &dyn Clock,
        ttl: Duration,
    ) -> Result<Arc<ClassLease>, Error> {
        let class = class_of(ttl);
        // Twice: one that turns out to be dead is followed by another.
        for _ in 0..2 {
            let lease = match self.find(class) {
                Some(lease) => lease,
                None => self.grant(link, clock, class).await?,
            };
            let now = clock.now();
            lease.used.store(now.as_nanos(), Ordering::Relaxed);
            if lease.is_fresh(now) || self.refresh(link, clock, &lease).await? {
                return Ok(lease);
            }
        }
        Err(silent(link))
    }

    async fn grant(
        &self,
        link: &Link,
        clock: &dyn Clock,
        class: u64,
    ) -> Result<Arc<ClassLease>, Error> {
        let _one_at_a_time = self.granting.lock().await;
        if let Some(lease) = self.find(class) {
            return Ok(lease);
        }
        let sent = clock.now();
        let request = LeaseGrantRequest { ttl: i64::try_from(class).unwrap_or(i64::MAX) };
        // One that was granted unheard ends by itself, so asking twice is no harm.
        let answer: LeaseGrantResponse = link.call(LEASE_GRANT, Asked::Read, request).await?;
        let seconds = u64::try_from(answer.ttl).map_err(|_| error::unexpected())?;
        let lease = Arc::new(ClassLease {
            id: answer.id,
            class,
            time: Duration::from_secs(seconds),
            confirmed: AtomicU64::new(sent.as_nanos()),
            used: AtomicU64::new(sent.as_nanos()),
            is_dead: AtomicBool::new(false),
            is_sure: AtomicBool::new(true),
            heard: Notify::new(),
        });
        self.classes.lock().insert(class, lease.clone());
        // So that whoever keeps leases alive knows of it.
        let _ = self.keep.send(lease.clone());
        Ok(lease)
    }

    /// Has a lease confirmed now; `false` if it turned out to be dead.
    pub(super) async fn refresh(
        &self,
        link: &Link,
        clock: &dyn Clock,
        lease: &Arc<ClassLease>,
    ) -> Result<bool, Error> {
        let asked = clock.now();
        let _ = self.keep.send(lease.clone());
        let confirmed = lease.confirmed_after(asked);
        let answer = tokio::time::timeout(link.config.timeout, confirmed).await;
        answer.map_err(|_| silent(link))
    }

    /// Ends a lease in etcd, and everything that it carries there.
    pub(super) async fn revoke(&self, link: &Link, lease: &ClassLease) {
        let request = LeaseRequest { id: lease.id };
        let _ = link.call::<_, LeaseResponse>(LEASE_REVOKE, Asked::Read, request).await;
    }
}

fn silent(link: &Link) -> Error {
    let message = format!("{} does not confirm that this process is alive", link.config.location());
    Error::new(ErrorKind::Unavailable, message).hint("is a majority of its members up?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_never_shorter_and_seldom_much_longer() {
        for (ttl_ms, class) in
            [(100, 2), (2_000, 2), (2_001, 3), (10_000, 10), (10_001, 15), (30_000, 30)]
        {
            assert_eq!(class_of(Duration::from_millis(ttl_ms)), class, "{ttl_ms} ms");
        }
        assert_eq!(class_of(Duration::from_secs(3600)), 4_000);
        assert_eq!(class_of(Duration::from_secs(24 * 3600)), 90_000);
        let mut classes = std::collections::BTreeSet::new();
        for seconds in 1..=24 * 3600 {
            let class = class_of(Duration::from_secs(seconds));
            assert!(
                class >= seconds && (seconds <= 10 || class < seconds + seconds / 2),
                "{seconds}"
            );
            classes.insert(class);
        }
        assert!(classes.len() < 100, "{} classes", classes.len());
    }

    #[test]
    fn no_ttl_ends_after_its_lease() {
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        let lease = ClassLease {
            id: 1,
            class: 10,
            time: Duration::from_secs(10),
            confirmed: AtomicU64::new(at(100).as_nanos()),
            used: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            is_sure: AtomicBool::new(true),
            heard: Notify::new(),
        };
        for (now, ttl, from) in [(101, 10, 100), (101, 9, 101), (105, 9, 101), (105, 2, 105)] {
            let counted = lease.counts_from(at(now), Duration::from_secs(ttl));
            assert_eq!(counted, at(from), "{ttl} s at {now}");
            assert!(counted + Duration::from_secs(ttl) <= lease.lasts_until());
        }
    }
}
