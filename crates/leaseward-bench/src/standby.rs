//! Processes that get ready first and begin on a word: nobody measures how a library is loaded, or who started first.
//!
//! Such a process says [`READY`] on a line of its own, waits for a line, does its work and prints its figures as one line
//! of numbers. Ours do it by [`ready`]; the scripts of other languages do the same.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

const READY: &str = "ready";
/// Connecting a thousand times, or taking 100,000 leases one by one, takes a while.
const PATIENCE: Duration = Duration::from_secs(300);

/// Called by a process that is ready; returns when it is to begin.
pub(crate) fn ready() -> Result<(), String> {
    println!("{READY}");
    let mut word = String::new();
    match std::io::stdin().read_line(&mut word) {
        Ok(0) => Err("nobody is there to begin for".into()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Processes that are ready. Those that have not ended are killed when this is dropped.
pub(crate) struct StandBy(Vec<Waiting>);

struct Waiting {
    child: Child,
    lines: Receiver<String>,
    /// What it complained of; the last of it is the reason for its end.
    complaints: Receiver<String>,
}

impl StandBy {
    /// Starts all of them, and waits until they are ready.
    pub(crate) fn start(commands: Vec<Command>) -> Result<Self, String> {
        let mut all = Self(Vec::new());
        for command in commands {
            all.0.push(Waiting::start(command)?);
        }
        for waiting in &mut all.0 {
            let line = waiting.line()?;
            if line != READY {
                return Err(format!("a process said `{line}` instead of being ready"));
            }
        }
        Ok(all)
    }

    /// The word.
    pub(crate) fn go(&mut self) -> Result<(), String> {
        for waiting in &mut self.0 {
            let stdin = waiting.child.stdin.as_mut().ok_or("no standard input")?;
            stdin.write_all(b"go\n").map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The figures of all, once they have ended.
    pub(crate) fn figures(mut self) -> Result<Vec<Vec<f64>>, String> {
        let mut told = Vec::new();
        for waiting in &mut self.0 {
            let words = waiting.line()?;
            let figures = words.split_whitespace().map(|word| word.parse::<f64>());
            told.push(
                figures.collect::<Result<_, _>>().map_err(|_| format!("no figures: {words}"))?,
            );
        }
        for waiting in &mut self.0 {
            waiting.child.wait().map_err(|error| error.to_string())?;
        }
        Ok(told)
    }
}

impl Waiting {
    fn start(mut command: Command) -> Result<Self, String> {
        let program = command.get_program().display().to_string();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`{program}`: {error}"))?;
        let lines = lines_of(child.stdout.take());
        let complaints = lines_of(child.stderr.take());
        Ok(Self { child, lines, complaints })
    }

    /// The next thing it says.
    fn line(&mut self) -> Result<String, String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(format!("a process said nothing for {PATIENCE:?}"))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_err(|error| error.to_string())?;
                let why = self.complaints.iter().filter(|line| !line.is_empty()).last();
                Err(why.unwrap_or_else(|| format!("a process ended with {status}")))
            }
        }
    }
}

/// What a process writes, line by line.
fn lines_of(source: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (told, lines) = mpsc::channel();
    thread::spawn(move || {
        let source = source.expect("BUG: it was asked for");
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            // Goes on if nobody listens any more: a full pipe would stop the process.
            let _ = told.send(line);
        }
    });
    lines
}

impl Drop for StandBy {
    fn drop(&mut self) {
        for waiting in &mut self.0 {
            // Fails only for those that have ended, and then there is nothing to end.
            let _ = waiting.child.kill();
            let _ = waiting.child.wait();
        }
    }
}
