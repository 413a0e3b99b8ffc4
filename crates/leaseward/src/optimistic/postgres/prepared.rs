//! Statements prepared once for a connection.

use tokio_postgres::{Error, GenericClient, Row, Statement, types::ToSql};

use super::{Change, SaveError, Version, VersionColumn, Versioned, load_by};
use crate::optimistic::Conflict;

/// [`load`](super::load) and [`save`](super::save) prepared for one connection: one round trip each, instead of two. Kept as
/// long as the connection.
///
/// ```no_run
/// # use leaseward::optimistic::{VersionColumn, postgres::Prepared};
/// # const ACCOUNTS: VersionColumn = VersionColumn::new("accounts");
/// # async fn example(client: &tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = Prepared::new(client, &ACCOUNTS, "balance", "balance = $3").await?;
/// let Some(account) = accounts.load(client, &1_i64, |row| row.try_get::<_, i64>(0)).await? else { return Ok(()) };
/// accounts.save(client, &1_i64, &account, &[&(account.value() - 30)]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Prepared {
    column: VersionColumn,
    load: Statement,
    save: Statement,
}

impl Prepared {
    /// Prepares the reading of some columns and their saving; in `set`, the parameters begin at `$3`.
    ///
    /// # Errors
    /// What the server says.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn new(
        client: &impl GenericClient,
        column: &VersionColumn,
        columns: &str,
        set: &str,
    ) -> Result<Self, Error> {
        let load = client.prepare(&column.load_sql(columns)).await?;
        let save = client.prepare(&column.save_sql(set)).await?;
        Ok(Self { column: *column, load, save })
    }

    /// As [`load`](super::load).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn load<T>(
        &self,
        client: &impl GenericClient,
        id: &(dyn ToSql + Sync),
        make: impl FnOnce(&Row) -> Result<T, Error>,
    ) -> Result<Option<Versioned<T>>, Error> {
        load_by(client, &self.load, id, make).await
    }

    /// As [`save`](super::save).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn save<T>(
        &self,
        client: &impl GenericClient,
        id: &(dyn ToSql + Sync),
        read: &Versioned<T>,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Version, SaveError<Error>> {
        let change = Change { id, seen: read.version(), parameters };
        let saved: Result<Version, Conflict> =
            change.send(client, &self.save, &self.column).await?;
        saved.map_err(SaveError::Conflict)
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("column", &self.column).finish_non_exhaustive()
    }
}
