//! Ending jobs and claiming others, in one statement.

use std::{collections::HashMap, time::Instant};

use leaseward::Error;
use tokio_postgres::{Row as Answered, types::Type};

use super::{
    Postgres,
    marks::Ranges,
    params::{Param, flag, get, int4, int8, int8s, only, texts},
};
use crate::{
    JobId,
    backend::{Claim, Ending, Fate, Found, Lease, Leased, Settle, Turn, Turned},
};

/// Endings as arguments of `settle`.
struct Ends<'a> {
    tokens: Vec<i64>,
    ids: Vec<i64>,
    kinds: Vec<i16>,
    dues: Vec<i64>,
    bodies: Vec<Option<&'a [u8]>>,
    keys: Vec<Option<&'a str>>,
    uniques: Vec<Option<&'a str>>,
    results: Vec<Option<&'a [u8]>>,
    noted: Vec<bool>,
}

impl<'a> Ends<'a> {
    fn of(endings: &'a [Ending]) -> Self {
        let parts: Vec<_> = endings.iter().map(|ending| parts(&ending.fate)).collect();
        Self {
            tokens: endings.iter().map(|ending| ending.token).collect(),
            ids: endings.iter().map(|ending| ending.id.get()).collect(),
            kinds: parts.iter().map(|part| part.0).collect(),
            dues: parts.iter().map(|part| part.1).collect(),
            bodies: parts.iter().map(|part| part.2).collect(),
            keys: endings.iter().map(|ending| ending.key.as_deref()).collect(),
            uniques: endings.iter().map(|ending| ending.unique.as_deref()).collect(),
            results: parts.iter().map(|part| part.3).collect(),
            noted: endings.iter().map(|ending| ending.noted).collect(),
        }
    }
}

type Parts<'a> = (i16, i64, Option<&'a [u8]>, Option<&'a [u8]>);

/// Kind, time, body and result, as `settle` knows them. Times are counted from now, so they are below zero.
fn parts(fate: &Fate) -> Parts<'_> {
    match fate {
        Fate::Done => (0, 0, None, None),
        Fate::Kept { body, result, for_us } => (1, -for_us, Some(body), result.as_deref()),
        Fate::Cancelled { kept: None } => (2, 0, None, None),
        Fate::Cancelled { kept: Some((body, for_us)) } => (7, -for_us, Some(body), None),
        Fate::Retry { body, after_us, alone: false } => (3, -after_us, Some(body), None),
        Fate::Retry { body, after_us, alone: true } => (4, -after_us, Some(body), None),
        Fate::Back { body } => (5, 0, Some(body), None),
        Fate::Dead { body } => (6, 0, Some(body), None),
        Fate::Snoozed { body, after_us } => (8, -after_us, Some(body), None),
        Fate::Interrupted { body, after_us } => (9, -after_us, Some(body), None),
    }
}

/// Plain endings as arguments of `finish`.
#[derive(Default)]
struct Finished {
    ended: Vec<i64>,
    ended_counts: Vec<i64>,
    parts: Vec<i64>,
    part_ids: Vec<i64>,
}

impl Finished {
    fn of(settle: &Settle) -> Self {
        let mut ended: HashMap<i64, i64> = settle.ended.iter().map(|token| (*token, 0)).collect();
        let mut this = Self::default();
        for ending in &settle.endings {
            match ended.get_mut(&ending.token) {
                Some(count) => *count += 1,
                None => {
                    this.parts.push(ending.token);
                    this.part_ids.push(ending.id.get());
                }
            }
        }
        (this.ended, this.ended_counts) = ended.into_iter().unzip();
        this
    }
}

impl Postgres {
    pub(super) async fn take_turn(&self, turn: Turn) -> Result<Turned, Error> {
        let Turn { session, settle, claim } = turn;
        let is_plain = !settle.in_transactions && settle.endings.iter().all(Ending::is_plain);
        let has_keys = settle.endings.iter().any(|ending| ending.key.is_some());
        if settle.endings.is_empty() && settle.ended.is_empty() {
            let mut turned = Turned::default();
            if let Some(claim) = claim {
                self.claim_alone(session, claim, &mut turned).await?;
            }
            return Ok(turned);
        }
        // Rows of keys are taken in their order; ending some and claiming others would take them in two.
        let (fused, apart) = if has_keys { (None, claim) } else { (claim, None) };
        let mut turned = if is_plain {
            let finished = Finished::of(&settle);
            let given = [
                int8(&session),
                int8s(&finished.ended),
                int8s(&finished.ended_counts),
                int8s(&finished.parts),
                int8s(&finished.part_ids),
            ];
            self.settle_and_claim("finish", &given, fused).await?
        } else {
            let ends = Ends::of(&settle.endings);
            let given = [
                int8(&session),
                int8s(&settle.ended),
                int8s(&ends.tokens),
                int8s(&ends.ids),
                (&ends.kinds, Type::INT2_ARRAY),
                int8s(&ends.dues),
                (&ends.bodies, Type::BYTEA_ARRAY),
                texts(&ends.keys),
                texts(&ends.uniques),
                (&ends.results, Type::BYTEA_ARRAY),
                (&ends.noted, Type::BOOL_ARRAY),
            ];
            self.settle_and_claim("settle", &given, fused).await?
        };
        if let Some(claim) = apart
            && let Err(error) = self.claim_alone(session, claim, &mut turned).await
        {
            // What was settled stands; the claim is made again by whoever wanted it.
            tracing::debug!(error = %error, "no claim after settling");
        }
        Ok(turned)
    }

    async fn settle_and_claim(
        &self,
        function: &str,
        given: &[Param<'_>],
        claim: Option<Claim>,
    ) -> Result<Turned, Error> {
        let schema = &self.schema;
        let marks: Vec<_> = (1..=given.len()).map(|at| format!("${at}")).collect();
        let call = format!("{schema}.{function}({}) f", marks.join(", "));
        let rows = match claim {
            None => {
                let sql = format!("SELECT f.ours, f.busy, f.freed FROM {call}");
                self.link.call(&sql, given).await?
            }
            Some(claim) => {
                let ranges = self.marks.lock().ranges(claim.queue, Instant::now());
                let count = i32::try_from(claim.count).unwrap_or(i32::MAX);
                // The last argument has the claim wait for what comes before it.
                let first = given.len() + 1;
                let sql = format!(
                    "SELECT f.ours, f.busy, f.freed, c.state, c.token, c.ids, c.lkeys, c.bodies FROM {call}, \
                     LATERAL {schema}.claim($1, ${first}, ${}, ${}, ${}, ${}, ${}, f.ours IS NULL) c",
                    first + 1,
                    first + 2,
                    first + 3,
                    first + 4,
                    first + 5
                );
                let mut params = given.to_vec();
                params.extend(claim_params(&claim, &ranges, &count));
                let rows = self.link.call(&sql, &params).await?;
                let mut turned = settled(only(&rows)?)?;
                self.claimed(&claim, &ranges, only(&rows)?, 3, &mut turned)?;
                return Ok(turned);
            }
        };
        settled(only(&rows)?)
    }

    async fn claim_alone(
        &self,
        session: i64,
        claim: Claim,
        turned: &mut Turned,
    ) -> Result<(), Error> {
        let sql = format!(
            "SELECT state, token, ids, lkeys, bodies FROM {}.claim($1, $2, $3, $4, $5, $6, $7, true)",
            self.schema
        );
        let ranges = self.marks.lock().ranges(claim.queue, Instant::now());
        let count = i32::try_from(claim.count).unwrap_or(i32::MAX);
        let mut params = vec![int8(&session)];
        params.extend(claim_params(&claim, &ranges, &count));
        let rows = self.link.call(&sql, &params).await?;
        self.claimed(&claim, &ranges, only(&rows)?, 0, turned)
    }

    /// Reads what a claim found, from a column on.
    fn claimed(
        &self,
        claim: &Claim,
        ranges: &Ranges,
        row: &Answered,
        at: usize,
        turned: &mut Turned,
    ) -> Result<(), Error> {
        turned.found = match get::<i16>(row, at)? {
            1 => Found::Paused,
            2 => Found::Limited,
            3 => Found::Aside,
            4 => Found::Over,
            _ => Found::All,
        };
        let ids: Vec<i64> = get::<Option<_>>(row, at + 2)?.unwrap_or_default();
        if !claim.alone {
            let is_short = ids.len() < claim.count as usize;
            self.marks.lock().claimed(claim.queue, &ids, is_short);
            // Something may have come in behind the marks.
            if is_short && !ranges.is_full && turned.found == Found::All {
                turned.found = Found::Aside;
            }
        }
        let Some(token) = get::<Option<i64>>(row, at + 1)? else { return Ok(()) };
        let keys: Option<Vec<Option<String>>> = get(row, at + 3)?;
        let bodies: Vec<Vec<u8>> = get(row, at + 4)?;
        let mut jobs = leased(ids, keys, bodies);
        // The order of claims is that of ids. The database need not sort them: they are as good as sorted.
        jobs.sort_by_key(|job| job.id);
        turned.lease = Some(Lease { token, jobs });
        Ok(())
    }
}

fn claim_params<'a>(claim: &'a Claim, ranges: &'a Ranges, count: &'a i32) -> [Param<'a>; 6] {
    [
        int8(&claim.last),
        int4(&claim.queue),
        int8s(&ranges.lows),
        int8s(&ranges.highs),
        int4(count),
        flag(&claim.alone),
    ]
}

/// Jobs from columns.
pub(super) fn leased(
    ids: Vec<i64>,
    keys: Option<Vec<Option<String>>>,
    bodies: Vec<Vec<u8>>,
) -> Vec<Leased> {
    let mut keys = keys.unwrap_or_default().into_iter();
    let one = |(id, body)| {
        let key = keys.next().flatten().map(String::into_boxed_str);
        Leased { id: JobId::new(id), key, body }
    };
    ids.into_iter().zip(bodies).map(one).collect()
}

fn settled(row: &Answered) -> Result<Turned, Error> {
    Ok(Turned {
        ours: get::<Option<_>>(row, 0)?.unwrap_or_default(),
        busy: get::<Option<_>>(row, 1)?.unwrap_or_default(),
        freed: get::<Option<_>>(row, 2)?.unwrap_or_default(),
        ..Turned::default()
    })
}
