//! What a client has in etcd, or may have, as text: for logs and bug reports.

use std::fmt;

use super::{client::Client, leases::ClassLease, store::Etcd, table::Entry};
use crate::clock::Moment;

/// Keys that are shown; of a hundred thousand nobody reads more.
const SHOWN: usize = 64;

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client();
        let now = client.clock.now();
        let leases = client.leases.all();
        let leases: Vec<_> = leases.iter().map(|lease| ShownLease { lease, now }).collect();
        let mut shown = f.debug_struct("Etcd");
        shown.field("config", &client.link.config).field("leases", &leases);
        keys(client, now, &mut shown);
        shown.finish_non_exhaustive()
    }
}

fn keys(client: &Client, now: Moment, shown: &mut fmt::DebugStruct<'_, '_>) {
    // Whoever has it at this moment may be the one who prints it.
    let Some(table) = client.table.try_lock() else { return };
    let mut keys: Vec<_> = table.all().map(|(key, entry)| ShownKey { key, entry, now }).collect();
    let count = keys.len();
    keys.sort_by_key(|shown| shown.entry.create);
    keys.truncate(SHOWN);
    shown.field("keys", &keys).field("more_keys", &(count - keys.len()));
}

struct ShownLease<'a> {
    lease: &'a ClassLease,
    now: Moment,
}

impl fmt::Debug for ShownLease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("id", &format_args!("{:x}", self.lease.id))
            .field("class", &self.lease.class)
            .field("confirmed_ago", &self.now.since(self.lease.confirmed()))
            .field("is_dead", &self.lease.is_dead())
            .finish_non_exhaustive()
    }
}

/// A key as it is shown: no secret, and times from now on.
struct ShownKey<'a> {
    key: &'a [u8],
    entry: &'a Entry,
    now: Moment,
}

impl fmt::Debug for ShownKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.entry;
        f.debug_struct("Key")
            .field("key", &String::from_utf8_lossy(self.key))
            .field("token", &entry.token.prefix())
            .field("lease", &format_args!("{:x}", entry.lease.id))
            .field("create", &entry.create)
            .field("state", &entry.state)
            .field("ends_in", &entry.expires.since(self.now))
            .field("under_way", &entry.under_way)
            .field("is_doubtful", &entry.is_doubtful)
            .field("late_for", &entry.late_until.map(|until| until.since(self.now)))
            .finish_non_exhaustive()
    }
}
