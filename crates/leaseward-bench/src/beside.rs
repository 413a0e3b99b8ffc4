//! Another build of this benchmark as one more contender of each row, so that an old and a new build are measured in turn.
//!
//! The other build is asked for one round of the row at a time, by the options that every build has. It runs the row's
//! other contenders too, which costs time and changes nothing: only its own figures are read.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::row::{Figure, OTHER_BUILD, Role, Row, Size};

/// Adds the other build to a row, which keeps its contenders and targets.
pub(crate) fn with_other_build(row: Row, group: &'static str, binary: &Path) -> Row {
    let (binary, name, figures) = (binary.to_owned(), row.name, row.figures.clone());
    let is_long = row.is_long;
    row.with(Role::OtherBuild, OTHER_BUILD, move |size| {
        let mut command = Command::new(&binary);
        command.args([group, "--json", "--rounds", "1", "--only", name]);
        command.args(sizes(size, is_long)).stdin(Stdio::null());
        let output =
            command.output().map_err(|error| format!("`{}`: {error}", binary.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {}", output.status, said.lines().last().unwrap_or_default()));
        }
        let json: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
        figures.iter().map(|figure| read(&json, name, figure)).collect()
    })
}

fn sizes(size: Size, is_long: bool) -> impl Iterator<Item = &'static str> {
    let quick = size.is_quick.then_some("--quick");
    let full = (size.is_full || is_long).then_some("--full");
    quick.into_iter().chain(full)
}

/// The other build's own figure of a row: not a number if that build does not know the figure or could not measure it.
fn read(json: &Value, row: &str, figure: &Figure) -> Result<f64, String> {
    let mut rows = json.as_array().into_iter().flatten().filter(|found| found["row"] == row);
    let found = rows.find(|found| found["figure"] == figure.name);
    let Some(found) = found else { return Ok(f64::NAN) };
    let contenders = found["contenders"].as_array().into_iter().flatten();
    let ours = contenders.into_iter().find(|contender| contender["role"] == "ours");
    let ours = ours.ok_or("it has no figures of its own for this row")?;
    match ours["skipped"].as_str() {
        Some(why) => Err(why.to_owned()),
        None => Ok(ours["median"].as_f64().unwrap_or(f64::NAN)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::row::Unit;

    #[test]
    fn reads_its_own_figure_of_the_row() {
        let json = json!([
            { "row": "a, longer", "figure": "", "contenders": [{ "role": "ours", "median": 1.0 }] },
            { "row": "a", "figure": "p50", "contenders": [
                { "role": "raw", "median": 2.0 }, { "role": "ours", "median": 3.0 },
            ] },
            { "row": "b", "figure": "", "contenders": [{ "role": "ours", "skipped": "no server" }] },
        ]);
        let figure = |name| Figure { name, unit: Unit::Nanos, targets: Vec::new() };
        assert_eq!(read(&json, "a", &figure("p50")), Ok(3.0));
        assert_eq!(read(&json, "b", &figure("")), Err("no server".into()));
        assert!(read(&json, "a", &figure("p99")).is_ok_and(f64::is_nan), "it has no such figure");
    }
}
