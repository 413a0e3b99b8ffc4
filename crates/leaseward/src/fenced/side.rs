//! The fence in a table beside: for tables one cannot change, and for what is not one row.

/// Creates the table that `check` uses, for PostgreSQL and SQLite; harmless if it is there.
///
/// One row a resource, found by the search path: put it into the schema of your choice. Rows stay until you delete them,
/// because a resource whose row is gone accepts any fence: see [`FORGET_SQL`].
pub const SIDE_TABLE_SQL: &str = "CREATE TABLE IF NOT EXISTS leaseward_fences (\
    resource text NOT NULL PRIMARY KEY, fence bigint NOT NULL)";

/// Deletes what has not been written for long. `$1` is a fence, microseconds since the epoch: give it one that is older than
/// any holder can still be, say now less a day.
pub const FORGET_SQL: &str = "DELETE FROM leaseward_fences WHERE fence < $1";

/// Records the fence `$2` of the resource `$1` if it is not stale. The row stays locked until the transaction ends, so that
/// nobody comes in between this and the writes that follow.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
pub(super) const CHECK_SQL: &str = "INSERT INTO leaseward_fences AS kept (resource, fence) \
    VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence \
    WHERE kept.fence <= excluded.fence";

/// The highest fence that the resource `$1` has seen.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
pub(super) const SEEN_SQL: &str = "SELECT fence FROM leaseward_fences WHERE resource = $1";
