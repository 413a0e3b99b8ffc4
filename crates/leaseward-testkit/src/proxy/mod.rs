//! A TCP proxy that does to connections what networks do.

mod link;
mod pipe;
mod requests;
mod rules;

use std::{
    net::TcpListener,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::net::{Shutdown, shutdown};

use self::{
    link::{Link, Shared, start_thread},
    rules::{Cut, Rules},
};
use crate::port::Port;

/// A proxy on a port of 127.0.0.1 in front of a server. All its rules can be changed while connections are open; they hold
/// for all connections, those to come included, unless said otherwise. Ends, and cuts all, when dropped.
///
/// Requests are commands of the Redis protocol; of other protocols, TLS among them, the rules that count them know nothing.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    acceptor: Mutex<Option<Acceptor>>,
}

#[derive(Debug)]
struct Acceptor {
    listener: Arc<TcpListener>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Proxy {
    /// A proxy in front of `upstream` (`host:port`), that passes everything on.
    #[must_use]
    pub fn start(upstream: &str) -> Self {
        let shared = Arc::new(Shared::new(upstream));
        let this = Self { port: Port::reserve(), shared, acceptor: Mutex::new(None) };
        this.accept();
        this
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Ends every rule, delivers what is held, accepts connections.
    pub fn pass(&self) {
        {
            let mut rules = self.shared.rules();
            let requests = rules.requests;
            *rules = Rules { requests, ..Rules::default() };
        }
        self.release();
        self.accept();
    }

    /// Delays each direction by this much, without a limit on what is under way; a round trip takes twice as long.
    pub fn delay(&self, each_way: Duration) {
        self.shared.rules().delay = each_way;
    }

    /// A black hole towards the server: what clients send is kept back.
    pub fn hold_to_server(&self) {
        self.shared.rules().hold_to_server = true;
        self.shared.each(|link| link.to_server.hold(true));
    }

    /// A black hole towards the clients: what the server says is kept back.
    pub fn hold_to_client(&self) {
        self.shared.rules().hold_to_client = true;
        self.shared.each(|link| link.to_client.hold(true));
    }

    /// A black hole both ways for the connections that are open; new ones work. A client that gives one up and comes again
    /// has left a request on the way, which [`release`](Self::release) delivers.
    pub fn strand(&self) {
        self.shared.each(|link| {
            link.to_server.hold(true);
            link.to_client.hold(true);
        });
    }

    /// Delivers what is held and holds nothing any more: requests reach the server even if their client has hung up.
    pub fn release(&self) {
        {
            let mut rules = self.shared.rules();
            (rules.hold_to_server, rules.hold_to_client) = (false, false);
        }
        self.shared.each(|link| {
            link.to_server.hold(false);
            link.to_client.hold(false);
        });
    }

    /// How many bytes are on the way to the server, held or delayed.
    #[must_use]
    pub fn held_to_server(&self) -> usize {
        self.shared.links().values().map(|link| link.to_server.waiting()).sum()
    }

    /// How many bytes are on the way to clients, held or delayed.
    #[must_use]
    pub fn held_to_client(&self) -> usize {
        self.shared.links().values().map(|link| link.to_client.waiting()).sum()
    }

    /// From the `requests`-th request on that arrives here, all that the server says is discarded. With 1 the next request
    /// is carried out and its reply lost; with 0 what is said from now on.
    pub fn drop_replies_after(&self, requests: u64) {
        self.shared.rules().deaf_after = Some(requests);
    }

    /// Cuts a connection instead of passing on the `n`-th request from now, counted from 1, and what came with it.
    pub fn cut_at_request(&self, n: u64) {
        self.shared.rules().cut = Some(Cut::Request(n.max(1)));
    }

    /// Cuts a connection instead of passing on the `n`-th chunk that the server sends from now, counted from 1.
    pub fn cut_at_reply_chunk(&self, n: u64) {
        self.shared.rules().cut = Some(Cut::ReplyChunk(n.max(1)));
    }

    /// Cuts a connection behind the next `n` bytes that the server sends, once it has sent as many, or with 0 the first.
    pub fn cut_after_reply_bytes(&self, n: usize) {
        self.shared.rules().cut = Some(Cut::ReplyBytes(n));
    }

    /// Cuts all connections now; what they hold is lost.
    pub fn cut(&self) {
        self.shared.each(Link::cut);
    }

    /// Refuses new connections; the open ones stay.
    pub fn refuse(&self) {
        let acceptor = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Acceptor { listener, stop, thread }) = acceptor {
            stop.store(true, Ordering::Release);
            // Not only closed: a process that is being started has it too, until it runs its own program, and a port on which
            // somebody listens cannot be had again. The acceptor hears of it.
            shutdown(&*listener, Shutdown::Both).expect("it listens");
            thread.join().expect("the acceptor does not panic");
        }
    }

    /// Accepts connections again.
    pub fn accept(&self) {
        self.accept_at("127.0.0.1");
    }

    /// Accepts connections again, at another address of this machine, on the same port.
    pub fn accept_at(&self, host: &str) {
        let mut acceptor = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        if acceptor.is_some() {
            return;
        }
        let listener = TcpListener::bind((host, self.port()))
            .unwrap_or_else(|error| panic!("port {} was taken: {error}", self.port()));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(&self.shared), Arc::clone(&stop));
        let listener = Arc::new(listener);
        let incoming = Arc::clone(&listener);
        let thread = start_thread("proxy-accept", move || {
            for client in incoming.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(client) = client {
                    shared.connect(client);
                }
            }
        });
        *acceptor = Some(Acceptor { listener, stop, thread });
    }

    /// How many connections there are, those that a client has given up included while something of theirs is held.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.links().len()
    }

    /// How many requests have been passed on since the start.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.rules().requests
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
        self.cut();
    }
}
