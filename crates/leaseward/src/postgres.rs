//! PostgreSQL in the caller's own transactions: locks that end with them.

pub use tokio_postgres;

pub use crate::stores::postgres::{
    Migrated,
    advisory::{AdvisoryKey, lock_in, lock_shared_in, try_lock_in, try_lock_shared_in},
    migrate,
};

/// The same in transactions of `sqlx`.
#[cfg(feature = "sqlx")]
pub mod sqlx {
    pub use crate::stores::postgres::advisory::in_sqlx::{
        lock_in, lock_shared_in, try_lock_in, try_lock_shared_in,
    };
}
