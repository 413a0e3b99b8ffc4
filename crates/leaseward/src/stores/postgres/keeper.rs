//! Housekeeping: forgetting names that nobody uses, ending what has expired, closing connections that are not needed.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio_postgres::types::Type;

use super::{
    answers::{column, unexpected},
    client::Client,
    wire,
};
use crate::Error;

/// Between two rounds, at random up to twice this: clients share the work.
const ROUND: Duration = Duration::from_secs(15);

/// Between two rounds while there is something to do.
const SOON: Duration = Duration::from_millis(100);

/// Names looked at in one round, so that it takes about as long as any other statement.
const NAMES: i32 = 1_000;

/// How long a name is remembered that nobody uses. Its fence row is what a transaction under an old lease looks at.
const AGE: Duration = Duration::from_secs(3600);

/// Starts the task. It ends with the client.
pub(super) fn start(client: &Arc<Client>) {
    let task = keep(Arc::downgrade(client));
    client.runtime.spawn(task);
}

async fn keep(client: Weak<Client>) {
    let mut pause = ROUND.mul_f64(2.0 * rand::random::<f64>());
    loop {
        tokio::time::sleep(pause).await;
        let Some(client) = client.upgrade() else { return };
        client.lines.shrink();
        let found = match client.sweep().await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(error = %error, "no sweep of postgresql");
                false
            }
        };
        pause = if found { SOON } else { ROUND.mul_f64(2.0 * rand::random::<f64>()) };
    }
}

impl Client {
    /// One round; answers whether there was something to do.
    async fn sweep(self: &Arc<Self>) -> Result<bool, Error> {
        let sql = format!("SELECT * FROM {}.sweep($1, $2)", self.config.schema);
        let age = wire::micros(AGE);
        let rows = self.lines.query(&sql, &[(&NAMES, Type::INT4), (&age, Type::INT8)]).await?;
        let row = rows.first().ok_or_else(unexpected)?;
        let (forgotten, expired): (i32, Vec<String>) = (column(row, 0)?, column(row, 1)?);
        if !expired.is_empty() {
            self.settle(&expired).await?;
        }
        Ok(forgotten > 0 || !expired.is_empty())
    }
}
