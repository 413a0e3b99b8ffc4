//! The bounds that are explored, and what each is about.

use leaseward_model::redlock::{Bounds, ClientBounds, Lease, Network};

/// As long as a node remembers what its clock has passed; a tick.
const ALLOWANCE_US: i64 = 600_000_000;

/// A client with as little to do as possible.
pub(crate) fn one_ask() -> ClientBounds {
    ClientBounds { asks: 1, ..ClientBounds::default() }
}

/// For fences: leases end whenever they like, requests overtake each other. One client asks for two fences, the other's
/// clock reads the second of them.
pub(crate) fn fences() -> Bounds {
    Bounds {
        nodes: 3,
        clients: vec![
            ClientBounds { block: 2, ..one_ask() },
            ClientBounds { offset_us: 1, ..one_ask() },
        ],
        ticks: 0,
        lease: Lease::AnyTime,
        network: Network::Wild(0),
        in_flight: 2,
        cuts: 0,
        restarts: 0,
        snapshots: false,
        hears_releases: false,
    }
}

/// Each may ask twice.
pub(crate) fn fences_asked_again() -> Bounds {
    with_asks(fences(), 2)
}

/// Two clients read the same time.
pub(crate) fn fences_of_one_moment() -> Bounds {
    Bounds { clients: vec![one_ask(), one_ask()], ..fences() }
}

/// A node's clock passes what it granted, and it forgets; one client is as far behind.
pub(crate) fn fences_forgotten() -> Bounds {
    let behind = ClientBounds { offset_us: -ALLOWANCE_US, ..one_ask() };
    Bounds { clients: vec![one_ask(), behind], ticks: 1, ..fences() }
}

/// A node loses its memory. One client's clock is ahead of the nodes' by as much as may be, the other one's behind by as
/// much as goes unnoticed.
pub(crate) fn fences_lost() -> Bounds {
    let skew_us = 1_000_000;
    let ahead = ClientBounds { offset_us: skew_us, ..one_ask() };
    let behind = ClientBounds { offset_us: skew_us - ALLOWANCE_US, ..one_ask() };
    Bounds { clients: vec![ahead, behind], ticks: 1, restarts: 1, ..fences() }
}

/// The same with the last client's clock a little further behind, so that a ballot which should have been refused is below
/// the others, and none of them.
pub(crate) fn further_behind(mut bounds: Bounds) -> Bounds {
    if let Some(last) = bounds.clients.last_mut() {
        last.offset_us -= 10;
    }
    bounds
}

/// A lease is put where it was not, perhaps long after it ended; then its client takes another.
pub(crate) fn fences_put_back() -> Bounds {
    let puts = ClientBounds { acquisitions: 2, renewals: 1, ..one_ask() };
    Bounds { clients: vec![puts, rival()], in_flight: 1, ..fences() }
}

/// A node finds a snapshot that is older than its last votes, and clients do not know about it.
pub(crate) fn fences_of_an_old_snapshot() -> Bounds {
    let mut bounds = Bounds { snapshots: true, ..fences_lost() };
    for client in &mut bounds.clients {
        client.knows_floors = false;
    }
    bounds
}

/// One whose ballots are above what a client with the right clock proposes, and proposes again.
pub(crate) fn rival() -> ClientBounds {
    ClientBounds { offset_us: 10, ..one_ask() }
}

/// For exclusion: leases end by time, connections break.
pub(crate) fn holders() -> Bounds {
    Bounds {
        clients: vec![one_ask(), rival()],
        ticks: 2,
        lease: Lease::Ticks(1),
        network: Network::Connections,
        cuts: 1,
        ..fences()
    }
}

/// A node loses its memory.
pub(crate) fn holders_and_a_forgetful_node() -> Bounds {
    Bounds { restarts: 1, cuts: 0, ..holders() }
}

/// One holder renews.
pub(crate) fn holders_that_renew() -> Bounds {
    let renews = ClientBounds { renewals: 1, ..one_ask() };
    let clients = vec![renews, rival()];
    Bounds { clients, ticks: 3, lease: Lease::Ticks(2), cuts: 0, ..holders() }
}

/// One holder asks for what it holds.
pub(crate) fn holders_that_ask() -> Bounds {
    let repeats = ClientBounds { repeats: 1, ..one_ask() };
    let clients = vec![repeats, rival()];
    Bounds { clients, ticks: 1, lease: Lease::Ticks(2), cuts: 0, ..holders() }
}

/// One client asks twice with one token.
pub(crate) fn holders_that_asked_twice() -> Bounds {
    let again = ClientBounds { asks: 2, ..one_ask() };
    Bounds { clients: vec![again, rival()], cuts: 0, ..holders() }
}

/// One client takes two leases, one after the other.
pub(crate) fn holders_that_come_again() -> Bounds {
    let twice = ClientBounds { acquisitions: 2, ..one_ask() };
    Bounds { clients: vec![twice, rival()], ticks: 1, cuts: 0, ..holders() }
}

/// One client asks twice with one token, and time stands still.
pub(crate) fn holders_of_one_moment() -> Bounds {
    Bounds { ticks: 0, ..holders_that_asked_twice() }
}

/// The same with so many asks for each lease.
pub(crate) fn with_asks(mut bounds: Bounds, asks: u8) -> Bounds {
    for client in &mut bounds.clients {
        client.asks = asks;
    }
    bounds
}

/// The same with so many leases for each client.
pub(crate) fn with_leases(mut bounds: Bounds, acquisitions: u8) -> Bounds {
    for client in &mut bounds.clients {
        client.acquisitions = acquisitions;
    }
    bounds
}
