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

/// Plain jobs, those of a slot together.
#[derive(Debug)]
struct Grouped<'a> {
    slots: Vec<i64>,
    counts: Vec<i32>,
    bodies: Vec<&'a [u8]>,
    /// Where each of them stood, unless they stand as they did.
    places: Vec<usize>,
}

impl<'a> Grouped<'a> {
    fn of(jobs: &'a [Row]) -> Self {
        let mut order: Vec<&Row> = jobs.iter().collect();
        let mut places = Vec::new();
        if !jobs.is_sorted_by_key(|job| job.slot) {
            places = (0..jobs.len()).collect();
            // In their order within a slot, and slots in one order everywhere: nobody waits in a circle.
            places.sort_by_key(|at| jobs[*at].slot);
            order = places.iter().map(|at| &jobs[*at]).collect();
        }
        let groups = order.chunk_by(|one, other| one.slot == other.slot);
        let (slots, counts) = groups.map(|group| (group[0].slot, group.len() as i32)).unzip();
        let bodies = order.iter().map(|job| job.body.as_slice()).collect();
        Self { slots, counts, bodies, places }
    }

    /// New jobs in the order in which they came.
    fn in_order(&self, ids: &[i64]) -> Vec<(JobId, bool)> {
        let mut jobs: Vec<_> = ids.iter().map(|id| (JobId::new(*id), true)).collect();
        for (place, id) in self.places.iter().zip(ids) {
            jobs[*place] = (JobId::new(*id), true);
        }
        jobs
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
        let rows = self.link.call(&sql, &params).await?;
        let row = only(&rows)?;
        let jobs = pushed(&get::<Vec<i64>>(row, 0)?, &get::<Vec<bool>>(row, 1)?);
        Ok(Pushes { jobs, others_sleep: get(row, 2)? })
    }

    async fn push_plain(&self, session: i64, jobs: &[Row], tells: bool) -> Result<Pushes, Error> {
        let grouped = Grouped::of(jobs);
        let sql = format!("SELECT {}.push($1, $2, $3, $4, $5)", self.schema);
        let params = [
            int8(&session),
            int8s(&grouped.slots),
            (&grouped.counts, Type::INT4_ARRAY),
            (&grouped.bodies, Type::BYTEA_ARRAY),
            flag(&tells),
        ];
        let rows = self.link.call(&sql, &params).await?;
        let answer: Vec<i64> = get(only(&rows)?, 0)?;
        let (sleeps, ids) = answer.split_first().ok_or_else(super::look::unexpected)?;
        Ok(Pushes { jobs: grouped.in_order(ids), others_sleep: *sleeps != 0 })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_slot_stand_together_and_answers_as_they_came() {
        let row = |(slot, body): &(i64, &str)| Row {
            slot: *slot,
            due_us: 0,
            key: None,
            unique: None,
            body: body.as_bytes().to_vec(),
        };
        let jobs: Vec<Row> = [(2, "a"), (1, "b"), (2, "c"), (1, "d")].iter().map(row).collect();
        let grouped = Grouped::of(&jobs);
        assert_eq!((&grouped.slots[..], &grouped.counts[..]), (&[1, 2][..], &[2, 2][..]));
        assert_eq!(grouped.bodies, [b"b", b"d", b"a", b"c"]);
        let ids: Vec<i64> =
            grouped.in_order(&[10, 11, 20, 21]).iter().map(|(id, _)| id.get()).collect();
        assert_eq!(ids, [20, 10, 21, 11]);
        let alike = Grouped::of(&jobs[..1]);
        assert_eq!((&alike.counts[..], alike.places.len()), (&[1][..], 0));
    }
}
