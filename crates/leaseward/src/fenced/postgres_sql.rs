//! SQL that both PostgreSQL drivers send.

use super::StaleFence;

/// A statement that fails, and says in the server's log why.
pub(super) fn poison(stale: StaleFence) -> String {
    format!("DO $$BEGIN RAISE EXCEPTION USING ERRCODE = 'LW412', MESSAGE = '{stale}'; END$$")
}
