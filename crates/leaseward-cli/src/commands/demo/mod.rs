//! `leaseward demo`: the scenarios that make people need this, live.

mod actor;
mod bookings;
mod crash;
mod paused;
mod race;
mod renewal;
mod stage;
mod stolen;

use std::{fs, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use leaseward::Locks;

pub(crate) use actor::hidden_part;

use crate::{
    args::Global,
    exit::Exit,
    failure::Failure,
    printer::{Printer, Tone},
    session::{Session, interrupted},
};

/// Watch what locks get wrong, and what this one does about it
///
/// Plays six short scenes with real leases and real processes, on an embedded store in a temporary file, or on the
/// store given by `--store`, and ends each by checking what it claims. Exits with 1 if a claim does not hold.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct DemoArgs {
    /// Play this scene only
    name: Option<Scene>,
}

const AFTER: &str = "\
Examples:
    leaseward demo
    leaseward demo paused
    leaseward demo --store sqlite:/var/lib/locks.db";

/// The scenes, in the order of playing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scene {
    /// Bookings one after the other
    Bookings,
    /// Two guests race for one table
    Race,
    /// A holder crashes and the TTL heals
    Crash,
    /// A late release must not free another's lock
    Stolen,
    /// A holder paused past its TTL is refused by the fence
    Paused,
    /// A long task is kept alive by renewal
    Renewal,
}

/// What a scene plays with.
#[derive(Debug)]
struct Set {
    url: String,
    /// In front of every name, so that nothing real is touched.
    prefix: String,
    /// The shortest TTL the store knows: real times scale with it.
    shortest: Duration,
}

impl Set {
    fn name(&self, of: &str) -> String {
        format!("{}{of}", self.prefix)
    }

    /// A TTL of so many milliseconds, or what the store can do.
    fn ttl(&self, ms: u64) -> Duration {
        Duration::from_millis(ms).max(self.shortest)
    }

    /// Another client of the same store, as another process would be.
    async fn client(&self, who: &str) -> Result<Locks, Failure> {
        Ok(Locks::builder().who(who).connect(&self.url).await?)
    }
}

/// A temporary store for the demo, unless one was named.
#[derive(Debug)]
pub(crate) struct Stand {
    folder: Option<PathBuf>,
}

impl Stand {
    /// Points the settings at a temporary file if they name no store.
    pub(crate) fn prepare(global: &mut Global) -> Result<Self, Failure> {
        if global.store.is_some() {
            return Ok(Self { folder: None });
        }
        let folder = std::env::temp_dir().join(format!("leaseward-demo-{}", std::process::id()));
        fs::create_dir_all(&folder)
            .map_err(|error| Failure::system("cannot make a temporary folder", &error))?;
        global.store = Some(format!("sqlite:{}/locks.db", folder.display()));
        Ok(Self { folder: Some(folder) })
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Carries it out.
pub(crate) async fn run(args: DemoArgs, session: &mut Session) -> Result<Exit, Failure> {
    let capability = session.locks.capability();
    let set = Set {
        url: session.settings.store.reveal().to_owned(),
        prefix: format!("demo:{}:", std::process::id()),
        shortest: *capability.ttl.start(),
    };
    let scenes = match args.name {
        Some(scene) => vec![scene],
        None => Scene::value_variants().to_vec(),
    };
    let printer = session.printer;
    printer.line(&format!("on {}", session.settings.store.shown()))?;
    let mut failed = 0;
    for scene in scenes {
        let held = tokio::select! {
            held = played(scene, &set, printer) => held?,
            signal = session.signals.ending() => return Err(interrupted(signal)),
        };
        failed += usize::from(!held);
    }
    closing(failed, printer)
}

async fn played(scene: Scene, set: &Set, printer: Printer) -> Result<bool, Failure> {
    match scene {
        Scene::Bookings => bookings::play(set, printer).await,
        Scene::Race => race::play(set, printer).await,
        Scene::Crash => crash::play(set, printer).await,
        Scene::Stolen => stolen::play(set, printer).await,
        Scene::Paused => paused::play(set, printer).await,
        Scene::Renewal => renewal::play(set, printer).await,
    }
}

fn closing(failed: usize, printer: Printer) -> Result<Exit, Failure> {
    if failed > 0 {
        return Err(Failure::new(
            Exit::Other,
            format!("{failed} of the scenes did not hold what they claim"),
        )
        .hint("please report this with the store's URL and what was printed"));
    }
    printer.line(&format!("\n{}", printer.out_tone(Tone::Good, "every claim held")))?;
    Ok(Exit::Done)
}
