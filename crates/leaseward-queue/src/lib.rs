#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
// The seam is as wide as both databases together need it.
#![cfg_attr(not(all(feature = "postgres", feature = "sqlite")), allow(dead_code))]

mod backend;
mod body;
mod builder;
mod crew;
mod cron;
mod ending;
mod events;
mod id;
mod job;
mod maintenance;
mod manage;
mod meters;
mod names;
mod push;
mod queue;
mod retry;
mod session;
mod strays;
pub mod tx;
mod view;
mod wake;
mod worker;

pub use leaseward::{Error, ErrorKind, Fence};

#[doc(hidden)]
pub use self::queue::migrate_to;
pub use self::{
    body::Failed,
    builder::{Builder, TTL_DEFAULT, TTL_MIN},
    cron::{Cron, Missed, Scheduled},
    ending::{Ending, Failure},
    events::{Event, EventKind},
    id::{JobId, Priority},
    job::{NAME_MAX_BYTES, NewJob, PAYLOAD_MAX_BYTES, Pushed},
    manage::Cancelled,
    queue::{Queue, migrate},
    retry::Backoff,
    view::{JobState, JobView, QueueStats},
    worker::{Context, MAX_ATTEMPTS_DEFAULT, Summary, Worker},
};
