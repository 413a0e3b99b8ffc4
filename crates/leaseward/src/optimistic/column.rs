//! The version as a column of the user's own table.

/// A table of yours with a column for the version.
///
/// ```sql
/// ALTER TABLE accounts ADD COLUMN version bigint NOT NULL DEFAULT 1;
/// ```
///
/// Leave the column out of every index: then an update stays on its page, and costs what it cost before. Names are put into
/// the SQL as they are: write them yourself, and quote them if they need it.
///
/// ```
/// use leaseward::optimistic::VersionColumn;
///
/// const ACCOUNTS: VersionColumn = VersionColumn::new("accounts");
/// assert_eq!(
///     ACCOUNTS.save_sql("balance = $3"),
///     "UPDATE accounts SET balance = $3, version = version + 1 WHERE id = $1 AND version = $2 RETURNING version",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionColumn {
    table: &'static str,
    id: &'static str,
    version: &'static str,
}

impl VersionColumn {
    /// A table whose key is the column `id` and whose version is the column `version`.
    pub const fn new(table: &'static str) -> Self {
        Self { table, id: "id", version: "version" }
    }

    /// Another key column. It must be unique: one id, one row.
    #[must_use]
    pub const fn id(mut self, column: &'static str) -> Self {
        self.id = column;
        self
    }

    /// Another version column: `bigint NOT NULL`.
    #[must_use]
    pub const fn version(mut self, column: &'static str) -> Self {
        self.version = column;
        self
    }

    /// The update for PostgreSQL: `$1` is the id, `$2` the version that was read, what `set` needs begins at `$3`. An empty
    /// `set` changes nothing but the version: so a whole aggregate can be guarded by its root.
    ///
    /// One row is success, with the new version. None means that the row is gone or was changed.
    pub fn save_sql(&self, set: &str) -> String {
        self.save(set, '$')
    }

    /// The same for SQLite, where numbered parameters are `?1`, `?2` and so on.
    pub fn save_sqlite(&self, set: &str) -> String {
        self.save(set, '?')
    }

    fn save(&self, set: &str, mark: char) -> String {
        let Self { table, id, version } = self;
        let comma = if set.is_empty() { "" } else { ", " };
        format!(
            "UPDATE {table} SET {set}{comma}{version} = {version} + 1 \
             WHERE {id} = {mark}1 AND {version} = {mark}2 RETURNING {version}"
        )
    }

    /// Reads columns of the row `$1`, and its version last of all.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
    pub(super) fn load_sql(&self, columns: &str) -> String {
        let Self { table, id, version } = self;
        format!("SELECT {columns}, {version} FROM {table} WHERE {id} = $1")
    }

    /// The version that the row `$1` has now.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
    pub(super) fn current_sql(&self) -> String {
        let Self { table, id, version } = self;
        format!("SELECT {version} FROM {table} WHERE {id} = $1")
    }
}
