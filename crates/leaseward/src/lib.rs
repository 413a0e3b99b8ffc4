#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

pub mod clock;
mod error;
mod fence;
mod lease;
mod name;
pub mod store;
pub mod stores;
mod token;

pub use error::{Error, ErrorKind};
pub use fence::{Block, Fence};
pub use lease::{
    CAPACITY_MAX, Holder, LostReason, Mode, TTL_DEFAULT, TTL_MAX, TTL_MIN, VALUE_MAX_BYTES, Value,
};
pub use name::{NAME_MAX_BYTES, Name};
pub use token::Token;
