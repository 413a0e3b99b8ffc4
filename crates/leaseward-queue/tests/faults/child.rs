//! A worker in a process of its own: this program again, as a test that is only run by others.

use std::{env, io::Write as _, process::Stdio, time::Duration};

use leaseward_queue::{Context, Failure, Queue, Worker};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

use crate::help::{MORTAL, Place, SOON};

/// Where the process stops, and waits to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// When the handler has begun.
    Begun,
    /// When the job was completed in a transaction that is not committed.
    Completed,
    /// When that is committed.
    Committed,
    /// When the handler has ended, and what came of it is not written down: the thread that would is busy.
    Ended,
    /// Nowhere.
    Never,
}

const STEPS: [Step; 5] = [Step::Begun, Step::Completed, Step::Committed, Step::Ended, Step::Never];

/// A process. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    says: mpsc::UnboundedReceiver<String>,
}

impl Process {
    pub(crate) fn start(place: &Place, queue: &str, step: Step) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "child::worker", "--ignored", "--nocapture"])
            .envs([
                ("LWQ_URL", place.url.as_str()),
                ("LWQ_QUEUE", queue),
                ("LWQ_STEP", &format!("{step:?}")),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("this program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (tell, says) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, said)) = line.split_once("lwq ")
                    && tell.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self { child, says }
    }

    /// The next thing it says; `None` once it has ended.
    pub(crate) async fn says(&mut self) -> Option<String> {
        self.says.recv().await
    }

    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it was alive");
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) {
        self.child.wait().await.expect("it was a child of ours");
    }
}

fn say(what: &str) {
    println!("lwq {what}");
    std::io::stdout().flush().expect("somebody listens");
}

/// Stops this process at a step, if it is the one: everything in it.
fn at(step: Step, wanted: Step) {
    if step == wanted {
        say(&format!("at {step:?}"));
        std::thread::sleep(Duration::from_secs(3_600));
    }
}

async fn handle(
    place: Place,
    wanted: Step,
    what: serde_json::Value,
    context: Context,
) -> Result<(), Failure> {
    at(Step::Begun, wanted);
    if what == "poison" {
        say("poisoned");
        std::process::abort();
    }
    let driver = place.drivers()[0];
    driver
        .complete_and(&place, &context, || at(Step::Completed, wanted))
        .await
        .map_err(Failure::new)?;
    at(Step::Committed, wanted);
    if wanted == Step::Ended {
        // The only thread of the runtime is stopped once it is back there.
        tokio::spawn(async { at(Step::Ended, Step::Ended) });
    }
    Ok(())
}

#[test]
#[ignore = "a process for other tests"]
fn worker() {
    let of = |name: &str| env::var(name).expect("told by the test that started it");
    let step = of("LWQ_STEP");
    let wanted = STEPS.into_iter().find(|known| format!("{known:?}") == step).expect("a step");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let place = Place::at(of("LWQ_URL"));
        let queue = Queue::builder().ttl(MORTAL).connect(&place.url).await.expect("reached");
        say("ready");
        Worker::new(&queue, of("LWQ_QUEUE"))
            .backoff(SOON)
            .run(move |what: serde_json::Value, context| {
                handle(place.clone(), wanted, what, context)
            })
            .await
            .expect("a worker begins");
    });
}
