//! PostgreSQL in the caller's own transactions: locks that end with them.

pub use tokio_postgres;

pub use crate::stores::postgres::{
    Migrated,
    advisory::{AdvisoryKey, lock_in, lock_shared_in, try_lock_in, try_lock_shared_in},
    migrate,
};
