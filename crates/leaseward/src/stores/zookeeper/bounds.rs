//! What the servers allow: how long sessions may last, and whether several things can be read at once.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    session::{BEATS, Ground, Session},
    wire::{Read, Request},
};
use crate::{Error, ErrorKind, TTL_MIN};

/// A busy server may answer later than a short session lasts: so often in a row it does not.
const BEGINNINGS: usize = 4;

/// Begins a session.
pub(super) async fn begin(
    ground: &Arc<Ground>,
    timeout: Duration,
    tick: Duration,
) -> Result<Arc<Session>, Error> {
    let mut attempts = if timeout > ground.config.timeout { 1 } else { BEGINNINGS };
    loop {
        attempts -= 1;
        match Session::open(ground, timeout, tick).await {
            Err(error) if attempts > 0 && error.kind() == ErrorKind::Unavailable => {}
            outcome => return outcome,
        }
    }
}

/// Finds out whether the servers read several at once. Those that do not (3.5) say so and end the session, so it is asked
/// in one that is not needed further. Without an answer they are taken for such.
async fn ask_for_reads(ground: &Ground, session: &Session) {
    let read = Read::Get { path: "/".to_owned() };
    let answer = session.ask(Request::Reads(vec![read])).await;
    ground.reads.store(answer.is_ok(), Ordering::Relaxed);
}

/// How long sessions may last, by the servers' settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    shortest: Duration,
    longest: Duration,
}

impl Bounds {
    pub(super) async fn learn(ground: &Arc<Ground>) -> Result<Self, Error> {
        // The longest first: what is wrong with the servers is found out by it.
        let mut found = [Duration::ZERO; 2];
        for (found, asked) in found.iter_mut().zip([Duration::MAX, Duration::from_millis(1)]) {
            let session = begin(ground, asked, Duration::ZERO).await?;
            *found = session.timeout;
            if asked == Duration::MAX {
                ask_for_reads(ground, &session).await;
            }
            session.close(true);
        }
        let [longest, shortest] = found;
        let this = Self { shortest, longest };
        this.check(&ground.config.location())?;
        Ok(this)
    }

    /// Whether there is a lease that sessions can carry. Servers with different settings may contradict each other.
    fn check(&self, at: &str) -> Result<(), Error> {
        if self.shortest <= self.longest && self.longest_ttl() >= TTL_MIN {
            return Ok(());
        }
        let message = format!(
            "sessions with {at} are too short for a lease: {:?} at least, {:?} at most",
            self.shortest, self.longest
        );
        Err(Error::new(ErrorKind::Refused, message)
            .hint("raise `maxSessionTimeout`, to a minute or more, on all servers"))
    }

    /// The servers count in ticks; the shortest session lasts two of them.
    pub(super) fn tick(&self) -> Duration {
        self.shortest / 2
    }

    /// The shortest session, unless a lease of that length needs one that is longer than the longest.
    pub(super) fn shortest_ttl(&self) -> Duration {
        self.shortest.min(self.longest_ttl())
    }

    pub(super) fn longest_ttl(&self) -> Duration {
        (self.longest - self.longest / BEATS).saturating_sub(self.tick())
    }

    /// What a lease needs its session to last: its own time, and that in which the leader may not have heard of the last
    /// word of it.
    pub(super) fn needed(&self, ttl: Duration) -> Duration {
        let base = ttl + self.tick();
        let needed = base + base / (BEATS - 1);
        // In whole milliseconds, as the server is told.
        let needed_ms = u64::try_from(needed.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        Duration::from_millis(needed_ms).clamp(self.shortest, self.longest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TTL_MAX;

    proptest! {
        #[test]
        fn what_servers_say_is_refused_or_has_room_for_a_lease(
            shortest_ms in 0..=i32::MAX as u64,
            longest_ms in 0..=i32::MAX as u64,
            ttl_ms in 0..=100_000_000u64,
        ) {
            let ms = Duration::from_millis;
            for longest_ms in [longest_ms, shortest_ms.saturating_add(longest_ms % 5_000)] {
                let bounds = Bounds { shortest: ms(shortest_ms), longest: ms(longest_ms) };
                if bounds.check("x").is_err() {
                    continue;
                }
                let (least, most) = (bounds.shortest_ttl(), bounds.longest_ttl());
                prop_assert!(least <= most && most >= TTL_MIN && TTL_MAX.clamp(least, most) == most.min(TTL_MAX.max(least)));
                let needed = bounds.needed(ms(ttl_ms));
                prop_assert!(bounds.shortest <= needed && needed <= bounds.longest);
            }
        }
    }

    #[test]
    fn a_longest_session_near_the_shortest_leaves_shorter_leases() {
        let bounds = Bounds { shortest: Duration::from_secs(4), longest: Duration::from_secs(6) };
        bounds.check("x").expect("room for a lease");
        assert_eq!(bounds.shortest_ttl(), bounds.longest_ttl());
        assert_eq!(bounds.longest_ttl(), Duration::from_millis(3_250));
        assert_eq!(bounds.needed(bounds.longest_ttl()), Duration::from_secs(6));
    }
}
