//! The one session that carries all locks of a client.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio_postgres::{
    Client as Driver, Row, Statement,
    types::{ToSql, Type},
};

use super::{
    super::{
        error::{self, Stage},
        schema,
        wire::Param,
    },
    client::Client,
    pooler,
    pump::Pump,
    sequence,
    statement::{self, Fences, Step},
    table::Table,
};
use crate::{Error, ErrorKind, clock::Moment};

/// The oldest server that has all that is used here, and the first that ends idle sessions by itself.
const OLDEST: i32 = 120_000;
const ENDS_IDLE: i32 = 140_000;

/// How the server recognises this session again, in a list that may hold a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: i32,
    started_us: i64,
}

/// Whether a session is over, known to the task that carries its messages.
#[derive(Debug, Default)]
pub(super) struct Over {
    is_over: AtomicBool,
    /// Whether somebody may hold something over it, and is to be told.
    is_used: AtomicBool,
}

impl Over {
    /// Whether its holders have to be told; once.
    pub(super) fn take_used(&self) -> bool {
        self.is_used.swap(false, Ordering::SeqCst)
    }
}

/// Why a statement has no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server refused it, and the session goes on.
    Refused(Error),
    /// The session is over, and with it all that it held.
    Over(Error),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(error) | Failed::Over(error) => error,
        }
    }
}

pub(super) struct Session {
    pub(super) driver: Driver,
    pub(super) identity: Identity,
    pub(super) version: i32,
    /// What is held over it.
    pub(super) table: Mutex<Table>,
    frees: Statement,
    singles: Statement,
    blocks: Statement,
    over: Arc<Over>,
    pump: Arc<Pump>,
    /// After this long without a word the server ends it; zero for never.
    idle: Mutex<Duration>,
    /// When it was last used, and when the sequence was last raised, in nanoseconds of the client's clock.
    used: AtomicU64,
    raised: AtomicU64,
    timeout: Duration,
    /// Where it is, for messages.
    pub(super) at: String,
}

impl Session {
    /// Connects. `before` is the session that this one follows: if the server has not noticed its end yet, it learns of
    /// it now, so that nobody waits for locks that nobody has.
    pub(super) async fn open(
        client: &Arc<Client>,
        before: Option<Identity>,
    ) -> Result<Arc<Self>, Error> {
        let (config, at) = (&client.settings.config, client.settings.location());
        let (driver, carrier) = client.dialler.dial(&config.server, &at).await?;
        let over = Arc::new(Over::default());
        let pump = Pump::new(carrier);
        client.runtime.spawn(carry(pump.clone(), over.clone(), Arc::downgrade(client)));
        let told =
            |failure: tokio_postgres::Error| error::translate(&failure, Stage::Connecting, &at);
        driver.batch_execute(&own_settings(config.timeout)).await.map_err(told)?;
        let (identity, version) = identify(&driver).await.map_err(told)??;
        if let Some(before) = before {
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND \
                       (extract(epoch FROM backend_start) * 1000000)::bigint = $2";
            let params: [Param<'_>; 2] =
                [(&before.pid, Type::INT4), (&before.started_us, Type::INT8)];
            // If we may not, the server finds out by itself.
            let _ = driver.query_typed(sql, &params).await;
        }
        pooler::refuse(client, &driver, identity.pid).await?;
        sequence::ready(&driver, &config.schema, &at).await?;
        sequence::raise(&driver, &config.schema)
            .await
            .map_err(|failure| sequence::explain(&failure, &config.schema, &at))?;
        let text = |fences| statement::text(&config.schema, fences);
        let frees = driver.prepare(&text(Fences::None)).await.map_err(told)?;
        let singles = driver.prepare(&text(Fences::Single)).await.map_err(told)?;
        let blocks = driver.prepare(&text(Fences::Blocks)).await.map_err(told)?;
        let now = client.clock.now().as_nanos();
        Ok(Arc::new(Self {
            driver,
            identity,
            version,
            table: Mutex::default(),
            frees,
            singles,
            blocks,
            over,
            pump,
            idle: Mutex::default(),
            used: AtomicU64::new(now),
            raised: AtomicU64::new(now),
            timeout: config.timeout,
            at,
        }))
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_over.load(Ordering::Acquire) || self.driver.is_closed()
    }

    /// From now on locks may be held over it. `false` if it is over already.
    pub(super) fn begin(&self) -> bool {
        self.over.is_used.store(true, Ordering::SeqCst);
        !self.is_over()
    }

    pub(super) fn is_of(&self, over: &Arc<Over>) -> bool {
        Arc::ptr_eq(&self.over, over)
    }

    /// Ends it: the server frees all that it held.
    pub(super) fn end(&self) {
        self.over.is_over.store(true, Ordering::SeqCst);
        self.pump.end();
    }

    /// Carries out steps in their order; an answer for each.
    pub(super) async fn run(&self, steps: &[Step], now: Moment) -> Result<Vec<i64>, Failed> {
        let statement = match Fences::of(steps) {
            Fences::None => &self.frees,
            Fences::Single => &self.singles,
            Fences::Blocks => &self.blocks,
        };
        let codes: Vec<i16> = steps.iter().map(|step| step.code()).collect();
        let keys: Vec<i64> = steps.iter().map(|step| step.key()).collect();
        let blocks: Vec<i32> = steps.iter().map(|step| step.block()).collect();
        let params: [&(dyn ToSql + Sync); 4] = [&self.identity.pid, &codes, &keys, &blocks];
        let rows = self.answer(self.driver.query(statement, &params), now).await?;
        let answers: Option<Vec<i64>> = rows.iter().map(|row| row.try_get(0).ok()).collect();
        match answers {
            Some(answers) if answers.len() == steps.len() => Ok(answers),
            _ => {
                self.end();
                Err(Failed::Over(pooler::refusal()))
            }
        }
    }

    /// Any other statement.
    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[Param<'_>],
        now: Moment,
    ) -> Result<Vec<Row>, Failed> {
        self.answer(self.driver.query_typed(sql, params), now).await
    }

    /// Awaits an answer. Without one nobody knows what the session holds, so it is ended.
    async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
        now: Moment,
    ) -> Result<T, Failed> {
        self.used.store(now.as_nanos(), Ordering::Relaxed);
        let unheard = Unheard(self);
        let outcome = tokio::time::timeout(self.timeout, self.pump.until(asked)).await;
        let failure = match outcome {
            Ok(Ok(answer)) => {
                std::mem::forget(unheard);
                return Ok(answer);
            }
            Ok(Err(failure)) => failure,
            Err(_) => return Err(Failed::Over(error::timed_out(&self.at))),
        };
        let error = error::translate(&failure, Stage::Asked, &self.at);
        if error::class_of(&failure).is_none_or(error::Class::ends_connection) {
            return Err(Failed::Over(error));
        }
        std::mem::forget(unheard);
        Err(Failed::Refused(error))
    }

    /// Sees to it that the server does not end it before a lease of this length has, if nobody is heard of.
    pub(super) async fn last_for(&self, ttl: Duration, now: Moment) -> Result<(), Failed> {
        if ttl <= *self.idle.lock() {
            return Ok(());
        }
        self.set_idle(ttl, now).await
    }

    pub(super) async fn set_idle(&self, idle: Duration, now: Moment) -> Result<(), Failed> {
        if self.version >= ENDS_IDLE {
            let ms = i32::try_from(idle.as_millis()).unwrap_or(i32::MAX).to_string();
            let sql = "SELECT set_config('idle_session_timeout', $1, false)";
            self.query(sql, &[(&ms, Type::TEXT)], now).await?;
        }
        *self.idle.lock() = idle;
        Ok(())
    }

    pub(super) fn idle(&self) -> Duration {
        *self.idle.lock()
    }

    /// Whether the server ends it when nothing is heard of it.
    pub(super) fn ends_idle(&self) -> bool {
        self.version >= ENDS_IDLE
    }

    pub(super) fn used(&self) -> Moment {
        Moment::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// Raises the sequence to the clock, if that was not done for a while.
    pub(super) async fn raise(&self, schema: &str, now: Moment) -> Result<(), Failed> {
        let raised = Moment::from_nanos(self.raised.load(Ordering::Relaxed));
        if now.since(raised) < RAISE_EVERY {
            return Ok(());
        }
        self.raised.store(now.as_nanos(), Ordering::Relaxed);
        self.answer(sequence::raise(&self.driver, schema), now).await
    }
}

/// How often the sequence catches up with the clock: fences of other stores for the same resource are near the clock.
const RAISE_EVERY: Duration = Duration::from_secs(60);

/// Ends the session of a statement whose answer nobody heard, also if whoever awaited it has gone.
struct Unheard<'a>(&'a Session);

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Carries a session's messages until it ends, and then tells that it has.
async fn carry(pump: Arc<Pump>, over: Arc<Over>, client: Weak<Client>) {
    pump.keep().await;
    over.is_over.store(true, Ordering::SeqCst);
    if let Some(client) = client.upgrade() {
        client.session_over(&over);
    }
}

/// What a session says about itself at its beginning. Both sides notice a line that is dead: the server by asking its
/// kernel to ask, the client by its own settings (see `dial.rs`). Nothing it commits is worth waiting for the disk.
fn own_settings(timeout: Duration) -> String {
    let (ms, seconds) = (timeout.as_millis() * 2, timeout.as_secs().max(1));
    format!(
        "SET synchronous_commit = off; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = {seconds}; \
         SET tcp_keepalives_count = 2; SET tcp_user_timeout = {ms}"
    )
}

async fn identify(
    driver: &Driver,
) -> Result<Result<(Identity, i32), Error>, tokio_postgres::Error> {
    let sql = "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint, \
               current_setting('server_version_num')::int, pg_is_in_recovery() \
               FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let row = driver.query_typed_one(sql, &[]).await?;
    let (version, is_standby): (i32, bool) = (row.try_get(2)?, row.try_get(3)?);
    if version < OLDEST {
        let message = format!("PostgreSQL {} is too old", version / 10_000);
        return Ok(Err(
            Error::new(ErrorKind::Unsupported, message).hint("version 12 or newer is needed")
        ));
    }
    if is_standby {
        return Ok(Err(schema::standby()));
    }
    Ok(Ok((Identity { pid: row.try_get(0)?, started_us: row.try_get(1)? }, version)))
}
