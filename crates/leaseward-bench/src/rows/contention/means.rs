//! The means: each adds one to a row, and none of them loses anything.

use std::time::Duration;

use leaseward::{
    Locks,
    fenced::postgres::hold,
    optimistic::{
        Retry, VersionColumn, Work,
        postgres::{Prepared, transact},
    },
};
use tokio_postgres::{Client, NoTls, Statement, Transaction};

const COUNTERS: VersionColumn = VersionColumn::new("counters");

/// Longer than any experiment: what takes so long is seen in the figures.
const BUDGET: Duration = Duration::from_secs(60);

/// One task's connection and its way to write.
pub(super) struct Means {
    kind: Kind,
    client: Client,
    locks: Locks,
    lock: Statement,
    read: Statement,
    write: Statement,
    versioned: Prepared,
}

#[derive(Clone, Copy)]
enum Kind {
    Optimistic,
    /// Optimistic, and a lock after two conflicts.
    Escalating,
    /// The row itself is locked by its reading.
    ForUpdate,
    /// A number is locked in the transaction.
    Advisory,
    /// A lease, held `FOR SHARE` in the transaction.
    Lease,
}

impl Means {
    pub(super) async fn new(kind: &str, url: &str, locks: &Locks) -> Result<Self, String> {
        let kind = match kind {
            "optimistic" => Kind::Optimistic,
            "escalating" => Kind::Escalating,
            "for-update" => Kind::ForUpdate,
            "advisory" => Kind::Advisory,
            "lease" => Kind::Lease,
            other => return Err(format!("what is `{other}`?")),
        };
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(text)?;
        tokio::spawn(connection);
        let read = match kind {
            Kind::ForUpdate => "SELECT count FROM counters WHERE id = $1 FOR UPDATE",
            _ => "SELECT count FROM counters WHERE id = $1",
        };
        let read = client.prepare(read).await.map_err(text)?;
        let write = "UPDATE counters SET count = $2 WHERE id = $1";
        let write = client.prepare(write).await.map_err(text)?;
        let lock = client.prepare("SELECT pg_advisory_xact_lock($1)").await.map_err(text)?;
        let versioned = Prepared::new(&client, &COUNTERS, "count", "count = $3").await;
        let (locks, versioned) = (locks.clone(), versioned.map_err(text)?);
        Ok(Self { kind, client, locks, lock, read, write, versioned })
    }

    /// Adds one to a row; answers how many tries that took.
    pub(super) async fn count(&mut self, id: i64, think: Duration) -> Result<u32, String> {
        match self.kind {
            Kind::Optimistic => self.optimistic(id, think, patient()).await,
            Kind::Escalating => {
                let lock = self.locks.lock(format!("row:{id}"));
                self.optimistic(id, think, patient().escalate(2, lock)).await
            }
            Kind::ForUpdate | Kind::Advisory => {
                let tx = self.client.transaction().await.map_err(text)?;
                if let Kind::Advisory = self.kind {
                    tx.query(&self.lock, &[&id]).await.map_err(text)?;
                }
                add(&tx, &self.read, &self.write, id, think).await.map_err(text)?;
                tx.commit().await.map_err(text)?;
                Ok(1)
            }
            Kind::Lease => {
                let guard = self.locks.lock(format!("row:{id}")).acquire().await.map_err(text)?;
                let tx = self.client.transaction().await.map_err(text)?;
                hold(&tx, guard.name(), guard.fence()).await.map_err(text)?;
                add(&tx, &self.read, &self.write, id, think).await.map_err(text)?;
                tx.commit().await.map_err(text)?;
                guard.release().await.map_err(text)?;
                Ok(1)
            }
        }
    }

    async fn optimistic(&mut self, id: i64, think: Duration, retry: Retry) -> Result<u32, String> {
        let versioned = &self.versioned;
        let tries = transact(&mut self.client, &retry, |tx, this| {
            Work::new(async move {
                let row = versioned.load(tx, &id, |row| row.try_get::<_, i64>(0)).await?;
                let row = row.expect("BUG: no row is ever deleted");
                pause(think).await;
                let new = row.value() + 1;
                versioned.save(tx, &id, &row, &[&new]).await?;
                Ok(this.number())
            })
        });
        tries.await.map_err(text)
    }
}

fn patient() -> Retry {
    Retry::new().attempts(u32::MAX).budget(BUDGET)
}

async fn add(
    tx: &Transaction<'_>,
    read: &Statement,
    write: &Statement,
    id: i64,
    think: Duration,
) -> Result<(), tokio_postgres::Error> {
    let count: i64 = tx.query_one(read, &[&id]).await?.try_get(0)?;
    pause(think).await;
    tx.execute(write, &[&id, &(count + 1)]).await.map(drop)
}

async fn pause(think: Duration) {
    if !think.is_zero() {
        tokio::time::sleep(think).await;
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
