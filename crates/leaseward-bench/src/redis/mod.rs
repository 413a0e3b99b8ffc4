//! What experiments on Redis share: the server and what it spent, and those who are measured.

pub(crate) mod clients;
pub(crate) mod peers;
pub(crate) mod queue;
pub(crate) mod raw;
pub(crate) mod raw_quorum;
pub(crate) mod server;
