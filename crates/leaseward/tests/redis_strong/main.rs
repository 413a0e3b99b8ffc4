//! Strong mode of the Redis store against real servers: what too few replicas acknowledged does not count.
#![cfg(feature = "redis")]

mod commit;
mod cuts;
mod help;
mod lost_primary;
mod setup;
mod shortage;
