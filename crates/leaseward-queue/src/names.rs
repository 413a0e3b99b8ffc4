//! Names of queues, of those that are there.

use leaseward::Error;

use crate::{JobId, Queue};

impl Queue {
    /// The name of the queue that a job is in, or was in; `None` if there is no such queue.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn queue_of(&self, id: JobId) -> Result<Option<String>, Error> {
        for known in self.stats().await? {
            if self.inner.number(&known.name).await? == id.queue() {
                return Ok(Some(known.name));
            }
        }
        Ok(None)
    }
}
