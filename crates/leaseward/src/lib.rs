#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod audit;
pub mod blocking;
pub mod clock;
mod diagnosis;
mod election;
mod engine;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod event;
mod fence;
pub mod fenced;
mod guard;
mod handle;
mod lease;
mod lock;
mod locks;
mod multi;
mod name;
mod observe;
pub mod optimistic;
mod options;
#[cfg(feature = "postgres")]
pub mod postgres;
mod rules;
#[cfg(all(unix, feature = "signal"))]
mod signal;
pub mod store;
pub mod stores;
mod token;

pub use audit::AuditLog;
pub use election::{Election, Followed, Leader, LeaderView};
pub use engine::order::OrderCheck;
pub use error::{Error, ErrorKind};
pub use event::{Event, EventKind};
pub use fence::{Block, Fence};
pub use guard::{Danger, Guard, Lease, OwnerId, Release};
pub use handle::Handle;
pub use lease::{
    CAPACITY_MAX, Holder, LostReason, Mode, TTL_DEFAULT, TTL_MAX, TTL_MIN, VALUE_MAX_BYTES, Value,
};
pub use lock::{Attempt, Busy, Lock};
pub use locks::{Builder, Health, Locks, connect};
pub use multi::{MultiAttempt, MultiGuard, MultiLock};
pub use name::{NAME_MAX_BYTES, Name};
pub use observe::Observations;
pub use token::Token;
