//! What the server says about itself.

use super::{
    answers::{column, unexpected},
    lines::Lines,
    schema,
};
use crate::{Error, ErrorKind};

/// The oldest that has all that the functions use.
const OLDEST: i32 = 120_000;

/// What a server is, as far as leases depend on it.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) version: i32,
    /// Whether commits reach the disk.
    pub(super) is_durable: bool,
    /// Standbys that follow it now.
    pub(super) standbys: i64,
    /// Whether a commit waits for one of them.
    pub(super) is_synchronous: bool,
    /// What time it is there.
    pub(super) clock_us: i64,
    is_standby: bool,
    encoding: String,
}

const SQL: &str = "SELECT current_setting('server_version_num')::int, \
     current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on', \
     (SELECT count(*) FROM pg_stat_replication), \
     current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') <> 'local', \
     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \
     pg_is_in_recovery(), current_setting('server_encoding')";

impl Probe {
    pub(super) async fn ask(lines: &Lines) -> Result<Self, Error> {
        let rows = lines.query(SQL, &[]).await?;
        let row = rows.first().ok_or_else(unexpected)?;
        Ok(Self {
            version: column(row, 0)?,
            is_durable: column(row, 1)?,
            standbys: column(row, 2)?,
            is_synchronous: column(row, 3)?,
            clock_us: column(row, 4)?,
            is_standby: column(row, 5)?,
            encoding: column(row, 6)?,
        })
    }

    /// Fails for a server on which leases cannot be kept.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.version < OLDEST {
            let message = format!("PostgreSQL {} is too old", self.version_text());
            return Err(
                Error::new(ErrorKind::Unsupported, message).hint("version 12 or newer is needed")
            );
        }
        if self.is_standby {
            return Err(schema::standby());
        }
        if self.encoding != "UTF8" {
            return Err(schema::other_encoding(&self.encoding));
        }
        Ok(())
    }

    pub(super) fn version_text(&self) -> String {
        format!("{}.{}", self.version / 10_000, self.version % 10_000)
    }
}
