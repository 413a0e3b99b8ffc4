//! Real servers, and the tools to break them, for the tests and benchmarks of this workspace.
//!
//! Everything starts on ports of its own, in a folder of its own, and ends with its value, or with the test program
//! however that ends. What is missing on the machine is a panic that says how to install it: a test that needs a server
//! fails without one, it is never skipped.

mod certificates;
mod cluster;
mod etcd;
pub mod peers;
mod port;
mod postgres;
mod process;
mod proxy;
mod redis;
mod sentinels;
mod skew;
mod wait;
mod zookeeper;

pub use certificates::{Certificates, certificates};
pub use cluster::{Cluster, Migration};
pub use etcd::{Etcd, EtcdBuilder};
pub use postgres::{PgBouncer, Postgres, PostgresBuilder};
pub use proxy::Proxy;
pub use redis::{Fsync, RedisBuilder, RedisServer, TlsFiles};
pub use sentinels::Sentinels;
pub use skew::Skew;
pub use wait::{PATIENCE, eventually};
pub use zookeeper::{ZooKeeper, ZooKeeperBuilder};
