//! Works on jobs, so that it can be killed or frozen in the middle of them.
//!
//! `job-worker URL QUEUE FILE TTL_MS`: each job is a number. It is appended to the file, which nothing guards; then, in one
//! transaction, written to the table `effects` and completed. Every third job is only appended, and completed as jobs usually
//! are. Says `stale` for each completion that was refused because the job had been given to another, `ready` at the
//! beginning, `begun` for each attempt. Works until it is told to end by the end of its standard input.

use std::{
    error::Error,
    fs::{File, OpenOptions},
    io::Write,
    sync::Arc,
    time::Duration,
};

use leaseward_queue::{Backoff, Context, EventKind, Failure, Queue, Worker, tx};
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::io::AsyncReadExt as _;
use tokio_postgres::NoTls;

/// The longest pause in the middle of a job: time enough to be killed in.
const PAUSE_MS: u64 = 20;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, name, file, ttl_ms] = args.as_slice() else {
        return Err("usage: job-worker URL QUEUE FILE TTL_MS".into());
    };
    let ttl = Duration::from_millis(ttl_ms.parse()?);
    // The server may be on its way down or up.
    let queue = loop {
        match Queue::builder().ttl(ttl).connect(url).await {
            Ok(queue) => break queue,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    queue.on_event(|event| {
        if event.kind == EventKind::Stale {
            say("stale");
        }
    });
    let file = OpenOptions::new().append(true).create(true).open(file)?;
    let effects = Arc::new(Effects { file, books: Books::open(url) });
    say("ready");
    let handler = move |number: u64, context: Context| {
        let effects = effects.clone();
        async move {
            // A task of its own goes on after the attempt was given up, as a thread of a real program would.
            let task = tokio::spawn(async move { effects.of(number, &context).await });
            task.await.map_err(Failure::from)?
        }
    };
    let (end, ended) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
        let _ = end.send(true);
    });
    let soon = Backoff::new(Duration::from_millis(1), Duration::from_millis(20));
    let worker = Worker::new(&queue, name).concurrency(8).max_attempts(10_000).backoff(soon);
    loop {
        let mut ended = ended.clone();
        let end = async move { drop(ended.wait_for(|ended| *ended).await) };
        match worker.clone().run_until(end, handler.clone()).await {
            Ok(_) => return Ok(()),
            // Not reached at the beginning.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What jobs do.
struct Effects {
    file: File,
    books: Books,
}

impl Effects {
    async fn of(&self, number: u64, context: &Context) -> Result<(), Failure> {
        say("begun");
        // One write of one short line: whole, or not at all.
        (&self.file).write_all(format!("{number}\n").as_bytes())?;
        let pause = rand::rng().random_range(0..=PAUSE_MS);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if number.is_multiple_of(3) {
            return Ok(());
        }
        match &self.books {
            Books::Postgres { url, idle } => postgres(url, idle, number, context).await,
            Books::Sqlite(path) => {
                let (path, context) = (path.clone(), context.clone());
                let written = tokio::task::spawn_blocking(move || sqlite(&path, number, &context));
                written.await.map_err(Failure::from)?
            }
        }
    }
}

/// Where effects are written down: in the queue's own database.
enum Books {
    Postgres { url: String, idle: Mutex<Vec<tokio_postgres::Client>> },
    Sqlite(String),
}

impl Books {
    fn open(url: &str) -> Self {
        match url.strip_prefix("sqlite:") {
            Some(path) => Self::Sqlite(path.to_owned()),
            None => Self::Postgres { url: url.to_owned(), idle: Mutex::default() },
        }
    }
}

async fn postgres(
    url: &str,
    idle: &Mutex<Vec<tokio_postgres::Client>>,
    number: u64,
    context: &Context,
) -> Result<(), Failure> {
    let waiting = idle.lock().pop().filter(|client| !client.is_closed());
    let mut client = match waiting {
        Some(client) => client,
        None => {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            client
        }
    };
    let fence = i64::try_from(context.fence().get())?;
    let number = i64::try_from(number)?;
    let transaction = client.transaction().await?;
    let sql = "INSERT INTO effects (number, fence) VALUES ($1, $2)";
    transaction.execute(sql, &[&number, &fence]).await?;
    told(tx::postgres::complete(&transaction, context).await)?;
    transaction.commit().await?;
    idle.lock().push(client);
    Ok(())
}

fn sqlite(path: &str, number: u64, context: &Context) -> Result<(), Failure> {
    let mut conn = rusqlite::Connection::open(path)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    let behavior = rusqlite::TransactionBehavior::Immediate;
    let transaction = conn.transaction_with_behavior(behavior)?;
    let (fence, number) = (i64::try_from(context.fence().get())?, i64::try_from(number)?);
    transaction.execute("INSERT INTO effects (number, fence) VALUES (?1, ?2)", [number, fence])?;
    told(tx::sqlite::complete(&transaction, context))?;
    transaction.commit()?;
    Ok(())
}

/// Says that a completion was refused.
fn told<E: Error + 'static>(completed: Result<(), tx::TxError<E>>) -> Result<(), Failure> {
    if completed.as_ref().is_err_and(tx::TxError::is_stale) {
        say("stale");
    }
    completed.map_err(Failure::from)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever listened has gone: then nobody needs to hear it.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
