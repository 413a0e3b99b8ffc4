//! Child processes of experiments: this same program, told by its first argument what to be.
//!
//! A child prints its figures as one line of numbers; its standard error is ours.

use std::{
    fs,
    process::{Command, ExitCode, Stdio},
};

use crate::rows;

/// The first argument of a child.
const MARK: &str = "--be";

/// A part a child process can play: it gets its arguments and answers with figures.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) play: fn(&[String]) -> Result<Vec<f64>, String>,
}

/// Plays a part, if this process was started for one.
pub(crate) fn main() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next()? != MARK {
        return None;
    }
    let name = args.next()?;
    let rest: Vec<_> = args.collect();
    let part = rows::PARTS.iter().find(|part| part.name == name);
    let part = part.expect("BUG: children are only asked for parts there are");
    Some(match (part.play)(&rest) {
        Ok(figures) => {
            let words: Vec<_> = figures.iter().map(f64::to_string).collect();
            println!("{}", words.join(" "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {name}: {error}");
            ExitCode::FAILURE
        }
    })
}

/// The command that plays a part.
pub(crate) fn command(part: &str, args: &[&str]) -> Result<Command, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(this);
    command.arg(MARK).arg(part).args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

/// Plays a part in a fresh process and returns its figures.
pub(crate) fn play(part: &str, args: &[&str]) -> Result<Vec<f64>, String> {
    let child = command(part, args)?.spawn().map_err(|error| error.to_string())?;
    figures(child)
}

/// Waits for a child's figures.
pub(crate) fn figures(child: std::process::Child) -> Result<Vec<f64>, String> {
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("a child process ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace()
        .map(|word| word.parse().map_err(|_| format!("no figure: {word}")))
        .collect()
}

/// The memory this process has in use, in bytes.
pub(crate) fn resident_bytes() -> Result<f64, String> {
    let text = fs::read_to_string("/proc/self/statm").map_err(|error| error.to_string())?;
    let pages: f64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .ok_or("`/proc/self/statm` reads unlike proc(5) says")?;
    Ok(pages * rustix::param::page_size() as f64)
}

/// The processor time this process has used, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
