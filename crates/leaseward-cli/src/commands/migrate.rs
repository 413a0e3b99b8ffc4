//! `leaseward migrate`: makes the tables of a store, or brings them up to date, for programs that may not.

use clap::Args;
use leaseward::stores::postgres::{self, Migrated};

use crate::{config::Settings, exit::Exit, failure::Failure, printer::Printer};

/// Make the tables that locks and jobs need in PostgreSQL
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
    let (url, shown) = (settings.store.reveal(), settings.store.shown());
    let for_locks = postgres::migrate(url).await?;
    // Jobs are rows: there are none beside advisory locks.
    let is_for_jobs = !shown.split(':').next().is_some_and(|scheme| scheme.contains('+'));
    let for_jobs = is_for_jobs && leaseward_queue::migrate(url).await?;
    match (for_locks, for_jobs) {
        (Migrated::Made, _) => printer.line(&format!("made the tables in {shown}"))?,
        (Migrated::Upgraded, _) => {
            printer.line(&format!("brought the tables in {shown} up to date"))?
        }
        (Migrated::NothingToDo, true) => printer
            .line(&format!("made the tables for jobs in {shown}, or brought them up to date"))?,
        (Migrated::NothingToDo, false) => printer.line("nothing to do")?,
    }
    Ok(Exit::Done)
}
