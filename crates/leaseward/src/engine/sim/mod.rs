//! The simulation: whole histories of clients and one store under virtual time, drawn by a seed.
//!
//! Pure: no runtime, no threads, no clock. Several [clients](client), each a table of the engine's own
//! [`Acquisition`](super::acquisition), share the memory store's own `Space` over a network that delays, reorders, loses
//! and repeats requests, answers and pushes. Processes stand still, crash, shut down; callers give up; what was decided
//! is carried out later than what another thread does meanwhile. At every step a [referee](check) looks at what the
//! clients believe; when the faults stop, every caller must be served and nothing may be left behind.
//!
//! `LEASEWARD_SIM_SEED=n cargo test -p leaseward --lib sim::tests::any_history -- --nocapture` tells one history in
//! words; `LEASEWARD_SIM_HISTORIES=n` tries more of them than the default.
//!
//! Each rule of the protocols can be taken out (`rules::without`), and the simulation must then find a history in which
//! somebody is hurt: that is what shows that the simulation could have found the mistake. R3 alone is for liveness:
//! without it nobody is hurt, callers only wait longer. R5 is taken out on the client's side, where it shows as a hold
//! that comes back with its old fence; the store's side of it (nothing is answered from a record of past grants) cannot
//! be taken out of a store that keeps no such record: `idempotence::an_expired_grant_is_never_revived` shows it.

mod check;
mod client;
mod dice;
mod plan;
mod tests;
mod trace;
mod world;
