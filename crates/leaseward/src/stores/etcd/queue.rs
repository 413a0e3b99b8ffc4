//! Who holds a name and who waits for it, from the keys that stand under it. Pure.
//!
//! Keys are ordered by their create revision. Whoever stands before another came earlier, and nobody is ever put before
//! somebody who stands already; so the holders are the longest beginning of the queue whose members go together, and who
//! is among them stays among them.

use std::{sync::Arc, time::Duration};

use super::{proto::KeyValue, record::Record};
use crate::{Holder, Mode, Token};

/// A place in a queue, first or last.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) key: Vec<u8>,
    pub(super) create: i64,
    pub(super) changed: i64,
    pub(super) lease: i64,
    /// `None`: another program's, which holds alone.
    pub(super) record: Option<Record>,
}

impl Place {
    pub(super) fn read(kv: KeyValue) -> Self {
        Self {
            record: Record::read(&kv.value),
            key: kv.key,
            create: kv.create_revision,
            changed: kv.mod_revision,
            lease: kv.lease,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.record.as_ref().map_or(Mode::Exclusive, Record::mode)
    }

    /// Whether it is this token's.
    pub(super) fn is_of(&self, token: &Token) -> bool {
        self.record.as_ref().is_some_and(|record| record.is_of(token))
    }

    /// Who it is, readable.
    pub(super) fn who(&self) -> Arc<str> {
        match &self.record {
            Some(record) => Arc::from(record.who.as_str()),
            None => Arc::from(format!("another program (lease {:x})", self.lease)),
        }
    }

    /// As others are told about it. How long its lease lasts yet only etcd knows: at most its TTL.
    pub(super) fn holder(&self) -> Holder {
        let ttl = self.record.as_ref().map_or(Duration::ZERO, Record::ttl);
        Holder::new(self.who(), self.mode(), (!ttl.is_zero()).then_some(ttl))
    }
}

/// The places of one name in their order.
pub(super) fn read(kvs: Vec<KeyValue>) -> Vec<Place> {
    let mut places: Vec<_> = kvs.into_iter().map(Place::read).collect();
    places.sort_by(|a, b| (a.create, &a.key).cmp(&(b.create, &b.key)));
    // The first may be among the last.
    places.dedup_by(|a, b| a.key == b.key);
    places
}

/// Whether somebody may come in behind so many holders of one mode.
fn goes_with(mode: Mode, first: Mode, holders: usize) -> bool {
    match mode {
        Mode::Exclusive => false,
        Mode::Shared => first == Mode::Shared,
        Mode::Permit { capacity } => {
            first == mode && holders < usize::try_from(capacity).unwrap_or(usize::MAX)
        }
    }
}

/// How many places at the beginning hold the name.
pub(super) fn holders(places: &[Place]) -> usize {
    let Some(first) = places.first().map(Place::mode) else { return 0 };
    let together = |(at, place): &(usize, &Place)| *at == 0 || goes_with(place.mode(), first, *at);
    places.iter().enumerate().take_while(together).count()
}

/// Whether a newcomer of this mode would hold the name at once.
pub(super) fn admits(places: &[Place], mode: Mode) -> bool {
    match places.first() {
        None => true,
        Some(first) => {
            holders(places) == places.len() && goes_with(mode, first.mode(), places.len())
        }
    }
}

/// The capacity in force, if it is another than the one asked for.
pub(super) fn other_capacity(places: &[Place], mode: Mode) -> Option<u32> {
    match (places.first().map(Place::mode), mode) {
        (Some(Mode::Permit { capacity }), Mode::Permit { capacity: asked }) => {
            (capacity != asked).then_some(capacity)
        }
        _ => None,
    }
}

/// How one place stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It is not there.
    Missing,
    Holds,
    Waits {
        until: Until,
        /// Who stands before it without holding.
        ahead: usize,
    },
}

/// What has to go before it is worth looking again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// This key.
    Gone(Vec<u8>),
    /// So many of these keys.
    FewerOf(Vec<Vec<u8>>, usize),
}

pub(super) fn stand(places: &[Place], own: &[u8]) -> Stand {
    let Some(at) = places.iter().position(|place| place.key == own) else { return Stand::Missing };
    let holding = holders(places);
    if at < holding {
        return Stand::Holds;
    }
    let (before, mode) = (&places[..at], places[at].mode());
    let other = before.iter().rev().find(|place| match mode {
        Mode::Exclusive => true,
        Mode::Shared | Mode::Permit { .. } => place.mode() != mode,
    });
    let until = match (other, mode) {
        (Some(other), _) => Until::Gone(other.key.clone()),
        (None, Mode::Permit { capacity }) => {
            let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
            let keys = before.iter().map(|place| place.key.clone()).collect();
            Until::FewerOf(keys, (before.len() + 1).saturating_sub(capacity))
        }
        // Behind others like it one holds: nothing to wait for, and nothing that could be missed.
        (None, _) => Until::Gone(own.to_vec()),
    };
    Stand::Waits { until, ahead: at - holding.min(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Mode = Mode::Exclusive;
    const S: Mode = Mode::Shared;
    const P2: Mode = Mode::Permit { capacity: 2 };

    fn queue(modes: &[Mode]) -> Vec<Place> {
        let token = Token::new(1, Arc::from("me"));
        let place = |(at, mode): (usize, &Mode)| Place {
            key: vec![u8::try_from(at).expect("few")],
            create: i64::try_from(at).expect("few") + 10,
            changed: 0,
            lease: 0,
            record: Some(Record::new(&token, *mode, Duration::from_secs(5), 0, None)),
        };
        modes.iter().enumerate().map(place).collect()
    }

    #[test]
    fn the_first_who_go_together_hold() {
        for (modes, count) in [
            (&[][..], 0),
            (&[X, X, S], 1),
            (&[S, S, X, S], 2),
            (&[P2, P2, P2], 2),
            (&[P2, S], 1),
            (&[P2, Mode::Permit { capacity: 3 }], 1),
        ] {
            assert_eq!(holders(&queue(modes)), count, "{modes:?}");
        }
    }

    #[test]
    fn newcomers_overtake_nobody() {
        assert!(admits(&queue(&[]), X) && admits(&queue(&[S, S]), S) && admits(&queue(&[P2]), P2));
        assert!(!admits(&queue(&[S, X]), S), "a writer waits");
        assert!(!admits(&queue(&[P2, P2]), P2) && !admits(&queue(&[X]), X));
    }

    #[test]
    fn each_waits_for_what_is_in_its_way() {
        let until = |modes: &[Mode], at: u8| match stand(&queue(modes), &[at]) {
            Stand::Waits { until, .. } => until,
            other => panic!("{other:?}"),
        };
        assert_eq!(until(&[X, X, X], 2), Until::Gone(vec![1]));
        assert_eq!(until(&[S, X, S, S], 3), Until::Gone(vec![1]), "the last writer before");
        assert_eq!(until(&[P2, P2, P2], 2), Until::FewerOf(vec![vec![0], vec![1]], 1));
        assert_eq!(until(&[X, P2], 1), Until::Gone(vec![0]));
        assert_eq!(stand(&queue(&[S, S]), &[1]), Stand::Holds);
        assert_eq!(stand(&queue(&[S, S]), &[9]), Stand::Missing);
    }

    #[test]
    fn what_is_not_ours_holds_alone() {
        let mut places = queue(&[S, S]);
        places[0].record = None;
        assert_eq!(holders(&places), 1);
        assert!(places[0].who().contains("another program"));
    }
}
