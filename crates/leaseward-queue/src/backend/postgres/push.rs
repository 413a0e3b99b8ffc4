//! Pushing jobs.

use leaseward::Error;
use tokio_postgres::types::Type;

use super::{
    Postgres,
    params::{Param, flag, get, int8, int8s, only, text, texts},
};
use crate::{
    JobId,
    backend::{Pushes, Row},
    id::QUEUES_MAX,
};

/// Jobs, column by column.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    pub(crate) slots: Vec<i64>,
    pub(crate) bodies: Vec<&'a [u8]>,
    pub(crate) dues: Vec<i64>,
    pub(crate) keys: Vec<Option<&'a str>>,
    pub(crate) uniques: Vec<Option<&'a str>>,
    pub(crate) windows: Vec<i64>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(jobs: &'a [Row]) -> Self {
        let unique = |job: &'a Row| job.unique.as_ref();
        Self {
            slots: jobs.iter().map(|job| job.slot).collect(),
            bodies: jobs.iter().map(|job| job.body.as_slice()).collect(),
            dues: jobs.iter().map(|job| job.due_us).collect(),
            keys: jobs.iter().map(|job| job.key.as_deref()).collect(),
            uniques: jobs.iter().map(|job| unique(job).map(|(key, _)| &**key)).collect(),
            windows: jobs.iter().map(|job| unique(job).map_or(0, |(_, window)| *window)).collect(),
        }
    }

    /// The arguments that all functions which push any jobs end with.
    pub(super) fn params(&self) -> [Param<'_>; 6] {
        [
            int8s(&self.slots),
            (&self.bodies, Type::BYTEA_ARRAY),
            int8s(&self.dues),
            texts(&self.keys),
            texts(&self.uniques),
            int8s(&self.windows),
        ]
    }
}

/// What `push_any` and `push_in` say of each job.
pub(crate) fn pushed(ids: &[i64], fresh: &[bool]) -> Vec<(JobId, bool)> {
    ids.iter().zip(fresh).map(|(id, fresh)| (JobId::new(*id), *fresh)).collect()
}

impl Postgres {
    pub(super) async fn queue_no(&self, name: &str) -> Result<i32, Error> {
        let sql = format!("SELECT {}.queue_no($1)", self.schema);
        let rows = self.link.query(&sql, &[text(&name)]).await?;
        let no = get(only(&rows)?, 0)?;
        if no > QUEUES_MAX { Err(crate::queue::too_many()) } else { Ok(no) }
    }

    pub(super) async fn push_rows(
        &self,
        session: i64,
        jobs: &[Row],
        tells: bool,
    ) -> Result<Pushes, Error> {
        if jobs.iter().all(Row::is_plain) {
            return self.push_plain(session, jobs, tells).await;
        }
        let columns = Columns::of(jobs);
        let sql = format!(
            "SELECT ids, fresh, sleeps FROM {}.push_any($1, $2, $3, $4, $5, $6, $7, $8)",
            self.schema
        );
        let mut params = vec![int8(&session)];
        params.extend(columns.params());
        params.push(flag(&tells));
        let rows = self.link.query(&sql, &params).await?;
        let row = only(&rows)?;
        let jobs = pushed(&get::<Vec<i64>>(row, 0)?, &get::<Vec<bool>>(row, 1)?);
        Ok(Pushes { jobs, others_sleep: get(row, 2)? })
    }

    async fn push_plain(&self, session: i64, jobs: &[Row], tells: bool) -> Result<Pushes, Error> {
        let slots: Vec<i64> = jobs.iter().map(|job| job.slot).collect();
        let bodies: Vec<&[u8]> = jobs.iter().map(|job| job.body.as_slice()).collect();
        let (mut queues, mut counts): (Vec<i32>, Vec<i64>) = (Vec::new(), Vec::new());
        for slot in &slots {
            let queue = JobId::new(*slot).queue();
            match queues.iter().position(|known| *known == queue) {
                Some(at) => counts[at] += 1,
                None => {
                    queues.push(queue);
                    counts.push(1);
                }
            }
        }
        let sql = format!("SELECT ids, sleeps FROM {}.push($1, $2, $3, $4, $5, $6)", self.schema);
        let params = [
            int8(&session),
            int8s(&slots),
            (&bodies, Type::BYTEA_ARRAY),
            (&queues, Type::INT4_ARRAY),
            int8s(&counts),
            flag(&tells),
        ];
        let rows = self.link.query(&sql, &params).await?;
        let row = only(&rows)?;
        let jobs = get::<Vec<i64>>(row, 0)?.into_iter().map(|id| (JobId::new(id), true)).collect();
        Ok(Pushes { jobs, others_sleep: get(row, 1)? })
    }

    pub(super) async fn fire_job(
        &self,
        session: i64,
        name: &str,
        at_us: i64,
        job: Option<&Row>,
    ) -> Result<Option<Pushes>, Error> {
        let columns = Columns::of(job.map_or(&[], std::slice::from_ref));
        let sql = format!(
            "SELECT fired, sleeps FROM {}.fire($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            self.schema
        );
        let mut params = vec![int8(&session), text(&name), int8(&at_us)];
        params.extend(columns.params());
        let rows = self.link.query(&sql, &params).await?;
        let row = only(&rows)?;
        let others_sleep = get(row, 1)?;
        Ok(get::<bool>(row, 0)?.then_some(Pushes { jobs: Vec::new(), others_sleep }))
    }
}
