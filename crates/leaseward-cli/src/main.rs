//! `leaseward`: locks from the command line.
//!
//! Typed arguments ([`args`]) and settings ([`config`]) become what is meant, which a command ([`commands`]) carries
//! out; [`printer`] says how it went and [`exit`] what a script sees.

mod address;
mod args;
mod child;
mod claim;
mod commands;
mod config;
mod exit;
mod failure;
mod handle;
mod hold;
mod known;
mod looking;
mod nesting;
mod outage;
mod printer;
mod session;
mod units;
mod waiting;

use std::{io, os::unix::net::UnixStream, process::ExitCode};

use clap::Parser;

use crate::{
    address::Address,
    args::{Cli, Command},
    commands::{
        acquire, break_lease, completions, demo, doctor, elect, events, health, ls, man, release,
        renew, run, show,
    },
    config::Settings,
    exit::Exit,
    failure::Failure,
    looking::Need,
    printer::Printer,
    session::Session,
};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let hidden = child::hidden_part(&arguments).or_else(|| demo::hidden_part(&arguments));
    if let Some(code) = hidden {
        return code;
    }
    let printer = Printer::new();
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return refused(&error, printer),
    };
    let done = match cli.command {
        Command::Completions(args) => completions::run(&args, printer),
        Command::Man(args) => man::run(&args, printer),
        command => with_a_store(cli.global, command, printer),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            printer.failure(&failure);
            failure.exit.into()
        }
    }
}

/// Help that was asked for, or a command line that cannot be used.
fn refused(error: &clap::Error, printer: Printer) -> ExitCode {
    let _ = error.print();
    let text = error.to_string();
    let is_misplaced = matches!(
        error.kind(),
        clap::error::ErrorKind::MissingRequiredArgument | clap::error::ErrorKind::UnknownArgument
    );
    if is_misplaced && text.contains("<CMD>") {
        let verb = if text.contains("queue work") { "queue work" } else { "run NAME" };
        printer
            .hint(&format!("the command stands behind `--`, as in `leaseward {verb} -- CMD ARGS`"));
    }
    match error.exit_code() {
        0 => Exit::Done.into(),
        _ => Exit::Usage.into(),
    }
}

fn with_a_store(
    mut global: args::Global,
    command: Command,
    printer: Printer,
) -> Result<Exit, Failure> {
    let stand = match command {
        Command::Demo(_) => Some(demo::Stand::prepare(&mut global)?),
        _ => None,
    };
    // One thread is enough, and starts fastest.
    let runtime = room_for_files()
        .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build())
        .map_err(|error| Failure::system("cannot start the runtime", &error))?;
    let done = runtime.block_on(async {
        let settings = Settings::load(&global)?;
        config::warn_of_unknown_variables(printer);
        // Opening the store would make the tables already, and say nothing.
        #[cfg(feature = "postgres")]
        if let Command::Migrate(_) = command {
            return commands::migrate::run(&settings, printer).await;
        }
        let command = match command {
            // Bounded from the beginning.
            Command::Health(args) => return health::run(&args, &settings, printer).await,
            // Jobs are not locks: they have connections of their own.
            Command::Queue(args) => return commands::queue::run(args, settings, printer).await,
            other => other,
        };
        let store = settings.store.clone();
        let opened = match command {
            Command::Doctor(_) => doctor::open(settings, printer).await,
            _ => {
                // Before the store: what cannot be written down is not done.
                let audit = if is_audited(&command) { settings.audit()? } else { None };
                Session::open(settings, need(&command), audit, printer).await
            }
        };
        let mut session = match opened {
            Ok(session) => session,
            Err(failure) => return Err(not_opened(&command, &store, failure, printer)),
        };
        let done = dispatch(command, &mut session).await;
        session.close().await;
        done
    });
    // Threads of a store that hang in a system call must not keep the tool from ending.
    runtime.shutdown_background();
    drop(stand);
    done
}

/// Whether a command takes, keeps or ends leases; the others only look.
fn is_audited(command: &Command) -> bool {
    matches!(
        command,
        Command::Run(_)
            | Command::Acquire(_)
            | Command::Renew(_)
            | Command::Release(_)
            | Command::Elect(_)
            | Command::Break(_)
    )
}

/// What a command needs of its store.
fn need(command: &Command) -> Need {
    match command {
        Command::Elect(_) => Need::Service,
        Command::Run(_) | Command::Acquire(_) | Command::Demo(_) => Need::Made,
        // An error in the handle is reported before a file that is missing.
        Command::Renew(_) | Command::Release(_) => Need::Made,
        Command::Events(args) if args.follows() => Need::Awaited,
        _ => Need::Found,
    }
}

/// Files that a runtime and its signals need: where they cannot be had, tokio panics.
const FILES: usize = 8;

/// Fails where fewer may be opened.
fn room_for_files() -> io::Result<()> {
    (0..FILES / 2).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>().map(drop)
}

/// A store that cannot be opened ends every command; to one of them that is a finding.
fn not_opened(command: &Command, store: &Address, failure: Failure, printer: Printer) -> Failure {
    match command {
        Command::Doctor(args) => doctor::not_opened(args, store.shown(), failure, printer),
        _ => failure,
    }
}

async fn dispatch(command: Command, session: &mut Session) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(args, session).await,
        Command::Acquire(args) => acquire::run(args, session).await,
        Command::Renew(args) => renew::run(args, session).await,
        Command::Release(args) => release::run(args, session).await,
        Command::Ls(args) => ls::run(args, session).await,
        Command::Show(args) => show::run(args, session).await,
        Command::Events(args) => events::run(args, session).await,
        Command::Elect(args) => elect::run(args, session).await,
        Command::Break(args) => break_lease::run(args, session).await,
        Command::Doctor(args) => doctor::run(args, session).await,
        Command::Demo(args) => demo::run(args, session).await,
        Command::Queue(_) | Command::Health(_) => {
            unreachable!("BUG: done before a store of locks is opened")
        }
        #[cfg(feature = "postgres")]
        Command::Migrate(_) => unreachable!("BUG: done before a store is opened"),
        Command::Completions(args) => completions::run(&args, session.printer),
        Command::Man(args) => man::run(&args, session.printer),
    }
}
