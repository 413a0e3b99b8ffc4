//! Child processes: shown before they run, their output streamed, the first failure ends everything.

use std::{
    env,
    ffi::OsStr,
    fmt,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

/// Why a task ended early, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A command as a person would type it.
struct Shown<'a>(&'a Command);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in self.0.get_envs() {
            // Set for every test program, and of no use to who repeats it.
            if let Some(value) = value
                && key != "CARGO_MANIFEST_DIR"
            {
                write!(f, "{}={} ", key.display(), quoted(value))?;
            }
        }
        let program = self.0.get_program();
        let is_cargo = program == cargo_program();
        write!(f, "{}", if is_cargo { "cargo".into() } else { quoted(program) })?;
        self.0.get_args().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.contains([' ', '\'', '"', '$']) { format!("'{word}'") } else { word.into_owned() }
}

fn cargo_program() -> std::ffi::OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A cargo command line.
pub(crate) fn cargo<I>(args: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let mut command = Command::new(cargo_program());
    command.args(args);
    command
}

/// Says what is about to run.
pub(crate) fn announce(command: &Command) {
    eprintln!("\n$ {}", Shown(command));
}

/// Runs a command with its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    announce(command);
    let status = command.stdin(Stdio::null()).status();
    let status = status.map_err(|error| not_started(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(failed(command, &status.to_string()))
}

/// Runs a command and gives each line of its standard output to `see` while it passes through.
pub(crate) fn run_seeing(command: &mut Command, mut see: impl FnMut(&str)) -> Result<(), Failure> {
    announce(command);
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| not_started(command, &error))?;
    let mut from = BufReader::new(child.stdout.take().expect("BUG: it is piped"));
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // Whoever reads us may have gone; the tests still count.
        let _ = std::io::stdout().write_all(&line);
        see(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let status = child.wait().map_err(|error| not_started(command, &error))?;
    if status.success() { Ok(()) } else { Err(failed(command, &status.to_string())) }
}

/// Runs a command quietly and returns its standard output.
pub(crate) fn output_of(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| not_started(command, &error))?;
    if !output.status.success() {
        return Err(failed(command, &output.status.to_string()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a command runs and succeeds; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    let program = command.get_program();
    Failure::new(format!("`{}` could not be run: {error}", program.display()))
}

fn failed(command: &Command, status: &str) -> Failure {
    Failure::new(format!("a step failed with {status}"))
        .hint(format!("to repeat it alone: {}", Shown(command)))
}
