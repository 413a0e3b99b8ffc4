//! A place for one test, and processes that are watched through their pipes.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
const HANG: Duration = Duration::from_secs(60);
/// How often something is looked at that cannot be waited for.
const GLANCE: Duration = Duration::from_millis(5);

/// A folder with a store, a home and nothing of the real user's.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().expect("a temporary folder") }
    }

    /// One whose store is there, with nothing held in it.
    pub(crate) fn with_a_store() -> Self {
        let place = Self::new();
        let made = place.run(["run", "made", "--", "true"]);
        assert_eq!(made.code, 0, "{}", made.err);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    /// The tool, not yet started, on this place's store.
    pub(crate) fn tool<I, S>(&self, arguments: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = self.bare_tool(arguments);
        command.env("LEASEWARD_STORE", self.store());
        command
    }

    /// The tool without a store in its environment.
    pub(crate) fn bare_tool<I, S>(&self, arguments: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leaseward"));
        command.args(arguments).current_dir(self.folder.path());
        forget_settings(&mut command);
        command.env("HOME", self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Runs the tool to its end.
    pub(crate) fn run<I, S>(&self, arguments: I) -> Ran
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Ran::from(self.tool(arguments).output().expect("the tool starts"))
    }

    /// Starts `leaseward run` with a shell script and waits for its first line, which is the shell's process number.
    pub(crate) fn hold(&self, options: &[&str], script: &str) -> Running {
        let script = format!("echo $$; {script}");
        let arguments = ["run"].iter().chain(options).copied().chain(["--", "sh", "-c", &script]);
        let mut running = Running::start(&mut self.tool(arguments));
        running.command = running.line().parse().expect("a process number");
        running
    }
}

/// Takes the settings of the real user out of a command's environment, and those of test runs: the tool would warn of them.
pub(crate) fn forget_settings(command: &mut Command) {
    let ours = std::env::vars_os().map(|(name, _)| name);
    let ours = ours.filter(|name| name.to_string_lossy().starts_with("LEASEWARD_"));
    for variable in ours.chain(["XDG_STATE_HOME", "XDG_CONFIG_HOME"].map(Into::into)) {
        command.env_remove(variable);
    }
}

/// What became of a command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A tool that runs. Dropped, it is killed.
pub(crate) struct Running {
    process: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The process number of the command under it, and of its group.
    pub(crate) command: i32,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the tool starts");
        let stdin = process.stdin.take();
        let out = BufReader::new(process.stdout.take().expect("a pipe"));
        // Read on a thread, so that a line that never comes is a failure and not a hang.
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { process, stdin, lines, command: 0 }
    }

    /// The next line it, or the command under it, prints.
    pub(crate) fn line(&mut self) -> String {
        self.try_line().expect("a line")
    }

    /// The next line, or `None` if there is none any more.
    pub(crate) fn try_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(HANG) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line, and stdout never ended"),
        }
    }

    /// A line it has printed already.
    pub(crate) fn line_if_any(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// The next line on stderr. It comes, or everything has ended.
    pub(crate) fn err_line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        let stderr = self.process.stderr.as_mut().expect("a pipe");
        // One by one, so that the rest stays where it is.
        while matches!(stderr.read(&mut byte), Ok(1)) && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Writes a line to the command's stdin.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("a pipe"), "{line}").expect("somebody reads");
    }

    pub(crate) fn wrapper(&self) -> i32 {
        i32::try_from(self.process.id()).expect("a process number")
    }

    /// The watchdog that belongs to this wrapper.
    pub(crate) fn watchdog(&self) -> Option<i32> {
        children(self.wrapper()).into_iter().find(|pid| *pid != self.command)
    }

    /// Waits for the end; stdin is closed first.
    pub(crate) fn end(mut self) -> Ran {
        drop(self.stdin.take());
        let mut out = String::new();
        loop {
            match self.lines.recv_timeout(HANG) {
                Ok(line) => out.extend([line.as_str(), "\n"]),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("stdout never ended"),
            }
        }
        let mut err = String::new();
        let mut stderr = self.process.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut err).expect("readable");
        let code = self.process.wait().expect("it ends").code().unwrap_or(-1);
        Ran { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The watchdog ends what is under it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("not zero"), signal).expect("it is there");
}

/// Sends a signal to a process group.
pub(crate) fn signal_group(pid: i32, signal: Signal) {
    kill_process_group(Pid::from_raw(pid).expect("not zero"), signal).expect("it is there");
}

/// Whether a process runs no more: it is not there, or only waits to be reaped.
pub(crate) fn is_gone(pid: i32) -> bool {
    state(pid).is_none_or(|state| state == 'Z' || state == 'X')
}

/// The state of a process as the kernel calls it.
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn children(pid: i32) -> Vec<i32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.expect("children of a process that runs");
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Looks until something is so.
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < HANG, "it never happened: {what}");
        thread::sleep(GLANCE);
    }
}

/// Waits for a file to have content, and reads it.
pub(crate) fn content(path: &Path) -> String {
    until(&format!("content of {}", path.display()), || {
        fs::metadata(path).is_ok_and(|file| file.len() > 0)
    });
    fs::read_to_string(path).expect("readable")
}

/// A shell test that is true when a process runs no more.
pub(crate) fn gone_test(pid: i32) -> String {
    format!("{{ [ ! -e /proc/{pid} ] || grep -q 'State:.Z' /proc/{pid}/status; }}")
}
