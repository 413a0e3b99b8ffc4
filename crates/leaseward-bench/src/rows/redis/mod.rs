//! The Redis store: beside raw requests, the common client, and the lock libraries people run today.

mod distance;
mod leases;
pub(super) mod pairs;
mod record;
mod start;
mod strong;
pub(super) mod turns;

pub(crate) use leases::HOLD;
pub(crate) use pairs::PAIRS;
pub(crate) use record::Record;
pub(crate) use start::NOW;
pub(crate) use turns::TURNS;

use crate::{redis::server::Server, row::Row};

pub(crate) fn rows() -> Vec<Row> {
    let server = Server::default();
    let mut rows = pairs::rows(&server);
    rows.extend(turns::rows(&server));
    rows.extend(leases::rows(&server));
    rows.extend(distance::rows(&server));
    rows.extend(strong::rows());
    rows.extend(start::rows(&server));
    rows
}

/// The arguments of a part, by their places.
pub(super) fn argument<T: std::str::FromStr>(args: &[String], at: usize) -> Result<T, String> {
    let word = args.get(at).ok_or_else(|| format!("argument {at} is missing"))?;
    word.parse().map_err(|_| format!("argument {at} is `{word}`"))
}
