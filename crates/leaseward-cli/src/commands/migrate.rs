//! `leaseward migrate`: makes the tables of a store, or brings them up to date, for programs that may not.

use clap::Args;
use leaseward::stores::postgres::{self, Migrated};

use crate::{config::Settings, exit::Exit, failure::Failure, printer::Printer};

/// Make the tables that a PostgreSQL store needs
///
/// Programs make them by themselves the first time, if their user may. Where it may not, run this once as a user who may,
/// and grant the programs' user the rights that the manual lists. Brings older ones up to date; does nothing if all is
/// there.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct MigrateArgs {}

const AFTER: &str = "\
Examples:
    leaseward migrate --store postgres://owner@db.example/app
    LEASEWARD_STORE_PASSWORD=… leaseward migrate --store 'postgres://owner@db.example/app?schema=locks'";

/// Carries it out.
pub(crate) async fn run(settings: &Settings, printer: Printer) -> Result<Exit, Failure> {
    match postgres::migrate(settings.store.reveal()).await? {
        Migrated::Made => {
            printer.line(&format!("made the tables in {}", settings.store.shown()))?
        }
        Migrated::Upgraded => {
            printer.line(&format!("brought the tables in {} up to date", settings.store.shown()))?
        }
        Migrated::NothingToDo => printer.line("nothing to do")?,
    }
    Ok(Exit::Done)
}
