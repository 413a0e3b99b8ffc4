//! PostgreSQL's advisory locks, beside pgbench that sends the same statements.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use leaseward::stores::postgres::advisory;
use leaseward_testkit::Postgres;

use super::redis::PAIRS;
use crate::{
    child,
    row::{
        Row, Size,
        Target::{AtMost, RatioAtLeast},
        Unit,
    },
    standby::StandBy,
    tasks::{self, Threads},
};

/// How long each contender works; pgbench counts in whole seconds.
const SPAN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

/// What our session sets too: nothing it commits is worth waiting for.
const SETTINGS: &str = "-c synchronous_commit=off";

/// One server for all rows, started when the first needs it; on disk, with PostgreSQL's own settings.
#[derive(Clone, Default)]
struct Server(Arc<OnceLock<Postgres>>);

impl Server {
    fn get(&self) -> &Postgres {
        self.0.get_or_init(|| {
            let server = Postgres::start();
            // Makes the sequence.
            let url = url(&server);
            tasks::in_task(Threads::One, async move { tasks::connect(&url).await.map(drop) })
                .expect("a server of our own can be reached");
            server
        })
    }
}

fn url(server: &Postgres) -> String {
    server.url().replacen("postgres", "postgres+advisory", 1)
}

pub(crate) fn rows() -> Vec<Row> {
    let server = Server::default();
    let row = |name, targets| {
        Row::new(name, Unit::PerSecond, targets)
            .figure("pairs")
            .and("errors", Unit::Count, &[AtMost(0.0)])
            .rounds_max(ROUNDS)
    };
    vec![
        row("advisory: lock + unlock, 1 task", &[RatioAtLeast(0.8)])
            .ours("leaseward", ours(&server, 1))
            .raw("pgbench, same statements, 1 connection", raw(&server)),
        row("advisory: lock + unlock, 64 tasks on one session", &[RatioAtLeast(3.0)])
            .ours("leaseward", ours(&server, 64))
            .raw("pgbench, a statement an operation, 1 connection", raw(&server)),
    ]
}

fn ours(server: &Server, tasks: u32) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let millis = size.span(SPAN).as_millis().to_string();
        let url = url(server.get());
        let mut one = StandBy::start(vec![child::command(
            PAIRS.name,
            &["ours", &url, &tasks.to_string(), &millis],
        )?])?;
        one.go()?;
        let told = one.figures()?;
        let [pairs, seconds, _, _, _, errors] = told[0][..] else {
            return Err(format!("{} figures instead of 6", told[0].len()));
        };
        Ok(vec![pairs / seconds, errors])
    }
}

/// Taking and giving back, one lock a statement, as ours sends them when it is alone.
fn raw(server: &Server) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let [take, give] = advisory::statements("leaseward").map(|text| {
            let text = text.replace("$1", "pg_backend_pid()");
            text.replace("$3", "'{4711}'").replace("$4", "'{1}'")
        });
        let script =
            format!("{};\n{};\n", take.replace("$2", "'{2}'"), give.replace("$2", "'{4}'"));
        let seconds = size.span(SPAN).as_secs().max(1);
        Ok(vec![server.get().pgbench_prepared(SETTINGS, &script, 1, seconds), 0.0])
    }
}
