//! The command line: what a command under a lease costs more than under flock(1).

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use tempfile::TempDir;

use crate::row::{Row, Size, Target::MoreByAtMost, Unit};

const TIMES: u32 = 40;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::new("tool: `leaseward run x -- true`", Unit::Millis, &[MoreByAtMost(15.0)])
            .ours("leaseward run", |size| {
                let folder = TempDir::new().map_err(|error| error.to_string())?;
                let store = format!("sqlite:{}", folder.path().join("leases.db").display());
                median(size, || {
                    let mut run = Command::new(tool()?);
                    run.args(["--store", &store, "run", "x", "--", "true"]);
                    Ok(run)
                })
            })
            .raw("flock x true", |size| {
                let folder = TempDir::new().map_err(|error| error.to_string())?;
                let file = folder.path().join("x");
                median(size, || {
                    let mut flock = Command::new("flock");
                    flock.arg(&file).arg("true");
                    Ok(flock)
                })
            }),
    ]
}

/// The tool, built beside this program.
pub(super) fn tool() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let tool = this.with_file_name("leaseward");
    if Path::exists(&tool) { Ok(tool) } else { Err(format!("`{}` is not built", tool.display())) }
}

/// Runs a command over and over; the median time in milliseconds.
fn median(size: Size, command: impl Fn() -> Result<Command, String>) -> Result<Vec<f64>, String> {
    let mut millis = Vec::new();
    for _ in 0..size.times(TIMES) {
        let mut command = command()?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let begin = Instant::now();
        let output = command.output().map_err(|error| error.to_string())?;
        millis.push(begin.elapsed().as_secs_f64() * 1e3);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().unwrap_or("nothing");
            return Err(format!("ended with {} and said: {said}", output.status));
        }
    }
    millis.sort_by(f64::total_cmp);
    Ok(vec![millis[millis.len() / 2]])
}
