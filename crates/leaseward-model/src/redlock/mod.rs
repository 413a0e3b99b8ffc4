//! Redlock with fences: independent nodes, each with one name, and clients that need a majority of them.
//!
//! A node decides by `ballot::bar`, `ballot::may_grant` and `amnesia::right`, a client by `ballot::propose` and
//! `quorum::Quorum`. Around them:
//! - requests and answers are delayed for any time, or lost. A client's requests reach a node in the order in which they
//!   were sent, over one connection; when it breaks, what was under way is lost ([`Network::Connections`]). Or else they
//!   overtake each other and arrive twice ([`Network::Wild`]), as is enough for the order of fences;
//! - nodes restart, with their memory (which is a broken connection), without it, or with an older one;
//! - leases end by time ([`Lease::Ticks`]), or at any moment ([`Lease::AnyTime`]), as when clocks are stepped or keys are
//!   deleted by hand;
//! - an attempt that failed is taken back; its token asks again under a larger ballot, or gives up. Holders renew, ask once
//!   more, release, or stop without a word.
//!
//! All clocks run at one rate. Those of clients differ by what [`ClientBounds::offset_us`] says.

mod bounds;
mod client;
mod decide;
mod node;
mod rules;
mod spent;
mod state;
mod world;

pub use self::{
    bounds::{Bounds, ClientBounds, Lease, Network},
    rules::Without,
    state::{
        Answer, Attempt, Block, Client, Column, Doing, Firsts, Lock, Operation, Phase, Request,
        Slot, State, Token, Wire, Wrong,
    },
    world::{Action, Fate, World},
};
