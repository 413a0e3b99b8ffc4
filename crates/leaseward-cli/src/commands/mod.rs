//! One file a verb: its arguments, its help, what it does.

pub(crate) mod acquire;
pub(crate) mod break_lease;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod ls;
pub(crate) mod man;
#[cfg(feature = "postgres")]
pub(crate) mod migrate;
pub(crate) mod queue;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod show;
