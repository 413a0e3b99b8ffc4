//! Fences: from create revisions to the one scale, microseconds since the epoch.
//!
//! `fence = base + create revision × 64`. The base is written once, so that the first fence is the clock's; each
//! transaction that creates a key also reads it, so all clients count from the same. It is written anew, never lower,
//! where it would not make fences grow: the cluster is another one (restored, rebuilt), or has gone back.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{
    conn::TXN,
    error::{self, Asked},
    keys::Keys,
    link::Link,
    proto::{KeyValue, TxnRequest, TxnResponse},
    requests::{is_absent, is_unchanged, one, put, range},
};
use crate::{Block, Error, Fence, clock::Clock};

/// Fences of one create revision: as many as a cohort can use.
const STEP: u32 = 64;

/// Attempts to write the base against others who do the same.
const ATTEMPTS: u32 = 10;

/// As it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    base: i64,
    cluster: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    base: i64,
    cluster: u64,
    revision: i64,
}

/// What was seen of the scale along with something else.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) found: Option<KeyValue>,
    pub(super) cluster: u64,
    pub(super) revision: i64,
    /// The newest revision known when that was asked for.
    pub(super) known_before: i64,
}

#[derive(Debug, Default)]
pub(super) struct Scale {
    known: Mutex<Known>,
}

/// The fence of a create revision.
pub(super) fn fence(base: i64, create: i64) -> Fence {
    let at = base.saturating_add(create.saturating_mul(i64::from(STEP)));
    Fence::new(u64::try_from(at).unwrap_or(0))
}

/// All the fences of a grant.
pub(super) fn block(first: Fence, len: u32) -> Block {
    Block { first, len: len.clamp(1, STEP) }
}

fn base_for(clock_us: u64, revision: i64) -> i64 {
    let clock = i64::try_from(clock_us).unwrap_or(i64::MAX);
    clock.saturating_sub(revision.saturating_mul(i64::from(STEP)))
}

impl Scale {
    /// The newest revision that was seen.
    pub(super) fn revision(&self) -> i64 {
        self.known.lock().revision
    }

    /// The fence of whatever is created next, if anything is known.
    pub(super) fn newest(&self) -> Option<Fence> {
        let known = *self.known.lock();
        (known.base != 0).then(|| fence(known.base, known.revision))
    }

    /// The base, if what was seen is good to count from.
    fn judge(&self, sight: &Sight) -> Option<i64> {
        let written: Written = serde_json::from_slice(&sight.found.as_ref()?.value).ok()?;
        let mut known = self.known.lock();
        let went_back = sight.revision < sight.known_before;
        let fell = known.cluster == sight.cluster && written.base < known.base;
        if written.cluster != sight.cluster || went_back || fell {
            return None;
        }
        *known = Known {
            base: written.base,
            cluster: written.cluster,
            revision: known.revision.max(sight.revision),
        };
        Some(written.base)
    }

    /// The base to count from, written anew where it must be.
    pub(super) async fn base(
        &self,
        link: &Link,
        keys: &Keys,
        clock: &dyn Clock,
        mut sight: Sight,
    ) -> Result<i64, Error> {
        for _ in 0..ATTEMPTS {
            if let Some(base) = self.judge(&sight) {
                return Ok(base);
            }
            sight = self.write(link, keys, clock, &sight).await?;
        }
        Err(error::unexpected())
    }

    async fn write(
        &self,
        link: &Link,
        keys: &Keys,
        clock: &dyn Clock,
        sight: &Sight,
    ) -> Result<Sight, Error> {
        let key = keys.scale();
        let before = sight.found.as_ref();
        let written = before.and_then(|found| serde_json::from_slice::<Written>(&found.value).ok());
        let floor = written.map_or(i64::MIN, |written| written.base).max({
            let known = self.known.lock();
            if known.base == 0 { i64::MIN } else { known.base }
        });
        let base = base_for(clock.wall_us(), sight.revision).max(floor);
        let value = serde_json::to_vec(&Written { base, cluster: sight.cluster })
            .expect("BUG: numbers can be written");
        let guard = match before {
            Some(found) => is_unchanged(&key, found.mod_revision),
            None => is_absent(&key),
        };
        let txn = TxnRequest {
            compare: vec![guard],
            success: vec![put(&key, value, 0), range(one(&key))],
            failure: vec![range(one(&key))],
        };
        let mut answer: TxnResponse = link.call(TXN, Asked::Write, txn).await?;
        // From here on revisions are those of this cluster.
        self.known.lock().revision = answer.revision();
        let last = answer.responses.pop().ok_or_else(error::unexpected)?;
        Ok(Sight {
            found: last.range().kvs.pop(),
            cluster: answer.cluster(),
            revision: answer.revision(),
            known_before: 0,
        })
    }

    /// Reads or writes it, before anything is asked.
    pub(super) async fn settle(
        &self,
        link: &Link,
        keys: &Keys,
        clock: &dyn Clock,
    ) -> Result<i64, Error> {
        let known_before = self.revision();
        let txn = TxnRequest { success: vec![range(one(&keys.scale()))], ..TxnRequest::default() };
        let mut answer: TxnResponse = link.call(TXN, Asked::Read, txn).await?;
        let found = answer.responses.pop().ok_or_else(error::unexpected)?.range().kvs.pop();
        let (cluster, revision) = (answer.cluster(), answer.revision());
        self.base(link, keys, clock, Sight { found, cluster, revision, known_before }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fence_is_the_clocks_and_each_revision_has_its_block() {
        let base = base_for(1_700_000_000_000_000, 41);
        assert_eq!(fence(base, 41), Fence::new(1_700_000_000_000_000));
        assert_eq!(fence(base, 42).get() - fence(base, 41).get(), u64::from(STEP));
        assert!(block(fence(base, 41), 64).last() < fence(base, 42));
    }

    fn sight(base: i64, cluster: u64, seen_in: u64, revision: i64, known_before: i64) -> Sight {
        let value = serde_json::to_vec(&Written { base, cluster }).expect("written");
        let found = Some(KeyValue { value, ..KeyValue::default() });
        Sight { found, cluster: seen_in, revision, known_before }
    }

    #[test]
    fn what_would_not_make_fences_grow_is_not_counted_from() {
        let scale = Scale::default();
        assert_eq!(scale.judge(&sight(1_000, 7, 7, 50, 0)), Some(1_000));
        assert_eq!(scale.judge(&sight(1_000, 7, 8, 60, 50)), None, "restored into a new cluster");
        assert_eq!(scale.judge(&sight(1_000, 7, 7, 49, 50)), None, "it has gone back");
        assert_eq!(scale.judge(&sight(999, 7, 7, 60, 50)), None, "written anew by an older clock");
        let gone = Sight { found: None, ..sight(0, 7, 7, 60, 50) };
        assert_eq!(scale.judge(&gone), None);
        assert_eq!(scale.judge(&sight(1_000, 7, 7, 55, 50)), Some(1_000));
    }
}
