//! The commands of this repository: `cargo xtask test | check | bench | install`. CI calls the same.

mod bench;
mod budget;
mod check;
mod command;
mod full;
mod packages;
mod peers;
mod suites;
mod test;
mod workspace;

use std::process::ExitCode;

use lexopt::prelude::*;

use crate::{command::Failure, workspace::Workspace};

const HELP: &str = "\
The commands of this repository.

Usage: cargo xtask COMMAND [OPTIONS]

Commands:
  test [--install] [--full]
          everything that must hold: format, lints, all tests, doc tests, docs, and the time each part took. Installs
          what is missing if run as root or with --install; else says how to. --full adds what takes longer; it can be
          interrupted, and goes on where it was as long as the sources stay the same
  check   format and lints only: fast, changes nothing
  bench [--quick] [--full] [--json] [--rounds N] [--only TEXT] [--beside BINARY] [GROUP]...
          ours beside the raw limits, the peers and another build, and which targets are met; `bench --help` lists the groups
  install what the tests and the benchmark need, and nothing else: programs, and the lock libraries they compare with

Exit codes: 0 all is well, 1 something failed or is missing, 2 wrong usage
";

enum Task {
    Help,
    Test(test::Options),
    Check,
    /// Its arguments are the benchmark's.
    Bench(Vec<std::ffi::OsString>),
    Install,
}

fn main() -> ExitCode {
    let task = match parse() {
        Ok(task) => task,
        Err(error) => {
            eprintln!("error: {error}\nhint: `cargo xtask --help` says what there is");
            return ExitCode::from(2);
        }
    };
    let done = match task {
        Task::Help => {
            print!("{HELP}");
            Ok(())
        }
        Task::Test(options) => test::run(options),
        Task::Check => check::run(),
        Task::Bench(args) => bench::run(&args),
        Task::Install => install(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { what, hint }) => {
            eprintln!("\nerror: {what}");
            if let Some(hint) = hint {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn install() -> Result<(), Failure> {
    packages::ensure(true)?;
    peers::ensure(&Workspace::load()?)
}

fn parse() -> Result<Task, lexopt::Error> {
    let mut args = lexopt::Parser::from_env();
    let command = match args.next()? {
        None | Some(Short('h') | Long("help")) => return Ok(Task::Help),
        Some(Value(command)) => command.string()?,
        Some(other) => return Err(other.unexpected()),
    };
    match command.as_str() {
        "help" => Ok(Task::Help),
        "bench" => Ok(Task::Bench(args.raw_args()?.collect())),
        "check" | "install" => match args.next()? {
            None if command == "check" => Ok(Task::Check),
            None => Ok(Task::Install),
            Some(Short('h') | Long("help")) => Ok(Task::Help),
            Some(other) => Err(other.unexpected()),
        },
        "test" => {
            let mut options = test::Options::default();
            while let Some(arg) = args.next()? {
                match arg {
                    Long("install") => options.install = true,
                    Long("full") => options.full = true,
                    Short('h') | Long("help") => return Ok(Task::Help),
                    other => return Err(other.unexpected()),
                }
            }
            Ok(Task::Test(options))
        }
        other => Err(format!("there is no command `{other}`").into()),
    }
}
