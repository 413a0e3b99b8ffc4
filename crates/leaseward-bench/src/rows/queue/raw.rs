//! The raw limit: the same layout in a few statements, with no library around them.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{Client, NoTls, types::Type};

use crate::{
    child::Part,
    standby,
    stats::{now, quantile},
    tasks::{self, Threads},
};

pub(crate) const RAW: Part = Part { name: "queue-raw", play };

const TABLES: &str = "\
CREATE TABLE ready (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE lease (token bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ids bigint[], bodies bytea[])
    WITH (fillfactor = 50);";

/// Ends one batch and claims the next, from a mark on.
const TURN: &str = "\
WITH gone AS (DELETE FROM lease WHERE token = $1),
pick AS MATERIALIZED (SELECT id FROM ready WHERE id > $2 ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED),
took AS (DELETE FROM ready r USING pick p WHERE r.id = p.id RETURNING r.id, r.body)
INSERT INTO lease (ids, bodies) SELECT array_agg(id), array_agg(body) FROM took HAVING count(*) > 0
RETURNING token, ids, bodies";

const PUSH: &str = "INSERT INTO ready (body) SELECT unnest($1::bytea[])";

/// What a claimer may have been overtaken by.
const MARGIN: i64 = 2_000;

/// As long as the body of a small job of ours.
const BODY: &[u8] = br#"{"p":123456789012345.0,"i":1700000000000000}"#;

fn play(args: &[String]) -> Result<Vec<f64>, String> {
    let [experiment, url, numbers @ ..] = args else { return Err("an experiment, a URL".into()) };
    let numbers: Result<Vec<u32>, _> = numbers.iter().map(|number| number.parse()).collect();
    let numbers = numbers.map_err(|error| error.to_string())?;
    let (experiment, url) = (experiment.clone(), url.clone());
    tasks::in_task(Threads::Two, async move {
        let client = connect(&url).await?;
        client.batch_execute(TABLES).await.map_err(text)?;
        match (experiment.as_str(), numbers.as_slice()) {
            ("drain", [_, jobs]) => drain(&url, &client, *jobs).await,
            ("batch", [jobs]) => batch(&client, *jobs).await,
            ("single", [callers, jobs]) => single(&url, *callers, *jobs).await,
            ("together", [callers, jobs]) => together(client, *callers, *jobs).await,
            ("latency", [times]) => latency(&url, &client, *times).await,
            (other, _) => Err(format!("no experiment `{other}`")),
        }
    })
}

fn text(error: tokio_postgres::Error) -> String {
    error.to_string()
}

async fn connect(url: &str) -> Result<Client, String> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(text)?;
    tokio::spawn(connection);
    Ok(client)
}

async fn push(client: &Client, jobs: u32) -> Result<(), String> {
    let statement = client.prepare_typed(PUSH, &[Type::BYTEA_ARRAY]).await.map_err(text)?;
    let bodies = vec![BODY; 1_000];
    for _ in 0..jobs / 1_000 {
        client.execute(&statement, &[&bodies]).await.map_err(text)?;
    }
    Ok(())
}

/// Claims until there is nothing left; how many jobs there were.
async fn claim(client: Client) -> Result<u64, String> {
    let statement = client.prepare(TURN).await.map_err(text)?;
    let (mut token, mut mark, mut count) = (0_i64, 0_i64, 0);
    loop {
        let row = client.query_opt(&statement, &[&token, &mark]).await.map_err(text)?;
        match row {
            Some(row) => {
                token = row.get(0);
                let ids: Vec<i64> = row.get(1);
                let _bodies: Vec<&[u8]> = row.get(2);
                count += ids.len() as u64;
                let newest = ids.iter().max().copied().unwrap_or(0);
                mark = if ids.len() < 100 { 0 } else { (newest - MARGIN).max(0) };
            }
            None if mark > 0 => mark = 0,
            None => return Ok(count),
        }
    }
}

async fn drain(url: &str, client: &Client, jobs: u32) -> Result<Vec<f64>, String> {
    push(client, jobs).await?;
    let (one, two) = (connect(url).await?, connect(url).await?);
    standby::ready()?;
    let begin = Instant::now();
    let (one, two) = (tokio::spawn(claim(one)), tokio::spawn(claim(two)));
    let (one, two) =
        (one.await.map_err(|e| e.to_string())??, two.await.map_err(|e| e.to_string())??);
    Ok(vec![(one + two) as f64 / begin.elapsed().as_secs_f64()])
}

async fn batch(client: &Client, jobs: u32) -> Result<Vec<f64>, String> {
    push(client, 1_000).await?;
    standby::ready()?;
    let begin = Instant::now();
    push(client, jobs).await?;
    Ok(vec![f64::from(jobs) / begin.elapsed().as_secs_f64()])
}

async fn single(url: &str, callers: u32, jobs: u32) -> Result<Vec<f64>, String> {
    let mut clients = Vec::new();
    for _ in 0..callers {
        clients.push(connect(url).await?);
    }
    standby::ready()?;
    let (begin, each) = (Instant::now(), jobs / callers);
    let callers = clients.into_iter().map(|client| {
        tokio::spawn(async move {
            let sql = "INSERT INTO ready (body) VALUES ($1)";
            let statement = client.prepare(sql).await.map_err(text)?;
            for _ in 0..each {
                client.execute(&statement, &[&BODY]).await.map_err(text)?;
            }
            Ok::<_, String>(each)
        })
    });
    let mut total = 0;
    for caller in callers.collect::<Vec<_>>() {
        total += caller.await.map_err(|error| error.to_string())??;
    }
    Ok(vec![f64::from(total) / begin.elapsed().as_secs_f64()])
}

/// One connection: what callers bring while a statement is on its way goes out with the next one.
async fn together(client: Client, callers: u32, jobs: u32) -> Result<Vec<f64>, String> {
    let statement = client.prepare_typed(PUSH, &[Type::BYTEA_ARRAY]).await.map_err(text)?;
    let (sender, mut waiting) = mpsc::channel::<oneshot::Sender<()>>(10_000);
    standby::ready()?;
    let (begin, each) = (Instant::now(), jobs / callers);
    let carrier = tokio::spawn(async move {
        let mut batch = Vec::new();
        while waiting.recv_many(&mut batch, 1_000).await > 0 {
            let bodies = vec![BODY; batch.len()];
            client.execute(&statement, &[&bodies]).await.map_err(text)?;
            for caller in batch.drain(..) {
                let _ = caller.send(());
            }
            // Those who were answered come back before the next statement leaves.
            tokio::task::yield_now().await;
        }
        Ok::<_, String>(())
    });
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let sender = sender.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    let (reply, answer) = oneshot::channel();
                    sender.send(reply).await.map_err(|error| error.to_string())?;
                    answer.await.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(each)
            })
        })
        .collect();
    drop(sender);
    let mut total = 0;
    for caller in callers {
        total += caller.await.map_err(|error| error.to_string())??;
    }
    let seconds = begin.elapsed().as_secs_f64();
    carrier.await.map_err(|error| error.to_string())??;
    Ok(vec![f64::from(total) / seconds])
}

/// Insert and notify in one transaction, hear and claim in another connection: nothing durable is done in fewer steps.
async fn latency(url: &str, client: &Client, times: u32) -> Result<Vec<f64>, String> {
    let (claimer, mut connection) = tokio_postgres::connect(url, NoTls).await.map_err(text)?;
    let (heard, mut hears) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let Ok(tokio_postgres::AsyncMessage::Notification(_)) = message {
                let _ = heard.send(());
            }
        }
    });
    claimer.batch_execute("LISTEN jobs").await.map_err(text)?;
    let turn = claimer.prepare(TURN).await.map_err(text)?;
    let insert = "WITH i AS (INSERT INTO ready (body) VALUES ($1)) SELECT pg_notify('jobs', '')";
    let insert = client.prepare(insert).await.map_err(text)?;
    standby::ready()?;
    let (mut waits, mut token) = (Vec::new(), 0_i64);
    for _ in 0..times {
        let pushed = now();
        let told = async { client.execute(&insert, &[&BODY]).await.map_err(text) };
        let claimed = async {
            hears.recv().await.ok_or("nobody notifies any more")?;
            let row = claimer.query_opt(&turn, &[&token, &0_i64]).await.map_err(text)?;
            Ok::<_, String>(row.map(|row| row.get(0)))
        };
        let (told, claimed) = tokio::join!(told, claimed);
        told?;
        token = claimed?.ok_or("a job was not there")?;
        waits.push((now() - pushed) / 1e6);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    waits.sort_by(f64::total_cmp);
    Ok(vec![quantile(&waits, 0.5), quantile(&waits, 0.99)])
}
