//! The benchmark: ours beside the raw limit and the peers, interleaved in one run, judged by ratios.
//!
//! `cargo xtask bench` builds this as the tool is shipped, peers included, and runs it. Absolute figures move by a factor of two
//! from run to run on a shared machine; the ratios within a run are what counts.

mod beside;
mod child;
mod etcd;
mod measure;
mod raw_sqlite;
mod raw_zookeeper;
mod redis;
mod report;
mod row;
mod rows;
mod standby;
mod stats;
mod tasks;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use lexopt::prelude::*;

use crate::{measure::Measured, row::Size};

const HELP: &str = "\
Measures Leaseward beside its raw limits and its peers, and says which targets are met.

Usage: leaseward-bench [OPTIONS] [GROUP]...

Groups (all if none is named):
";

const OPTIONS: &str = "
Options:
      --quick        fewer and shorter rounds: for a first look, not for a report
      --full         also the rows that take minutes each
      --rounds N     rounds of each row (5; 2 with --quick)
      --only TEXT    only rows whose name contains this
      --beside FILE  another build of this program: its rounds are run in turn with ours
      --json         JSON on stdout instead of the table
      --out FILE     also write the JSON to a file, and beside it the pictures
                     `contention.svg` and `queue-bloat.svg`
  -h, --help         this text
";

struct Args {
    groups: Vec<String>,
    only: String,
    size: Size,
    rounds: Option<usize>,
    beside: Option<PathBuf>,
    json: bool,
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    // This program is also the child processes of its own experiments.
    if let Some(code) = child::main() {
        return code;
    }
    match parse() {
        Ok(Some(args)) => run(&args),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}\nhint: `leaseward-bench --help` says what there is");
            ExitCode::from(2)
        }
    }
}

fn parse() -> Result<Option<Args>, lexopt::Error> {
    let mut args = Args {
        groups: Vec::new(),
        only: String::new(),
        size: Size { is_quick: false, is_full: false },
        rounds: None,
        beside: None,
        json: false,
        out: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("quick") => args.size.is_quick = true,
            Long("full") => args.size.is_full = true,
            Long("rounds") => args.rounds = Some(parser.value()?.parse()?),
            Long("only") => args.only = parser.value()?.string()?,
            Long("beside") => args.beside = Some(program(parser.value()?.into())?),
            Long("json") => args.json = true,
            Long("out") => args.out = Some(parser.value()?.into()),
            Short('h') | Long("help") => {
                print!("{HELP}");
                for group in rows::GROUPS {
                    println!("  {:<10} {}", group.name, group.what);
                }
                print!("{OPTIONS}");
                return Ok(None);
            }
            Value(group) => {
                let group = group.string()?;
                if !rows::GROUPS.iter().any(|known| known.name == group) {
                    return Err(format!("there is no group `{group}`").into());
                }
                args.groups.push(group);
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(args))
}

/// A program that is there: a mistyped one would be a column of rows that say so, an hour later.
fn program(path: PathBuf) -> Result<PathBuf, String> {
    match path.canonicalize() {
        Ok(path) if path.is_file() => Ok(path),
        Ok(path) => Err(format!("`{}` is no program", path.display())),
        Err(error) => Err(format!("`{}`: {error}", path.display())),
    }
}

fn run(args: &Args) -> ExitCode {
    let rounds = args.rounds.unwrap_or(if args.size.is_quick { 2 } else { 5 });
    let mut measured = Vec::new();
    for group in rows::GROUPS {
        if !args.groups.is_empty() && !args.groups.iter().any(|name| name == group.name) {
            continue;
        }
        for row in (group.rows)() {
            if row.name.contains(&args.only) && (args.size.is_full || !row.is_long) {
                let row = match &args.beside {
                    Some(binary) => beside::with_other_build(row, group.name, binary),
                    None => row,
                };
                measured.push(measure::measure(row, rounds, args.size));
            }
        }
    }
    let json = report::json(&measured);
    let text = format!("{json:#}\n");
    for (path, text) in files(args.out.as_deref(), &text, &measured) {
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("error: `{}` was not written: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    if args.json {
        print!("{text}");
    } else {
        let (met, of) = report::score(&measured);
        println!("\n{}\n{met} of {of} targets met", report::table(&measured));
    }
    ExitCode::SUCCESS
}

/// What is to be written: the figures, and beside them the pictures whose rows were measured.
fn files(out: Option<&Path>, json: &str, measured: &[Measured]) -> Vec<(PathBuf, String)> {
    let Some(out) = out else { return Vec::new() };
    let mut files = vec![(out.to_owned(), json.to_owned())];
    if let Some(picture) = rows::contention::plot::svg(measured) {
        files.push((out.with_file_name("contention.svg"), picture));
    }
    if let Some(picture) = rows::queue::plot::svg(measured) {
        files.push((out.with_file_name("queue-bloat.svg"), picture));
    }
    files
}
