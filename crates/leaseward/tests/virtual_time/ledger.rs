//! Who holds what, as the holders themselves see it, and what must hold about it.

use std::{collections::BTreeMap, sync::Arc};

use leaseward::{Fence, Guard, Lease, Mode};
use parking_lot::Mutex;

/// A hold that somebody was given.
struct Held {
    lease: Lease,
    mode: Mode,
    slot: Option<u32>,
}

#[derive(Default)]
struct Books {
    holds: BTreeMap<String, Vec<Held>>,
    newest: BTreeMap<String, Fence>,
    registers: BTreeMap<String, (Fence, u64)>,
    starts: u64,
    trace: Vec<String>,
    is_told: bool,
}

/// The referee: sees everything, decides nothing, panics at the first broken promise.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<Mutex<Books>>);

impl Ledger {
    /// `is_told`: somebody reads along.
    pub(crate) fn new(is_told: bool) -> Self {
        Self(Arc::new(Mutex::new(Books { is_told, ..Books::default() })))
    }

    /// Notes something that the same seed must bring about again.
    pub(crate) fn note(&self, line: String) {
        let mut books = self.0.lock();
        if books.is_told {
            println!("{line}");
        }
        books.trace.push(line);
    }

    /// Somebody was given a guard. Answers which hold it is, or `None` if it came too late to be relied on.
    pub(crate) fn started(&self, guard: &Guard) -> Option<u64> {
        if !guard.is_held() {
            return None;
        }
        let mut books = self.0.lock();
        let name = guard.name().to_string();
        if guard.mode() == Mode::Exclusive {
            let newest = books.newest.insert(name.clone(), guard.fence());
            assert!(newest < Some(guard.fence()), "`{name}`: {newest:?} then {}", guard.fence());
        }
        let held = Held { lease: guard.lease(), mode: guard.mode(), slot: guard.slot() };
        books.holds.entry(name).or_default().push(held);
        books.starts += 1;
        let start = books.starts;
        drop(books);
        self.look();
        Some(start)
    }

    /// Looks at what everybody relies on at this moment.
    pub(crate) fn look(&self) {
        let mut books = self.0.lock();
        for (name, holds) in &mut books.holds {
            holds.retain(|held| held.lease.is_held());
            let writers = holds.iter().filter(|held| held.mode == Mode::Exclusive).count();
            assert!(
                writers == 0 || holds.len() == 1,
                "`{name}` is held by {} at once, {writers} of them exclusively: {:?}",
                holds.len(),
                holds.iter().map(|held| held.lease.clone()).collect::<Vec<_>>(),
            );
            if let Some(Mode::Permit { capacity }) = holds.first().map(|held| held.mode) {
                let mut slots: Vec<_> = holds.iter().map(|held| held.slot).collect();
                slots.sort_unstable();
                slots.dedup();
                let most = usize::try_from(capacity).expect("small");
                assert!(holds.len() <= most, "{} of {capacity} permits", holds.len());
                assert_eq!(slots.len(), holds.len(), "two holders of one permit: {slots:?}");
            }
        }
    }

    /// A write of an exclusive hold reached what the lock protects, which takes the highest fence and above.
    pub(crate) fn written(&self, name: &str, fence: Fence, start: u64) {
        let mut books = self.0.lock();
        let register = books.registers.entry(name.to_owned()).or_default();
        if fence < register.0 {
            return;
        }
        assert!(
            start >= register.1,
            "`{name}`: a write of an earlier hold was taken, fence {fence}"
        );
        *register = (fence, start);
    }

    pub(crate) fn starts(&self) -> u64 {
        self.0.lock().starts
    }

    /// Lets go of the engines and answers with what was noted.
    pub(crate) fn close(&self) -> Vec<String> {
        let mut books = self.0.lock();
        books.holds.clear();
        std::mem::take(&mut books.trace)
    }
}
