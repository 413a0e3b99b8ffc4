//! Models of Leaseward's protocols, checked exhaustively: every order of events within stated bounds.
//!
//! A model is the world around the decisions: messages, clocks, crashes. The decisions themselves are the library's own
//! functions, so that what is checked is what runs. Each check can be taken out ([`redlock::Without`]); the model must then
//! find a counter-example, or it shows nothing.
//!
//! Not covered: the threads inside one process, and everything that the bounds leave out. `docs/protocols.md` has the
//! results.

pub mod redlock;
