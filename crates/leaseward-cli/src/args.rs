//! The command line, typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[cfg(feature = "postgres")]
use crate::commands::migrate;
use crate::commands::{
    acquire, break_lease, completions, demo, doctor, elect, events, health, ls, man, queue,
    release, renew, run, show,
};

/// Run commands under a lock that is a lease: owned by a token, timed by a TTL, renewed while the work runs, guarded by
/// a fence, kept in the store you already have.
///
/// Without a store named, locks are kept in an embedded database file of this user
/// (`$XDG_STATE_HOME/leaseward/leases.db`, else `~/.local/state/leaseward/leases.db`) and exclude each other on this
/// machine. `/etc/leaseward.toml` can make one file, or a server, the choice for all users.
#[derive(Debug, Parser)]
#[command(
    name = "leaseward",
    version,
    about = "Run commands under a distributed lock",
    after_long_help = AFTER,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes, before or after its name.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command", next_display_order = 900)]
pub(crate) struct Global {
    /// Where locks are kept, such as `sqlite:/var/lib/locks.db`
    ///
    /// A password need not stand in it: put it in `LEASEWARD_STORE_PASSWORD`, or in a file named by
    /// `store_password_file` in the configuration.
    #[arg(
        long,
        value_name = "URL",
        global = true,
        env = "LEASEWARD_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,

    /// The configuration file, instead of the usual places
    ///
    /// Else the first of `$XDG_CONFIG_HOME/leaseward/config.toml` and `/etc/leaseward.toml` that exists. Its keys are
    /// `store`, `ttl`, `store_password_file` and `audit`.
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        env = "LEASEWARD_CONFIG",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
}

/// One variant a verb; each is a file under `commands/`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::RunArgs),
    Acquire(acquire::AcquireArgs),
    Renew(renew::RenewArgs),
    Release(release::ReleaseArgs),
    Ls(ls::LsArgs),
    Show(show::ShowArgs),
    Events(events::EventsArgs),
    Elect(elect::ElectArgs),
    Break(break_lease::BreakArgs),
    Queue(queue::QueueArgs),
    Doctor(doctor::DoctorArgs),
    Health(health::HealthArgs),
    #[cfg(feature = "postgres")]
    Migrate(migrate::MigrateArgs),
    Demo(demo::DemoArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

const AFTER: &str = "\
Examples:
  leaseward run deploy -- ./deploy.sh          one at a time, in the order of asking
  leaseward run --no-wait nightly -- backup    skip if it is running already (exit 75)
  leaseward ls                                 who holds what
  leaseward queue work -- ./resize.sh          run jobs, each of which has one owner at a time
  leaseward doctor                             what silently breaks locks in this store
  leaseward demo                               see what locks get wrong, and this one does not

Exit codes:
  0         done; with `run` and `elect` the command's own code
  128+n     ended by signal n
  126, 127  the command cannot be run, or does not exist
  75        busy, or not ours within the time given (`--busy-code` changes it)
  76        the lease was lost and the command was ended
  69        the store cannot be reached, or refuses
  2         the command line or the configuration cannot be used; nothing was changed
  1         anything else";
