//! One suite of promises, run over every store.
//!
//! A [`Case`] shows one promise of the library through its public API, or one promise of the seam through a bare
//! [`Store`](leaseward::store::Store). A [`Fixture`] is a place where leases are kept, made for one case alone: its
//! *provider* makes clients, its *strategy* breaks the place, [`Faulty`] breaks what is between them, and a
//! [`Taker`](support::Taker) is another process to kill or to freeze. `tests/conformance.rs` runs every case on every
//! fixture; a case that needs what a store does not have is reported as ignored, with the reason.
//!
//! To add a store: one file in `fixture/` and one line in [`fixture::FIXTURES`]. To add a case: a function in
//! `cases/<group>.rs` and its line in that file's `CASES`; `docs/guarantees.md` says which promise it shows.

mod case;
pub mod cases;
mod faulty;
pub mod fixture;
mod need;
mod run;
pub mod support;

pub use case::{Case, Group, Pace};
pub use faulty::{Fate, Faulty, Kind, PushFate};
pub use fixture::Fixture;
pub use need::Need;
pub use run::{Verdict, run};
