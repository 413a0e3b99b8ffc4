//! Looking at jobs, and what people do to single ones.

use leaseward::{Error, ErrorKind};
use tokio_postgres::{Row, types::Type};

use super::{
    Postgres,
    params::{get, int4, int8, only},
};
use crate::{
    JobId,
    backend::{Cancelling, Raw},
    view::{Counters, JobState, QueueStats},
};

/// An answer that no function of ours gives.
pub(super) fn unexpected() -> Error {
    Error::new(ErrorKind::Refused, "the tables for jobs answered something unexpected")
        .hint("were they changed by hand?")
}

/// States as they are written in queries.
fn code(state: JobState) -> i16 {
    match state {
        JobState::Ready => 0,
        JobState::Later => 1,
        JobState::Blocked => 2,
        JobState::Running => 3,
        JobState::Dead => 4,
        JobState::Done => 5,
        JobState::Cancelled => 6,
    }
}

fn state(code: i16) -> JobState {
    match code {
        0 => JobState::Ready,
        1 => JobState::Later,
        2 => JobState::Blocked,
        3 => JobState::Running,
        4 => JobState::Dead,
        5 => JobState::Done,
        _ => JobState::Cancelled,
    }
}

/// Everything that lies in one of the places, in columns of one kind; `orphaned`: leased to a session that has ended.
fn source(schema: &str, of: JobState) -> String {
    let running = format!(
        "SELECT u.i AS id, 3::smallint AS state, l.since AS at, l.token AS fence, l.lkeys[u.o] AS lkey, s.who AS who, \
         l.bodies[u.o] AS body, NULL::bytea AS result, coalesce(s.expires <= {schema}.now_us(), true) AS orphaned \
         FROM {schema}.lease l LEFT JOIN {schema}.session s ON s.id = l.session, \
         unnest(l.ids) WITH ORDINALITY u(i, o) WHERE NOT u.i = ANY (l.done)"
    );
    let plain = |table: &str, at: &str, key: &str| {
        let code = code(of);
        format!(
            "SELECT id, {code}::smallint AS state, {at} AS at, fence, {key} AS lkey, NULL::text AS who, body, \
             NULL::bytea AS result, false AS orphaned FROM {schema}.{table}"
        )
    };
    match of {
        JobState::Ready => format!(
            "{} UNION ALL {}",
            plain("ready", "NULL::bigint", "lkey"),
            plain("suspect", "NULL::bigint", "lkey")
        ),
        JobState::Later => plain("later", "due", "lkey"),
        JobState::Blocked => plain("blocked", "NULL::bigint", "lkey"),
        JobState::Running => running,
        JobState::Dead => plain("dead", "at", "lkey"),
        JobState::Done | JobState::Cancelled => {
            let is_done = if of == JobState::Done { "state = 1" } else { "state <> 1" };
            format!(
                "SELECT id, {}::smallint AS state, at, fence, NULL::text AS lkey, NULL::text AS who, body, result, \
                 false AS orphaned \
                 FROM {schema}.kept WHERE {is_done}",
                code(of)
            )
        }
    }
}

fn read(row: &Row) -> Result<Raw, Error> {
    Ok(Raw {
        id: JobId::new(get(row, 0)?),
        state: state(get(row, 1)?),
        at_us: get(row, 2)?,
        fence: get(row, 3)?,
        key: get::<Option<String>>(row, 4)?.map(String::into_boxed_str),
        who: get(row, 5)?,
        body: get(row, 6)?,
        result: get(row, 7)?,
        is_orphaned: get(row, 8)?,
        progress: get(row, 9)?,
    })
}

impl Postgres {
    pub(super) async fn list_jobs(
        &self,
        queue: i32,
        of: JobState,
        after: Option<JobId>,
        count: u32,
    ) -> Result<Vec<Raw>, Error> {
        let schema = &self.schema;
        let sql = format!(
            "SELECT j.*, p.value FROM (SELECT * FROM ({}) x WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3) j \
             LEFT JOIN {schema}.progress p USING (id) ORDER BY id",
            source(schema, of)
        );
        let (low, high) = JobId::queue_range(queue);
        let low = after.map_or(low, JobId::get);
        let count = i64::from(count);
        let rows = self.link.query(&sql, &[int8(&low), int8(&high), int8(&count)]).await?;
        rows.iter().map(read).collect()
    }

    pub(super) async fn find_job(&self, id: JobId) -> Result<Option<Raw>, Error> {
        let schema = &self.schema;
        let sources: Vec<_> = JobState::ALL
            .iter()
            .map(|of| format!("SELECT * FROM ({}) x WHERE id = $1", source(schema, *of)))
            .collect();
        let sql = format!(
            "SELECT j.*, p.value FROM ({}) j LEFT JOIN {schema}.progress p USING (id) LIMIT 1",
            sources.join(" UNION ALL ")
        );
        let id = id.get();
        let rows = self.link.query(&sql, &[int8(&id)]).await?;
        rows.first().map(read).transpose()
    }

    pub(super) async fn all_stats(&self) -> Result<Vec<QueueStats>, Error> {
        let sql = format!("SELECT * FROM {}.stats()", self.schema);
        let rows = self.link.query(&sql, &[]).await?;
        let read = |row: &Row| {
            let number = |at| get::<i64>(row, at);
            let limit: Option<i32> = get(row, 3)?;
            let mut stats = QueueStats {
                name: get(row, 1)?,
                paused: get(row, 2)?,
                limit: limit.and_then(|limit| u32::try_from(limit).ok()),
                key_limit: u32::try_from(get::<i32>(row, 4)?).unwrap_or(1),
                ..QueueStats::default()
            };
            stats.count(Counters {
                pushed: number(5)?,
                done: number(6)?,
                failed: number(7)?,
                dead: number(8)?,
                cancelled: number(9)?,
                later: number(10)?,
                blocked: number(11)?,
                leased: number(12)?,
                interrupted: number(13)?,
            });
            Ok(stats)
        };
        rows.iter().map(read).collect()
    }

    pub(super) async fn queue_is_drained(&self, queue: i32) -> Result<bool, Error> {
        let schema = &self.schema;
        let some = |table: &str| {
            format!("EXISTS (SELECT FROM {schema}.{table} WHERE id > $1 AND id < $2)")
        };
        // What is due is as good as ready: it is moved within a second.
        let sql = format!(
            "SELECT NOT ({} OR {} OR {} OR EXISTS (SELECT FROM {schema}.lease WHERE queue = $3) \
             OR EXISTS (SELECT FROM {schema}.later WHERE id > $1 AND id < $2 AND due <= {schema}.now_us()))",
            some("ready"),
            some("suspect"),
            some("blocked")
        );
        let (low, high) = JobId::queue_range(queue);
        let rows = self.link.query(&sql, &[int8(&low), int8(&high), int4(&queue)]).await?;
        get(only(&rows)?, 0)
    }

    pub(super) async fn cancel_job(&self, session: i64, id: JobId) -> Result<Cancelling, Error> {
        let sql = format!("SELECT verdict, owner FROM {}.cancel($1, $2)", self.schema);
        let id = id.get();
        let rows = self.link.query(&sql, &[int8(&session), int8(&id)]).await?;
        let row = only(&rows)?;
        Ok(match get::<i16>(row, 0)? {
            0 => Cancelling::NoSuchJob,
            1 => Cancelling::TakenOut,
            _ => Cancelling::Told(get(row, 1)?),
        })
    }

    pub(super) async fn replay_job(
        &self,
        session: i64,
        id: JobId,
        body: &[u8],
    ) -> Result<bool, Error> {
        let sql = format!("SELECT {}.replay($1, $2, $3)", self.schema);
        let id = id.get();
        let rows =
            self.link.query(&sql, &[int8(&session), int8(&id), (&body, Type::BYTEA)]).await?;
        get(only(&rows)?, 0)
    }

    pub(super) async fn note_progress(
        &self,
        session: i64,
        token: i64,
        id: JobId,
        value: &[u8],
    ) -> Result<bool, Error> {
        let sql = format!("SELECT {}.note($1, $2, $3, $4)", self.schema);
        let id = id.get();
        let params = [int8(&session), int8(&token), int8(&id), (&value as _, Type::BYTEA)];
        get(only(&self.link.query(&sql, &params).await?)?, 0)
    }

    pub(super) async fn noted_progress(&self, id: JobId) -> Result<Option<Vec<u8>>, Error> {
        let sql = format!("SELECT value FROM {}.progress WHERE id = $1", self.schema);
        let id = id.get();
        let rows = self.link.query(&sql, &[int8(&id)]).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }
}
