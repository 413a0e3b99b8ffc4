//! The stores. Each folder uses only the seam, the clock and the value types.

#[cfg(feature = "etcd")]
pub mod etcd;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod tls;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use crate::store::Scheme;

/// One line a store: this is all that adding one touches outside its folder.
pub(crate) static REGISTRY: &[&Scheme] = &[
    &memory::SCHEME,
    #[cfg(feature = "etcd")]
    &etcd::SCHEME,
    #[cfg(feature = "postgres")]
    &postgres::SCHEME,
    #[cfg(feature = "postgres")]
    &postgres::advisory::SCHEME,
    #[cfg(feature = "redis")]
    &redis::SCHEME,
    #[cfg(feature = "redis")]
    &redlock::SCHEME,
    #[cfg(feature = "sqlite")]
    &sqlite::SCHEME,
    #[cfg(feature = "zookeeper")]
    &zookeeper::SCHEME,
];
