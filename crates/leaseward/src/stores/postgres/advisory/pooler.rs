//! Recognising a pooler that gives each transaction another connection.
//!
//! Through one, a lock is taken on whichever connection is free, stays there when its taker is gone, and is 'taken'
//! again by whoever gets that connection next. The session could be lucky and see one connection for days. So when it
//! begins, a second connection opens a transaction: a pooler gives it the connection that the session has just given
//! back, or gives the session another one afterwards. And every statement says for which connection it is meant: carried
//! out elsewhere, it does nothing.

use std::sync::Arc;

use tokio_postgres::{Client as Driver, Row};

use super::{
    super::error::{self, Stage},
    client::Client,
};
use crate::{Error, ErrorKind};

const PID: &str = "SELECT pg_backend_pid()";

pub(super) fn refusal() -> Error {
    let message = "there is a pooler between this client and PostgreSQL that gives each transaction another connection: \
                   an advisory lock would stay with a connection instead of its holder";
    Error::new(ErrorKind::Unsupported, message).hint(
        "name the server itself, or a pool in session mode; lease rows (`postgres://…`) work behind such a pooler",
    )
}

fn pid_in(row: Row) -> Result<i32, tokio_postgres::Error> {
    row.try_get(0)
}

/// Fails if there is one.
pub(super) async fn refuse(client: &Arc<Client>, session: &Driver, pid: i32) -> Result<(), Error> {
    let (config, at) = (&client.settings.config, client.settings.location());
    let (other, carrier) = client.dialler.dial(&config.server, &at).await?;
    let carrying = client.runtime.spawn(async move { drop(carrier.await) });
    let told = |failure: tokio_postgres::Error| error::translate(&failure, Stage::Connecting, &at);
    let looked = async {
        other.batch_execute("BEGIN").await.map_err(told)?;
        let theirs: i32 = other.query_typed_one(PID, &[]).await.and_then(pid_in).map_err(told)?;
        if theirs == pid {
            return Err(refusal());
        }
        // A pooler with a single connection has none left for this one: no answer is an answer too.
        let ours = tokio::time::timeout(config.timeout, session.query_typed_one(PID, &[])).await;
        match ours {
            Ok(answer) => match answer.and_then(pid_in).map_err(told)? {
                ours if ours == pid => Ok(()),
                _ => Err(refusal()),
            },
            Err(_) => Err(refusal()),
        }
    };
    let verdict = looked.await;
    carrying.abort();
    verdict
}
