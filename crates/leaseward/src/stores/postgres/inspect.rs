//! What is held and who waits, for people; and ending it against the holders' will.

use std::collections::BTreeMap;

use tokio_postgres::{Row, types::Type};

use super::{
    answers::{self, column, length, mode},
    client::Client,
};
use crate::{
    Error, Fence, Name, Value,
    store::{Break, Broken, HeldView, LockView, Query, WaiterView},
};

/// Names that are wanted and of which there is something to show, then all about them: one statement, so one moment.
/// The first argument is what they begin with, or the name itself if the fourth says so.
const SQL: &str = "
WITH moment AS MATERIALIZED (SELECT @.clock_us() AS us), wanted AS MATERIALIZED (
    SELECT l.name FROM @.leases l, moment m
    WHERE l.name >= $1 AND l.name > $2 AND l.name <= $1 || repeat(chr(1114111), 128)
        AND CASE WHEN $4 THEN l.name = $1 ELSE starts_with(l.name, $1) END
        AND (l.expires_us > m.us
            OR l.sharers > 0 AND EXISTS (SELECT FROM @.shares s WHERE s.name = l.name AND s.expires_us > m.us)
            OR l.waiters > 0 AND EXISTS (SELECT FROM @.places p WHERE p.name = l.name AND p.expires_us > m.us))
    ORDER BY l.name LIMIT $3
), found AS (
    SELECT l.name, l.token, l.who, 0 AS mode, l.first, NULL::int AS slot, l.condition, l.ttl_us, 0::bigint AS nothing,
        m.us - l.since_us AS for_us, l.expires_us - m.us AS left_us, l.value, 0::bigint AS seq
    FROM wanted w JOIN @.leases l ON l.name = w.name, moment m WHERE l.expires_us > m.us
    UNION ALL
    SELECT s.name, s.token, s.who, s.mode, s.first, s.slot, s.condition, s.ttl_us, 0,
        m.us - s.since_us, s.expires_us - m.us, s.value, 0
    FROM wanted w JOIN @.shares s ON s.name = w.name, moment m WHERE s.expires_us > m.us
    UNION ALL
    SELECT p.name, p.token, p.who, p.mode, 0, NULL, 0::smallint, p.ttl_us, 0, m.us - p.since_us, 0, NULL, p.seq
    FROM wanted w JOIN @.places p ON p.name = w.name, moment m WHERE p.expires_us > m.us
)
SELECT * FROM found ORDER BY name, seq, first";

impl Client {
    pub(super) async fn inspect(&self, query: &Query) -> Result<Vec<LockView>, Error> {
        let (begin, after, limit, is_name) = match query {
            Query::Name(name) => (name.as_str(), "", 1, true),
            Query::Prefix { prefix, after, limit } => {
                (prefix.as_str(), after.as_ref().map_or("", Name::as_str), *limit, false)
            }
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = SQL.replace('@', &self.config.schema);
        let rows = self
            .lines
            .query(
                &sql,
                &[
                    (&begin, Type::TEXT),
                    (&after, Type::TEXT),
                    (&limit, Type::INT8),
                    (&is_name, Type::BOOL),
                ],
            )
            .await?;
        let mut views = BTreeMap::new();
        for row in &rows {
            let name = Name::new(column::<&str>(row, 0)?)?;
            let view = views.entry(name.clone()).or_insert_with(|| LockView {
                name,
                holders: Vec::new(),
                waiters: Vec::new(),
            });
            if column::<i64>(row, 12)? == 0 {
                view.holders.push(held(row)?);
            } else {
                view.waiters.push(waiter(row)?);
            }
        }
        Ok(views.into_values().collect())
    }

    pub(super) async fn break_lease(&self, order: &Break) -> Result<Broken, Error> {
        let sql = format!("SELECT * FROM {}.break_lease($1, $2)", self.config.schema);
        let name = order.name.as_str();
        let rows = self.lines.query(&sql, &[(&name, Type::TEXT), (&order.now, Type::BOOL)]).await?;
        Ok(Broken { holders: rows.iter().map(held).collect::<Result<_, _>>()? })
    }
}

/// A holder, from the columns that both statements have.
fn held(row: &Row) -> Result<HeldView, Error> {
    let token = answers::token(column(row, 1)?, column(row, 2)?)?;
    let value: Option<&[u8]> = column(row, 11)?;
    Ok(HeldView {
        who: token.who().clone(),
        token_prefix: token.prefix(),
        mode: mode(column(row, 3)?),
        fence: Fence::new(column::<i64>(row, 4)?.unsigned_abs()),
        slot: column::<Option<i32>>(row, 5)?.and_then(|slot| u32::try_from(slot).ok()),
        ttl: length(column(row, 7)?),
        remaining: Some(length(column(row, 10)?)),
        held: length(column(row, 9)?),
        value: value.map(Value::new).transpose()?,
        ending: column::<i16>(row, 6)? != 0,
    })
}

fn waiter(row: &Row) -> Result<WaiterView, Error> {
    let token = answers::token(column(row, 1)?, column(row, 2)?)?;
    Ok(WaiterView {
        who: token.who().clone(),
        token_prefix: token.prefix(),
        mode: mode(column(row, 3)?),
        waited: length(column(row, 9)?),
    })
}
