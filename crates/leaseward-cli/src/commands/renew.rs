//! `leaseward renew`: more time for a lease kept by a handle.

use std::path::PathBuf;

use clap::Args;

use crate::{exit::Exit, failure::Failure, handle, session::Session};

/// Renew the lease of a handle for another TTL
///
/// Exits with 76 if the lease has ended meanwhile; what it protected may belong to somebody else by now.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct RenewArgs {
    /// The file that `acquire` wrote, or `-` for stdin
    #[arg(long, value_name = "FILE")]
    handle: PathBuf,
}

const AFTER: &str = "\
Examples:
    leaseward renew --handle deploy.lock
    leaseward renew --handle - <<< \"$lock\" || { echo 'lost the lock' >&2; exit 1; }";

/// Carries it out.
pub(crate) async fn run(args: RenewArgs, session: &mut Session) -> Result<Exit, Failure> {
    let handle = handle::read(&args.handle)?;
    // Taking over is renewing; detached again, the lease is kept by the same handle.
    let locks = session.locks.clone();
    let _ = session.answer(locks.attach(&handle)).await?.detach();
    Ok(Exit::Done)
}
