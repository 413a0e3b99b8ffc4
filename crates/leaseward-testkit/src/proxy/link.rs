//! The connections of a proxy. Each has four threads, that read or write one side: a thread that waits by itself can be
//! exact to some microseconds, and tests have few connections.

use std::{
    collections::HashMap,
    io::Read,
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use super::{
    pipe::{Piece, Pipe},
    requests::Requests,
    rules::{Rules, Way},
};

/// What all threads of a proxy know.
#[derive(Debug)]
pub(super) struct Shared {
    upstream: String,
    rules: Mutex<Rules>,
    links: Mutex<HashMap<u64, Arc<Link>>>,
    next_id: AtomicU64,
}

/// A connection of a client, and ours to the server for it.
#[derive(Debug)]
pub(super) struct Link {
    id: u64,
    client: TcpStream,
    server: TcpStream,
    pub(super) to_server: Pipe,
    pub(super) to_client: Pipe,
    /// Directions that have not ended.
    open: AtomicUsize,
}

impl Link {
    fn pipe(&self, way: Way) -> &Pipe {
        match way {
            Way::ToServer => &self.to_server,
            Way::ToClient => &self.to_client,
        }
    }

    /// Where bytes on this way come from, and where they go.
    fn ends(&self, way: Way) -> (&TcpStream, &TcpStream) {
        match way {
            Way::ToServer => (&self.client, &self.server),
            Way::ToClient => (&self.server, &self.client),
        }
    }

    /// Ends it at once; what it holds is lost.
    pub(super) fn cut(&self) {
        self.to_server.close();
        self.to_client.close();
        // Fails on a side that has hung up already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Shared {
    pub(super) fn new(upstream: &str) -> Self {
        Self {
            upstream: upstream.into(),
            rules: Mutex::default(),
            links: Mutex::default(),
            next_id: AtomicU64::new(0),
        }
    }

    pub(super) fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn links(&self) -> MutexGuard<'_, HashMap<u64, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn each(&self, act: impl Fn(&Link)) {
        self.links().values().for_each(|link| act(link));
    }

    /// Connects a client to the server; hangs up if the server is not there.
    pub(super) fn connect(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(&self.upstream) else { return };
        let quick = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
        if quick.is_err() {
            return;
        }
        let link = Arc::new(Link {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            client,
            server,
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            open: AtomicUsize::new(2),
        });
        {
            // A hold that begins now sees this one in the list, or is seen here.
            let mut links = self.links();
            let rules = self.rules();
            link.to_server.hold(rules.hold_to_server);
            link.to_client.hold(rules.hold_to_client);
            links.insert(link.id, Arc::clone(&link));
        }
        for way in [Way::ToServer, Way::ToClient] {
            let (shared, one) = (Arc::clone(self), Arc::clone(&link));
            start_thread("proxy-read", move || shared.read(&one, way));
            let (shared, one) = (Arc::clone(self), Arc::clone(&link));
            start_thread("proxy-write", move || shared.write(&one, way));
        }
    }

    fn read(&self, link: &Link, way: Way) {
        let (mut from, pipe) = (link.ends(way).0, link.pipe(way));
        let (mut buffer, mut requests) = (vec![0; 64 * 1024], Requests::default());
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let arrived = Instant::now();
            let ended = if way == Way::ToServer { requests.feed(&buffer[..length]) } else { 0 };
            let (verdict, due) = {
                let mut rules = self.rules();
                (rules.judge(way, length, ended), arrived + rules.delay)
            };
            if verdict.pass > 0 {
                pipe.push(due, Piece::Bytes(buffer[..verdict.pass].to_vec()));
            }
            if verdict.cut {
                pipe.push(due, Piece::Cut);
            }
        }
        pipe.push(Instant::now() + self.rules().delay, Piece::End);
    }

    fn write(&self, link: &Link, way: Way) {
        if link.pipe(way).drain(link.ends(way).1) {
            link.cut();
        }
        if link.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.links().remove(&link.id);
        }
    }
}

pub(super) fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new().name(name.into()).spawn(run).expect("a thread starts")
}
