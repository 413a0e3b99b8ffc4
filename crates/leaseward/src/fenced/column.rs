//! The fence as a column of the user's own table.

/// A table of yours with a column for the fence.
///
/// ```sql
/// ALTER TABLE accounts ADD COLUMN fence bigint NOT NULL DEFAULT 0;
/// ```
///
/// An update then compares and records in one statement. Names are put into the SQL as they are: write them yourself, and
/// quote them if they need it.
///
/// ```
/// use leaseward::fenced::FenceColumn;
///
/// const ACCOUNTS: FenceColumn = FenceColumn::new("bank.accounts").id("account_id");
/// assert_eq!(
///     ACCOUNTS.update_sql("balance = $3"),
///     "UPDATE bank.accounts SET balance = $3, fence = $2 WHERE account_id = $1 AND fence <= $2",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceColumn {
    table: &'static str,
    id: &'static str,
    fence: &'static str,
}

impl FenceColumn {
    /// A table whose key is the column `id` and whose fence is the column `fence`.
    pub const fn new(table: &'static str) -> Self {
        Self { table, id: "id", fence: "fence" }
    }

    /// Another key column. It must be unique: one id, one row.
    #[must_use]
    pub const fn id(mut self, column: &'static str) -> Self {
        self.id = column;
        self
    }

    /// Another fence column: `bigint NOT NULL DEFAULT 0`.
    #[must_use]
    pub const fn fence(mut self, column: &'static str) -> Self {
        self.fence = column;
        self
    }

    /// The update for PostgreSQL: `$1` is the id, `$2` the fence, what `set` needs begins at `$3`. An empty `set` only shows
    /// the fence to the row.
    ///
    /// One row changed is success. None changed means a stale fence, or no such row.
    pub fn update_sql(&self, set: &str) -> String {
        self.update(set, '$')
    }

    /// The same for SQLite, where numbered parameters are `?1`, `?2` and so on.
    pub fn update_sqlite(&self, set: &str) -> String {
        self.update(set, '?')
    }

    fn update(&self, set: &str, mark: char) -> String {
        let Self { table, id, fence } = self;
        let comma = if set.is_empty() { "" } else { ", " };
        format!(
            "UPDATE {table} SET {set}{comma}{fence} = {mark}2 WHERE {id} = {mark}1 AND {fence} <= {mark}2"
        )
    }

    /// The highest fence that the row has seen; its id is the only parameter.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
    pub(super) fn seen_sql(&self) -> String {
        let Self { table, id, fence } = self;
        format!("SELECT {fence} FROM {table} WHERE {id} = $1")
    }
}
