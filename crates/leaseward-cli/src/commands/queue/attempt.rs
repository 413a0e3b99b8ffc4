//! One job as one command: its payload on stdin, its end as its exit code.

use std::{
    ffi::OsString,
    io,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use leaseward_queue::{Context, Ending, Failure, JobId};
use rustix::process::Signal;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStderr, ChildStdin},
    sync::{Mutex, oneshot, watch},
    task::JoinSet,
};

use super::work::{not_done, now};
use crate::{
    child::{Crew, Grace, Group, Member, reap},
    exit::BUSY,
};

/// The code for *never again*: `EX_DATAERR`, the input was wrong.
const NEVER: u8 = 65;

/// How long a command has between SIGTERM and SIGKILL.
pub(super) const KILL_AFTER: Duration = Duration::from_secs(5);

/// How often a dying group is looked at, of which no signal tells.
const GLANCE: Duration = Duration::from_millis(10);

/// How long to wait for more on stderr when the command has ended: somebody it left behind may keep it open.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How much of what a command says is kept with its failure.
const TAIL: usize = 1_500;

/// Where commands are run.
#[derive(Debug)]
pub(super) struct Shop {
    command: Vec<OsString>,
    store: String,
    raw: bool,
    /// Whether stdout is ours alone.
    as_json: bool,
    snooze: Duration,
    grace: Grace,
    /// True when commands are to end.
    hurried: watch::Receiver<bool>,
    crew: Mutex<Crew>,
    contexts: under_way::Contexts,
    minders: Mutex<JoinSet<()>>,
}

/// How a command came to its end.
enum End {
    /// By itself, with the last of what it said.
    Exited(io::Result<ExitStatus>, String),
    /// The watchdog ended it, because the session was about to end.
    Interrupted,
    /// The worker ends, and has waited long enough.
    Hurried(io::Result<ExitStatus>),
}

impl Shop {
    pub(super) fn new(
        command: Vec<OsString>,
        store: String,
        (raw, as_json): (bool, bool),
        snooze: Duration,
        grace: Grace,
        hurried: watch::Receiver<bool>,
    ) -> Self {
        Self {
            command,
            store,
            raw,
            as_json,
            snooze,
            grace,
            hurried,
            crew: Mutex::new(Crew::new(grace)),
            contexts: under_way::Contexts::default(),
            minders: Mutex::default(),
        }
    }

    /// Passes the deadlines of sessions on to the watchdog, until it is dropped.
    pub(super) async fn keep(self: Arc<Self>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            for (session, deadline) in self.contexts.deadlines() {
                // Without a watchdog nothing new is started; it is tried again.
                let _ = self.crew.lock().await.keep(session, deadline);
            }
        }
    }

    /// Waits for what is still being ended, and for the watchdogs.
    pub(super) async fn close(&self) {
        let mut minders = std::mem::take(&mut *self.minders.lock().await);
        while minders.join_next().await.is_some() {}
        let mut crew = self.crew.lock().await;
        let patience = now() + Duration::from_secs(1);
        while !crew.dismiss() && now() < patience {
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Carries out one attempt.
    pub(super) async fn attempt(
        self: Arc<Self>,
        payload: Box<RawValue>,
        context: Context,
    ) -> Result<Ending, Failure> {
        // A lease that is about to end starts no command. If no renewal comes, the session ends and drops this future.
        while context.deadline().since(now()) < self.grace.worth_starting() {
            tokio::time::sleep(GLANCE).await;
        }
        let (session, deadline) = (context.session(), context.deadline());
        let started = self.crew.lock().await.start(&self.command, session, deadline, |command| {
            self.set_up(command, &context);
        });
        let member = started.map_err(|error| not_done("the command cannot be started", &error))?;
        let input = self.input(&payload);
        // The command is minded by a task of its own: this future is dropped when the attempt is to stop.
        let (here, gone) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let shop = self.clone();
        let mut minders = self.minders.lock().await;
        while minders.try_join_next().is_some() {}
        minders.spawn(async move {
            let _ = tell.send(shop.mind(member, input, context, gone).await);
        });
        drop(minders);
        let end = told.await;
        drop(here);
        match end {
            Ok(Some(End::Exited(status, said))) => self.judge(status, &said),
            Ok(Some(End::Interrupted)) => Ok(Ending::Interrupted),
            Ok(Some(End::Hurried(Ok(status)))) if status.success() => Ok(Ending::Done),
            // Given back, at once and without counting.
            Ok(Some(End::Hurried(_))) => Ok(Ending::Snooze(Duration::ZERO)),
            Ok(None) | Err(_) => Err(Failure::new("nobody minded the command")),
        }
    }

    fn set_up(&self, command: &mut std::process::Command, context: &Context) {
        command
            .env("LEASEWARD_STORE", &self.store)
            .env("LEASEWARD_QUEUE", context.queue())
            .env("LEASEWARD_JOB_ID", context.id().to_string())
            .env("LEASEWARD_ATTEMPT", context.attempt().to_string())
            .env("LEASEWARD_FENCE", context.fence().to_string())
            // Of an outer `leaseward run`.
            .env_remove("LEASEWARD_NAME")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(trace) = context.trace() {
            command.env("TRACEPARENT", trace);
        }
        if self.as_json {
            command.stdout(Stdio::from(io::stderr()));
        }
    }

    /// The payload as the command reads it.
    fn input(&self, payload: &RawValue) -> Vec<u8> {
        let text = match serde_json::from_str::<String>(payload.get()) {
            Ok(text) if self.raw => text,
            _ => payload.get().to_owned(),
        };
        format!("{text}\n").into_bytes()
    }

    fn judge(&self, status: io::Result<ExitStatus>, said: &str) -> Result<Ending, Failure> {
        use std::os::unix::process::ExitStatusExt as _;
        let status = status.map_err(|error| not_done("nobody knows how it ended", &error))?;
        let what = match (status.code(), status.signal()) {
            (Some(0), _) => return Ok(Ending::Done),
            (Some(code), _) if code == i32::from(BUSY) => return Ok(Ending::Snooze(self.snooze)),
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        };
        let message = match said.trim() {
            "" => what,
            said => format!("{what}: {said}"),
        };
        let failure = Failure::new(message);
        let is_final = status.code() == Some(i32::from(NEVER));
        Err(if is_final { failure.fatal() } else { failure })
    }

    /// Sees a command to its end, and everything it left behind; `None` if nobody waits for it any more.
    async fn mind(
        &self,
        mut member: Member,
        input: Vec<u8>,
        context: Context,
        mut gone: oneshot::Receiver<()>,
    ) -> Option<End> {
        self.contexts.add(&context);
        let feeding = tokio::spawn(feed(member.child.stdin.take(), input));
        let (tail, hearing) = listen(member.child.stderr.take());
        let mut hurried = self.hurried.clone();
        let hurried = async move { drop(hurried.wait_for(|hurried| *hurried).await) };
        let end = tokio::select! {
            status = member.child.wait() => {
                // Asked before anything else can happen to the group.
                let was_made_to = self.crew.lock().await.was_made_to_end(member.group);
                let _ = tokio::time::timeout(LAST_WORDS, hearing).await;
                match status {
                    Ok(status) if was_made_to && !status.success() => Some(End::Interrupted),
                    status => Some(End::Exited(status, tail.lock().await.text())),
                }
            }
            _ = &mut gone => {
                self.stopped(&mut member, &context).await;
                None
            }
            () = hurried => {
                Some(End::Hurried(ask_then_kill(&mut member).await))
            }
        };
        feeding.abort();
        clear(member.group).await;
        self.contexts.remove(context.id());
        self.crew.lock().await.left(member.group);
        end
    }

    /// The attempt was cancelled, took too long, or is lost.
    async fn stopped(&self, member: &mut Member, context: &Context) {
        let is_lost = tokio::select! {
            biased;
            () = context.lost() => true,
            () = std::future::ready(()) => false,
        };
        if is_lost {
            // Another worker may have it already.
            member.group.signal(Signal::KILL);
            let _ = member.child.wait().await;
        } else {
            let _ = ask_then_kill(member).await;
        }
    }
}

/// SIGTERM, and SIGKILL after a while.
async fn ask_then_kill(member: &mut Member) -> io::Result<ExitStatus> {
    member.group.ask_to_end();
    if let Ok(status) = tokio::time::timeout(KILL_AFTER, member.child.wait()).await {
        return status;
    }
    member.group.signal(Signal::KILL);
    member.child.wait().await
}

/// Ends what a command left behind in its group.
async fn clear(group: Group) {
    let kill_at = now() + KILL_AFTER;
    // Somebody who cannot be killed is stuck in the kernel.
    let give_up_at = kill_at + KILL_AFTER;
    let mut is_asked = false;
    loop {
        reap(group);
        if group.is_empty() || now() >= give_up_at {
            return;
        }
        if now() >= kill_at {
            group.signal(Signal::KILL);
        } else if !std::mem::replace(&mut is_asked, true) {
            group.ask_to_end();
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Writes the payload; a command that does not read it may do so.
async fn feed(stdin: Option<ChildStdin>, input: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&input).await;
        let _ = stdin.shutdown().await;
    }
}

/// The last of what a command said.
#[derive(Debug, Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let surplus = self.0.len().saturating_sub(TAIL);
        self.0.drain(..surplus);
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).trim().to_owned()
    }
}

/// Passes on what a command says, and keeps the last of it.
fn listen(stderr: Option<ChildStderr>) -> (Arc<Mutex<Tail>>, tokio::task::JoinHandle<()>) {
    let tail = Arc::<Mutex<Tail>>::default();
    let kept = tail.clone();
    let hearing = tokio::spawn(async move {
        let Some(mut stderr) = stderr else { return };
        let mut ours = tokio::io::stderr();
        let mut buffer = vec![0; 8 * 1_024];
        while let Ok(read) = stderr.read(&mut buffer).await {
            let said = buffer.get(..read).unwrap_or_default();
            if said.is_empty() {
                return;
            }
            kept.lock().await.add(said);
            // Nobody reading it is not a reason to fail.
            let _ = ours.write_all(said).await;
            let _ = ours.flush().await;
        }
    });
    (tail, hearing)
}

/// Attempts that are under way: those of one session have one deadline.
mod under_way {
    use std::{collections::BTreeMap, sync::Mutex};

    use leaseward::clock::Moment;

    use super::{Context, JobId};

    #[derive(Debug, Default)]
    pub(super) struct Contexts(Mutex<Vec<Context>>);

    impl Contexts {
        pub(super) fn add(&self, context: &Context) {
            self.all().push(context.clone());
        }

        pub(super) fn remove(&self, id: JobId) {
            self.all().retain(|context| context.id() != id);
        }

        /// The deadline of each session.
        pub(super) fn deadlines(&self) -> BTreeMap<u64, Moment> {
            self.all().iter().map(|context| (context.session(), context.deadline())).collect()
        }

        fn all(&self) -> std::sync::MutexGuard<'_, Vec<Context>> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_kept() {
        let mut tail = Tail::default();
        tail.add(b"first\n");
        tail.add(&[b'x'; TAIL]);
        tail.add(b"\nlast\n");
        assert_eq!(tail.0.len(), TAIL);
        assert!(tail.text().ends_with("x\nlast") && !tail.text().contains("first"));
    }
}
