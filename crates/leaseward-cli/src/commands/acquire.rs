//! `leaseward acquire`: a lease kept between two commands.

use std::path::PathBuf;

use clap::Args;
use leaseward::Handle;

use crate::{
    claim::ClaimArgs,
    exit::Exit,
    failure::Failure,
    handle::Blank,
    hold::{self, Hold},
    session::Session,
};

/// Take a lock and keep it after this command ended
///
/// For scripts and CI steps that cannot be wrapped by `leaseward run`. Prints a handle, one line of JSON with `name`,
/// `token`, `fence` and `ttl_ms`, or writes it to a file that only you can read. Nobody renews the lease: it ends after
/// its TTL unless `leaseward renew` is called in time. The handle is a secret; whoever has it can release the lease.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    claim: ClaimArgs,

    /// Write the handle to this file instead of stdout; refused if it holds something already
    #[arg(long, value_name = "FILE")]
    handle: Option<PathBuf>,

    /// What to lock
    name: String,
}

const AFTER: &str = "\
Examples:
  A lock over several steps of a CI job:
    leaseward acquire deploy --ttl 10m --wait 30m --handle deploy.lock
    ./build.sh && leaseward renew --handle deploy.lock && ./deploy.sh
    leaseward release --handle deploy.lock

  In a variable, for a shell script:
    lock=$(leaseward acquire report --ttl 5m --no-wait) || exit
    ./report.sh --fence \"$(echo \"$lock\" | jq .fence)\"
    echo \"$lock\" | leaseward release --handle -";

/// Carries it out.
pub(crate) async fn run(args: AcquireArgs, session: &mut Session) -> Result<Exit, Failure> {
    let claim = args.claim.claim(&[args.name], session)?;
    let blank = args.handle.as_deref().map(Blank::make).transpose()?;
    let held = match hold::obtain(&claim, session).await {
        Ok(held) => held,
        Err(failure) => {
            if let Some(blank) = blank {
                blank.discard();
            }
            return Err(failure);
        }
    };
    let Hold::One(guard) = held else {
        return Err(Failure::usage("`acquire` takes a single name"));
    };
    let handle = guard.detach();
    match written(blank, &handle, session) {
        Ok(()) => Ok(Exit::Done),
        // What could not be told to anybody must not stay locked.
        Err(failure) => {
            if let Ok(guard) = session.locks.attach(&handle).await {
                let _ = guard.release().await;
            }
            Err(failure)
        }
    }
}

fn written(blank: Option<Blank>, handle: &Handle, session: &Session) -> Result<(), Failure> {
    match blank {
        None => session.printer.json(handle),
        Some(mut blank) => blank.fill(handle).map_err(|error| {
            blank.discard();
            Failure::system("cannot write the handle", &error)
        }),
    }
}
