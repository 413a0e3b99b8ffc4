//! An actor: a real process that holds a lease and writes when told to, without a look at its lease.
//!
//! The sort of program that needs a fence: correct until it is paused at the wrong moment.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    time::Duration,
};

use leaseward::Fence;
use rustix::process::{Pid, Signal, kill_process};

use super::Set;
use crate::{config::PASSWORD_VARIABLE, exit::Exit, failure::Failure};

/// The hidden first argument that makes this process an actor.
const ACTOR: &str = "__actor";
/// Where an actor finds its store: an environment variable, because arguments are seen by every user.
const STORE_VARIABLE: &str = "LEASEWARD_STORE";

/// A started actor that holds a lease.
#[derive(Debug)]
pub(super) struct Actor {
    process: Child,
    orders: ChildStdin,
    answers: Option<BufReader<ChildStdout>>,
    fence: Fence,
}

impl Actor {
    /// Starts a process that acquires a name, and waits until it has it.
    pub(super) async fn start(set: &Set, name: &str, ttl: Duration) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::system("cannot start another process", &error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut process = Command::new(program)
            .args([ACTOR, name, &ttl.as_millis().to_string()])
            .env(STORE_VARIABLE, &set.url)
            .env_remove(PASSWORD_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed(io::Error::other("no pipes")));
        };
        let answers = Some(BufReader::new(answers));
        let mut actor = Self { process, orders, answers, fence: Fence::ZERO };
        actor.fence = actor.answer().await?;
        Ok(actor)
    }

    pub(super) fn fence(&self) -> Fence {
        self.fence
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends the process a signal.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub(super) fn crash(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Tells it to write; it will when it runs.
    pub(super) fn order_write(&mut self) -> Result<(), Failure> {
        writeln!(self.orders, "write")
            .map_err(|error| Failure::system("the other process is gone", &error))
    }

    /// The fence it writes with, read from its answer.
    pub(super) async fn answer(&mut self) -> Result<Fence, Failure> {
        let gone = || Failure::new(Exit::Other, "the other process said nothing");
        let mut answers = self.answers.take().ok_or_else(gone)?;
        let (answers, line) = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            let _ = answers.read_line(&mut line);
            (answers, line)
        })
        .await
        .map_err(|_| gone())?;
        self.answers = Some(answers);
        line.trim().parse().map(Fence::new).map_err(|_| gone())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.crash();
    }
}

/// Plays the actor, if the arguments ask for it.
pub(crate) fn hidden_part(arguments: &[OsString]) -> Option<ExitCode> {
    let [_, part, name, ttl_ms] = arguments else { return None };
    if part != ACTOR {
        return None;
    }
    let ttl = ttl_ms.to_str()?.parse().ok().map(Duration::from_millis)?;
    let played = play(name.to_str()?, ttl);
    Some(played.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

/// Holds the name and answers each order with the fence it would write with.
fn play(name: &str, ttl: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = leaseward::connect(&std::env::var(STORE_VARIABLE)?).await?;
        let guard = locks.lock(name).ttl(ttl).acquire().await?;
        println!("{}", guard.fence());
        let fence = guard.fence();
        // On a thread, so that the runtime stays free to renew.
        tokio::task::spawn_blocking(move || {
            for order in io::stdin().lock().lines().map_while(Result::ok) {
                if order == "write" {
                    println!("{fence}");
                }
            }
        })
        .await?;
        guard.release().await?;
        Ok(())
    })
}
