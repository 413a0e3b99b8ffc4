//! What silently breaks or slows locks in a PostgreSQL.

use std::time::Duration;

use super::{answers::column, client::Client, config::Listen, probe::Probe};
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

/// Connections in use and allowed, and the newest fence of all names.
const FIGURES: &str = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
     current_setting('max_connections')::bigint, \
     greatest((SELECT max(last) FROM @.fences), (SELECT floor FROM @.meta))";

impl Client {
    pub(super) async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let probe = self.look().await?;
        let mut findings = settings(&probe);
        let rows = self.lines.query(&FIGURES.replace('@', &self.config.schema), &[]).await?;
        if let Some(row) = rows.first() {
            findings.extend(crowded(column(row, 0)?, column(row, 1)?));
            let newest: Option<i64> = column(row, 2)?;
            self.database.seen(newest.unwrap_or_default().unsigned_abs());
        }
        findings.extend(self.clock_finding(&probe));
        findings.extend(self.long_transactions().await?);
        findings.extend(self.deafness());
        Ok(findings)
    }

    fn deafness(&self) -> Option<Finding> {
        let is_deaf = self.config.listen != Listen::Never
            && self.listener.was_started()
            && !self.listener.hears();
        is_deaf.then(|| Finding {
            severity: Severity::Warning,
            what: "notifications of the server are not heard".into(),
            meaning: "who waits asks again every quarter of a second instead of being told".into(),
            advice: "behind a pooler in transaction mode, name a direct connection: `listen=URL`"
                .into(),
        })
    }

    fn clock_finding(&self, probe: &Probe) -> Option<Finding> {
        let apart = probe.clock_us.unsigned_abs().abs_diff(self.clock.wall_us());
        (Duration::from_micros(apart) > CLOCKS_APART).then(|| Finding {
            severity: Severity::Warning,
            what: format!("the server's clock and this machine's are {} s apart", apart / 1_000_000),
            meaning: "leases go by the server's clock alone, so none is in danger; if the server's is wrong and is set \
                      right, leases end early or late"
                .into(),
            advice: "keep both right, by NTP, without steps".into(),
        })
    }

    async fn long_transactions(&self) -> Result<Vec<Finding>, Error> {
        let rows = self.lines.query(&HOLDERS.replace('@', &self.config.schema), &[]).await?;
        let mut findings = Vec::new();
        for row in &rows {
            let (pid, name): (i32, &str) = (column(row, 0)?, column(row, 1)?);
            let (table, us): (&str, i64) = (column(row, 2)?, column(row, 3)?);
            if us < LONG_US {
                continue;
            }
            findings.push(Finding {
                severity: Severity::Warning,
                what: format!(
                    "process {pid} (`{name}`) has had rows of `{table}` in a transaction for {} s",
                    us / 1_000_000
                ),
                meaning: "the names whose rows it holds are not given to anybody until it ends"
                    .into(),
                advice: format!(
                    "end the transaction; if it is forgotten: `select pg_terminate_backend({pid})`"
                ),
            });
        }
        Ok(findings)
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
    [Some(version), volatile, lagging].into_iter().flatten().collect()
}

fn crowded(used: i64, most: i64) -> Option<Finding> {
    (used * 100 >= most * CROWDED_PERCENT).then(|| Finding {
        severity: Severity::Warning,
        what: format!("{used} of {most} connections are in use"),
        meaning: "the next client may get none".into(),
        advice: "raise `max_connections`, put PgBouncer in between, or lower `lanes`".into(),
    })
}
