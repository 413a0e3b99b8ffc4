//! What silently breaks or slows locks in a PostgreSQL.

use std::time::Duration;

use super::{client::Client, probe::Probe};
use crate::{
    Error,
    store::{Finding, Severity},
};

/// From this share of all connections on, the next client may get none.
const CROWDED_PERCENT: i64 = 90;

/// Our clock and the server's may differ by this without anybody minding: leases do not depend on it, people do.
const CLOCKS_APART: Duration = Duration::from_secs(60);

/// Older than this, a transaction that holds a fence row keeps its name from being given on.
const LONG_US: i64 = 5_000_000;

/// Sessions that hold a lock on our tables in a transaction that does nothing.
const HOLDERS: &str = "SELECT DISTINCT a.pid, coalesce(a.application_name, ''), c.relname::text, \
     (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint AS us \
     FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
     JOIN pg_stat_activity a ON a.pid = l.pid \
     WHERE n.nspname = '@' AND c.relname IN ('fences', 'leases') AND l.mode IN ('RowShareLock', 'RowExclusiveLock') \
     AND a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '5 seconds' ORDER BY us DESC";

impl Client {
    pub(super) async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let probe = Probe::ask(&self.lines).await?;
        let mut findings = settings(&probe);
        findings.extend(self.clock_finding().await?);
        findings.extend(self.long_transactions().await?);
        if self.config.listen != super::config::Listen::Never
            && !self.listener.hears()
            && self.listener.was_started()
        {
            findings.push(Finding {
                severity: Severity::Warning,
                what: "notifications of the server are not heard".into(),
                meaning: "who waits asks again every quarter of a second instead of being told"
                    .into(),
                advice:
                    "behind a pooler in transaction mode, name a direct connection: `listen=URL`"
                        .into(),
            });
        }
        Ok(findings)
    }

    async fn clock_finding(&self) -> Result<Option<Finding>, Error> {
        let sql = format!("SELECT {}.clock_us()", self.config.schema);
        let rows = self.lines.query(&sql, &[]).await?;
        let Some(theirs) = rows.first().map(|row| row.get::<_, i64>(0)) else { return Ok(None) };
        let apart = theirs.unsigned_abs().abs_diff(self.clock.wall_us());
        Ok((apart > u64::try_from(CLOCKS_APART.as_micros()).unwrap_or(u64::MAX)).then(|| Finding {
            severity: Severity::Warning,
            what: format!("the server's clock and this machine's are {} s apart", apart / 1_000_000),
            meaning: "leases go by the server's clock alone, so none is in danger; if the server's is wrong and is set \
                      right, leases end early or late"
                .into(),
            advice: "keep both right, by NTP, without steps".into(),
        }))
    }

    async fn long_transactions(&self) -> Result<Vec<Finding>, Error> {
        let rows = self.lines.query(&HOLDERS.replace('@', &self.config.schema), &[]).await?;
        let holders = rows.iter().filter(|row| row.get::<_, i64>(3) >= LONG_US);
        Ok(holders
            .map(|row| {
                let (pid, name): (i32, &str) = (row.get(0), row.get(1));
                let (table, us): (&str, i64) = (row.get(2), row.get(3));
                Finding {
                    severity: Severity::Warning,
                    what: format!(
                        "process {pid} (`{name}`) has had rows of `{table}` in a transaction for {} s",
                        us / 1_000_000
                    ),
                    meaning: "the names whose rows it holds are not given to anybody until it ends".into(),
                    advice: format!(
                        "end the transaction; if it is forgotten: `select pg_terminate_backend({pid})`"
                    ),
                }
            })
            .collect())
    }
}

fn settings(probe: &Probe) -> Vec<Finding> {
    let version = Finding {
        severity: Severity::Note,
        what: format!("PostgreSQL {}", probe.version_text()),
        meaning: "leases are rows of a database, timed by its clock".into(),
        advice: "nothing to do".into(),
    };
    let volatile = (!probe.is_durable).then(|| Finding {
        severity: Severity::Danger,
        what: "`fsync` or `full_page_writes` is off".into(),
        meaning: "a crash of the machine may lose leases that their holders were told of, or damage the tables".into(),
        advice: "switch both on".into(),
    });
    let lagging = (probe.standbys > 0 && !probe.is_synchronous).then(|| Finding {
        severity: Severity::Danger,
        what: format!("{} standby servers, and no commit waits for one", probe.standbys),
        meaning: "if one is promoted that has not heard of the last commits, a name may be given out twice".into(),
        advice: "set `synchronous_standby_names`, and promote only those named there".into(),
    });
    let crowded = probe.connections * 100 >= i64::from(probe.max_connections) * CROWDED_PERCENT;
    let crowded = crowded.then(|| Finding {
        severity: Severity::Warning,
        what: format!("{} of {} connections are in use", probe.connections, probe.max_connections),
        meaning: "the next client may get none".into(),
        advice: "raise `max_connections`, put PgBouncer in between, or lower `lanes`".into(),
    });
    [Some(version), volatile, lagging, crowded].into_iter().flatten().collect()
}
