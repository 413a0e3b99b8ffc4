//! `leaseward release`: gives back a lease kept by a handle.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use leaseward::{Error, ErrorKind, Handle, Locks, Release};

use crate::{exit::Exit, failure::Failure, handle, session::Session};

/// Give back the lease of a handle
///
/// Releases exactly the lease of that handle, never one that somebody else has taken since. The handle file is removed.
/// Exits with 76 if the lease had ended before.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct ReleaseArgs {
    /// The file that `acquire` wrote, or `-` for stdin
    #[arg(long, value_name = "FILE")]
    handle: PathBuf,
}

const AFTER: &str = "\
Examples:
    leaseward release --handle deploy.lock
    trap 'leaseward release --handle deploy.lock' EXIT";

/// Carries it out.
pub(crate) async fn run(args: ReleaseArgs, session: &mut Session) -> Result<Exit, Failure> {
    let handle = handle::read(&args.handle)?;
    let locks = session.locks.clone();
    let released = session.answer(given_back(&locks, &handle)).await?;
    if args.handle != Path::new("-") {
        let _ = fs::remove_file(&args.handle);
    }
    match released {
        Release::Released => Ok(Exit::Done),
        Release::AlreadyExpired => Err(Failure::new(
            Exit::Lost,
            "the lease had ended before it was released",
        )
        .hint(
            "it took longer than its TTL: renew it on the way, or acquire with a longer `--ttl`",
        )),
    }
}

/// A lease has to be taken over to be given back; one that has ended cannot be.
async fn given_back(locks: &Locks, handle: &Handle) -> Result<Release, Error> {
    match locks.attach(handle).await {
        Ok(guard) => guard.release().await,
        Err(error) if error.kind() == ErrorKind::Lost => Ok(Release::AlreadyExpired),
        Err(error) => Err(error),
    }
}
