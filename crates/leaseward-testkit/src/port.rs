//! Ports that are ours until we give them back, also while the server behind them is down.
//!
//! Not the ephemeral ports that binding to 0 would give: while a server is down, a client that tries to reconnect to such
//! a port can be given that very port as its own, connect to itself, and keep the server from coming back.

use std::{
    env,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    net::TcpListener,
    ops::Range,
};

/// Below the ephemeral ports (from 32768 on Linux), and so are the cluster's.
const PORTS: Range<u16> = 10_240..20_000;

/// A Redis Cluster node also listens here, this much above its port.
const BUS: u16 = 10_000;

/// A port of 127.0.0.1 that no other test program of this user takes, nor the cluster bus port that belongs to it.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// Its lock is the reservation; it ends with the process at the latest.
    _reservation: File,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        let user = rustix::process::getuid().as_raw();
        let folder = env::temp_dir().join(format!("leaseward-ports-{user}"));
        fs::create_dir_all(&folder)
            .unwrap_or_else(|error| panic!("`{}` cannot be made: {error}", folder.display()));
        let count = PORTS.len();
        let begin = RandomState::new().hash_one(()) as usize % count;
        let free = (0..count).find_map(|step| {
            let number = PORTS.start + ((begin + step) % count) as u16;
            let reservation = File::create(folder.join(number.to_string())).ok()?;
            reservation.try_lock().ok()?;
            (is_free(number) && is_free(number + BUS))
                .then_some(Self { number, _reservation: reservation })
        });
        free.unwrap_or_else(|| panic!("no free port in {PORTS:?}"))
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
