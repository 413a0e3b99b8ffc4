//! Statements that the process at the other end of a connection has parsed, and knows by a name.
//!
//! Parsing and planning a call takes a fifth of the time that the call takes. But a name means something to one process of
//! the server only: through a pooler it would be unknown, or another client's name for another statement. So names are used
//! only over connections whose process is certain to be their own, and nothing depends on them: the first calls, and
//! whatever happens to a name, go the way of all other statements.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_postgres::{
    Client, Error, Row, Statement,
    error::SqlState,
    types::{ToSql, Type},
};

use super::wire::Param;

/// Named on one connection at most. Callers have a dozen texts; each costs the server memory.
const NAMES_MAX: usize = 32;

/// What became of a text that is to be named.
enum Stage {
    /// It was sent once; many a client sends nothing twice.
    Sent,
    BeingParsed,
    Parsed(Statement),
}

/// A connection, and what its process knows by name.
pub(super) struct Namer {
    client: Client,
    /// Whether that process is certain to be this connection's own.
    is_own: bool,
    stages: Mutex<HashMap<String, Stage>>,
}

impl Namer {
    pub(super) fn new(client: Client, is_own: bool) -> Self {
        Self { client, is_own, stages: Mutex::default() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Sends a statement that leaves nothing on the connection.
    pub(super) async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        self.client.query_typed(sql, params).await
    }

    /// Calls a function: by name if that has one. Only calls with nothing but parameters are named, whose plan is the same
    /// for all of them.
    pub(super) async fn call(
        self: &Arc<Self>,
        runtime: &Handle,
        timeout: Duration,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Error> {
        let named = if self.is_own { self.find(sql, params, runtime, timeout) } else { None };
        let Some(statement) = named else { return self.query(sql, params).await };
        let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        match self.client.query(&statement, &values).await {
            // A statement that fails has changed nothing.
            Err(error) if has_lost_its_meaning(&error) => {
                self.stages.lock().remove(sql);
                self.query(sql, params).await
            }
            outcome => outcome,
        }
    }

    /// What a text is known as. The second time that it is asked for, it is given a name, for those who come later.
    fn find(
        self: &Arc<Self>,
        sql: &str,
        params: &[Param<'_>],
        runtime: &Handle,
        timeout: Duration,
    ) -> Option<Statement> {
        let mut stages = self.stages.lock();
        let has_room = stages.len() < NAMES_MAX;
        match stages.get_mut(sql) {
            Some(Stage::Parsed(statement)) => return Some(statement.clone()),
            Some(Stage::BeingParsed) => {}
            Some(stage @ Stage::Sent) => {
                *stage = Stage::BeingParsed;
                let types = params.iter().map(|(_, kind)| kind.clone()).collect();
                let naming = self.clone().name(sql.to_owned(), types);
                runtime.spawn(async move { drop(tokio::time::timeout(timeout, naming).await) });
            }
            None if has_room => {
                stages.insert(sql.to_owned(), Stage::Sent);
            }
            None => {}
        }
        None
    }

    async fn name(self: Arc<Self>, sql: String, types: Vec<Type>) {
        if let Ok(statement) = self.client.prepare_typed(&sql, &types).await {
            self.stages.lock().insert(sql, Stage::Parsed(statement));
        } else {
            self.stages.lock().remove(&sql);
        }
    }
}

/// Whether the server no longer knows a name, or what it stands for has become something else.
fn has_lost_its_meaning(error: &Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::INVALID_SQL_STATEMENT_NAME)
        || code == Some(&SqlState::FEATURE_NOT_SUPPORTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQL: &str = "SELECT $1::int8 + 1";

    impl Namer {
        fn is_named(&self) -> bool {
            matches!(self.stages.lock().get(SQL), Some(Stage::Parsed(_)))
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_name_that_the_server_has_forgotten_is_forgotten_too() {
        let server = leaseward_testkit::Postgres::start();
        let (client, carrier) =
            tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.expect("let in");
        tokio::spawn(async move { drop(carrier.await) });
        let namer = Arc::new(Namer::new(client, true));
        let calls = async || {
            let (runtime, long) = (Handle::current(), Duration::from_secs(60));
            let params: [Param<'_>; 1] = [(&41_i64, Type::INT8)];
            let rows = namer.call(&runtime, long, SQL, &params).await.expect("it is carried out");
            rows[0].get::<_, i64>(0)
        };
        while !namer.is_named() {
            assert_eq!(calls().await, 42);
        }
        namer.client.batch_execute("DEALLOCATE ALL").await.expect("it forgets");
        assert_eq!(calls().await, 42);
        assert!(!namer.is_named());
    }
}
