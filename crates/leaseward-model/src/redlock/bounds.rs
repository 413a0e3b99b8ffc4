//! How much of the world is explored.

use leaseward::stores::redlock::ballot::ALLOWANCE;

/// What one client is like.
#[derive(Clone, Debug)]
pub struct ClientBounds {
    /// By how much its clock is ahead of the nodes'.
    pub offset_us: i64,
    /// Whether it has heard the nodes' clocks.
    pub knows_clocks: bool,
    /// Whether it proposes above the floors of nodes that lost their memory, rather than be refused by them.
    pub knows_floors: bool,
    /// How many fences it asks for at once.
    pub block: u64,
    /// How many leases it takes, each with a token of its own.
    pub acquisitions: u8,
    /// How often it asks for one of them.
    pub asks: u8,
    /// How often it renews one. Where leases end at any time, how often it is put to all nodes, which is what may come of
    /// a renewal.
    pub renewals: u8,
    /// How often it asks again for what it holds, without hearing what is answered.
    pub repeats: u8,
}

impl Default for ClientBounds {
    fn default() -> Self {
        Self {
            offset_us: 0,
            knows_clocks: false,
            knows_floors: true,
            block: 1,
            acquisitions: 1,
            asks: 2,
            renewals: 0,
            repeats: 0,
        }
    }
}

/// When a lease ends at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Whenever it likes. That stands for releases and for attempts that are taken back, too, which are not sent.
    AnyTime,
    /// So many ticks after it was granted or lengthened there.
    Ticks(u8),
}

impl Lease {
    /// How many ticks it lasts; without end where it is ended by something else.
    pub(crate) fn ttl(self) -> u8 {
        match self {
            Self::AnyTime => u8::MAX,
            Self::Ticks(ttl) => ttl,
        }
    }

    /// How long a node that lost its memory waits: where leases end at any time, one tick is as good as any.
    pub(crate) fn max_ttl(self) -> u8 {
        match self {
            Self::AnyTime => 1,
            Self::Ticks(ttl) => ttl,
        }
    }
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// In order, until the connection breaks.
    Connections,
    /// In any order, and this many of them twice.
    Wild(u8),
}

/// How much of the world is explored.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// How many nodes.
    pub nodes: usize,
    /// The clients.
    pub clients: Vec<ClientBounds>,
    /// How many ticks pass.
    pub ticks: u8,
    /// When leases end.
    pub lease: Lease,
    /// How requests travel.
    pub network: Network,
    /// How many requests of one client are under way to one node; those before them are lost.
    pub in_flight: usize,
    /// How often connections break with requests under way, other than by a restart.
    pub cuts: u8,
    /// How often nodes restart without their memory.
    pub restarts: u8,
    /// Whether such a node finds a snapshot rather than nothing: what it remembers of before all this.
    pub snapshots: bool,
    /// Whether clients wait for what comes of a release before they begin anew.
    pub hears_releases: bool,
}

impl Bounds {
    /// The end of the block that all nodes remember in the beginning: too young to be forgotten soon.
    pub(crate) fn earlier(&self) -> Option<u64> {
        self.snapshots.then(|| clock_us(0) + 1)
    }
}

/// A tick, in microseconds: as long as a node remembers a ballot that its clock has passed, so that one tick is enough to
/// forget it.
pub(crate) const TICK_US: u64 = ALLOWANCE.as_micros() as u64;

/// The time at tick zero: not near the epoch, where clocks that are behind would have nowhere to go.
const BASE: u64 = 1_000;

/// The nodes' clock.
pub(crate) fn clock_us(now: u8) -> u64 {
    (BASE + u64::from(now)) * TICK_US
}
